// Everything that can be asked of agentd. Owns names and arguments. Must not know conversations.

import { randomBytes } from "node:crypto";

import { type Needs, ask, jobsOf } from "./ask.js";
import type { Way } from "./connection.js";
import { InvalidRequestError, UnknownJobError, UnreachableError } from "./errors.js";
import * as handed from "./handed.js";
import type { Leaving, Options, Send } from "./options.js";
import type {
  AgentRow,
  JobPhase,
  JobRow,
  Line,
  CommandRow,
  ModelRow,
  ModeRow,
  QuestionRow,
  Requests,
  Scope,
  SessionRow,
  StatusLine,
  TurnRow,
  UsageRow,
} from "./protocol.js";
import type { Result } from "./result.js";
import { Session } from "./session.js";
import { Stream } from "./stream.js";
import { Turn } from "./turn.js";
import { type Came, absolute, isObject, seconds } from "./wire.js";

/** Rows that one page of a list may have. */
const MOST_ROWS = 500;

/** How to connect. */
export interface HarnessOptions {
  /** By default `$AGENTD_SOCKET`, that of the running daemon, or the system's place for it. */
  socket?: string;
  /** May a turn run once without a daemon, by `agentctl stdio`? By default it may. */
  fallback?: boolean;
  /** What the daemon's log and `agentctl status` call this program. */
  name?: string;
  /** The program for turns without a daemon; by default the one on `PATH`. */
  agentctl?: string;
  /** Silence before a sign of life is asked for, and again until it must be there; 15 s by default. */
  patienceMs?: number;
}

/** Requests that have one answer each. */
export type Askable = Exclude<keyof Requests, "send" | "subscribe">;
/** What a request says besides its `type`. */
export type FieldsOf<Name extends keyof Requests> = Omit<Requests[Name]["request"], "type" | "id">;

/** Which job or session is meant: just one of both. */
export type Target = { job: string; session?: undefined } | { session: string; job?: undefined };

export class Harness {
  readonly #way: Way;

  constructor(options: HarnessOptions = {}) {
    this.#way = {
      socket: options.socket,
      fallback: options.fallback ?? true,
      name: options.name ?? "typescript",
      agentctl: options.agentctl,
      patienceMs: options.patienceMs ?? 15_000,
    };
  }

  /** Runs one turn and gives its result. Rejects for one that failed. */
  async runSession(prompt: string | Send, options: Options = {}): Promise<Result> {
    return new Turn(this.#way, whole(prompt, options), false).finish();
  }

  /** `runSession` for a whole send. */
  dispatch(send: Send): Promise<Result> {
    return this.runSession(send);
  }

  /** One turn, line by line. Nothing is sent before the first line is asked for. */
  stream(prompt: string | Send, options: Options = {}): Stream {
    return new Stream(new Turn(this.#way, whole(prompt, options), true));
  }

  /**
   * Hands in up to 256 turns, all or none, and gives their jobs. Needs a daemon: it keeps them, over
   * restarts, until they are collected. Left by its signal before the jobs are known, it cancels them.
   */
  dispatchParallel(sends: Iterable<Send>, { signal }: Leaving = {}): Promise<string[]> {
    return handed.dispatchParallel({ ...this.#way, signal }, sends);
  }

  /**
   * The results of jobs, in the order asked; those that failed have `error`. It goes on over a restart
   * of the daemon.
   *
   * Rejects with `StillPendingError` after `timeoutMs`; 0 looks. Without it, with `UnreachableError`
   * when some aren't done and there is no daemon to run them.
   */
  collect(jobs: Iterable<string>, { timeoutMs, signal }: Leaving & { timeoutMs?: number } = {}): Promise<Result[]> {
    return handed.collect({ ...this.#way, signal }, jobs, timeoutMs);
  }

  /** The results of up to 256 jobs, each as soon as it is there. */
  asCompleted(
    jobs: Iterable<string>,
    { timeoutMs, signal }: Leaving & { timeoutMs?: number } = {},
  ): AsyncGenerator<Result> {
    return handed.asCompleted({ ...this.#way, signal }, jobs, timeoutMs);
  }

  /**
   * A conversation. One without a name is made at once, and closed at the end of the block of an
   * `await using`, unless `close` says otherwise.
   */
  async session(
    name?: string,
    { close, ...made }: Pick<Options, "agent" | "cwd" | "toolsets"> & { close?: boolean } = {},
  ): Promise<Session> {
    const closes = close ?? name === undefined;
    if (name !== undefined) return new Session(this, name, made, closes);
    const session = `typescript-${randomBytes(8).toString("hex")}`;
    const cwd = made.cwd == null ? undefined : absolute("cwd", made.cwd);
    await this.request("session.new", { ...made, session, cwd });
    return new Session(this, session, {}, closes);
  }

  /** Which jobs there are, newest first: 50, unless `limit` says otherwise. `label` is `key` or `key=value`. */
  jobs({
    sinceMs,
    limit = 50,
    ...asked
  }: {
    session?: string;
    agent?: string;
    state?: JobPhase;
    label?: string;
    parent?: string;
    sinceMs?: number;
    limit?: number;
  } = {}): Promise<JobRow[]> {
    return this.#rows("jobs", { ...asked, since: inSeconds("sinceMs", sinceMs) }, "jobs", "before", limit);
  }

  /** How a job is; `collect` has its result. Rejects with `UnknownJobError`. */
  async job(job: string): Promise<JobRow> {
    const number = /^j(\d{1,18})$/.exec(job)?.[1];
    if (number === undefined) {
      throw new InvalidRequestError(`"${job}" is no job: expected \`j\` and a number, as "j41"`);
    }
    // A list goes from the newest on.
    const { jobs } = await this.request("jobs", { before: `j${BigInt(number) + 1n}`, limit: 1 });
    const [found] = listOf<JobRow>("jobs", jobs);
    if (found?.job === job) return found;
    throw new UnknownJobError(`there is no job "${job}"`, { hint: "`jobs()` lists those that are kept" });
  }

  /** Which sessions there are, in the order they were made; `idleForMs`: those with nothing to do for so long. */
  sessions({ agent, idleForMs }: { agent?: string; idleForMs?: number } = {}): Promise<SessionRow[]> {
    const asked = { agent, idle_for: inSeconds("idleForMs", idleForMs) };
    return this.#rows("session.list", asked, "sessions", "after");
  }

  /** What was said in a session, oldest first; at most `limit` turns. */
  history(session: string, { limit }: { limit?: number } = {}): Promise<TurnRow[]> {
    return this.#rows("session.history", { session }, "turns", "after", limit);
  }

  /** Every agent that is known or was looked for; it may take seconds, as programs are asked for their versions. */
  async agents(): Promise<AgentRow[]> {
    return listOf("agents", (await this.request("agents")).agents);
  }

  /**
   * Which models an agent has, as it says itself, or that of a session; a process of it is started if
   * none lives. The list is empty where it has none.
   */
  models(of: { agent?: string; session?: string } = {}): Promise<ModelRow[]> {
    return this.#rows("models", of, "models", "after");
  }

  /**
   * Which modes an agent has, its own ways of working, and the one that is in force where that is known;
   * with `session` those of its agent. A process of it is started if none lives.
   */
  async modes(of: { agent?: string; session?: string } = {}): Promise<{ modes: ModeRow[]; mode?: string }> {
    const { modes, mode } = await this.request("models", of);
    return { modes: modes === undefined ? [] : listOf("modes", modes), mode };
  }

  /**
   * Which slash commands an agent has, as it says itself, or that of a session: a prompt that begins
   * with `/` and the name is one. A process of it is started if none lives.
   */
  async commands(of: { agent?: string; session?: string } = {}): Promise<CommandRow[]> {
    return listOf("commands", (await this.request("commands", of)).commands);
  }

  /** What turns that have ended used, newest first; `sinceMs`: accepted no longer ago. */
  usage({ sinceMs }: { sinceMs?: number } = {}): Promise<UsageRow[]> {
    return this.#rows("usage", { since: inSeconds("sinceMs", sinceMs) }, "turns", "before");
  }

  /** What agents ask and nobody has answered. */
  async questions(of: { session?: string } = {}): Promise<QuestionRow[]> {
    return listOf("questions", (await this.#ask("questions", of, "daemon")).questions);
  }

  /**
   * Answers a question, or the one with this `question_id`. By its `kind`: `approve`, one of its options
   * as `choice`, `text` (of a secret, too), or `cancel: true`. With `approve: true` the `scope` is one
   * of its `scopes`, and `once` when it isn't given.
   *
   * Rejects with `AlreadyAnsweredError` when somebody was faster.
   */
  async answer(
    question: string | Pick<QuestionRow, "question_id">,
    said: { approve?: boolean; scope?: Scope; choice?: string; text?: string; cancel?: boolean },
  ): Promise<void> {
    const number = typeof question === "string" ? question : question.question_id;
    await this.#ask("answer", { question_id: number, ...said }, "daemon");
  }

  /**
   * A word to the running turn of a job or a session; gives the job when the agent has taken it.
   * Rejects with `SessionIdleError` when no turn runs.
   */
  async steer(text: string, target: Target): Promise<string> {
    const line = await this.#ask("steer", { text, ...oneOf(target, "to steer") }, "daemon");
    return String(line.job);
  }

  /**
   * Another model, thinking level or mode for the turns of a session that are sent from now on; what
   * isn't named stays, and something has to be.
   */
  async setModel(
    session: string,
    model: string | undefined,
    more: { provider?: string; thinking?: string; mode?: string } = {},
  ): Promise<void> {
    await this.#ask("set_model", { session, model, ...more }, "daemon");
  }

  /**
   * The agent shortens what it remembers of a session, `instructions` say what to keep; gives its
   * summary, if it says one. It asks a model: that may take minutes.
   */
  async compact(session: string, instructions?: string): Promise<string | undefined> {
    const { summary } = await this.#ask("compact", { session, instructions }, "daemon");
    return typeof summary === "string" ? summary : undefined;
  }

  /** Cancels a job, or what runs in a session, with `queued` what waits there, too; gives the jobs. */
  async abort(target: Target & { queued?: boolean }): Promise<string[]> {
    // Without a target the daemon takes the only turn that runs, whosever that is.
    const fields = { ...oneOf(target, "to abort; `stream.abort()` needs neither"), queued: target.queued };
    return jobsOf(await this.#ask("abort", fields, "daemon"), "abort");
  }

  /** How the daemon is: `client/PROTOCOL.md` part 5. */
  async status(): Promise<StatusLine> {
    return (await this.#ask("status", {}, "daemon")) as unknown as StatusLine;
  }

  /**
   * Any request of `client/PROTOCOL.md` part 5, and its one answer. A `send` and a `subscribe` have
   * more: `stream` and `events` are for them.
   */
  async request<Name extends Askable>(
    kind: Name,
    ...fields: object extends FieldsOf<Name> ? [fields?: FieldsOf<Name>] : [fields: FieldsOf<Name>]
  ): Promise<Requests[Name]["answer"]> {
    const instead = Object.hasOwn(SEVERAL_LINES, kind) ? SEVERAL_LINES[kind] : undefined;
    if (instead !== undefined) {
      throw new InvalidRequestError(`\`${kind}\` is answered by several lines`, { hint: `use \`${instead}\`` });
    }
    return (await this.#ask(kind, fields[0] ?? {}, "anybody")) as unknown as Requests[Name]["answer"];
  }

  /**
   * What happens, of all jobs or of a `session` or some `jobs`, without end. With `after`, the `seq` of
   * an event, first what happened since; 0 is the beginning. `epoch` is the store's, as the event
   * `live` says it.
   */
  events({
    signal,
    ...named
  }: { session?: string; jobs?: string[]; after?: number; epoch?: string } & Leaving = {}): AsyncGenerator<Line> {
    return handed.events({ ...this.#way, signal }, named);
  }

  #ask(kind: string, fields: object, needs: Needs): Promise<Came> {
    return ask(this.#way, kind, fields, needs);
  }

  /** What a list has, page by page. */
  async #rows<Row>(kind: Askable, fields: object, rows: string, cursor: string, limit = Infinity): Promise<Row[]> {
    const found: Row[] = [];
    let next: unknown;
    while (found.length < limit) {
      const page = { ...fields, [cursor]: next, limit: Math.min(MOST_ROWS, limit - found.length) };
      const line = await this.#ask(kind, page, "anybody");
      found.push(...listOf<Row>(kind, line[rows]));
      next = line.next;
      if (next === undefined || next === null) break;
    }
    return found;
  }
}

const SEVERAL_LINES: Readonly<Record<string, string>> = { send: "stream", subscribe: "events" };
function whole(prompt: string | Send, options: Options): Send {
  return typeof prompt === "string" ? { ...options, prompt } : { ...options, ...prompt };
}

function inSeconds(name: string, ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : seconds(name, ms);
}

function oneOf(target: Target, what: string): Target {
  const { job, session } = target;
  if ((job === undefined) === (session === undefined)) {
    throw new InvalidRequestError(`expected either \`job\` or \`session\` ${what}`);
  }
  return job === undefined ? { session: String(session) } : { job };
}

/** Rows that make no sense changed nothing. */
function listOf<Row>(kind: string, rows: unknown): Row[] {
  if (Array.isArray(rows) && rows.every(isObject)) return rows as Row[];
  throw new UnreachableError(`the daemon's answer to \`${kind}\` can't be read`);
}

/** Runs one turn and gives its result: `new Harness().runSession`. */
export function runSession(prompt: string | Send, options: Options = {}): Promise<Result> {
  return new Harness().runSession(prompt, options);
}

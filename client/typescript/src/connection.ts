// One conversation, and who is at its other end: the daemon, or a run without it.
//
// Owns connecting with retries, the moment of falling back, request numbers, and how long silence may
// last. Every choice is `decide`'s. Must not know what a request means.

import { Channel } from "./channel.js";
import { Endpoint, NotConnected, START } from "./endpoint.js";
import { DrainingError, UnreachableError } from "./errors.js";
import { ofLine } from "./refusals.js";
import { type Decision, type Fact, type Lock, decide, isComing } from "./fallback.js";
import { Program, onPath } from "./program.js";
import type { HelloLine } from "./protocol.js";
import { VERSION } from "./version.js";
import { TimedOut, sleep } from "./waiting.js";
import { BadLine, type Came, Decoder, encode, words } from "./wire.js";

const FIRST_PAUSE_MS = 10;
const LONGEST_PAUSE_MS = 200;
/** One look at a silent daemon; in between the lock is read again. */
const LOOK_MS = 250;
/** A run without the daemon may have to migrate the store before it answers. */
const START_PATIENCE_MS = 30_000;
/** It stops its worker before it leaves. */
const LEAVE_PATIENCE_MS = 20_000;
/** A daemon that is up takes what is written at once. */
const WRITE_PATIENCE_MS = 60_000;
/** The number of a `ping`, which is nobody's request. */
const SIGN_OF_LIFE = -1;

/** The conversation ended, or nothing sensible came any more. */
export class Lost extends Error {}

/** How to connect. */
export interface Way {
  socket: string | undefined;
  fallback: boolean;
  name: string;
  agentctl: string | undefined;
  /** Silence before a sign of life is asked for, and again until it must be there. */
  patienceMs: number;
  /** Is somebody here who answers questions? */
  answers?: boolean;
  /** Ends every wait with its reason. */
  signal?: AbortSignal | undefined;
}

/** An open conversation. */
export class Connection {
  readonly #way: Way;
  readonly #channel: Channel;
  readonly #program: Program | undefined;
  readonly #decoder = new Decoder();
  #lines: Came[] = [];
  #last = 0;
  /** What the other side said of itself. */
  hello: Partial<HelloLine> = {};

  constructor(way: Way, channel: Channel, program?: Program) {
    this.#way = way;
    this.#channel = channel;
    this.#program = program;
  }

  /** Is this a run without the daemon? */
  get isAlone(): boolean {
    return this.#program !== undefined;
  }

  /** An `id` for a request. Who may be cancelled in the middle of one takes it before. */
  number(): number {
    this.#last += 1;
    return this.#last;
  }

  /** Writes a request. Rejects with `Lost` when part of it may have left. */
  async request(kind: string, fields: object, number: number, patienceMs = WRITE_PATIENCE_MS): Promise<void> {
    const line = encode(kind, number, fields);
    try {
      await this.#channel.write(line, patienceMs);
    } catch (error) {
      throw new Lost(`the connection failed: ${words(error)}`);
    }
  }

  /** The next line. A daemon that is silent for too long is asked for a sign of life. */
  async next(): Promise<Came> {
    const { patienceMs, signal } = this.#way;
    try {
      return await this.#line(patienceMs, signal);
    } catch (error) {
      if (!(error instanceof TimedOut)) throw error;
    }
    await this.request("ping", {}, SIGN_OF_LIFE);
    try {
      return await this.#line(patienceMs, signal);
    } catch (error) {
      if (!(error instanceof TimedOut)) throw error;
      throw new Lost(`the daemon gave no sign of life within ${patienceMs} ms`);
    }
  }

  /** The next line for this request. An error without `id` is for the only one there is. */
  async answer(number: number): Promise<Came> {
    for (;;) {
      const line = await this.next();
      if (line.id === number || (line.id === undefined && line.type === "error")) return line;
    }
  }

  /** The same, whatever the signal says; rejects with `TimedOut` after so long. */
  async soon(number: number, ms: number): Promise<Came> {
    const until = performance.now() + ms;
    for (;;) {
      const line = await this.#line(until - performance.now());
      if (line.id === number || line.id === undefined) return line;
    }
  }

  async #line(ms: number, signal?: AbortSignal): Promise<Came> {
    for (;;) {
      const line = this.#lines.shift();
      if (line) return line;
      try {
        this.#decoder.check();
        const data = await this.#channel.read(ms, signal);
        if (!data) throw new Lost("the connection ended before the answer");
        this.#lines = this.#decoder.push(data);
      } catch (error) {
        if (error instanceof BadLine) throw new Lost(`the daemon sent ${error.message}`);
        if (error instanceof Lost || error instanceof TimedOut || signal?.aborted) throw error;
        throw new Lost(`the connection failed: ${words(error)}`);
      }
    }
  }

  /** The answer to `hello`. Rejects with `NotConnected`; after `hello-silent` it may be asked for again. */
  async greet(ms: number): Promise<void> {
    let line: Came;
    try {
      line = await this.#line(ms, this.#way.signal);
    } catch (error) {
      if (error instanceof TimedOut) throw new NotConnected("hello-silent", "`hello` was not answered");
      if (error instanceof Lost) throw new NotConnected("hello-closed", `no answer to \`hello\`: ${error.message}`);
      throw error;
    }
    if (line.type === "hello" && line.ok && line.protocol === 1) {
      this.hello = line as Partial<HelloLine>;
      return;
    }
    if (line.type === "hello") {
      const theirs = `protocol ${line.protocol} (version ${line.version})`;
      const message = `it speaks ${theirs}, this is protocol 1 (version ${VERSION})`;
      throw new NotConnected("hello-other", message);
    }
    if (line.code === "too-many-connections") throw ofLine(line);
    const said = String(line.error || JSON.stringify(line)).slice(0, 200);
    const fact = line.code === "draining" ? "hello-draining" : "hello-other";
    throw new NotConnected(fact, `\`hello\` was refused: ${said}`);
  }

  /**
   * Ends the conversation. Who runs without the daemon is waited for; what it said on its standard
   * error is given.
   */
  async close(): Promise<string> {
    let said = "";
    if (this.#program) {
      this.#channel.finish();
      await this.#program.ended(LEAVE_PATIENCE_MS);
      said = this.#program.lastWords();
    }
    this.abandon();
    return said;
  }

  #isAbandoned = false;

  /** Leaves at once; what was accepted goes on. */
  abandon(): void {
    if (this.#isAbandoned) return;
    this.#isAbandoned = true;
    this.#channel.close();
    this.#program?.leave();
  }
}

/**
 * Connects, or starts a run without the daemon where that is right and allowed.
 *
 * Rejects with `UnreachableError` or `DrainingError`: nothing happened then.
 */
export async function connect(way: Way): Promise<Connection> {
  const endpoint = Endpoint.find(way.socket);
  const wait = new Wait();
  let pauseMs = FIRST_PAUSE_MS;
  for (;;) {
    try {
      return await open(way, endpoint, wait);
    } catch (error) {
      if (!(error instanceof NotConnected)) throw error;
      const { choice } = seen(way, endpoint, error.fact, wait);
      if (choice === "retry") {
        await sleep(pauseMs * (0.5 + Math.random()), way.signal);
        pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
      } else if (choice === "one-shot") {
        return await oneShot(way, error.message);
      } else if (choice === "refused") {
        throw new DrainingError("the daemon is stopping and takes no new work", { retryable: true });
      } else {
        throw new UnreachableError(error.message, { hint: error.hint });
      }
    }
  }
}

/** The same, for what a run without it can't do. */
export async function connectToDaemon(way: Way, request: string): Promise<Connection> {
  try {
    return await connect({ ...way, fallback: false });
  } catch (error) {
    if (!(error instanceof UnreachableError)) throw error;
    const message = `\`${request}\` needs a daemon: ${error.message}`;
    throw new UnreachableError(message, { hint: error.hint });
  }
}

/** How long somebody waits for a daemon. */
export class Wait {
  readonly #begun = performance.now();
  #coming: number | undefined;

  /** Once the lock said that a daemon comes, that one has patience of its own. */
  waitedMs(lock: Lock): number {
    const now = performance.now();
    if (isComing(lock)) {
      this.#coming = now;
      return now - this.#begun;
    }
    return now - (this.#coming ?? this.#begun);
  }
}

/** What to do about what happened. */
export function seen(way: Way, endpoint: Endpoint, fact: Fact, wait: Wait): Decision {
  const lock = endpoint.lock();
  return decide(fact, lock, wait.waitedMs(lock), way.fallback);
}

async function open(way: Way, endpoint: Endpoint, wait: Wait): Promise<Connection> {
  const connection = new Connection(way, Channel.of(await endpoint.connect(way.signal)));
  try {
    await sayHello(way, connection);
    for (;;) {
      try {
        await connection.greet(LOOK_MS);
        return connection;
      } catch (error) {
        const waits = error instanceof NotConnected && seen(way, endpoint, error.fact, wait).choice === "wait";
        if (!waits) throw error;
      }
    }
  } catch (error) {
    connection.abandon();
    throw error;
  }
}

async function sayHello(way: Way, connection: Connection): Promise<void> {
  const fields = { client: way.name, version: VERSION, protocol: 1, answers: way.answers ?? false };
  try {
    await connection.request("hello", fields, 0);
  } catch (error) {
    // Who left already may have said why: that is read.
    if (!(error instanceof Lost)) throw error;
  }
}

/** A conversation with `agentctl stdio`. Rejects with `UnreachableError`. */
export async function oneShot(way: Way, why: string): Promise<Connection> {
  const program = way.agentctl ?? onPath("agentctl");
  if (program === undefined) {
    const message = `${why}; and to run without the daemon \`agentctl\` is needed, which is not on \`PATH\``;
    throw new UnreachableError(message, { hint: `${START}, or put \`agentctl\` on \`PATH\`` });
  }
  let child: Program;
  try {
    child = await Program.start(program, [...(way.socket ? ["--socket", way.socket] : []), "stdio"]);
  } catch (error) {
    throw new UnreachableError(`${why}; and \`${program}\` can't be started: ${words(error)}`);
  }
  const connection = new Connection(way, child.channel, child);
  try {
    await sayHello(way, connection);
    await connection.greet(START_PATIENCE_MS);
  } catch (error) {
    if (!(error instanceof NotConnected)) {
      connection.abandon();
      throw error;
    }
    const said = (await connection.close()) || error.message;
    throw new UnreachableError(`${why}; and running without it failed: ${said}`);
  }
  return connection;
}

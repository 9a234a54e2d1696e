// One send, from its first byte to its final line.
//
// Owns when an answer means what, and how a turn is aborted. It runs once, whatever becomes of it: a
// daemon that goes away is followed by the next one, which is asked with the same key. Must not know
// how bytes travel.

import { Heard, MOST_LOSSES, follow } from "./again.js";
import { type Connection, Lost, Wait, type Way, connect, oneShot, seen } from "./connection.js";
import { Endpoint } from "./endpoint.js";
import { AgentdError, OutcomeUnknownError } from "./errors.js";
import { ofLine } from "./refusals.js";
import type { Send } from "./options.js";
import type { Line } from "./protocol.js";
import { type Note, Result } from "./result.js";
import { TimedOut } from "./waiting.js";
import { type Came, type Fields, asLine, sendFields } from "./wire.js";

/** How long the end of an aborted turn is waited for. */
export const ABORT_PATIENCE_MS = 5_000;

/** Nothing was accepted: the daemon is on its way out. */
function isDraining(line: Came): boolean {
  return line.code === "draining" && (line.job ?? undefined) === undefined;
}

function isFinal(line: Came): boolean {
  return line.type === "message_end" || line.type === "error";
}

export class Turn {
  readonly #way: Way;
  readonly #fields: Fields;
  readonly #heard = new Heard();
  readonly #left = new AbortController();
  readonly #notes: Note[] = [];
  readonly #signal: AbortSignal | undefined;
  readonly #onSignal = (): void => void this.abort(this.#signal?.reason);
  #connection: Connection | undefined;
  #number: number | undefined;
  #first: Came | undefined;
  #hasBegun = false;
  #losses = 0;
  #failure: { why: unknown } | undefined;
  #aborting: Promise<void> | undefined;
  job: string | undefined;
  session: string | undefined;
  result: Result | undefined;

  constructor(way: Way, send: Send, stream: boolean) {
    this.#fields = { ...sendFields(send), stream };
    const answers = way.answers || this.#fields.on_question === "wait";
    this.#way = { ...way, answers, signal: this.#left.signal };
    this.#signal = send.signal;
  }

  get key(): string {
    return this.#fields.idempotency_key;
  }

  /** The next line before the final one; none after it. Rejects for a turn that failed, and then again. */
  async next(): Promise<Line | undefined> {
    if (!this.#hasBegun && !this.#failure) {
      if (this.#signal?.aborted) this.#onSignal();
      else this.#signal?.addEventListener("abort", this.#onSignal);
    }
    if (this.#failure) {
      await this.#aborting;
      throw this.#failure.why;
    }
    if (this.result) {
      this.result.orThrow();
      return undefined;
    }
    try {
      return await this.#event();
    } catch (why) {
      await this.#aborting;
      this.#failure ??= { why };
      this.#leave();
      throw this.#failure.why;
    } finally {
      if (this.result || this.#failure) this.#signal?.removeEventListener("abort", this.#onSignal);
    }
  }

  async #event(): Promise<Line | undefined> {
    const line = await this.#freshLine();
    if (typeof line.job === "string") this.job = line.job;
    if (typeof line.session === "string") this.session = line.session;
    if (line.type === "note") {
      const { level, code, text } = line as unknown as Note;
      this.#notes.push({ level, code, text });
    }
    if (!isFinal(line)) return asLine(line);
    if (line.type === "error" && (line.job ?? undefined) === undefined) {
      const refusal = ofLine(line);
      if (this.job !== undefined || refusal instanceof OutcomeUnknownError) {
        // It is about the conversation: what was accepted goes on.
        throw this.#unknown(refusal.message, refusal.line);
      }
      throw refusal;
    }
    const result = Result.of(line);
    result.notes.push(...this.#notes);
    this.result = result;
    const connection = this.#connection;
    this.#connection = undefined;
    await connection?.close();
    result.orThrow();
    return undefined;
  }

  /** The next line that wasn't told before, of this conversation or of the one after it. */
  async #freshLine(): Promise<Came> {
    for (;;) {
      try {
        const line = await this.#line();
        if (this.#losses > 0 && isDraining(line)) throw new Lost("the daemon is stopping");
        const fresh = this.#heard.fresh(line);
        if (fresh) return fresh;
      } catch (lost) {
        if (!(lost instanceof Lost)) throw lost;
        if (!(await this.#again())) {
          throw this.#unknown(`${lost.message}, after the request was written: its outcome is unknown`);
        }
      }
    }
  }

  /** Asks the daemon that comes next, if one does. */
  async #again(): Promise<boolean> {
    while (this.#connection && this.#losses < MOST_LOSSES) {
      this.#losses += 1;
      const following = await follow(this.#way, this.#connection);
      this.#leave();
      if (!following) return false;
      this.#heard.again = true;
      try {
        await this.#send(following);
        return true;
      } catch (lost) {
        if (!(lost instanceof Lost)) throw lost;
      }
    }
    return false;
  }

  /** The number is there before the first byte: an abort needs it from then on. */
  async #send(connection: Connection): Promise<number> {
    if (this.#failure) {
      connection.abandon();
      throw this.#failure.why;
    }
    const number = connection.number();
    this.#connection = connection;
    this.#number = number;
    await connection.request("send", this.#fields, number);
    return number;
  }

  #unknown(message: string, line?: Came): OutcomeUnknownError {
    return new OutcomeUnknownError(message, { keys: [this.key], job: this.job, line });
  }

  /** Runs it to its end. */
  async finish(): Promise<Result> {
    while (await this.next());
    if (!this.result) throw new AgentdError("the turn ended without a final line");
    return this.result;
  }

  /**
   * Ends the turn, unless it has ended, and the conversation. A worker that doesn't listen is left to
   * the daemon after a while.
   */
  abort(reason?: unknown): Promise<void> {
    if (!this.result && !this.#failure) {
      const aborted = new AgentdError("the turn was aborted", { hint: "a new stream sends it again", job: this.job });
      this.#failure = { why: reason ?? aborted };
      this.#signal?.removeEventListener("abort", this.#onSignal);
      this.#aborting = this.#stop();
    }
    return this.#aborting ?? Promise.resolve();
  }

  async #stop(): Promise<void> {
    const connection = this.#connection;
    const number = this.#number;
    this.#connection = undefined;
    // Who waits for a line of it leaves first: what comes from now on is read here.
    this.#left.abort(this.#failure?.why);
    if (!connection || number === undefined) return connection?.abandon();
    try {
      // Under the send's own number it means that one, accepted or not. Behind half a send it makes a
      // line that is none, and nothing is accepted.
      const until = performance.now() + ABORT_PATIENCE_MS;
      await connection.request("abort", {}, number, ABORT_PATIENCE_MS);
      while (!isFinal(await connection.soon(number, until - performance.now())));
      await connection.close();
    } catch (error) {
      // It goes on until the daemon finds out: nothing more can be done from here.
      if (!(error instanceof Lost || error instanceof TimedOut)) throw error;
    } finally {
      connection.abandon();
    }
  }

  #leave(): void {
    this.#connection?.abandon();
    this.#connection = undefined;
    this.#number = undefined;
  }

  async #line(): Promise<Came> {
    if (!this.#hasBegun) {
      this.#hasBegun = true;
      await this.#begin();
    }
    const first = this.#first;
    this.#first = undefined;
    if (first) return first;
    if (!this.#connection || this.#number === undefined) throw new Lost("the turn was aborted");
    return this.#connection.answer(this.#number);
  }

  /**
   * Writes it and takes its first line: `accepted` or a refusal. A daemon that answers `draining` has
   * accepted nothing.
   */
  async #begin(): Promise<void> {
    const wait = new Wait();
    let connection = await connect(this.#way);
    for (;;) {
      const line = await connection.answer(await this.#send(connection));
      if (!isDraining(line) || connection.isAlone) {
        this.#first = line;
        return;
      }
      const { choice } = seen(this.#way, Endpoint.find(this.#way.socket), "request-draining", wait);
      if (choice === "retry") {
        this.#leave();
        connection = await connect(this.#way);
      } else if (choice === "one-shot") {
        this.#leave();
        connection = await oneShot(this.#way, "the daemon is stopping");
      } else {
        this.#first = line;
        return;
      }
    }
  }
}

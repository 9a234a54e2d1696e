// A turn, line by line. Owns what of it users see. Must not know conversations.

import type { Line } from "./protocol.js";
import type { Result } from "./result.js";
import type { Turn } from "./turn.js";

/**
 * A turn that is read by `for await (const event of stream)`. Nothing is sent before the first line is
 * asked for. Leaving the loop early, or the block of an `await using`, aborts the turn.
 */
export class Stream implements AsyncIterableIterator<Line> {
  readonly #turn: Turn;
  #before: Promise<unknown> = Promise.resolve();

  /** Made by `harness.stream` and `session.stream`. */
  constructor(turn: Turn) {
    this.#turn = turn;
  }

  /** The job, once it is accepted. */
  get job(): string | undefined {
    return this.#turn.job;
  }

  /** The idempotency key: a send with it attaches to this turn. */
  get key(): string {
    return this.#turn.key;
  }

  /** The result, once all lines were read. */
  get result(): Result | undefined {
    return this.#turn.result;
  }

  /** The next line before the final one. One that is asked for while another is waited for comes after that. */
  next(): Promise<IteratorResult<Line, undefined>> {
    const next = this.#before.then(async (): Promise<IteratorResult<Line, undefined>> => {
      const value = await this.#turn.next();
      return value === undefined ? { done: true, value } : { done: false, value };
    });
    this.#before = next.catch(() => undefined);
    return next;
  }

  /** Who leaves a loop aborts the turn. */
  async return(): Promise<IteratorResult<Line, undefined>> {
    await this.#turn.abort();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /**
   * Only what the agent says, piece by piece, with an empty line between messages. A message that the
   * agent gives up and begins anew was said already: `result` has only the new one.
   */
  async *text(): AsyncGenerator<string, void> {
    let last: number | undefined;
    const replaced = new Set<number>();
    for await (const event of this) {
      if (event.type === "message_start" && typeof event.replaces === "number") replaced.add(event.replaces);
      if (event.type !== "message_delta" || replaced.has(event.message)) continue;
      if (last !== undefined && event.message !== last) yield "\n\n";
      last = event.message;
      yield event.text;
    }
  }

  /** Reads the rest and gives the result. Rejects for a turn that failed. */
  finish(): Promise<Result> {
    return this.#turn.finish();
  }

  /** Ends the turn, and waits until it has. */
  abort(): Promise<void> {
    return this.#turn.abort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#turn.abort();
  }
}

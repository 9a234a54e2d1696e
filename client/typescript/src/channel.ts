// Bytes to and from whoever serves us.
//
// Owns the two streams and what came that nobody has read yet. Must not know lines or requests.

import type { Duplex, Readable, Writable } from "node:stream";

import { TimedOut, Waiter } from "./waiting.js";

/** So much is kept for a reader who doesn't come; the rest waits where it is. */
const MOST_UNREAD = 4 * 1024 * 1024;

export class Channel {
  readonly #from: Readable;
  readonly #to: Writable;
  readonly #reader = new Waiter<void>();
  #unread: Buffer[] = [];
  #length = 0;
  #hasEnded = false;
  #failure: Error | undefined;

  constructor(from: Readable, to: Writable) {
    this.#from = from;
    this.#to = to;
    const ended = (error?: Error): void => {
      this.#hasEnded = true;
      this.#failure ??= error;
      this.#reader.resolve();
    };
    from.on("data", (data: Buffer) => this.#came(data));
    from.on("end", () => ended()).on("close", () => ended());
    for (const stream of new Set([from, to])) stream.on("error", ended);
  }

  static of(both: Duplex): Channel {
    return new Channel(both, both);
  }

  #came(data: Buffer): void {
    this.#unread.push(data);
    this.#length += data.length;
    if (this.#length > MOST_UNREAD) this.#from.pause();
    this.#reader.resolve();
  }

  /** What came, or nothing at the end. Rejects with `TimedOut`, or with the signal's reason; nothing is lost then. */
  async read(ms: number, signal?: AbortSignal): Promise<Buffer | undefined> {
    signal?.throwIfAborted();
    if (this.#unread.length === 0 && !this.#hasEnded) await this.#reader.wait(ms, signal);
    if (this.#unread.length > 0) {
      const all = Buffer.concat(this.#unread, this.#length);
      this.#unread = [];
      this.#length = 0;
      this.#from.resume();
      return all;
    }
    if (this.#failure) throw this.#failure;
    return undefined;
  }

  /** All of it, or an error: `TimedOut` when it isn't taken within so long. */
  async write(data: Buffer, ms: number): Promise<void> {
    if (this.#failure) throw this.#failure;
    const written = new Waiter<void>();
    const done = written.wait(ms);
    this.#to.write(data, (error) => (error ? written.reject(error) : written.resolve()));
    try {
      await done;
    } catch (error) {
      throw error instanceof TimedOut ? new Error(`it wasn't taken within ${ms} ms`) : error;
    }
  }

  /** No more is written. */
  finish(): void {
    this.#to.end();
  }

  /** Neither is read. */
  close(): void {
    this.#from.destroy();
    this.#to.destroy();
  }
}

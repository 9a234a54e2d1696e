// A conversation that broke: the daemon that comes next, and what of a turn was told already.
//
// The same rules as `client/src/again.rs`. Must not know what was asked: whoever comes back asks with
// the key that it holds, so that nothing runs twice, and no run without the daemon ever serves what may
// have been accepted.

import { type Connection, type Way, Wait, connect, seen } from "./connection.js";
import { Endpoint } from "./endpoint.js";
import { AgentdError } from "./errors.js";
import { sleep } from "./waiting.js";
import type { Came } from "./wire.js";

/** Conversations that one request may lose: a daemon that dies of it isn't asked for ever. */
export const MOST_LOSSES = 20;
const FIRST_PAUSE_MS = 10;
const LONGEST_PAUSE_MS = 200;

/**
 * The conversation after one that was lost, with the same store behind it; none when no daemon comes in
 * time, or one that doesn't know what the first one accepted.
 */
export async function follow(way: Way, lost: Connection): Promise<Connection | undefined> {
  // It was the only one who knew.
  if (lost.isAlone) return undefined;
  const alone = { ...way, fallback: false };
  const wait = new Wait();
  const endpoint = Endpoint.find(way.socket);
  let pauseMs = FIRST_PAUSE_MS;
  for (;;) {
    try {
      const connection = await connect(alone);
      if (connection.hello.epoch === lost.hello.epoch) return connection;
      connection.abandon();
      return undefined;
    } catch (error) {
      if (!(error instanceof AgentdError)) throw error;
      // As long as for one that closes before it answers `hello`.
      if (seen(alone, endpoint, "hello-closed", wait).choice !== "retry") return undefined;
    }
    await sleep(pauseMs, way.signal);
    pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
  }
}

/**
 * What of a turn was told, over all conversations: the key asked for again tells it from its
 * beginning.
 */
export class Heard {
  /** Was a conversation lost? From then on what comes may have come before. */
  again = false;
  #seq = 0;
  readonly #told = new Map<string, number>();

  /** What of a line wasn't told before; notes it. */
  fresh(line: Came): Came | undefined {
    const fresh = this.#fresh(line);
    return this.again ? fresh : line;
  }

  #fresh(line: Came): Came | undefined {
    const { type: kind, seq, message } = line;
    if (typeof seq === "number") {
      if (seq <= this.#seq) return undefined;
      this.#seq = seq;
      return line;
    }
    if (typeof message !== "number") return line;
    const key = `${kind} ${message}`;
    if (kind === "message_start") {
      const hasBegun = this.#told.has(key);
      this.#told.set(key, 0);
      return hasBegun ? undefined : line;
    }
    if (kind !== "message_delta" && kind !== "thinking_delta") return line;
    const offset = typeof line.offset === "number" ? line.offset : 0;
    const text = Buffer.from(String(line.text ?? ""));
    const told = this.#told.get(key) ?? 0;
    this.#told.set(key, Math.max(told, offset + text.length));
    const known = told - offset;
    if (known <= 0) return line;
    if (known >= text.length) return undefined;
    return { ...line, offset: told, text: text.toString("utf8", known) };
  }
}

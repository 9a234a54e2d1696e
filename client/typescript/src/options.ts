// What a send may say. Owns names and types; `client/PROTOCOL.md` part 4 has the whole meaning.

import type { Attachment as SentAttachment, SendRequest } from "./protocol.js";

/** A file, by `path`; or content in base64, by `mime` and `data`. */
export type Attachment = Pick<SentAttachment, "path" | "mime" | "data" | "name">;

/** What callers say otherwise, or not at all. */
type Otherwise =
  | "type"
  | "id"
  | "text"
  | "stream"
  | "timeout"
  | "expires"
  | "start_at"
  | "attachments"
  | "native"
  | "job";

/** Everything of a send but its prompt. What is absent is the daemon's choice. */
export interface Options extends Omit<SendRequest, Otherwise> {
  /** Milliseconds that the turn may take, with the start of its process; an hour by default. Then `TurnTimeoutError`. */
  timeoutMs?: number;
  /**
   * Milliseconds that the turn may wait before it begins; an hour by default, a day when it was
   * handed in by `dispatchParallel`. Then `ExpiredError`.
   */
  expiresMs?: number;
  /** Not before this time, as a `Date` or RFC 3339; by default at once. */
  start_at?: Date | string | null;
  /** Files and pictures, or content in base64; at most 16. */
  attachments?: Attachment[];
  /** Another name of `toolsets`. */
  tools?: string[];
  /** Who is told when the job has ended; its endpoint is added by `agentctl webhook add`. */
  callback_url?: string;
  /** Aborts the turn, and waits until it has ended. */
  signal?: AbortSignal;
}

/** A whole send: its options and its prompt. */
export interface Send extends Options {
  prompt: string;
}

/** For what can be left before it ends; nothing is cancelled by that. */
export interface Leaving {
  signal?: AbortSignal;
}

// Requests as bytes and bytes as lines.
//
// Owns encoding, framing and what a send of this package always says. Must not know where bytes come
// from or go to.

import { randomBytes } from "node:crypto";
import { resolve } from "node:path";

import { FrameTooLongError, InvalidRequestError } from "./errors.js";
import type { Send } from "./options.js";
import { SEND_FIELDS } from "./protocol.js";
import type { ErrorLine, Line, MessageEndLine } from "./protocol.js";

/** Longest line that a daemon takes. */
export const MAX_LINE_IN = 16 * 1024 * 1024;
/** Twice what a daemon of this version sends: a newer one may send more. */
export const MAX_LINE = 2 * 1024 * 1024;

const NEWLINE = 0x0a;

/** A line as it came: its members may be any, and there may be more than are known here. */
export type Came = Record<string, unknown> & { type?: unknown; id?: unknown };

/** The final line of a turn. */
export type Final = Partial<MessageEndLine> | Partial<ErrorLine>;

/** A line for those who read it: what isn't like its type is a newer daemon's. */
export function asLine(came: Came): Line {
  return came as unknown as Line;
}

/** What came isn't a line of the protocol. */
export class BadLine extends Error {}

/**
 * One request as a line, its newline included.
 *
 * Throws `InvalidRequestError` or `FrameTooLongError` when it can't be written down: nothing
 * happened then.
 */
export function encode(kind: string, id: number, fields: object): Buffer {
  for (const name of ["id", "type"]) {
    if (name in fields) {
      const message = `\`${name}\` can't be given: this package numbers its requests itself`;
      throw new InvalidRequestError(message, { hint: "`labels` are there to find a job by" });
    }
  }
  let text: string;
  try {
    text = JSON.stringify({ type: kind, id, ...fields }, writable);
  } catch (error) {
    throw new InvalidRequestError(`the request can't be written as JSON: ${words(error)}`);
  }
  const line = Buffer.from(`${text}\n`);
  if (line.length - 1 > MAX_LINE_IN) {
    // The daemon would skip it, and say so without our `id`.
    throw new FrameTooLongError(`the request has ${line.length - 1} bytes, the limit is ${MAX_LINE_IN}`, {
      hint: 'give long content by its file, as attachments: [{ path: "plan.pdf" }]',
    });
  }
  return line;
}

/** JavaScript writes `null` for a number that is none, and leaves out what it can't write. */
function writable(name: string, value: unknown): unknown {
  const isHalf = (text: string): boolean => /\p{Surrogate}/u.test(text);
  if (isHalf(name) || (typeof value === "string" && isHalf(value))) {
    throw new Error("a text has half a character of two (a lone surrogate)");
  }
  if (typeof value === "number" && !Number.isFinite(value)) throw new Error(`${value} is no number of JSON`);
  if (typeof value === "function" || typeof value === "symbol") {
    throw new Error(`\`${name}\` is a ${typeof value}`);
  }
  return value;
}

/** Pieces of bytes in, whole lines out. */
export class Decoder {
  #rest: Buffer[] = [];
  #length = 0;
  #bad: BadLine | undefined;

  /** Throws the `BadLine` that came behind good ones. */
  check(): void {
    if (this.#bad) throw this.#bad;
  }

  /** The lines that end in `data`. Throws `BadLine`; behind good lines, at the next `check` or `push`. */
  push(data: Buffer): Came[] {
    this.check();
    const lines: Came[] = [];
    let begin = 0;
    while (!this.#bad) {
      const end = data.indexOf(NEWLINE, begin);
      this.#add(data.subarray(begin, end < 0 ? undefined : end));
      if (end < 0) break;
      begin = end + 1;
      try {
        const line = this.#bad ? undefined : parse(Buffer.concat(this.#rest, this.#length));
        if (line) lines.push(line);
      } catch (error) {
        this.#bad = error as BadLine;
      }
      this.#rest = [];
      this.#length = 0;
    }
    if (lines.length === 0) this.check();
    return lines;
  }

  #add(piece: Buffer): void {
    if (this.#length + piece.length > MAX_LINE) {
      this.#bad = new BadLine(`a line longer than ${MAX_LINE} bytes`);
    } else if (piece.length > 0) {
      this.#rest.push(piece);
      this.#length += piece.length;
    }
  }
}

function parse(raw: Buffer): Came | undefined {
  let line: unknown;
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw);
    if (text.trim() === "") return undefined;
    line = JSON.parse(text);
  } catch (error) {
    throw new BadLine(`a line that isn't JSON: ${words(error)}`);
  }
  if (!isObject(line)) throw new BadLine("a line that isn't an object");
  return line;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What an error says. */
export function words(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const ALIASES: Readonly<Record<string, string>> = {
  prompt: "text",
  message: "text",
  tools: "toolsets",
  callback_url: "callback",
  timeoutMs: "timeout",
  expiresMs: "expires",
};
const RESTRICTING = ["toolsets", "on_question", "fallback_chain"];
const KNOWN: ReadonlySet<string> = new Set(SEND_FIELDS);

/** A send as it is written: with a key, all messages, and `must`. */
export interface Fields extends Record<string, unknown> {
  text: string;
  idempotency_key: string;
}

/**
 * What a send says. `must` names each field that restricts, and each that this package doesn't know:
 * a daemon that doesn't know it either refuses rather than ignores it.
 */
export function sendFields(send: Send): Fields {
  const fields: Record<string, unknown> = {};
  for (const [given, value] of Object.entries(send)) {
    if (value === undefined || value === null || given === "signal") continue;
    refuseOtherNames(given);
    const name = Object.hasOwn(ALIASES, given) ? String(ALIASES[given]) : given;
    if (Object.hasOwn(fields, name)) {
      throw new InvalidRequestError(`\`${given}\` is given twice, once by another of its names`);
    }
    fields[name] = said(given, value);
  }
  if (typeof fields.text !== "string") throw new InvalidRequestError("`prompt` is missing: expected a string");
  const depends = Object.keys(fields).filter((name) => RESTRICTING.includes(name) || !KNOWN.has(name));
  const must = [...new Set([...listed(fields.must), ...depends])];
  if (must.length > 0) fields.must = must;
  fields.idempotency_key ??= randomBytes(16).toString("hex");
  fields.include ??= ["messages"];
  return fields as Fields;
}

function refuseOtherNames(name: string): void {
  if (name === "id" || name === "type") {
    throw new InvalidRequestError(`a send has no \`${name}\`: its job is the number that it gets`, {
      hint: "`labels` are there to find it by, `idempotency_key` to send it once",
    });
  }
  if (name === "timeout" || name === "expires") {
    throw new InvalidRequestError(`\`${name}\` isn't taken: expected \`${name}Ms\`, in milliseconds`);
  }
}

function said(name: string, value: unknown): unknown {
  switch (name) {
    case "timeoutMs":
    case "expiresMs":
      return seconds(name, value);
    case "start_at":
      return value instanceof Date ? value.toISOString() : value;
    case "callback_url":
      return { url: value };
    case "cwd":
    case "cwd_if_new":
      return absolute(name, value);
    case "attachments":
      return listed(value).map((one) =>
        isObject(one) && one.path !== undefined ? { ...one, path: absolute("path", one.path) } : one,
      );
    default:
      return value;
  }
}

function listed(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

/** Milliseconds as the seconds of the protocol. */
export function seconds(name: string, ms: unknown): number {
  if (typeof ms !== "number" || !Number.isFinite(ms) || ms < 0) {
    throw new InvalidRequestError(`\`${name}\` is ${String(ms)}: expected milliseconds, 0 or more`);
  }
  return ms / 1000;
}

/** A path from here as one that the daemon finds, too. */
export function absolute(name: string, path: unknown): string {
  if (typeof path !== "string") throw new InvalidRequestError(`\`${name}\` is ${String(path)}: expected a path`);
  return resolve(path);
}

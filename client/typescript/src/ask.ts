// One request and its one answer.
//
// Owns what a lost answer means: whether something may have changed is in the table of requests. Must
// not know what is asked for.

import { type Connection, Lost, type Way, connect, connectToDaemon } from "./connection.js";
import { AgentdError, OutcomeUnknownError, UnreachableError } from "./errors.js";
import { ofLine } from "./refusals.js";
import { REQUESTS } from "./protocol.js";
import { TimedOut } from "./waiting.js";
import { type Came, isObject } from "./wire.js";

/** Can a run without the daemon answer it, too? */
export type Needs = "daemon" | "anybody";

/** How long is waited for what is taken back. */
const TAKE_BACK_PATIENCE_MS = 5_000;

/** May something have happened? One that isn't known here may do anything. */
function changes(kind: string): boolean {
  return !Object.hasOwn(REQUESTS, kind) || REQUESTS[kind as keyof typeof REQUESTS].changes;
}

/** On a conversation of its own. A field that is absent or `null` isn't said. */
export async function ask(way: Way, kind: string, fields: object, needs: Needs): Promise<Came> {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  const connection = await (needs === "daemon" ? connectToDaemon(way, kind) : connect(way));
  let line: Came;
  try {
    line = await askOn(connection, kind, Object.fromEntries(given));
  } catch (error) {
    connection.abandon();
    throw error;
  }
  await connection.close();
  return line;
}

/** On an open conversation. */
export async function askOn(
  connection: Connection,
  kind: string,
  fields: object,
  keys: string[] = [],
  number = connection.number(),
): Promise<Came> {
  let line: Came;
  try {
    await connection.request(kind, fields, number);
    line = await connection.answer(number);
  } catch (lost) {
    if (!(lost instanceof Lost)) throw lost;
    if (!changes(kind)) throw new UnreachableError(lost.message);
    const message = `${lost.message}, after the request was written: its outcome is unknown`;
    throw new OutcomeUnknownError(message, { keys });
  }
  if (line.type !== "error") return line;
  const error = ofLine(line);
  if (error instanceof OutcomeUnknownError) {
    if (!changes(kind)) throw new UnreachableError(error.message, { line });
    error.keys = keys;
  }
  throw error;
}

/** The jobs that an answer names. */
export function jobsOf(line: Came, kind: "dispatch" | "abort", keys: string[] = []): string[] {
  const { jobs } = line;
  const names = (Array.isArray(jobs) ? jobs : [undefined]).map((one) => (isObject(one) ? one.job : one));
  if (names.every((name) => typeof name === "string")) return names;
  throw new OutcomeUnknownError(`the daemon's answer to \`${kind}\` names no jobs`, { keys, line });
}

/** Cancels the jobs of a `dispatch` whose caller has left, as far as that can be done soon. */
export async function takeBack(connection: Connection, number: number): Promise<void> {
  const until = performance.now() + TAKE_BACK_PATIENCE_MS;
  const soon = (number: number): Promise<Came> => connection.soon(number, until - performance.now());
  try {
    // Behind half a request it makes a line that is none: its error comes without `id`.
    await connection.request("ping", {}, -1, TAKE_BACK_PATIENCE_MS);
    const line = await soon(number);
    for (const job of line.type === "dispatch" ? jobsOf(line, "dispatch") : []) {
      const number = connection.number();
      await connection.request("abort", { job }, number, TAKE_BACK_PATIENCE_MS);
      await soon(number);
    }
  } catch (error) {
    // They go on: nothing more can be done from here.
    if (!(error instanceof Lost || error instanceof TimedOut || error instanceof AgentdError)) throw error;
  } finally {
    connection.abandon();
  }
}

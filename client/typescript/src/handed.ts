// Turns that were handed in, their results, and what happens meanwhile.
//
// Owns that all of them are handed in or none, and the order of results. Must not know how a daemon
// that went is waited for.

import { MOST_LOSSES, follow } from "./again.js";
import { askOn, jobsOf, takeBack } from "./ask.js";
import { COLLECT_AT_ONCE, Collector } from "./collector.js";
import { Lost, type Way, connectToDaemon } from "./connection.js";
import { OutcomeUnknownError, StillPendingError, UnreachableError } from "./errors.js";
import { ofLine } from "./refusals.js";
import type { Send } from "./options.js";
import type { Line } from "./protocol.js";
import { Result } from "./result.js";
import { asLine, sendFields } from "./wire.js";

/**
 * Hands in several turns, all or none, and gives their jobs. A daemon that goes away is followed by the
 * next one, which is asked with the same keys. Left by its signal, it takes back what the daemon has
 * accepted meanwhile.
 */
export async function dispatchParallel(way: Way, sends: Iterable<Send>): Promise<string[]> {
  const jobs = [...sends].map(sendFields);
  if (jobs.length === 0) return [];
  const keys = jobs.map((job) => job.idempotency_key);
  // Somebody has to run them when we are gone.
  let connection = await connectToDaemon(way, "dispatch");
  let number = connection.number();
  try {
    for (let losses = 1; ; losses += 1) {
      try {
        const line = await askOn(connection, "dispatch", { jobs }, keys, number);
        const names = jobsOf(line, "dispatch", keys);
        await connection.close();
        return names;
      } catch (error) {
        const isLost = error instanceof OutcomeUnknownError && error.line?.type !== "dispatch";
        if (!isLost || losses > MOST_LOSSES) throw error;
        const following = await follow(way, connection);
        if (!following) throw error;
        connection.abandon();
        connection = following;
        number = following.number();
      }
    }
  } catch (error) {
    if (way.signal?.aborted) await takeBack(connection, number);
    connection.abandon();
    throw error;
  }
}

/** The results in the order asked, however many lines that takes. */
export async function collect(way: Way, jobs: Iterable<string>, timeoutMs?: number): Promise<Result[]> {
  const order = [...jobs];
  const found = new Map<string, Result>();
  const late: string[] = [];
  const collector = new Collector(way, timeoutMs);
  try {
    for (let left = [...new Set(order)]; left.length > 0; ) {
      const part = left.slice(0, COLLECT_AT_ONCE);
      left = left.slice(COLLECT_AT_ONCE);
      const { results, pending } = await collector.ask(part, "all");
      for (const [job, result] of results) found.set(job, result);
      // What didn't fit into the line is asked for again, as long as that gives any.
      if (results.size > 0) left = [...pending, ...left];
      else late.push(...pending);
    }
  } catch (error) {
    collector.abandon();
    throw error;
  }
  await collector.close();
  const done = (jobs: Iterable<string>): Result[] => [...jobs].flatMap((job) => found.get(job) ?? []);
  if (late.length > 0) throw new StillPendingError(done(new Set(order)), late);
  return done(order);
}

/** The results as they come, of at most 256 jobs. */
export async function* asCompleted(way: Way, jobs: Iterable<string>, timeoutMs?: number): AsyncGenerator<Result> {
  const collector = new Collector(way, timeoutMs);
  try {
    for (let left = [...new Set(jobs)]; left.length > 0; ) {
      const { results, pending } = await collector.ask(left, "any");
      if (results.size === 0) throw new StillPendingError([], pending);
      left = pending;
      yield* results.values();
    }
  } finally {
    collector.abandon();
  }
}

/** The lines of a subscription, without end. */
export async function* events(way: Way, fields: object): AsyncGenerator<Line> {
  const connection = await connectToDaemon(way, "subscribe");
  const number = connection.number();
  try {
    await connection.request("subscribe", fields, number);
    for (let isAnswered = false; ; isAnswered = true) {
      const line = await connection.answer(number);
      const isRefused = !isAnswered && line.type === "error" && typeof line.job !== "string";
      if (isRefused) throw ofLine(line);
      yield asLine(line);
    }
  } catch (lost) {
    if (!(lost instanceof Lost)) throw lost;
    const hint = "go on with `events({ after: event.seq })` of the last one";
    throw new UnreachableError(lost.message, { hint });
  } finally {
    connection.abandon();
  }
}

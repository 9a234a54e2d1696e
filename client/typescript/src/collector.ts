// Results of jobs that were handed in, asked for on one conversation after another: asking changes
// nothing.
//
// Owns how long a daemon that went is waited for. Must not know in which order results are wanted.

import { type Connection, type Way, connect } from "./connection.js";
import { START } from "./endpoint.js";
import { DrainingError, UnreachableError } from "./errors.js";
import { Result } from "./result.js";
import { askOn } from "./ask.js";
import { sleep } from "./waiting.js";
import { type Came, isObject } from "./wire.js";

/** Jobs that one `collect` may name. */
export const COLLECT_AT_ONCE = 256;
/** How long a daemon that went is waited for, in the middle of a `collect`. */
const RETURN_PATIENCE_MS = 10_000;
const RETURN_PAUSE_MS = 100;
const LASTING_MS = 1_000;
/** So many conversations in a row that were lost sooner than that: they will always be. */
const QUICK_LOSSES = 3;

/** What is done of some jobs, and what isn't. */
export interface Collected {
  results: Map<string, Result>;
  pending: string[];
}

export class Collector {
  readonly #way: Way;
  readonly #until: number | undefined;
  #connection: Connection | undefined;
  #opened = 0;
  #quickLosses = 0;

  constructor(way: Way, timeoutMs: number | undefined) {
    this.#way = way;
    const hasEnd = timeoutMs !== undefined && timeoutMs !== Infinity;
    this.#until = hasEnd ? performance.now() + timeoutMs : undefined;
  }

  /** What is done of some jobs, and what isn't when the time is over. `wait`: for any or all of them. */
  async ask(jobs: string[], wait: "any" | "all"): Promise<Collected> {
    for (;;) {
      const connection = this.#connection ?? (await this.#open(this.#way));
      // Alone, nobody runs them: without a limit that would be waited for for ever.
      const looks = connection.isAlone && this.#until === undefined;
      const limit = looks ? 0 : this.#leftMs() / 1000;
      const fields = { jobs, wait, ...(Number.isFinite(limit) && { timeout: limit }) };
      let line: Came;
      try {
        line = await askOn(connection, "collect", fields);
      } catch (error) {
        if (!(error instanceof UnreachableError || error instanceof DrainingError)) throw error;
        this.abandon();
        await this.#again(error);
        continue;
      }
      const collected = resultsOf(line);
      if (looks && collected.pending.length > 0 && collected.results.size === 0) {
        const names = collected.pending.join(", ");
        throw new UnreachableError(`not done, and no daemon is there to run them: ${names}`, {
          hint: `${START}; then collect them again`,
        });
      }
      return collected;
    }
  }

  #leftMs(): number {
    return this.#until === undefined ? Infinity : Math.max(0, this.#until - performance.now());
  }

  async #open(way: Way): Promise<Connection> {
    this.#connection = await connect(way);
    this.#opened = performance.now();
    return this.#connection;
  }

  /**
   * Waits until a daemon is there again, as after its restart; if none comes, whoever asks next finds
   * out. One that goes whenever it is asked isn't asked for ever.
   */
  async #again(lost: UnreachableError | DrainingError): Promise<void> {
    const isQuick = performance.now() - this.#opened < LASTING_MS;
    this.#quickLosses = isQuick ? this.#quickLosses + 1 : 0;
    if (this.#quickLosses >= QUICK_LOSSES) throw lost;
    const until = performance.now() + Math.min(RETURN_PATIENCE_MS, this.#leftMs());
    for (;;) {
      try {
        await this.#open({ ...this.#way, fallback: false });
        return;
      } catch (error) {
        if (!(error instanceof UnreachableError || error instanceof DrainingError)) throw error;
        if (performance.now() >= until) return;
      }
      await sleep(RETURN_PAUSE_MS, this.#way.signal);
    }
  }

  async close(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    await connection?.close();
  }

  abandon(): void {
    this.#connection?.abandon();
    this.#connection = undefined;
  }
}

function resultsOf(line: Came): Collected {
  const { results, pending } = line;
  const isList = Array.isArray(results) && results.every(isObject) && Array.isArray(pending);
  if (!isList) throw new UnreachableError("the daemon's answer to `collect` has no results", { line });
  const found = new Map<string, Result>();
  for (const one of results) {
    const result = Result.of(one);
    if (result.job !== undefined) found.set(result.job, result);
  }
  return { results: found, pending: pending.map(String) };
}

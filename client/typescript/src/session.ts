// A conversation with an agent. Owns what is said with its name. Must not know how.

import type { Harness } from "./harness.js";
import type { Options } from "./options.js";
import type { CommandRow, ModelRow, ModeRow, TurnRow } from "./protocol.js";
import type { Result } from "./result.js";
import type { Stream } from "./stream.js";

/** Made by `harness.session`. */
export class Session {
  readonly #harness: Harness;
  readonly #new: Options;
  readonly #closes: boolean;
  readonly name: string;

  constructor(harness: Harness, name: string, made: Options, closes: boolean) {
    this.#harness = harness;
    this.name = name;
    this.#new = made;
    this.#closes = closes;
  }

  /** One turn. Rejects for one that failed. */
  run(prompt: string, options: Options = {}): Promise<Result> {
    return this.#harness.runSession(prompt, this.#with(options));
  }

  /** One turn, line by line. */
  stream(prompt: string, options: Options = {}): Stream {
    return this.#harness.stream(prompt, this.#with(options));
  }

  #with(options: Options): Options {
    return { ...this.#new, ...options, session: this.name };
  }

  /** Another model, thinking level or mode for the turns that are sent from now on; what isn't named stays. */
  setModel(
    model: string | undefined,
    more: { provider?: string; thinking?: string; mode?: string } = {},
  ): Promise<void> {
    return this.#harness.setModel(this.name, model, more);
  }

  /** Which slash commands its agent has. */
  commands(): Promise<CommandRow[]> {
    return this.#harness.commands({ session: this.name });
  }

  /** Which modes its agent has, and the one that is in force. */
  modes(): Promise<{ modes: ModeRow[]; mode?: string }> {
    return this.#harness.modes({ session: this.name });
  }

  /** Which models its agent has; the default is what its next turn takes. */
  models(): Promise<ModelRow[]> {
    return this.#harness.models({ session: this.name });
  }

  /** What was said, oldest first. */
  history(asked: { limit?: number } = {}): Promise<TurnRow[]> {
    return this.#harness.history(this.name, asked);
  }

  /** A word to its running turn; gives the job when the agent has taken it. */
  steer(text: string): Promise<string> {
    return this.#harness.steer(text, { session: this.name });
  }

  /** Cancels what runs in it, with `queued` what waits, too; gives the jobs. */
  abort(more: { queued?: boolean } = {}): Promise<string[]> {
    return this.#harness.abort({ session: this.name, ...more });
  }

  /** The agent shortens what it remembers; gives its summary, if it says one. */
  compact(instructions?: string): Promise<string | undefined> {
    return this.#harness.compact(this.name, instructions);
  }

  /** Ends its process and frees its name. */
  async close(): Promise<void> {
    await this.#harness.request("session.close", { session: this.name });
  }

  /** At the end of the block of an `await using` one without a name of its own is closed. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closes) await this.close();
  }
}

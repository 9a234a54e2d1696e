// `agentctl stdio`, which serves one conversation without the daemon.
//
// Owns how it is found, started and left. Must not know when that is right.

import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { accessSync, closeSync, constants, openSync, readSync, statSync, unlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, isAbsolute, join } from "node:path";

import { Channel } from "./channel.js";
import { TimedOut, Waiter } from "./waiting.js";

const LAST_WORDS = 2048;

export class Program {
  readonly #child: ChildProcess;
  readonly #said: number;
  readonly channel: Channel;

  private constructor(child: ChildProcess, channel: Channel, said: number) {
    this.#child = child;
    this.channel = channel;
    this.#said = said;
  }

  /** Starts it. Rejects when that fails. */
  static async start(program: string, words: readonly string[]): Promise<Program> {
    // A file takes what it says for as long as it likes, whoever is there.
    const name = join(tmpdir(), `agentd-${randomBytes(8).toString("hex")}`);
    const said = openSync(name, "wx+", 0o600);
    unlinkSync(name);
    try {
      // In a session of its own: the terminal's Ctrl-C is ours.
      const child = spawn(program, words, { stdio: ["pipe", "pipe", said], detached: true });
      await new Promise((resolve, reject) => child.once("spawn", resolve).once("error", reject));
      if (!child.stdout || !child.stdin) throw new Error("it has no standard streams");
      return new Program(child, new Channel(child.stdout, child.stdin), said);
    } catch (error) {
      closeSync(said);
      throw error;
    }
  }

  /** Waits for its end, as long as that takes, but not longer than so many milliseconds. */
  async ended(ms: number): Promise<void> {
    const { exitCode, signalCode } = this.#child;
    if (exitCode !== null || signalCode !== null) return;
    const exit = new Waiter<void>();
    this.#child.once("exit", () => exit.resolve());
    await exit.wait(ms).catch((error: unknown) => {
      if (!(error instanceof TimedOut)) throw error;
    });
  }

  /** The end of what it said on its standard error. */
  lastWords(): string {
    const bytes = Buffer.alloc(64 * 1024);
    const text = bytes.toString("utf8", 0, readSync(this.#said, bytes, 0, bytes.length, 0));
    return text.slice(-LAST_WORDS).trim();
  }

  /** It ends by itself. */
  leave(): void {
    this.channel.close();
    this.#child.unref();
    closeSync(this.#said);
  }
}

/** Relative and empty entries of `PATH` mean the current directory: nothing in it is run. */
export function onPath(name: string): string | undefined {
  for (const directory of (process.env.PATH ?? "").split(delimiter)) {
    if (!isAbsolute(directory)) continue;
    const path = join(directory, name);
    try {
      accessSync(path, constants.X_OK);
      if (statSync(path).isFile()) return path;
    } catch {
      // Not here.
    }
  }
  return undefined;
}

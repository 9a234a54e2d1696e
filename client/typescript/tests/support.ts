// A daemon of its own for each test, a server that says what it is told, and facts to wait for.
//
// Owns private directories and what is started in them: when a test ends, its processes are gone.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { type Server, type Socket, createServer } from "node:net";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";

import { Harness, type Job } from "../src/index.js";

export const REPOSITORY = process.env.AGENTD_REPOSITORY ?? process.cwd();
export const PROGRAMS = process.env.AGENTD_PROGRAMS ?? join(REPOSITORY, "target", "debug");
/** No single wait is longer: a test that needs more is stuck. */
export const DEADLINE_MS = 30_000;
/** A turn that ends when it is aborted. */
export const LONG = "a [[sleep 600000]]";

const CONFIG = `default_agent = "timmy"
[agents.timmy]
provider = "echo"
[agents.chaos]
kind = "jsonl"
command = [${JSON.stringify(join(PROGRAMS, "examples", "chaos-worker"))}, "--models", "2"]
`;

/** Waits for a fact and gives it. */
export async function until<T>(fact: () => T | Promise<T>, what: string): Promise<NonNullable<T>> {
  const end = performance.now() + DEADLINE_MS;
  while (performance.now() < end) {
    const found = await fact();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error(`waited ${DEADLINE_MS} ms in vain for ${what}`);
}

export function fixture(name: string): unknown {
  return JSON.parse(readFileSync(join(REPOSITORY, "tests", "fixtures", "v1", name), "utf8"));
}

/** Private directories, which are this process's, too. */
export class Place {
  readonly dir: string;
  readonly socket: string;
  readonly #ends: (() => unknown)[] = [];

  constructor(test: TestContext, config = CONFIG) {
    // Socket paths are short.
    this.dir = mkdtempSync("/tmp/agentd-ts-");
    this.socket = this.path("agentd.sock");
    mkdirSync(this.path("home"));
    writeFileSync(this.path("config.toml"), config);
    const before = { ...process.env };
    Object.assign(process.env, {
      PATH: `${PROGRAMS}${delimiter}${process.env.PATH ?? ""}`,
      HOME: this.path("home"),
      AGENTD_SOCKET: this.socket,
      AGENTD_STATE_DIR: this.path("state"),
      AGENTD_CONFIG: this.path("config.toml"),
      AGENTD_ALIAS: this.path("timmy.sock"),
    });
    this.ends(() => rmSync(this.dir, { recursive: true, force: true }));
    this.ends(() => {
      for (const name of Object.keys(process.env)) if (!(name in before)) delete process.env[name];
      Object.assign(process.env, before);
    });
    test.after(async () => {
      for (const end of this.#ends.reverse()) await end();
    });
  }

  /** What was begun last is ended first. */
  ends(end: () => unknown): void {
    this.#ends.push(end);
  }

  path(name: string): string {
    return join(this.dir, name);
  }

  touch(name: string): void {
    writeFileSync(this.path(name), "");
  }

  hasStore(): boolean {
    return existsSync(this.path("state"));
  }

  /** A server that says what its script says. */
  async scripted(...connections: Answer[][]): Promise<Scripted> {
    const server = new Scripted(connections);
    await server.listen(this.socket);
    this.ends(() => server.close());
    return server;
  }

  async daemon(): Promise<Daemon> {
    const daemon = new Daemon(this);
    this.ends(() => daemon.kill());
    await daemon.start();
    return daemon;
  }
}

/** A daemon whose agents are `timmy`, which says its prompt back, and `chaos`. */
export class Daemon {
  readonly harness = new Harness({ fallback: false });
  readonly #place: Place;
  #child: ChildProcess | undefined;

  constructor(place: Place) {
    this.#place = place;
  }

  /** Starts it and waits until it answers. */
  async start(): Promise<void> {
    const log = openSync(this.#place.path("log"), "a");
    const child = spawn(join(PROGRAMS, "agentd"), { stdio: ["ignore", log, log] });
    closeSync(log);
    this.#child = child;
    await until(() => {
      if (child.exitCode !== null) throw new Error(readFileSync(this.#place.path("log"), "utf8"));
      return this.harness.status().catch(() => undefined);
    }, "the daemon");
  }

  /** As `kill -9` does. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const end = once(child, "exit");
    child.kill("SIGKILL");
    await end;
  }

  signal(name: NodeJS.Signals): void {
    this.#child?.kill(name);
  }

  /** Waits until so many jobs run. */
  running(count = 1): Promise<Job[]> {
    return until(async () => {
      const jobs = await this.harness.jobs({ state: "running" });
      return jobs.length >= count ? jobs : undefined;
    }, `${count} running jobs`);
  }

  /** Those of all jobs, once none runs any more. */
  states(): Promise<string[]> {
    return until(async () => {
      const states = (await this.harness.jobs()).map((job) => String(job.state));
      return states.includes("running") || states.includes("queued") ? undefined : states;
    }, "the end of all jobs");
  }
}

/** A place with a daemon. */
export async function withDaemon(test: TestContext): Promise<{ place: Place; daemon: Daemon; harness: Harness }> {
  const place = new Place(test);
  const daemon = await place.daemon();
  return { place, daemon, harness: daemon.harness };
}

export const HELLO = {
  type: "hello",
  ok: true,
  server: "agentd",
  version: "0.1.0",
  protocol: 1,
  epoch: "e",
  capabilities: [],
};
export const ACCEPTED = { type: "accepted", job: "j1", session: "s", agent: "a", seq: 1 };
export const END = { type: "message_end", job: "j1", session: "s", stop: "end_turn", text: "hi" };

/** An object, whose `id` is put in; text, as it is; null: it leaves. Or several. */
export type Answer = object | string | null | (object | string | null)[];

/** Answers each line with what its script says, on one connection after another. */
export class Scripted {
  readonly asked: Record<string, unknown>[] = [];
  readonly #connections: Answer[][];
  readonly #server: Server;
  readonly #open = new Set<Socket>();

  constructor(connections: Answer[][]) {
    this.#connections = connections;
    this.#server = createServer((socket) => {
      const script = this.#connections.shift();
      if (!script) return socket.destroy();
      this.#open.add(socket);
      // A client that heard enough leaves.
      socket.on("error", () => undefined);
      createInterface(socket).on("line", (text) => {
        const line = JSON.parse(text) as Record<string, unknown>;
        this.asked.push(line);
        const answers = script.shift();
        if (answers === undefined) return;
        for (const answer of Array.isArray(answers) ? answers : [answers]) {
          if (answer === null) socket.end();
          else if (typeof answer === "string") socket.write(answer);
          else socket.write(`${JSON.stringify({ ...answer, id: line.id })}\n`);
        }
      });
      return undefined;
    });
  }

  async listen(path: string): Promise<void> {
    this.#server.listen(path);
    await once(this.#server, "listening");
  }

  kinds(): unknown[] {
    return this.asked.map((line) => line.type);
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#open) socket.destroy();
  }
}

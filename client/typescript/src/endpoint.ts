// Where the daemon is, and the way to it.
//
// Owns the search for the socket, what `daemon.lock` says, connecting, and the check that the server
// is our own user before the first byte. The same rules as `client/src/endpoint.rs` and `places.rs`;
// but JavaScript is told neither who is at the other end of a socket nor who has locked a file. Instead
// of the first, whose the socket's file and its directory are is looked at before and after connecting;
// for the second the system's list of locks is read. Must not know the protocol, nor what to do when
// there is no daemon.

import { closeSync, lstatSync, openSync, readFileSync, readSync, realpathSync, statSync } from "node:fs";
import { type Socket, connect } from "node:net";
import { uptime } from "node:os";
import { dirname } from "node:path";

import { type Fact, type Lock, RESTART_PATIENCE_MS } from "./fallback.js";
import { isObject, words } from "./wire.js";

/** What to do where no daemon is. */
export const START = "start it: `agentd`, or `agentctl start`; for good with `agentctl service install`";
/** Longest socket path in bytes: the kernel's `sun_path` without its closing zero. */
export const MAX_SOCKET_PATH = process.platform === "darwin" ? 103 : 107;
const MAX_LOCK = 16 * 1024;

/** Where things are when nobody says otherwise. */
export interface Places {
  socket: string;
  stateDir: string | undefined;
}

/** A pure function of the environment. */
export function placesOf(
  env: Readonly<Record<string, string | undefined>>,
  system: string,
  uid: number,
  runUserIsOurs: boolean,
): Places {
  const absolute = (name: string): string | undefined => (env[name]?.startsWith("/") ? env[name] : undefined);
  const home = absolute("HOME");
  const given = env.AGENTD_STATE_DIR || undefined;
  if (system === "darwin" && home) {
    const support = `${home}/Library/Application Support/agentd`;
    return { socket: `${support}/agentd.sock`, stateDir: given ?? support };
  }
  const runtime = absolute("XDG_RUNTIME_DIR") ?? (runUserIsOurs ? `/run/user/${uid}` : undefined);
  const directory = runtime ? `${runtime}/agentd` : `/tmp/agentd-${uid}`;
  const base = absolute("XDG_STATE_HOME") ?? (home && `${home}/.local/state`);
  return { socket: `${directory}/agentd.sock`, stateDir: given ?? (base && `${base}/agentd`) };
}

/** Who we are: the daemon is another one for each user. */
export function ourUid(): number {
  const uid = process.geteuid?.();
  if (uid === undefined) throw new Error("agentd runs on Linux and macOS");
  return uid;
}

function placesOfProcess(): Places {
  const uid = ourUid();
  let isOurs = false;
  try {
    const found = lstatSync(`/run/user/${uid}`);
    isOurs = found.isDirectory() && found.uid === uid;
  } catch {
    // It isn't there.
  }
  return placesOf(process.env, process.platform, uid, isOurs);
}

/** Why there is no connection. Nothing was written in any case. */
export class NotConnected extends Error {
  readonly fact: Fact;
  readonly hint: string | undefined;

  constructor(fact: Fact, message: string, hint?: string) {
    super(message);
    this.fact = fact;
    this.hint = hint;
  }
}

/** A socket to try, and the lock that says how its daemon is. */
export class Endpoint {
  readonly path: string;
  readonly lockFile: string | undefined;

  constructor(path: string, lockFile: string | undefined) {
    this.path = path;
    this.lockFile = lockFile;
  }

  /** What was given, `$AGENTD_SOCKET`, a held `daemon.lock`, the default. */
  static find(given: string | undefined): Endpoint {
    const places = placesOfProcess();
    const lockFile = places.stateDir && `${places.stateDir}/daemon.lock`;
    const path = given || process.env.AGENTD_SOCKET || readLock(lockFile)?.socket || places.socket;
    return new Endpoint(path, lockFile);
  }

  /** What the daemon's lock says about this socket now. */
  lock(): Lock {
    const held = readLock(this.lockFile);
    if (!held || !isSameSocket(held.socket, this.path)) return "free";
    const { state } = held;
    // What isn't known is from a newer daemon: it is there.
    return state === "starting" || state === "restarting" || state === "stopping" ? state : "running";
  }

  /** Connects, and checks that the server is us. Rejects with `NotConnected`, or with the signal's reason. */
  async connect(signal?: AbortSignal): Promise<Socket> {
    const length = Buffer.byteLength(this.path);
    if (length > MAX_SOCKET_PATH) {
      const message = `the socket path is ${length} bytes, the limit here is ${MAX_SOCKET_PATH}: \`${this.path}\``;
      throw new NotConnected("unusable", message, "set `AGENTD_SOCKET` to a shorter path");
    }
    const before = this.#ours();
    const socket = await opened(this.path, signal);
    try {
      if (this.#ours() !== before) throw new NotConnected("hello-closed", "the socket was replaced just now");
    } catch (error) {
      socket.destroy();
      throw error;
    }
    return socket;
  }

  /** Which file the socket is. Throws unless it and its directory are ours to change, and nobody else's. */
  #ours(): string {
    const uid = ourUid();
    try {
      const path = realpathSync(this.path);
      const socket = statSync(path);
      if (socket.uid !== uid) this.#foreign(`the socket \`${path}\``, socket.uid);
      const directory = statSync(dirname(path));
      // In one as `/tmp` is, nobody takes another's file away.
      const isSticky = (directory.mode & 0o1000) !== 0;
      if (directory.uid !== uid && directory.uid !== 0) this.#foreign(`\`${dirname(path)}\``, directory.uid);
      if ((directory.mode & 0o002) !== 0 && !isSticky) {
        throw new NotConnected("foreign-uid", `anybody may change \`${dirname(path)}\`, where the socket is`, FOREIGN);
      }
      return `${socket.dev}:${socket.ino}`;
    } catch (error) {
      throw error instanceof NotConnected ? error : failed(this.path, error);
    }
  }

  #foreign(what: string, owner: number): never {
    throw new NotConnected("foreign-uid", `${what} belongs to uid ${owner}, not to uid ${ourUid()}`, FOREIGN);
  }
}

const FOREIGN = "nothing was sent; name your own socket with `AGENTD_SOCKET`";

function opened(path: string, signal?: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    // What the other side ended may still be read.
    const socket = connect({ path, allowHalfOpen: true });
    const leave = (): void => done(signal?.reason);
    const done = (error?: unknown): void => {
      socket.removeAllListeners();
      signal?.removeEventListener("abort", leave);
      if (error === undefined) return resolve(socket);
      socket.on("error", () => undefined).destroy();
      reject(error);
    };
    socket.on("connect", () => done()).on("error", (error) => done(failed(path, error)));
    signal?.addEventListener("abort", leave);
  });
}

const FACTS: Readonly<Record<string, readonly [Fact, string]>> = {
  ENOENT: ["no-socket", "there is no socket"],
  ECONNREFUSED: ["refused", "nobody listens on it"],
  EACCES: ["denied", "permission denied"],
  EPERM: ["denied", "permission denied"],
  EAGAIN: ["backlog-full", "its backlog is full"],
};
const HINTS: Partial<Record<Fact, string>> = {
  denied: "the socket belongs to somebody else, or its directory does",
  "no-socket": START,
  refused: START,
};

function failed(path: string, error: unknown): NotConnected {
  const code = isObject(error) ? String(error.code) : "";
  const [fact, what] = FACTS[code] ?? ["unusable", words(error)];
  return new NotConnected(fact, `cannot connect to \`${path}\`: ${what}`, HINTS[fact]);
}

/** A link such as `/tmp/timmy.sock` leads to the daemon's own path. */
function isSameSocket(one: string, other: string): boolean {
  if (one === other) return true;
  try {
    return realpathSync(one) === realpathSync(other);
  } catch {
    return false;
  }
}

interface Held {
  socket: string;
  state: string;
}

/**
 * The socket and the state that the lock names, where that is true: a living process holds it, or one
 * that is gone said that another follows, less than a minute ago.
 */
function readLock(path: string | undefined): Held | undefined {
  if (!path) return undefined;
  let file: number | undefined;
  try {
    file = openSync(path, "r");
    const bytes = Buffer.alloc(MAX_LOCK);
    const content: unknown = JSON.parse(bytes.toString("utf8", 0, readSync(file, bytes)));
    if (!isObject(content)) return undefined;
    const { pid, socket, state, until_boot_ms: until } = content;
    if (typeof socket !== "string" || typeof state !== "string") return undefined;
    if (typeof pid !== "number" || !Number.isSafeInteger(pid) || pid <= 0) return undefined;
    const isHeld = lives(pid) && isLocked(path);
    if (isHeld || (state === "restarting" && isToCome(until))) return { socket, state };
  } catch {
    // There is none, or it isn't one.
  } finally {
    if (file !== undefined) closeSync(file);
  }
  return undefined;
}

/** Has anybody locked it? Where no list of locks can be read, that its process lives has to be enough. */
function isLocked(path: string): boolean {
  let locks: string;
  try {
    locks = readFileSync("/proc/locks", "utf8");
  } catch {
    return true;
  }
  // Of the device a file may have two numbers, of which the list has the other.
  const inode = `:${statSync(path).ino} `;
  return locks.split("\n").some((line) => line.includes(" FLOCK ") && line.includes(inode));
}

function isToCome(until: unknown): boolean {
  if (typeof until !== "number") return false;
  // As the daemon counts: the time of suspend, too.
  const now = process.platform === "darwin" ? Number(process.hrtime.bigint() / 1_000_000n) : uptime() * 1000;
  const left = until - now;
  return left >= 0 && left <= RESTART_PATIENCE_MS;
}

function lives(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return isObject(error) && error.code === "EPERM";
  }
  return true;
}

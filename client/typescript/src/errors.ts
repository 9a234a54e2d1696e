// Why there is no result: one class for each code of `client/PROTOCOL.md` part 9.
//
// Owns the names and the table. Must not know connections.

import type { Code } from "./protocol.js";
import type { Result } from "./result.js";
import type { Came } from "./wire.js";

/** What is known of a failure besides its words. */
export interface Known {
  hint?: string | undefined;
  retryable?: boolean;
  job?: string | undefined;
  line?: Came | undefined;
}

/** What went wrong, in the words of whoever found out. */
export class AgentdError extends Error {
  /** The protocol's code of this class. */
  static readonly code: Code | "" = "";
  /** The code, for those who compare words. */
  readonly code: string;
  /** What to do, where that is known. */
  readonly hint: string | undefined;
  /** May the same request succeed later? */
  readonly retryable: boolean;
  /** The job, if it was accepted: without one nothing happened. */
  readonly job: string | undefined;
  /** The line that said so, if one did. */
  readonly line: Came | undefined;
  /** What the turn had said and done, if it had begun. */
  result: Result | undefined;

  constructor(message: string, known: Known = {}) {
    super(message);
    this.name = new.target.name;
    this.code = new.target.code || String(known.line?.code ?? "");
    this.hint = known.hint;
    this.retryable = known.retryable ?? false;
    this.job = known.job;
    this.line = known.line;
    // Long ones: who prints the error reads its words.
    for (const long of ["line", "result"]) Object.defineProperty(this, long, { enumerable: false });
  }

  override toString(): string {
    return `${this.name}: ${this.message}${this.hint ? ` (${this.hint})` : ""}`;
  }
}

/**
 * Nobody serves us, or nobody answered a question that changes nothing: nothing happened. Jobs that
 * were handed in are none the worse.
 */
export class UnreachableError extends AgentdError {}

/** A code that this version doesn't know; `line` has it. */
export class UnknownCodeError extends AgentdError {}

/** The time of a `collect` is over, and not all jobs are done. They go on. */
export class StillPendingError extends AgentdError {
  /** Of those that are done, in the order asked. */
  readonly results: Result[];
  /** The jobs that aren't. */
  readonly pending: string[];

  constructor(results: Result[], pending: string[]) {
    super(`not done in time: ${pending.join(", ")}`, { hint: "they go on: `collect` them again" });
    this.results = results;
    this.pending = pending;
  }
}

/** The connection was lost after the request was written; ask again with `key`. */
export class OutcomeUnknownError extends AgentdError {
  static override readonly code = "outcome-unknown";
  /** The idempotency keys of the request: with them nothing runs twice. */
  keys: string[];

  constructor(message: string, known: Known & { keys?: string[] } = {}) {
    const keys = known.keys ?? [];
    const again =
      keys.length === 1
        ? "send it again with `idempotency_key: error.key`: it never runs twice"
        : "send each again with its `idempotency_key` of `error.keys`: none runs twice";
    super(message, { retryable: true, ...known, ...(keys.length > 0 && { hint: again }) });
    this.keys = keys;
  }

  /** The only key, if there is one. */
  get key(): string | undefined {
    return this.keys.length === 1 ? this.keys[0] : undefined;
  }
}

/** Several agents or jobs could be meant; `choices` names the agents. */
export class AmbiguousError extends AgentdError {
  static override readonly code = "ambiguous";

  /** The agents that could answer, if those could be meant. */
  get choices(): string[] {
    const names = this.line?.choices;
    return Array.isArray(names) ? names.map(String) : [];
  }
}

/** The line is longer than 16 MiB, or unfinished lines take 64 MiB; it was skipped. */
export class FrameTooLongError extends AgentdError {
  static override readonly code = "frame-too-long";
}

/** The line isn't JSON as strict as part 1. */
export class BadJsonError extends AgentdError {
  static override readonly code = "bad-json";
}

/** The line isn't UTF-8. */
export class BadUtf8Error extends AgentdError {
  static override readonly code = "bad-utf8";
}

/** The line is JSON, but not an object. */
export class NotAnObjectError extends AgentdError {
  static override readonly code = "not-an-object";
}

/** The input ended, or 30 s passed, in the middle of a line. */
export class TruncatedError extends AgentdError {
  static override readonly code = "truncated";
}

/** There is no such request. */
export class UnknownCommandError extends AgentdError {
  static override readonly code = "unknown-command";
}

/** A field is missing or wrong, or the request doesn't fit the connection. */
export class InvalidRequestError extends AgentdError {
  static override readonly code = "invalid-request";
}

/** There is no such agent. */
export class UnknownAgentError extends AgentdError {
  static override readonly code = "unknown-agent";
}

/** No agent is there, or the named one isn't installed. */
export class NoAgentError extends AgentdError {
  static override readonly code = "no-agent";
}

/** There is no such session here. */
export class UnknownSessionError extends AgentdError {
  static override readonly code = "unknown-session";
}

/** There is no such job. */
export class UnknownJobError extends AgentdError {
  static override readonly code = "unknown-job";
}

/** There is no such question. */
export class UnknownQuestionError extends AgentdError {
  static override readonly code = "unknown-question";
}

/** No endpoint is configured for the URL, or there is no such delivery. */
export class UnknownWebhookError extends AgentdError {
  static override readonly code = "unknown-webhook";
}

/** Somebody was faster. */
export class AlreadyAnsweredError extends AgentdError {
  static override readonly code = "already-answered";
}

/** The session has a turn in flight, or is open in another process. */
export class SessionBusyError extends AgentdError {
  static override readonly code = "session-busy";
}

/** The session has no turn in flight. */
export class SessionIdleError extends AgentdError {
  static override readonly code = "session-idle";
}

/** The session was made with another agent, directory or tools. */
export class SessionConflictError extends AgentdError {
  static override readonly code = "session-conflict";
}

/** A limit on waiting turns is reached. */
export class QueueFullError extends AgentdError {
  static override readonly code = "queue-full";
}

/** No connection is free. */
export class TooManyConnectionsError extends AgentdError {
  static override readonly code = "too-many-connections";
}

/** The daemon is stopping. */
export class DrainingError extends AgentdError {
  static override readonly code = "draining";
}

/** The key belongs to another request. */
export class IdempotencyConflictError extends AgentdError {
  static override readonly code = "idempotency-conflict";
}

/** Part of the protocol, but not of this version or not possible with this agent. */
export class UnsupportedError extends AgentdError {
  static override readonly code = "unsupported";
}

/** An agent can't do this from inside its worker. */
export class ForbiddenError extends AgentdError {
  static override readonly code = "forbidden";
}

/**
 * The session's earlier turns are gone, and ``require_context`` was set or the agent just found
 * out.
 */
export class ContextLostError extends AgentdError {
  static override readonly code = "context-lost";
}

/** The agent said that it failed. */
export class AgentFailedError extends AgentdError {
  static override readonly code = "agent-failed";
}

/** The agent isn't logged in, or its key is refused. */
export class AgentAuthError extends AgentdError {
  static override readonly code = "agent-auth";
}

/** The built-in agent has no model to ask; the error says what was looked for, and what to do. */
export class NoModelError extends AgentdError {
  static override readonly code = "no-model";
}

/** The model's provider says: later. */
export class RateLimitError extends AgentdError {
  static override readonly code = "rate-limit";
}

/** The conversation is longer than the model takes. */
export class ContextOverflowError extends AgentdError {
  static override readonly code = "context-overflow";
}

/** The turn produced more than 64 MiB. */
export class OutputLimitError extends AgentdError {
  static override readonly code = "output-limit";
}

/** The agent's process doesn't come up. */
export class WorkerStartFailedError extends AgentdError {
  static override readonly code = "worker-start-failed";
}

/** The agent's process died during the turn. */
export class WorkerExitedError extends AgentdError {
  static override readonly code = "worker-exited";
}

/** The agent's process doesn't answer. */
export class WorkerUnresponsiveError extends AgentdError {
  static override readonly code = "worker-unresponsive";
}

/** The agent's process died again and again; it is tried again after 10 min. */
export class CrashLoopedError extends AgentdError {
  static override readonly code = "crash-looped";
}

/** The daemon died or was stopped during the turn. */
export class TurnInterruptedError extends AgentdError {
  static override readonly code = "interrupted";
}

/** The turn, with the start of its process, took longer than its ``timeout``. */
export class TurnTimeoutError extends AgentdError {
  static override readonly code = "timeout";
}

/** The turn waited longer than its ``expires``. */
export class ExpiredError extends AgentdError {
  static override readonly code = "expired";
}

/** There is no room for new work. */
export class DiskFullError extends AgentdError {
  static override readonly code = "disk-full";
}

/** The store can't be read or written. */
export class StoreFailedError extends AgentdError {
  static override readonly code = "store-failed";
}

/** A one-shot can't do this. */
export class NeedsDaemonError extends AgentdError {
  static override readonly code = "needs-daemon";
}

/** Some events after the cursor are gone; the error names the oldest cursor. */
export class CursorExpiredError extends AgentdError {
  static override readonly code = "cursor-expired";
}

/** The cursor is of another store; the error names this one's epoch, or its last number. */
export class CursorInvalidError extends AgentdError {
  static override readonly code = "cursor-invalid";
}

/** A bug in agentd. */
export class InternalError extends AgentdError {
  static override readonly code = "internal";
}

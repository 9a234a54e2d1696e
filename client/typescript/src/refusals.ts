// Which error a code is. Owns the table, and what the daemon's hints are called here. Must not know what
// anybody does about one.

import {
  AgentAuthError,
  type AgentdError,
  AgentFailedError,
  AlreadyAnsweredError,
  AmbiguousError,
  BadJsonError,
  BadUtf8Error,
  ContextLostError,
  ContextOverflowError,
  CrashLoopedError,
  CursorExpiredError,
  CursorInvalidError,
  DiskFullError,
  DrainingError,
  ExpiredError,
  ForbiddenError,
  FrameTooLongError,
  IdempotencyConflictError,
  InternalError,
  InvalidRequestError,
  type Known,
  NeedsDaemonError,
  NoAgentError,
  NoModelError,
  NotAnObjectError,
  OutcomeUnknownError,
  OutputLimitError,
  QueueFullError,
  RateLimitError,
  SessionBusyError,
  SessionConflictError,
  SessionIdleError,
  StoreFailedError,
  TooManyConnectionsError,
  TruncatedError,
  TurnInterruptedError,
  TurnTimeoutError,
  UnknownAgentError,
  UnknownCodeError,
  UnknownCommandError,
  UnknownJobError,
  UnknownQuestionError,
  UnknownSessionError,
  UnknownWebhookError,
  UnsupportedError,
  WorkerExitedError,
  WorkerStartFailedError,
  WorkerUnresponsiveError,
} from "./errors.js";
import type { Code } from "./protocol.js";
import type { Came } from "./wire.js";

type AnyError = new (message: string, known?: Known) => AgentdError;

/** The class of each code; one that is missing here doesn't compile. */
export const BY_CODE: Readonly<Record<Exclude<Code, "unknown">, AnyError>> = {
  "agent-auth": AgentAuthError,
  "agent-failed": AgentFailedError,
  "already-answered": AlreadyAnsweredError,
  ambiguous: AmbiguousError,
  "bad-json": BadJsonError,
  "bad-utf8": BadUtf8Error,
  "context-lost": ContextLostError,
  "context-overflow": ContextOverflowError,
  "crash-looped": CrashLoopedError,
  "cursor-expired": CursorExpiredError,
  "cursor-invalid": CursorInvalidError,
  "disk-full": DiskFullError,
  draining: DrainingError,
  expired: ExpiredError,
  forbidden: ForbiddenError,
  "frame-too-long": FrameTooLongError,
  "idempotency-conflict": IdempotencyConflictError,
  internal: InternalError,
  interrupted: TurnInterruptedError,
  "invalid-request": InvalidRequestError,
  "needs-daemon": NeedsDaemonError,
  "no-agent": NoAgentError,
  "no-model": NoModelError,
  "not-an-object": NotAnObjectError,
  "outcome-unknown": OutcomeUnknownError,
  "output-limit": OutputLimitError,
  "queue-full": QueueFullError,
  "rate-limit": RateLimitError,
  "session-busy": SessionBusyError,
  "session-conflict": SessionConflictError,
  "session-idle": SessionIdleError,
  "store-failed": StoreFailedError,
  timeout: TurnTimeoutError,
  "too-many-connections": TooManyConnectionsError,
  truncated: TruncatedError,
  "unknown-agent": UnknownAgentError,
  "unknown-command": UnknownCommandError,
  "unknown-job": UnknownJobError,
  "unknown-question": UnknownQuestionError,
  "unknown-session": UnknownSessionError,
  "unknown-webhook": UnknownWebhookError,
  unsupported: UnsupportedError,
  "worker-exited": WorkerExitedError,
  "worker-start-failed": WorkerStartFailedError,
  "worker-unresponsive": WorkerUnresponsiveError,
};

/** Requests that the daemon's hints name, and what they are called here. */
const HERE: readonly (readonly [string, string])[] = [
  ["`abort` with `session` and `queued`", "`harness.abort({ session: NAME, queued: true })`"],
  ["`agents`", "`harness.agents()`"],
  ["`collect` of", "`harness.collect()` of"],
  ["`questions`", "`harness.questions()`"],
  ["`restart_worker`", '`harness.request("restart_worker", { agent: NAME })`'],
  ["`session.list`", "`harness.sessions()`"],
  ["`set_model`", "`harness.setModel()`"],
  ["`status`", "`harness.status()`"],
  ["`undrain`", '`harness.request("undrain")`'],
  ["`webhooks`", '`harness.request("webhooks")`'],
];

function hintOf(line: Came): string | undefined {
  if (typeof line.hint !== "string") return undefined;
  const choices = Array.isArray(line.choices) ? line.choices.map(String) : [];
  if (line.code === "ambiguous" && choices.length > 0) {
    const ways = choices.map((one) => `agent: "${one}"`).join(" or ");
    return `name one, as ${ways}, or set \`default_agent\` in config.toml`;
  }
  // What could be meant are names of others.
  if (line.hint.startsWith("did you mean ")) return line.hint;
  return HERE.reduce((hint, [request, call]) => hint.replaceAll(request, call), line.hint);
}

/** The error of an `error` line. */
export function ofLine(line: Came): AgentdError {
  const code = String(line.code);
  const found = Object.hasOwn(BY_CODE, code) ? BY_CODE[code as keyof typeof BY_CODE] : UnknownCodeError;
  return new found(String(line.error || line.code || "an error without words"), {
    hint: hintOf(line),
    retryable: Boolean(line.retryable),
    job: typeof line.job === "string" ? line.job : undefined,
    line,
  });
}

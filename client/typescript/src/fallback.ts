// When running without the daemon is right: one pure function.
//
// The same rule as `client/src/fallback.rs`; `tests/fixtures/v1/fallback.json` holds all clients to
// one table. Must not know sockets, clocks or processes: observations come in, a decision goes out.

/** How long is tried before a daemon counts as silent. */
export const PATIENCE_MS = 2_000;
/** The same while the daemon's lock says that it starts, or that another follows. */
export const RESTART_PATIENCE_MS = 60_000;

export type Fact =
  | "no-socket"
  | "refused"
  | "denied"
  | "backlog-full"
  | "unusable"
  | "foreign-uid"
  | "hello-silent"
  | "hello-closed"
  | "hello-draining"
  | "hello-other"
  | "hello-ok"
  | "request-draining"
  | "request-lost";
export type Lock = "free" | "starting" | "running" | "restarting" | "stopping";
export type Choice = "connected" | "retry" | "wait" | "one-shot" | "refused" | "unreachable" | "unknown";

/** What to do, and for a one-shot why. */
export interface Decision {
  choice: Choice;
  reason?: string;
}

/** Does the lock say that a daemon comes? */
export function isComing(lock: Lock): boolean {
  return lock === "starting" || lock === "restarting";
}

/**
 * The rule. Falls back only when the request never left. What is waited counts from the first
 * attempt, or from when the lock last said that a daemon comes.
 */
export function decide(fact: Fact, lock: Lock, waitedMs: number, fallback: boolean): Decision {
  const isPatient = waitedMs < (isComing(lock) ? RESTART_PATIENCE_MS : PATIENCE_MS);
  const alone = (reason: string): Decision =>
    fallback ? { choice: "one-shot", reason } : { choice: "unreachable" };

  switch (fact) {
    case "hello-ok":
      return { choice: "connected" };
    case "request-lost":
      return { choice: "unknown" };
    case "no-socket":
    case "refused":
      // Held with nobody listening: it is just starting.
      if ((isComing(lock) || lock === "running") && isPatient) return { choice: "retry" };
      return alone(lock === "stopping" ? "draining" : fact);
    case "backlog-full":
      return isPatient ? { choice: "retry" } : alone(fact);
    case "hello-closed":
      return isPatient ? { choice: "retry" } : alone("unanswered");
    case "hello-silent":
      return isPatient ? { choice: "wait" } : alone("unanswered");
    case "hello-draining":
    case "request-draining":
      // A restart is worth waiting for: the next daemon takes the request.
      if (isComing(lock) && isPatient) return { choice: "retry" };
      return fallback ? alone("draining") : { choice: "refused" };
    case "denied":
    case "unusable":
    case "foreign-uid":
    case "hello-other":
      return { choice: "unreachable" };
  }
}

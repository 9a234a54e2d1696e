// The error codes: stable, for programs.
//
// Owns the closed list of PROTOCOL.md part 9, which a test compares with it. Must not know what
// anybody does about one.

/// Why a request or a job failed. One from a newer daemon is kept under its name.
public struct ErrorCode: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: String

  public init(rawValue: String) {
    self.rawValue = rawValue
  }

  public var description: String { rawValue }

  public static let frameTooLong = ErrorCode(rawValue: "frame-too-long")
  public static let badUTF8 = ErrorCode(rawValue: "bad-utf8")
  public static let badJSON = ErrorCode(rawValue: "bad-json")
  public static let notAnObject = ErrorCode(rawValue: "not-an-object")
  public static let truncated = ErrorCode(rawValue: "truncated")
  public static let unknownCommand = ErrorCode(rawValue: "unknown-command")
  public static let invalidRequest = ErrorCode(rawValue: "invalid-request")
  public static let ambiguous = ErrorCode(rawValue: "ambiguous")
  public static let unknownAgent = ErrorCode(rawValue: "unknown-agent")
  public static let noAgent = ErrorCode(rawValue: "no-agent")
  public static let unknownSession = ErrorCode(rawValue: "unknown-session")
  public static let unknownJob = ErrorCode(rawValue: "unknown-job")
  public static let unknownQuestion = ErrorCode(rawValue: "unknown-question")
  public static let unknownWebhook = ErrorCode(rawValue: "unknown-webhook")
  public static let alreadyAnswered = ErrorCode(rawValue: "already-answered")
  public static let sessionBusy = ErrorCode(rawValue: "session-busy")
  public static let sessionIdle = ErrorCode(rawValue: "session-idle")
  public static let sessionConflict = ErrorCode(rawValue: "session-conflict")
  public static let queueFull = ErrorCode(rawValue: "queue-full")
  public static let outcomeUnknown = ErrorCode(rawValue: "outcome-unknown")
  public static let tooManyConnections = ErrorCode(rawValue: "too-many-connections")
  public static let draining = ErrorCode(rawValue: "draining")
  public static let idempotencyConflict = ErrorCode(rawValue: "idempotency-conflict")
  public static let unsupported = ErrorCode(rawValue: "unsupported")
  public static let forbidden = ErrorCode(rawValue: "forbidden")
  public static let contextLost = ErrorCode(rawValue: "context-lost")
  public static let agentFailed = ErrorCode(rawValue: "agent-failed")
  public static let agentAuth = ErrorCode(rawValue: "agent-auth")
  public static let noModel = ErrorCode(rawValue: "no-model")
  public static let rateLimit = ErrorCode(rawValue: "rate-limit")
  public static let contextOverflow = ErrorCode(rawValue: "context-overflow")
  public static let outputLimit = ErrorCode(rawValue: "output-limit")
  public static let workerStartFailed = ErrorCode(rawValue: "worker-start-failed")
  public static let workerExited = ErrorCode(rawValue: "worker-exited")
  public static let workerUnresponsive = ErrorCode(rawValue: "worker-unresponsive")
  public static let crashLooped = ErrorCode(rawValue: "crash-looped")
  public static let interrupted = ErrorCode(rawValue: "interrupted")
  public static let timeout = ErrorCode(rawValue: "timeout")
  public static let expired = ErrorCode(rawValue: "expired")
  public static let diskFull = ErrorCode(rawValue: "disk-full")
  public static let storeFailed = ErrorCode(rawValue: "store-failed")
  public static let needsDaemon = ErrorCode(rawValue: "needs-daemon")
  public static let cursorExpired = ErrorCode(rawValue: "cursor-expired")
  public static let cursorInvalid = ErrorCode(rawValue: "cursor-invalid")
  public static let internalError = ErrorCode(rawValue: "internal")

  /// Every code that this version knows.
  public static let all: [ErrorCode] = [
    .frameTooLong, .badUTF8, .badJSON, .notAnObject, .truncated, .unknownCommand, .invalidRequest,
    .ambiguous, .unknownAgent, .noAgent, .unknownSession, .unknownJob, .unknownQuestion,
    .unknownWebhook, .alreadyAnswered, .sessionBusy, .sessionIdle, .sessionConflict, .queueFull,
    .outcomeUnknown, .tooManyConnections, .draining, .idempotencyConflict, .unsupported, .forbidden,
    .contextLost, .agentFailed, .agentAuth, .noModel, .rateLimit, .contextOverflow, .outputLimit,
    .workerStartFailed, .workerExited, .workerUnresponsive, .crashLooped, .interrupted, .timeout,
    .expired, .diskFull, .storeFailed, .needsDaemon, .cursorExpired, .cursorInvalid, .internalError,
  ]
}

// Why something has no answer.
//
// Owns the classes a caller tells apart: did it happen, didn't it, or does nobody know. Must not
// know how any of them comes about.

public enum AgentError: Error, Sendable, Equatable {
  /// The other side said so. Without a job it refused, and nothing happened.
  case answered(ErrorLine)
  /// There is no connection; nothing was sent.
  case notConnected(Fact, reason: String)
  /// The other side isn't one we can talk to; nothing was sent.
  case helloRefused(String)
  /// The connection was gone before a byte of the request left: it didn't happen.
  case notSent
  /// The request left, at least in part, and wasn't answered. The same key finds it later.
  case outcomeUnknown(key: String?)
  /// No answer came in time.
  case late(seconds: Double)
  /// The request has so many bytes: more than a line may have. Nothing was sent.
  case oversized(Int)
  /// The child died while it had the request, or closed its output.
  case childExited(String)
  /// The child doesn't come up; it is tried again later.
  case crashLooped(String)
  /// The process can't be started.
  case notStarted(String)
  /// It was stopped by its owner.
  case stopped
}

extension AgentError: CustomStringConvertible {
  public var description: String {
    switch self {
    case .answered(let line):
      line.hint.map { "\(line.message); \($0)" } ?? line.message
    case .notConnected(_, let reason): reason
    case .helloRefused(let reason): reason
    case .notSent: "the connection was gone before anything was sent"
    case .outcomeUnknown(let key):
      "the connection was lost before the answer: the outcome is unknown"
        + (key.map { "; ask again with the key `\($0)`" } ?? "")
    case .late(let seconds): "no answer came within \(seconds) s"
    case .oversized(let bytes):
      "the request has \(bytes) bytes, the limit is \(Request.maxLine); nothing was sent"
    case .childExited(let reason): reason
    case .crashLooped(let reason): reason
    case .notStarted(let reason): reason
    case .stopped: "it was stopped"
    }
  }

  /// Certain that the request had no effect?
  public var nothingHappened: Bool {
    switch self {
    case .answered(let line): line.job == nil && line.code != .outcomeUnknown
    case .notConnected, .helloRefused, .notSent, .oversized, .crashLooped, .notStarted: true
    case .outcomeUnknown, .late, .childExited, .stopped: false
    }
  }
}

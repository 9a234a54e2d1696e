// The lines from the daemon, or from a worker.
//
// Owns their types and which of them end a request. Must not know where they come from.

/// One line: what of it is known, and all of it.
public struct Line: Sendable, Equatable {
  /// Its `type`; empty when it has none.
  public let kind: String
  /// The `id` of the request it answers.
  public let id: JSONValue?
  /// Its number in the store, if it has one.
  public let seq: Int?
  /// The job it belongs to.
  public let job: String?
  public let body: LineBody
  /// All members as they came.
  public let json: JSONValue

  /// Reads a line.
  public init(_ bytes: [UInt8]) throws {
    self.init(json: try StrictJSON.object(bytes))
  }

  public init(json: JSONValue) {
    self.json = json
    kind = json["type"]?.string ?? ""
    id = json["id"]
    seq = json["seq"]?.integer
    job = json["job"]?.string
    body = LineBody(kind: kind, json: json)
  }

  /// Is it the last line of its request?
  public var isFinal: Bool {
    !Self.running.contains(kind)
  }

  /// Is it the last line of a turn? A type that this version doesn't know is not.
  var endsTurn: Bool { kind == "message_end" || kind == "error" }

  private static let running: Set<String> = [
    "accepted", "running", "message_start", "message_delta", "thinking_delta", "tool_start",
    "tool_update", "tool_end", "question", "question_closed", "note", "agent_event", "session",
  ]
}

/// What a line says. A type or a shape that this version doesn't know is `other`.
public enum LineBody: Sendable, Equatable {
  case accepted(Accepted)
  case running(attempt: Int)
  case messageStart(message: Int, role: String, replaces: Int?)
  case messageDelta(Delta)
  case thinkingDelta(Delta)
  case toolStart(ToolStart)
  case toolUpdate(call: String, offset: Int, output: String)
  case toolEnd(ToolEnd)
  case question(Question)
  case questionClosed(id: String, by: String)
  case note(level: String, code: String, text: String)
  case messageEnd(TurnResult)
  case error(ErrorLine)
  case hello(HelloAnswer)
  case status(Status)
  case live(seq: Int, epoch: String)
  case pong
  case other

  init(kind: String, json: JSONValue) {
    self = Self.turn(kind: kind, json: json) ?? Self.answer(kind: kind, json: json) ?? .other
  }

  private static func turn(kind: String, json: JSONValue) -> LineBody? {
    switch kind {
    case "accepted": return Accepted(json).map(LineBody.accepted)
    case "running": return .running(attempt: json["attempt"]?.integer ?? 1)
    case "message_start":
      return .messageStart(
        message: json["message"]?.integer ?? 0, role: json["role"]?.string ?? "assistant",
        replaces: json["replaces"]?.integer)
    case "message_delta": return Delta(json).map(LineBody.messageDelta)
    case "thinking_delta": return Delta(json).map(LineBody.thinkingDelta)
    case "tool_start": return ToolStart(json).map(LineBody.toolStart)
    case "tool_update":
      guard let call = json["tool_call_id"]?.string else { return nil }
      return .toolUpdate(
        call: call, offset: json["offset"]?.integer ?? 0, output: json["output"]?.string ?? "")
    case "tool_end": return ToolEnd(json).map(LineBody.toolEnd)
    case "question": return Question(json).map(LineBody.question)
    case "question_closed":
      guard let id = json["question_id"]?.string else { return nil }
      return .questionClosed(id: id, by: json["by"]?.string ?? "")
    case "note":
      return .note(
        level: json["level"]?.string ?? "info", code: json["code"]?.string ?? "",
        text: json["text"]?.string ?? "")
    default: return nil
    }
  }

  private static func answer(kind: String, json: JSONValue) -> LineBody? {
    switch kind {
    case "message_end": return .messageEnd(TurnResult(json))
    case "error": return .error(ErrorLine(json))
    case "hello": return HelloAnswer(json).map(LineBody.hello)
    case "status": return .status(Status(json))
    case "pong": return .pong
    case "live":
      guard let seq = json["seq"]?.integer, let epoch = json["epoch"]?.string else { return nil }
      return .live(seq: seq, epoch: epoch)
    default: return nil
    }
  }
}

/// A send survives power loss from here on.
public struct Accepted: Sendable, Equatable {
  public let job: String
  public let session: String?
  public let agent: String?
  public let replayed: Bool

  init?(_ json: JSONValue) {
    guard let job = json["job"]?.string else { return nil }
    self.job = job
    session = json["session"]?.string
    agent = json["agent"]?.string
    replayed = json["replayed"]?.bool ?? false
  }
}

/// A piece of text. `offset` is the number of bytes of its message before it.
public struct Delta: Sendable, Equatable {
  public let message: Int
  public let offset: Int
  public internal(set) var text: String

  init?(_ json: JSONValue) {
    guard let text = json["text"]?.string else { return nil }
    self.text = text
    message = json["message"]?.integer ?? 0
    offset = json["offset"]?.integer ?? 0
  }
}

public struct ToolStart: Sendable, Equatable {
  public let call: String
  public let name: String
  public let input: JSONValue
  public let isReadOnly: Bool
  /// `read`, `edit`, `delete`, `move`, `search`, `execute`, `think`, `fetch` or `other`.
  public let kind: String
  public let locations: [ToolLocation]

  init?(_ json: JSONValue) {
    guard let call = json["tool_call_id"]?.string else { return nil }
    self.call = call
    name = json["name"]?.string ?? ""
    input = json["input"] ?? .null
    isReadOnly = json["read_only"]?.bool ?? false
    kind = json["kind"]?.string ?? "other"
    locations = json["locations"]?.array?.compactMap(ToolLocation.init) ?? []
  }
}

/// A file that a tool call is about.
public struct ToolLocation: Sendable, Equatable {
  /// As the agent names it.
  public let path: String
  public let line: Int?

  init?(_ json: JSONValue) {
    guard let path = json["path"]?.string else { return nil }
    self.path = path
    line = json["line"]?.integer
  }
}

/// What a tool call changed in one file: a passage or the whole, or a unified diff.
public struct FileChange: Sendable, Equatable {
  /// As the agent names it.
  public let path: String
  public let old: String?
  public let new: String?
  public let diff: String?

  init?(_ json: JSONValue) {
    guard let path = json["path"]?.string else { return nil }
    self.path = path
    old = json["old"]?.string
    new = json["new"]?.string
    diff = json["diff"]?.string
  }
}

public struct ToolEnd: Sendable, Equatable {
  public let call: String
  public let isOK: Bool
  public let output: String
  public let diff: [FileChange]

  init?(_ json: JSONValue) {
    guard let call = json["tool_call_id"]?.string else { return nil }
    self.call = call
    isOK = json["ok"]?.bool ?? false
    output = json["output"]?.string ?? ""
    diff = json["diff"]?.array?.compactMap(FileChange.init) ?? []
  }
}

/// What an agent asks.
public struct Question: Sendable, Equatable, Identifiable {
  public let id: String
  public let job: String
  public let session: String?
  /// `approval`, `choice`, `text` or `secret`.
  public let kind: String
  public let title: String
  public let detail: String?
  public let options: [String]
  public let expiresAt: String?

  public init?(_ json: JSONValue) {
    guard let id = json["question_id"]?.string else { return nil }
    self.id = id
    job = json["job"]?.string ?? ""
    session = json["session"]?.string
    kind = json["kind"]?.string ?? ""
    title = json["title"]?.string ?? ""
    detail = json["detail"]?.string
    options = json["options"]?.array?.compactMap(\.string) ?? []
    expiresAt = json["expires_at"]?.string
  }
}

/// A turn that ended without an error.
public struct TurnResult: Sendable, Equatable {
  /// None from a worker that has no jobs.
  public let job: String?
  public let session: String?
  public let text: String
  /// `end_turn`, `max_tokens`, `max_turn_requests`, `refusal` or `cancelled`.
  public let stop: String
  /// `continued`, `new` or `lost`.
  public let context: String?
  /// What the agent's last request to its model held, and what fits; nil where the agent doesn't say.
  public let contextTokens: Int?
  public let contextWindow: Int?
  public let agent: String?
  public let model: String?
  public let isTruncated: Bool
  /// `daemon`, or `oneshot` with a `fallbackReason`.
  public let servedBy: String?
  public let fallbackReason: String?
  public let replayed: Bool
  public let json: JSONValue

  init(_ json: JSONValue) {
    self.json = json
    job = json["job"]?.string
    session = json["session"]?.string
    text = json["text"]?.string ?? ""
    stop = json["stop"]?.string ?? "end_turn"
    context = json["context"]?.string
    contextTokens = json["context_tokens"]?.integer
    contextWindow = json["context_window"]?.integer
    agent = json["agent"]?.string
    model = json["model"]?.string
    isTruncated = json["truncated"]?.bool ?? false
    servedBy = json["served_by"]?.string
    fallbackReason = json["fallback_reason"]?.string
    replayed = json["replayed"]?.bool ?? false
  }
}

/// A refusal (without `job`: nothing happened), or the failure of a turn that was accepted.
public struct ErrorLine: Error, Sendable, Equatable {
  public let code: ErrorCode
  public let message: String
  public let hint: String?
  public let isRetryable: Bool
  public let job: String?
  /// What a failed turn had said.
  public let text: String?
  /// As in a `TurnResult`.
  public let contextTokens: Int?
  public let contextWindow: Int?

  init(_ json: JSONValue) {
    code = ErrorCode(rawValue: json["code"]?.string ?? "unknown")
    message = json["error"]?.string ?? "the other side gave no reason"
    hint = json["hint"]?.string
    isRetryable = json["retryable"]?.bool ?? false
    job = json["job"]?.string
    text = json["text"]?.string
    contextTokens = json["context_tokens"]?.integer
    contextWindow = json["context_window"]?.integer
  }
}

/// A model of an agent, as a send takes it.
public struct Model: Sendable, Equatable {
  public let provider: String?
  public let model: String
  /// What people call it.
  public let label: String?
  /// Its thinking levels; nil where its agent doesn't say.
  public let thinking: [String]?
  /// `text`, `image`, `pdf` and the like.
  public let input: [String]?
  public let contextWindow: Int?
  /// Turns have it that name none.
  public let isDefault: Bool

  init?(_ json: JSONValue) {
    guard let model = json["model"]?.string else { return nil }
    self.model = model
    provider = json["provider"]?.string
    label = json["label"]?.string
    thinking = json["thinking"]?.array?.compactMap(\.string)
    input = json["input"]?.array?.compactMap(\.string)
    contextWindow = json["context_window"]?.integer
    isDefault = json["default"]?.bool ?? false
  }
}

/// A mode of an agent, its own way of working; `setModel` takes its id.
public struct Mode: Sendable, Equatable {
  public let id: String
  public let label: String?
  public let description: String?

  init?(_ json: JSONValue) {
    guard let id = json["id"]?.string else { return nil }
    self.id = id
    label = json["label"]?.string
    description = json["description"]?.string
  }
}

/// The models and modes of an agent, in its order.
public struct ModelList: Sendable, Equatable {
  public private(set) var agent = ""
  public private(set) var models: [Model] = []
  public private(set) var modes: [Mode] = []
  /// The one that is in force, where that is known.
  public private(set) var mode: String?
  /// Why there is none, or what was left out.
  public private(set) var note: String?

  /// Takes a page; the modes come with the first.
  mutating func add(_ json: JSONValue) {
    agent = json["agent"]?.string ?? agent
    models += json["models"]?.array?.compactMap(Model.init) ?? []
    modes += json["modes"]?.array?.compactMap(Mode.init) ?? []
    mode = json["mode"]?.string ?? mode
    note = json["note"]?.string ?? note
  }
}

/// What the later turns of a session are pinned to.
public struct Pins: Sendable, Equatable {
  public let provider: String?
  public let model: String?
  public let thinking: String?
  public let mode: String?

  init(_ json: JSONValue) {
    provider = json["provider"]?.string
    model = json["model"]?.string
    thinking = json["thinking"]?.string
    mode = json["mode"]?.string
  }
}

/// A slash command of an agent: a prompt that begins with `/` and its name runs it.
public struct SlashCommand: Sendable, Equatable {
  public let name: String
  public let description: String?
  /// What may stand behind the name.
  public let hint: String?

  init?(_ json: JSONValue) {
    guard let name = json["name"]?.string else { return nil }
    self.name = name
    description = json["description"]?.string
    hint = json["hint"]?.string
  }
}

/// Who answers.
public struct HelloAnswer: Sendable, Equatable {
  public let isOK: Bool
  public let version: String
  public let protocolVersion: Int
  public let epoch: String?
  public let pid: Int?
  public let capabilities: [String]
  public let servedBy: String?

  init?(_ json: JSONValue) {
    guard let version = json["protocol"]?.integer else { return nil }
    protocolVersion = version
    isOK = json["ok"]?.bool ?? false
    self.version = json["version"]?.string ?? "?"
    epoch = json["epoch"]?.string
    pid = json["pid"]?.integer
    capabilities = json["capabilities"]?.array?.compactMap(\.string) ?? []
    servedBy = json["served_by"]?.string
  }
}

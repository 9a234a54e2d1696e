// The lines to the daemon.
//
// Owns how a request is written. What isn't given is left out, and never sent as a word that
// stands for nothing. Must not know connections.

/// Members of a request besides `type` and `id`, in order.
public typealias Members = [(key: String, value: JSONValue)]

public enum Request {
  /// Longest line to the daemon, its end not counted.
  public static let maxLine = 16 * 1024 * 1024

  /// One request as a line, its newline included.
  public static func line(_ kind: String, id: Int, _ members: Members = []) -> [UInt8] {
    var all: Members = [("type", .string(kind)), ("id", .integer(Int64(id)))]
    all.append(contentsOf: members)
    var text = ""
    JSONValue.write(members: all, to: &text)
    text += "\n"
    return Array(text.utf8)
  }
}

/// How much an agent thinks. Agents differ in what they take: one that a kind doesn't know is
/// refused by the daemon, and never replaced.
public enum Thinking: String, Sendable, CaseIterable {
  case off, none, minimal, low, medium, high, xhigh, max, ultra
}

/// A message that was said elsewhere before a session began.
public struct Earlier: Sendable, Equatable {
  public enum Role: String, Sendable { case user, assistant }
  public var role: Role
  public var text: String

  public init(_ role: Role, _ text: String) {
    self.role = role
    self.text = text
  }
}

/// A send: PROTOCOL.md part 4.
public struct Send: Sendable, Equatable {
  public var text: String
  /// The conversation's name, as `main`. Nil: a new one.
  public var session: String?
  public var agent: String?
  public var provider: String?
  public var model: String?
  public var thinking: Thinking?
  public var cwd: String?
  /// What the agent is told before the conversation; only of a send that begins a session.
  public var system: String?
  /// What was said before elsewhere, oldest first; likewise.
  public var history: [Earlier] = []
  /// MCP servers that its session's agent has besides its own, as PROTOCOL.md has them; nil: as before.
  public var mcpServers: [JSONValue]?
  /// Seconds that the turn may take.
  public var timeout: Double?
  /// The same key again is the same job.
  public var key: String?
  /// What happens with the agent's questions: `wait` or `deny`.
  public var onQuestion: String?
  /// Are the lines between `accepted` and the final one sent?
  public var stream: Bool?
  /// More members, as PROTOCOL.md names them.
  public var more: [String: JSONValue] = [:]

  public init(
    _ text: String, session: String? = nil, thinking: Thinking? = nil, agent: String? = nil,
    key: String? = nil
  ) {
    self.text = text
    self.session = session
    self.thinking = thinking
    self.agent = agent
    self.key = key
  }

  var members: Members {
    var members: Members = [("text", .string(text))]
    let given: [(String, String?)] = [
      ("session", session), ("agent", agent), ("provider", provider), ("model", model),
      ("thinking", thinking?.rawValue), ("cwd", cwd), ("system", system),
      ("idempotency_key", key), ("on_question", onQuestion),
    ]
    for case (let name, let value?) in given { members.append((name, .string(value))) }
    if !history.isEmpty {
      let said = history.map { earlier in
        JSONValue.object(["role": .string(earlier.role.rawValue), "text": .string(earlier.text)])
      }
      members.append(("history", .array(said)))
    }
    if let mcpServers { members.append(("mcp_servers", .array(mcpServers))) }
    if let timeout { members.append(("timeout", .number(timeout))) }
    if let stream { members.append(("stream", .bool(stream))) }
    members.append(contentsOf: more.sorted { $0.key < $1.key })
    return members
  }
}

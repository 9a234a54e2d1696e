// What other programs of this user may ask the helper by XPC: `agent`, `status`, `rpcStatus`.
//
// Owns the shape of the calls and their answers, as `clawdis-mac` had them, and who may call. Must
// not know XPC: that is `XPCListener`, which is a page long.

import Foundation

/// Where a call goes. `AgentClient` is one.
public protocol AgentBackend: Sendable {
  func send(_ send: Send, within seconds: Double?) async throws -> TurnResult
  func status(within seconds: Double) async throws -> Status
}

extension AgentClient: AgentBackend {}

/// Who calls.
public struct Caller: Sendable, Equatable {
  public var uid: uid_t
  /// Of its signature, if it has one that is valid.
  public var teamID: String?

  public init(uid: uid_t, teamID: String?) {
    self.uid = uid
    self.teamID = teamID
  }
}

/// Who may call. The boundary is the user, as everywhere in agentd; a Team ID narrows it.
public struct CallerPolicy: Sendable, Equatable {
  public var uid: uid_t
  /// Ours; nil where we aren't signed with one, as in a build of one's own.
  public var teamID: String?

  public init(uid: uid_t, teamID: String?) {
    self.uid = uid
    self.teamID = teamID
  }

  public func admits(_ caller: Caller) -> Bool {
    guard caller.uid == uid else { return false }
    guard let teamID else { return true }
    return caller.teamID == teamID
  }
}

public struct AgentService: Sendable {
  private let backend: AgentBackend
  /// Seconds that a call may take, so that nobody waits for ever.
  private let deadline: Double
  private let report: @Sendable (String) -> Void

  /// `report` gets a line for each call that failed: failures are seen, not swallowed.
  public init(
    _ backend: AgentBackend, deadline: Double = 600,
    report: @escaping @Sendable (String) -> Void = { _ in }
  ) {
    self.backend = backend
    self.deadline = deadline
    self.report = report
  }

  /// One call, as JSON: `{"type":"agent","message":…,"session"?,"thinking"?,"agent"?}`,
  /// `{"type":"status"}` or `{"type":"rpcStatus"}`. The answer is
  /// `{"ok":bool,"message"?,"code"?,"payload"?}`. Of a failed `agent` call `nothing_happened` says
  /// whether that is certain; where it isn't, the same `idempotency_key` finds what became of it.
  public func handle(_ request: Data) async -> Data {
    let answer: JSONValue
    do {
      let call = try StrictJSON.object(Array(request))
      answer = try await handle(call)
    } catch let refusal as LineRefusal {
      answer = Self.failed(refusal.code, refusal.reason)
    } catch let error as AgentError {
      answer = Self.failed(error.code, "\(error)")
    } catch {
      answer = Self.failed(.internalError, "\(error)")
    }
    if answer["ok"] != true { report(clipped(answer["message"]?.string ?? "")) }
    return Data(answer.text.utf8)
  }

  private func handle(_ call: JSONValue) async throws -> JSONValue {
    switch call["type"]?.string {
    case "agent": return try await agent(call)
    case "status":
      let status = try await backend.status(within: 2)
      return ["ok": true, "message": .string(status.state), "payload": status.json]
    case "rpcStatus":
      let status = try await backend.status(within: 2)
      let words = status.isLive ? "a worker lives" : "no worker lives"
      return ["ok": .bool(status.isLive), "message": .string(words), "payload": status.json]
    case let kind:
      throw LineRefusal(
        code: .unknownCommand,
        reason: "there is no call `\(kind ?? "")`: expected agent, status or rpcStatus")
    }
  }

  private func agent(_ call: JSONValue) async throws -> JSONValue {
    guard let text = call["message"]?.string, !text.allSatisfy(\.isWhitespace) else {
      throw LineRefusal(code: .invalidRequest, reason: "`message` is missing or blank")
    }
    var send = Send(text, session: call["session"]?.string, agent: call["agent"]?.string)
    if let level = call["thinking"]?.string {
      guard let thinking = Thinking(rawValue: level) else {
        let levels = Thinking.allCases.map(\.rawValue).joined(separator: ", ")
        throw LineRefusal(
          code: .invalidRequest, reason: "`thinking` is `\(level)`: expected one of \(levels)")
      }
      send.thinking = thinking
    }
    // As the old service had them, where the answer went to a messenger.
    if call["deliver"] == true || (call["to"] ?? .null) != .null {
      throw LineRefusal(
        code: .unsupported, reason: "`deliver` and `to` are not supported: the answer comes here")
    }
    let key = call["idempotency_key"]?.string ?? UUID().uuidString.lowercased()
    send.key = key
    let result: TurnResult
    do {
      result = try await backend.send(send, within: deadline)
    } catch {
      let known = error as? AgentError
      return Self.failed(
        known?.code ?? .internalError, "\(error)",
        [
          "nothing_happened": .bool(known?.nothingHappened ?? false),
          "idempotency_key": .string(key),
        ])
    }
    // What `agent --json` always gave, and the protocol's own line.
    let payloads: JSONValue = [["text": .string(result.text), "mediaUrl": .null]]
    return ["ok": true, "payload": ["payloads": payloads, "meta": result.json]]
  }

  private static func failed(
    _ code: ErrorCode, _ message: String, _ more: [String: JSONValue] = [:]
  ) -> JSONValue {
    let members: [String: JSONValue] = [
      "ok": false, "code": .string(code.rawValue), "message": .string(message),
    ]
    return .object(members.merging(more) { ours, _ in ours })
  }
}

extension AgentError {
  /// The code of the protocol that says the same.
  var code: ErrorCode {
    switch self {
    case .answered(let line): line.code
    case .notConnected, .helloRefused, .notSent: .notConnected
    case .outcomeUnknown, .childExited, .stopped: .outcomeUnknown
    case .late: .timeout
    case .oversized: .frameTooLong
    case .crashLooped: .crashLooped
    case .notStarted: .workerStartFailed
    }
  }
}

extension ErrorCode {
  /// Not one of the protocol: who has no connection isn't told anything.
  static let notConnected = ErrorCode(rawValue: "not-connected")
}

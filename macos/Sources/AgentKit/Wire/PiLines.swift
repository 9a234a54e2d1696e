// pi's RPC as the lines of a worker, for a child that is `agentctl serve pi`, or `pi --mode rpc`.
//
// Owns what each line means on the other side. Must not know who waits for it. pi's events name no
// request, so there is one send at a time: it refuses another one while a turn runs.

struct PiLines {
  private var sending: JSONValue?
  private var message = 0
  private var offset = 0
  private var text = ""
  private var stop = "end_turn"
  private var failed: String?

  /// A request in pi's words.
  static func request(_ kind: String, id: Int, _ members: Members) -> [UInt8] {
    switch kind {
    case "status": return Request.line("get_state", id: id)
    case "send":
      let text = members.first { $0.key == "text" }?.value ?? .string("")
      return Request.line("prompt", id: id, [("message", text)])
    default: return Request.line(kind, id: id, members)
    }
  }

  /// What one of pi's lines is here.
  mutating func lines(_ line: Line) -> [Line] {
    switch line.kind {
    case "response": return response(line)
    case "message_update":
      let event = line.json["assistantMessageEvent"]
      guard event?["type"]?.string == "text_delta", let delta = event?["delta"]?.string else {
        return []
      }
      let at = offset
      offset += delta.utf8.count
      return said(
        "message_delta", ["message": number(message), "offset": number(at), "text": .string(delta)])
    case "message_end":
      end(line.json["message"])
      return []
    case "agent_settled":
      defer { sending = nil }
      if let failed {
        return said("error", ["code": .string("agent-failed"), "error": .string(failed)])
      }
      return said("message_end", ["text": .string(text), "stop": .string(stop)])
    default: return []
    }
  }

  private mutating func response(_ line: Line) -> [Line] {
    let isDone = line.json["success"]?.bool == true
    let why = line.json["error"] ?? .string("it says no more")
    let id = line.id ?? .null
    switch line.json["command"]?.string {
    case "get_state":
      return [
        Line(
          json: .object(["type": .string("status"), "id": id, "ok": .bool(isDone), "details": why]))
      ]
    case "prompt" where isDone:
      (sending, message, offset, text, stop, failed) = (id, 0, 0, "", "end_turn", nil)
      return []
    case "abort": return [Line(json: .object(["type": .string("abort"), "id": id]))]
    default:
      guard !isDone else { return [line] }
      let code = JSONValue.string("invalid-request")
      return [
        Line(json: .object(["type": .string("error"), "id": id, "code": code, "error": why]))
      ]
    }
  }

  private mutating func end(_ said: JSONValue?) {
    guard said?["role"]?.string == "assistant" else { return }
    let parts = said?["content"]?.array ?? []
    let words = parts.compactMap { $0["text"]?.string }.joined()
    if !words.isEmpty { text = words }
    failed = nil
    switch said?["stopReason"]?.string {
    case "aborted": stop = "cancelled"
    case "length": stop = "max_tokens"
    case "error": failed = said?["errorMessage"]?.string ?? "the agent failed"
    default: stop = "end_turn"
    }
    (message, offset) = (message + 1, 0)
  }

  private func said(_ kind: String, _ members: [String: JSONValue]) -> [Line] {
    guard let sending else { return [] }
    var all = members
    (all["type"], all["id"]) = (.string(kind), sending)
    return [Line(json: .object(all))]
  }

  private func number(_ value: Int) -> JSONValue { .integer(Int64(value)) }
}

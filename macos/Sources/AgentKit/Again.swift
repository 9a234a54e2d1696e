// The lines of one send over as many conversations as it takes.
//
// Owns what of a turn was told already: the key asked for again tells it from its beginning. The
// same rules as `client/src/again.rs`. Must not know how the next conversation is found.

/// What of a turn was told, over all conversations.
struct Heard {
  /// Was a conversation lost? From then on what comes may have come before.
  var again = false
  private var seq = 0
  private var begun: Set<Int> = []
  private var text: [Int: Int] = [:]
  private var thinking: [Int: Int] = [:]

  /// What of a line wasn't told before; notes it.
  mutating func fresh(_ line: Line) -> Line? {
    let fresh = news(of: line)
    return again ? fresh : line
  }

  private mutating func news(of line: Line) -> Line? {
    switch line.body {
    case .messageStart(let message, _, _): return begun.insert(message).inserted ? line : nil
    case .messageDelta(let delta): return Self.rest(of: line, delta, told: &text)
    case .thinkingDelta(let delta): return Self.rest(of: line, delta, told: &thinking)
    default: break
    }
    guard let number = line.seq else { return line }
    guard number > seq else { return nil }
    seq = number
    return line
  }

  private static func rest(of line: Line, _ delta: Delta, told: inout [Int: Int]) -> Line? {
    let before = told[delta.message] ?? 0
    let bytes = delta.text.utf8
    told[delta.message] = max(before, delta.offset + bytes.count)
    let known = before - delta.offset
    if known <= 0 { return line }
    guard known < bytes.count, case .object(var members) = line.json else { return nil }
    members["offset"] = .integer(Int64(before))
    members["text"] = .string(String(decoding: bytes.dropFirst(known), as: UTF8.self))
    return Line(json: .object(members))
  }
}

/// Goes on with the next conversation when one is lost.
actor Again {
  /// Conversations that one send may lose: a daemon that dies of it isn't asked for ever.
  static let mostLosses = 20

  private var lines: Lines
  private let next: @Sendable () async throws -> Lines
  private var heard = Heard()
  private var losses = 0

  init(_ lines: Lines, next: @escaping @Sendable () async throws -> Lines) {
    self.lines = lines
    self.next = next
  }

  func take() async throws -> Line? {
    while true {
      do {
        guard let line = try await lines.take() else { return nil }
        if let fresh = heard.fresh(line) { return fresh }
      } catch AgentError.outcomeUnknown where losses < Self.mostLosses {
        losses += 1
        heard.again = true
        lines = try await next()
      }
    }
  }
}

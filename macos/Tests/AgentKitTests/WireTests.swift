// Lines: how they are cut, what is refused, and what they mean. PROTOCOL.md part 1, and the fixtures
// that the Rust client reads.

import Foundation
import Testing

@testable import AgentKit

private func frames(_ limit: Int, _ portions: [[UInt8]]) -> ([Frame], [UInt8]?) {
  var decoder = LineDecoder(limit: limit)
  var found: [Frame] = []
  for portion in portions {
    portion.withUnsafeBytes { bytes in decoder.push(bytes) { found.append($0) } }
  }
  let rest = decoder.finish()
  return (found, rest)
}

private func utf8(_ text: String) -> [UInt8] { Array(text.utf8) }

@Suite struct Framing {
  @Test(arguments: ["\n", "\r\n"])
  func aLineOfTheLimitPassesAndOneByteMoreDoesNot(end: String) {
    let line = { (count: Int) in utf8(String(repeating: "x", count: count) + end) }
    #expect(frames(8, [line(8)]).0 == [.line(utf8("xxxxxxxx"))])
    #expect(frames(8, [line(9) + utf8("ok\n")]).0 == [.tooLong, .line(utf8("ok"))])
  }

  @Test func blankLinesVanishAndTheUnterminatedRestIsKeptApart() {
    let (found, rest) = frames(80, [utf8("\n \t\r\n{}\r\n\n{\"a\":1}")])
    #expect(found == [.line(utf8("{}"))])
    #expect(rest == utf8("{\"a\":1}"))
    #expect(frames(80, [utf8("  \t")]).1 == nil)
  }

  @Test func framesDoNotDependOnHowTheBytesWereCut() {
    var random = SystemRandomNumberGenerator()
    for _ in 0..<500 {
      let bytes = (0..<Int.random(in: 0..<200, using: &random)).map { _ in
        [UInt8(0x0A), 0x0D, 0x61, 0x20, 0xFF].randomElement(using: &random)!
      }
      var portions: [[UInt8]] = []
      var at = 0
      while at < bytes.count {
        let end = min(bytes.count, at + Int.random(in: 1..<20, using: &random))
        portions.append(Array(bytes[at..<end]))
        at = end
      }
      let whole = frames(10, [bytes])
      let cut = frames(10, portions)
      #expect(whole.0 == cut.0 && whole.1 == cut.1, "\(bytes)")
    }
  }

  /// The rows of `tests/it/faults_framing.rs`, and of the strict reader in Rust.
  @Test(arguments: [
    ("nonsense", "bad-json", "expected a value"),
    ("[1]", "not-an-object", "not an object"),
    ("7", "not-an-object", "not an object"),
    (#"{"type":"ping","type":"ping"}"#, "bad-json", "the key `type` is given twice"),
    (#"{"x":{"a":1,"\u0061":2}}"#, "bad-json", "the key `a` is given twice"),
    ("\u{FEFF}{}", "bad-json", "byte-order mark"),
    (#"{"type":"ping"} and"#, "bad-json", "trailing characters"),
    (#"{"n":1e999}"#, "bad-json", "out of range"),
    (#"{"n":NaN}"#, "bad-json", "expected a value"),
    (#"{"n":01}"#, "bad-json", "begins with 0"),
    (#"{"s":"\ud800"}"#, "bad-json", "surrogate"),
    (#"{"s":"\udc00\ud800"}"#, "bad-json", "surrogate"),
    (#"{"s":"\x"}"#, "bad-json", "escape"),
    ("{\"s\":\"a\tb\"}", "bad-json", "control"),
    (#"{"prompt":"half"#, "bad-json", "too early"),
    (#"{"a":1,}"#, "bad-json", "expected a key"),
    ("{", "bad-json", "too early"),
  ])
  func whatIsNoLineIsRefusedWithItsReason(text: String, code: String, reason: String) {
    do {
      _ = try StrictJSON.object(utf8(text))
      Issue.record("accepted: \(text)")
    } catch let refusal as LineRefusal {
      #expect(refusal.code.rawValue == code && refusal.reason.contains(reason), "\(refusal)")
    } catch {
      Issue.record("\(error)")
    }
  }

  @Test func whatIsNotUTF8IsRefused() {
    #expect(throws: LineRefusal(code: .badUTF8, reason: "the line isn't UTF-8")) {
      try StrictJSON.object([0x7B, 0xFF, 0x7D])
    }
  }

  @Test func nestingIsBoundedAndAHundredThousandLevelsBreakNothing() throws {
    let deep = { (n: Int) in
      utf8(String(repeating: "[", count: n) + String(repeating: "]", count: n))
    }
    _ = try StrictJSON.value(deep(64))
    for depth in [65, 100_000] {
      #expect(throws: LineRefusal.self) { try StrictJSON.value(deep(depth)) }
    }
  }

  @Test func whatIsStrictIsReadExactly() throws {
    let text = #"{"a":[1,-2,3.5e3,null,true,"\ud83d\ude00\n"],"b":{"a":9007199254740993}}"#
    let value = try StrictJSON.object(utf8(text))
    #expect(value["a"] == [1, -2, .number(3500), .null, true, "\u{1F600}\n"])
    #expect(value["b"]?["a"] == 9_007_199_254_740_993)
    #expect(try StrictJSON.object(utf8(value.text)) == value)
    // Different keys that Swift takes for equal aren't one key given twice.
    _ = try StrictJSON.object(utf8("{\"\u{E9}\":1,\"e\u{301}\":2}"))
  }
}

@Suite struct SharedFixtures {
  @Test func placesAreThoseOfTheTable() throws {
    let rows = try StrictJSON.value(fixture("paths.json")).array ?? []
    #expect(rows.count >= 10)
    for row in rows {
      let variables = (row["env"]?.object ?? [:]).compactMapValues(\.string)
      let places = Places(
        rules: PathRules(rawValue: row["os"]?.string ?? "")!,
        uid: uid_t(row["uid"]?.integer ?? 0), variables: variables,
        runUserIsOurs: row["run_user_is_ours"]?.bool ?? false)
      #expect(places.socket == row["socket"]?.string, "\(row.text)")
      #expect(places.stateDirectory == row["state"]?.string, "\(row.text)")
    }
  }

  /// A request that left is never sent again; one that didn't is never lost where the rule has a way
  /// for it.
  @Test func whatIsDecidedHereAgreesWithEveryRowOfTheRule() throws {
    let rows = try StrictJSON.value(fixture("fallback.json")).array ?? []
    #expect(Set(rows.compactMap { $0["fact"]?.string }).count == Fact.allCases.count)
    for row in rows {
      let fact = try #require(Fact(rawValue: row["fact"]?.string ?? ""))
      let waited = (row["waited_ms"]?.number ?? 0) / 1000
      let ours = Fallback.decide(fact, waited: waited)
      switch row["decision"]?.string {
      case "connected": #expect(ours == .connected, "\(row.text)")
      case "unknown": #expect(ours == .unknown, "\(row.text)")
      case "one-shot", "retry": #expect(ours == .relay, "\(row.text)")
      case "wait": #expect(ours == .wait || (ours == .relay && waited >= 2), "\(row.text)")
      case "unreachable" where row["fallback"]?.string == "allowed":
        #expect(ours == .unreachable, "\(row.text)")
      // `agentctl stdio --no-fallback` finds the same, where it isn't plain already.
      case "unreachable", "refused":
        #expect(ours != .connected && ours != .unknown, "\(row.text)")
      default: Issue.record("\(row.text)")
      }
    }
  }

  @Test func theCodesAreThoseOfTheProtocol() throws {
    let text = try String(
      contentsOf: repository.appendingPathComponent("client/PROTOCOL.md"), encoding: .utf8)
    let part = try #require(text.components(separatedBy: "## 9. Codes").last)
    let table = part.components(separatedBy: "## 10.")[0]
    let names = table.split(separator: "\n").compactMap { row -> String? in
      guard row.hasPrefix("| `") else { return nil }
      return String(row.dropFirst(3).prefix { $0 != "`" })
    }
    #expect(names == ErrorCode.all.map(\.rawValue))
  }

  /// Every example of PROTOCOL.md that is a whole line is one to this reader, too.
  @Test func theLinesOfTheProtocolAreRead() throws {
    let text = try String(
      contentsOf: repository.appendingPathComponent("client/PROTOCOL.md"), encoding: .utf8)
    var kinds: [String: Int] = [:]
    for row in text.split(separator: "\n") where row.hasPrefix("< {") {
      let line = row.dropFirst(2)
        .replacingOccurrences(of: ",…}", with: "}")
        .replacingOccurrences(of: ",…,", with: ",")
        .replacingOccurrences(of: "{…}", with: "{}")
        .replacingOccurrences(of: "[…]", with: "[]")
        .replacingOccurrences(of: ":…", with: ":1")
        .replacingOccurrences(of: ",…]", with: "]")
        .replacingOccurrences(of: "…", with: "x")
      let read = try Line(utf8(line))
      #expect(!read.kind.isEmpty, "\(line)")
      kinds[read.kind, default: 0] += 1
      if read.kind == "error" {
        guard case .error(let error) = read.body else {
          Issue.record("\(line)")
          continue
        }
        #expect(ErrorCode.all.contains(error.code), "\(line)")
      }
    }
    #expect((kinds["message_end"] ?? 0) > 10 && (kinds["error"] ?? 0) > 20, "\(kinds)")
  }

  @Test func whatIsInTheContextIsTold() {
    let line: JSONValue = .object(["context_tokens": .integer(12), "context_window": .integer(90)])
    let (result, error) = (TurnResult(line), ErrorLine(line))
    #expect(result.contextTokens == 12 && result.contextWindow == 90)
    #expect(error.contextTokens == 12 && error.contextWindow == 90)
  }

  @Test func aSendLeavesOutWhatIsNotGiven() {
    let bare = String(decoding: Request.line("send", id: 1, Send("hi").members), as: UTF8.self)
    #expect(bare == #"{"type":"send","id":1,"text":"hi"}"# + "\n")
    var full = Send("a\"\n", session: "main", thinking: .low, agent: "pi", key: "k")
    full.timeout = 2
    full.system = "be brief"
    full.history = [Earlier(.user, "hi"), Earlier(.assistant, "ho")]
    let line = String(decoding: Request.line("send", id: 2, full.members), as: UTF8.self)
    #expect(
      line == #"{"type":"send","id":2,"text":"a\"\n","session":"main","agent":"pi","#
        + #""thinking":"low","system":"be brief","idempotency_key":"k","#
        + #""history":[{"role":"user","text":"hi"},{"role":"assistant","text":"ho"}],"timeout":2.0}"#
        + "\n")
  }
}

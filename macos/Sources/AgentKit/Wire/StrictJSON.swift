// JSON as strict as PROTOCOL.md part 1: no key twice, bounded nesting, no byte-order mark, no half
// of a surrogate pair.
//
// Owns the question "is this line JSON we accept?", and its value. Must not know what it means.
// Foundation's decoders take the last of two equal keys, and can't be told not to.

import Foundation

/// Why a line isn't one of the protocol.
public struct LineRefusal: Error, Equatable, Sendable {
  /// As PROTOCOL.md part 9 names it: `bad-json`, `bad-utf8`, `not-an-object`, `frame-too-long`,
  /// `truncated`.
  public let code: ErrorCode
  /// For people.
  public let reason: String
}

public enum StrictJSON {
  /// Deepest nesting of a line.
  public static let maxDepth = 64

  /// Reads one line as an object.
  public static func object(_ line: [UInt8]) throws -> JSONValue {
    let value = try value(line)
    guard case .object = value else {
      throw LineRefusal(code: .notAnObject, reason: "the line is JSON, but not an object")
    }
    return value
  }

  /// Reads one whole text.
  public static func value(_ line: [UInt8]) throws -> JSONValue {
    guard String(bytes: line, encoding: .utf8) != nil else {
      throw LineRefusal(code: .badUTF8, reason: "the line isn't UTF-8")
    }
    if line.starts(with: [0xEF, 0xBB, 0xBF]) {
      throw LineRefusal(code: .badJSON, reason: "the line starts with a byte-order mark")
    }
    return try line.withUnsafeBufferPointer { bytes in
      var parser = Parser(bytes: bytes)
      return try parser.whole()
    }
  }
}

private struct Parser {
  let bytes: UnsafeBufferPointer<UInt8>
  var at = 0

  func bad(_ reason: String) -> LineRefusal {
    LineRefusal(code: .badJSON, reason: "not JSON: \(reason) at column \(at + 1)")
  }

  mutating func whole() throws -> JSONValue {
    let value = try value(depth: 0)
    blanks()
    guard at == bytes.count else { throw bad("trailing characters") }
    return value
  }

  private mutating func blanks() {
    while at < bytes.count, [0x20, 0x09, 0x0A, 0x0D].contains(bytes[at]) { at += 1 }
  }

  private mutating func next() throws -> UInt8 {
    guard at < bytes.count else { throw bad("the text ends too early") }
    defer { at += 1 }
    return bytes[at]
  }

  private mutating func value(depth: Int) throws -> JSONValue {
    blanks()
    switch try next() {
    case UInt8(ascii: "{"): return try members(depth: deeper(depth))
    case UInt8(ascii: "["): return try elements(depth: deeper(depth))
    case UInt8(ascii: "\""): return .string(try string())
    case UInt8(ascii: "t"): return try word("rue", .bool(true))
    case UInt8(ascii: "f"): return try word("alse", .bool(false))
    case UInt8(ascii: "n"): return try word("ull", .null)
    case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): return try number()
    default:
      at -= 1
      throw bad("expected a value")
    }
  }

  private func deeper(_ depth: Int) throws -> Int {
    guard depth < StrictJSON.maxDepth else {
      throw bad("nesting is deeper than \(StrictJSON.maxDepth)")
    }
    return depth + 1
  }

  private mutating func word(_ rest: StaticString, _ value: JSONValue) throws -> JSONValue {
    for offset in 0..<rest.utf8CodeUnitCount where try next() != rest.utf8Start[offset] {
      throw bad("expected a value")
    }
    return value
  }

  private mutating func members(depth: Int) throws -> JSONValue {
    var members: [String: JSONValue] = [:]
    blanks()
    if at < bytes.count, bytes[at] == UInt8(ascii: "}") {
      at += 1
      return .object(members)
    }
    while true {
      blanks()
      guard try next() == UInt8(ascii: "\"") else { throw bad("expected a key") }
      let key = try string()
      blanks()
      guard try next() == UInt8(ascii: ":") else { throw bad("expected `:`") }
      let value = try value(depth: depth)
      // Swift takes some different keys for equal, as "é" in one scalar or two: the last one counts.
      if let same = members.index(forKey: key), members[same].key.utf8.elementsEqual(key.utf8) {
        throw bad("the key `\(key)` is given twice")
      }
      members[key] = value
      blanks()
      switch try next() {
      case UInt8(ascii: ","): continue
      case UInt8(ascii: "}"): return .object(members)
      default: throw bad("expected `,` or `}`")
      }
    }
  }

  private mutating func elements(depth: Int) throws -> JSONValue {
    var values: [JSONValue] = []
    blanks()
    if at < bytes.count, bytes[at] == UInt8(ascii: "]") {
      at += 1
      return .array(values)
    }
    while true {
      values.append(try value(depth: depth))
      blanks()
      switch try next() {
      case UInt8(ascii: ","): continue
      case UInt8(ascii: "]"): return .array(values)
      default: throw bad("expected `,` or `]`")
      }
    }
  }

  /// Behind its opening quote. What has no escape is taken in one piece.
  private mutating func string() throws -> String {
    var text = ""
    var begin = at
    while true {
      switch try next() {
      case UInt8(ascii: "\""):
        let piece = String(decoding: bytes[begin..<at - 1], as: UTF8.self)
        return text.isEmpty ? piece : text + piece
      case UInt8(ascii: "\\"):
        text += String(decoding: bytes[begin..<at - 1], as: UTF8.self)
        text.unicodeScalars.append(try escape())
        begin = at
      case 0..<0x20:
        throw bad("a control character in a string")
      default: continue
      }
    }
  }

  private mutating func escape() throws -> Unicode.Scalar {
    switch try next() {
    case UInt8(ascii: "\""): return "\""
    case UInt8(ascii: "\\"): return "\\"
    case UInt8(ascii: "/"): return "/"
    case UInt8(ascii: "b"): return "\u{8}"
    case UInt8(ascii: "f"): return "\u{C}"
    case UInt8(ascii: "n"): return "\n"
    case UInt8(ascii: "r"): return "\r"
    case UInt8(ascii: "t"): return "\t"
    case UInt8(ascii: "u"): return try unicode()
    default: throw bad("an escape that JSON doesn't have")
    }
  }

  private mutating func unicode() throws -> Unicode.Scalar {
    let first = try digits()
    if let scalar = Unicode.Scalar(first) { return scalar }
    guard first < 0xDC00, at + 1 < bytes.count, bytes[at] == UInt8(ascii: "\\"),
      bytes[at + 1] == UInt8(ascii: "u")
    else { throw bad("half a surrogate pair") }
    at += 2
    let second = try digits()
    guard (0xDC00..<0xE000).contains(second),
      let scalar = Unicode.Scalar(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
    else { throw bad("half a surrogate pair") }
    return scalar
  }

  private mutating func digits() throws -> UInt32 {
    var value: UInt32 = 0
    for _ in 0..<4 {
      let byte = try next()
      switch byte {
      case UInt8(ascii: "0")...UInt8(ascii: "9"): value = value << 4 | UInt32(byte - 0x30)
      case UInt8(ascii: "a")...UInt8(ascii: "f"): value = value << 4 | UInt32(byte - 0x57)
      case UInt8(ascii: "A")...UInt8(ascii: "F"): value = value << 4 | UInt32(byte - 0x37)
      default: throw bad("expected four digits")
      }
    }
    return value
  }

  /// Behind its first character, which is a digit or the sign.
  private mutating func number() throws -> JSONValue {
    let begin = at - 1
    if bytes[begin] == UInt8(ascii: "-") { at = begin + 1 } else { at = begin }
    let zero = at < bytes.count && bytes[at] == UInt8(ascii: "0")
    let whole = try digitRun()
    if zero && whole > 1 { throw bad("a number that begins with 0") }
    var integral = true
    if at < bytes.count, bytes[at] == UInt8(ascii: ".") {
      integral = false
      at += 1
      _ = try digitRun()
    }
    if at < bytes.count, bytes[at] | 0x20 == UInt8(ascii: "e") {
      integral = false
      at += 1
      if at < bytes.count, bytes[at] == UInt8(ascii: "+") || bytes[at] == UInt8(ascii: "-") {
        at += 1
      }
      _ = try digitRun()
    }
    let text = String(decoding: bytes[begin..<at], as: UTF8.self)
    if integral, let value = Int64(text) { return .integer(value) }
    guard let value = Double(text), value.isFinite else { throw bad("number out of range") }
    return .number(value)
  }

  private mutating func digitRun() throws -> Int {
    let begin = at
    while at < bytes.count, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(bytes[at]) { at += 1 }
    guard at > begin else { throw bad("expected a digit") }
    return at - begin
  }
}

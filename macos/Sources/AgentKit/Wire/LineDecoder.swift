// Bytes in any portions become lines.
//
// Owns where a line begins and ends and how long it may be. Must not know JSON, sockets or time.
// After a line that is too long it goes on at the next newline, and never takes half a line for one.

import Foundation

/// One thing found in the bytes.
public enum Frame: Equatable, Sendable {
  /// A whole line without its end (`\n`, or `\r\n`).
  case line([UInt8])
  /// A line longer than the limit was skipped. Said once, when the limit is passed.
  case tooLong
}

/// Splits bytes into lines of at most `limit` bytes, their end not counted.
public struct LineDecoder: Sendable {
  private let limit: Int
  private var partial: [UInt8] = []
  private var skipping = false

  public init(limit: Int) {
    self.limit = limit
  }

  /// Takes the next bytes and hands on the frames they complete. Lines of nothing but blanks carry
  /// nothing and are dropped.
  public mutating func push(_ bytes: UnsafeRawBufferPointer, _ deliver: (Frame) -> Void) {
    guard var at = bytes.baseAddress else { return }
    let end = at + bytes.count
    while let newline = memchr(at, 0x0A, end - at) {
      let line = UnsafeRawBufferPointer(start: at, count: UnsafeRawPointer(newline) - at)
      at = UnsafeRawPointer(newline) + 1
      if partial.isEmpty && !skipping && line.count <= limit {
        whole(Array(line), deliver)
        continue
      }
      extend(line, deliver)
      if skipping {
        skipping = false
        continue
      }
      let joined = partial
      partial = []
      whole(joined, deliver)
    }
    extend(UnsafeRawBufferPointer(start: at, count: end - at), deliver)
  }

  /// At the end of input: the bytes of the last line that wasn't ended, unless it is blank.
  public mutating func finish() -> [UInt8]? {
    var rest = partial
    partial = []
    skipping = false
    if rest.last == 0x0D { rest.removeLast() }
    return Self.isBlank(rest) ? nil : rest
  }

  private func whole(_ bytes: [UInt8], _ deliver: (Frame) -> Void) {
    var line = bytes
    if line.last == 0x0D { line.removeLast() }
    if line.count > limit {
      deliver(.tooLong)
    } else if !Self.isBlank(line) {
      deliver(.line(line))
    }
  }

  private mutating func extend(_ bytes: UnsafeRawBufferPointer, _ deliver: (Frame) -> Void) {
    guard !skipping, let last = bytes.last else { return }
    // One more than the limit may be a `\r` that the newline will strip.
    let length = partial.count + bytes.count
    if length > limit + 1 || (length > limit && last != 0x0D) {
      partial = []
      skipping = true
      deliver(.tooLong)
      return
    }
    partial.append(contentsOf: bytes)
  }

  private static func isBlank(_ line: [UInt8]) -> Bool {
    line.allSatisfy { $0 == 0x20 || $0 == 0x09 || $0 == 0x0D }
  }
}

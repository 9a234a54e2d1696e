// The end of what a child said besides the protocol.
//
// Owns that it is bounded. Must not know who said it.

import Foundation

final class LogTail: Sendable {
  private let limit: Int
  private let bytes = Guarded<[UInt8]>([])
  /// Is it whole, and who waits for that?
  private let end = Guarded<(isThere: Bool, waiting: [CheckedContinuation<Void, Never>])>(
    (false, []))

  init(limit: Int = 64 * 1024) {
    self.limit = limit
  }

  func append(_ more: UnsafeRawBufferPointer) {
    let kept = UnsafeRawBufferPointer(rebasing: more.suffix(limit))
    bytes.with { bytes in
      bytes.append(contentsOf: kept)
      if bytes.count > 2 * limit { bytes.removeFirst(bytes.count - limit) }
    }
  }

  func append(line: [UInt8]) {
    line.withUnsafeBytes { append($0) }
    let newline: [UInt8] = [0x0A]
    newline.withUnsafeBytes { append($0) }
  }

  /// Nothing more comes.
  func finish() {
    let waiting = end.with { end in
      defer { end = (true, []) }
      return end.waiting
    }
    for one in waiting { one.resume() }
  }

  /// Waits until nothing more comes, but not longer than that.
  func finished(within seconds: Double) async {
    _ = await Deadline(seconds).race {
      await withCheckedContinuation { one in
        let isThere = self.end.with { end in
          if !end.isThere { end.waiting.append(one) }
          return end.isThere
        }
        if isThere { one.resume() }
      }
    }
  }

  /// The last bytes, as text.
  var text: String {
    bytes.with { String(decoding: $0.suffix(limit), as: UTF8.self) }
  }

  /// The last lines as one, for an error.
  var lastWords: String {
    let lines = text.split(separator: "\n").suffix(2)
    return String(lines.joined(separator: " ").suffix(240))
  }
}

// Lines in, lines out, over a socket or a child's pipes.
//
// Owns the reader's thread, the writer's queue, and that what was read waits for whoever handles it
// rather than in memory. Must not know what a line means.

import Foundation

/// One line on its way out.
final class Outgoing: Sendable {
  enum Progress: Sendable {
    case waits, leaves, left, withdrawn
  }

  private let state = Guarded(Progress.waits)

  /// How far it is; one that waits is withdrawn, and no byte of it leaves.
  func withdraw() -> Progress {
    state.with { state in
      if state == .waits { state = .withdrawn }
      return state
    }
  }

  var hasLeft: Bool { state.with { $0 == .left } }

  fileprivate func begin() -> Bool {
    state.with { state in
      guard state == .waits else { return false }
      state = .leaves
      return true
    }
  }

  fileprivate func end() {
    state.with { $0 = .left }
  }
}

final class LineTransport: Sendable {
  /// What was read, in portions. After each portion the one reader of it calls `taken`.
  let inbound: AsyncStream<[Frame]>
  private let room = DispatchSemaphore(value: 64)
  private let writer: Descriptor
  private let writing = DispatchQueue(label: "agentkit-writer")
  private let state = Guarded(State())
  private let reader: Guarded<Reader?> = Guarded(nil)

  private struct State {
    var isClosed = false
    var isFinished = false
  }

  /// Takes over both, and closes them in any case. A line of more than `limit` bytes is skipped and reported.
  init(reading: Descriptor, writing writer: Descriptor, limit: Int) throws {
    self.writer = writer
    let (stream, continuation) = AsyncStream.makeStream(of: [Frame].self)
    inbound = stream
    let decoder = Guarded(LineDecoder(limit: limit))
    let room = room
    let state = state
    // What was made so far goes by `deinit`, and the writer with it.
    let started = try Reader(
      reading,
      take: { bytes in
        var frames: [Frame] = []
        decoder.with { $0.push(bytes) { frames.append($0) } }
        guard !frames.isEmpty else { return }
        continuation.yield(frames)
        room.wait()
      },
      end: {
        // A last line that wasn't ended is whole only if it is an object.
        let rest = state.with { $0.isClosed } ? nil : decoder.with { $0.finish() }
        if let rest { continuation.yield([.line(rest)]) }
        continuation.finish()
      })
    reader.with { $0 = started }
  }

  /// A portion of `inbound` is dealt with.
  func taken() {
    room.signal()
  }

  /// Writes all of it behind what was given before, and returns at once. `failed` is told when that
  /// went wrong: `notSent` when no byte left, `outcomeUnknown` when some did or may have.
  @discardableResult
  func write(_ bytes: [UInt8], failed: @escaping @Sendable (AgentError) -> Void = { _ in })
    -> Outgoing
  {
    let outgoing = Outgoing()
    writing.async { [self] in
      guard outgoing.begin() else { return }
      guard !state.with({ $0.isClosed || $0.isFinished }) else { return failed(.notSent) }
      let sent = writer.write(bytes)
      if sent == bytes.count { return outgoing.end() }
      failed(sent == 0 ? .notSent : .outcomeUnknown(key: nil))
    }
    return outgoing
  }

  /// No more lines from us: the other side reads its end.
  func finishWriting() {
    writing.async { [self] in
      let first = state.with { state in
        defer { state.isFinished = true }
        return !state.isFinished && !state.isClosed
      }
      if first { writer.shutDown(.writing) }
    }
  }

  /// Takes nothing more from the other side.
  func stopReading() {
    reader.with { $0?.stop() }
  }

  /// Ends both directions; who waits wakes up.
  func close() {
    let first = state.with { state in
      defer { state.isClosed = true }
      return !state.isClosed
    }
    guard first else { return }
    // A write that waits for a reader ends by this.
    writer.shutDown(.both)
    reader.with { $0?.stop() }
    // A reader that waits for room goes on.
    room.signal()
    writing.async { [writer] in writer.close() }
  }

  deinit {
    // A semaphore must not have less than it began with when it goes.
    for _ in 0..<64 { room.signal() }
    let first = state.with { !$0.isClosed }
    if first {
      writer.shutDown(.both)
      reader.with { $0?.stop() }
      writer.close()
    }
  }
}

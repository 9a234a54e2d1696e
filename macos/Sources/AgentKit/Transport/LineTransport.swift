// Lines in, lines out, over a socket or a child's pipes.
//
// Owns the reader's thread, the writer's queue, and that what was read waits for whoever handles it
// rather than in memory. Must not know what a line means.

import Foundation

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

  /// Takes over both. A line of more than `limit` bytes is skipped and reported.
  init(reading: Descriptor, writing writer: Descriptor, limit: Int) throws {
    self.writer = writer
    let (stream, continuation) = AsyncStream.makeStream(of: [Frame].self)
    inbound = stream
    let decoder = Guarded(LineDecoder(limit: limit))
    let room = room
    let state = state
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

  /// Writes all of it.
  ///
  /// Throws `notSent` when no byte left, `outcomeUnknown` when some did or may have.
  func write(_ bytes: [UInt8]) async throws {
    try await withCheckedThrowingContinuation { (done: CheckedContinuation<Void, Error>) in
      writing.async { [self] in
        guard !state.with({ $0.isClosed || $0.isFinished }) else {
          done.resume(throwing: AgentError.notSent)
          return
        }
        switch writer.write(bytes) {
        case bytes.count: done.resume()
        case 0: done.resume(throwing: AgentError.notSent)
        default: done.resume(throwing: AgentError.outcomeUnknown(key: nil))
        }
      }
    }
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

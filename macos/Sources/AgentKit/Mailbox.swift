// The lines of one request, from the connection to whoever asked.
//
// Owns their order, and that a slow reader costs text and not lines: what it hasn't taken of one
// message's text is put together. Must not know connections.

final class Mailbox: Sendable {
  private struct State {
    var lines: [Line] = []
    var first = 0
    var end: Result<Void, Error>?
    var waiting: CheckedContinuation<Line?, Error>?
    /// Nobody reads any more: nothing is kept.
    var isAbandoned = false
  }

  private let state = Guarded(State())
  private let onCancel: @Sendable () -> Void

  /// `onCancel` is called, at most once, when the task that reads is cancelled.
  init(onCancel: @escaping @Sendable () -> Void) {
    self.onCancel = onCancel
  }

  /// How many lines wait to be read.
  var waiting: Int {
    state.with { $0.lines.count - $0.first }
  }

  func put(_ line: Line) {
    let waiting: CheckedContinuation<Line?, Error>? = state.with { state in
      guard state.end == nil, !state.isAbandoned else { return nil }
      if let waiting = state.waiting {
        state.waiting = nil
        return waiting
      }
      if state.lines.count > state.first, let joined = state.lines[state.lines.count - 1] + line {
        state.lines[state.lines.count - 1] = joined
      } else {
        state.lines.append(line)
      }
      return nil
    }
    waiting?.resume(returning: line)
  }

  /// Nothing comes any more. What was put before is read first; the first end counts.
  func finish(_ end: Result<Void, Error> = .success(())) {
    let waiting: CheckedContinuation<Line?, Error>? = state.with { state in
      guard state.end == nil else { return nil }
      state.end = end
      defer { state.waiting = nil }
      return state.waiting
    }
    switch end {
    case .success: waiting?.resume(returning: nil)
    case .failure(let error): waiting?.resume(throwing: error)
    }
  }

  /// The next line, nil at the end. One reader at a time.
  func next() async throws -> Line? {
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let now: Result<Line?, Error>? = state.with { state in
          if state.isAbandoned { return .failure(CancellationError()) }
          if state.first < state.lines.count {
            let line = state.lines[state.first]
            state.first += 1
            // What was read goes at once when there is little, else a half at a time.
            if state.first * 2 > state.lines.count {
              state.lines.removeFirst(state.first)
              state.first = 0
            }
            return .success(line)
          }
          if let end = state.end { return end.map { nil } }
          state.waiting = continuation
          return nil
        }
        if let now { continuation.resume(with: now) }
      }
    } onCancel: {
      cancel()
    }
  }

  /// The task that reads was cancelled.
  private func cancel() {
    let (first, waiting): (Bool, CheckedContinuation<Line?, Error>?) = state.with { state in
      defer {
        state.isAbandoned = true
        state.lines = []
        state.first = 0
        state.waiting = nil
      }
      return (!state.isAbandoned && state.end == nil, state.waiting)
    }
    // Before the reader goes on, and may drop whom the lines come from.
    if first { onCancel() }
    waiting?.resume(throwing: CancellationError())
  }

  /// What was just read is read again.
  func putBack(_ line: Line) {
    state.with { $0.lines.insert(line, at: $0.first) }
  }

  /// The lines as they come. Whoever drops it reads no more: nothing is kept for it then. Until the
  /// last line is read it holds whom they come from, so that they do.
  func stream(of source: any AnyObject & Sendable) -> Lines {
    let lease = Lease(self, source)
    return Lines { try await lease.next() }
  }

  /// Whoever read has left: nothing is kept from now on, and nothing is cancelled.
  func abandon() {
    state.with { state in
      state.isAbandoned = true
      state.lines = []
      state.first = 0
    }
  }
}

extension Line {
  /// Two pieces of one message's text as one line, if they are that.
  static func + (first: Line, second: Line) -> Line? {
    switch (first.body, second.body) {
    case (.messageDelta(let one), .messageDelta(let two)):
      Self.joined(first, one, two)
    case (.thinkingDelta(let one), .thinkingDelta(let two)):
      Self.joined(first, one, two)
    default: nil
    }
  }

  private static func joined(_ line: Line, _ one: Delta, _ two: Delta) -> Line? {
    guard one.message == two.message, one.offset + one.text.utf8.count == two.offset,
      case .object(var members) = line.json
    else { return nil }
    members["text"] = .string(one.text + two.text)
    return Line(json: .object(members))
  }
}

/// Whoever holds the stream holds this: when it goes, nothing is kept for it any more.
private final class Lease: Sendable {
  private let mailbox: Mailbox
  private let source: Guarded<(any AnyObject & Sendable)?>

  init(_ mailbox: Mailbox, _ source: any AnyObject & Sendable) {
    self.mailbox = mailbox
    self.source = Guarded(source)
  }

  func next() async throws -> Line? {
    var isOver = true
    defer {
      if isOver { source.with { $0 = nil } }
    }
    let line = try await mailbox.next()
    isOver = line == nil
    return line
  }

  deinit {
    mailbox.abandon()
  }
}

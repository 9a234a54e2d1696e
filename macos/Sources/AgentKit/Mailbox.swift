// The lines of one request, from the connection to whoever asked.
//
// Owns their order, and that a slow reader costs text and not lines: what it hasn't taken of one
// message's text is put together, and what the daemon doesn't keep for a slow reader isn't kept here.
// Must not know connections.

final class Mailbox: Sendable {
  /// One that has so many lines to read is behind: `tool_update` and `agent_event` are dropped.
  static let behind = 256

  private struct State {
    var lines: [Waiting] = []
    var first = 0
    var end: Result<Void, Error>?
    var waiting: CheckedContinuation<Line?, Error>?
    /// Nobody reads any more: nothing is kept.
    var isAbandoned = false

    mutating func keep(_ line: Line) {
      let waiting = lines.count - first
      if waiting > Mailbox.behind, line.kind == "tool_update" || line.kind == "agent_event" {
        return
      }
      // Text and thinking come by turns: each goes to the last of its own.
      for index in lines.indices.suffix(min(waiting, 4)).reversed() {
        if lines[index].append(line) { return }
        if !lines[index].isText { break }
      }
      lines.append(Waiting(line))
    }
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
      state.keep(line)
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
            let line = state.lines[state.first].whole
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
    state.with { $0.lines.insert(Waiting(line), at: $0.first) }
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

/// A line that waits, and the text that was put to it since: never copied again for each piece.
private struct Waiting {
  private let line: Line
  private var text: String?

  init(_ line: Line) {
    self.line = line
  }

  private static func delta(_ line: Line) -> Delta? {
    switch line.body {
    case .messageDelta(let delta), .thinkingDelta(let delta): delta
    default: nil
    }
  }

  var isText: Bool { Self.delta(line) != nil }

  /// Takes the next piece of the same text, if it is that. An old worker's pieces have no `offset`.
  mutating func append(_ next: Line) -> Bool {
    guard next.kind == line.kind, let ours = Self.delta(line), let more = Self.delta(next),
      ours.message == more.message
    else { return false }
    let isPlaced = line.json["offset"] != nil
    let end = ours.offset + (text ?? ours.text).utf8.count
    guard isPlaced == (next.json["offset"] != nil), !isPlaced || end == more.offset else {
      return false
    }
    if text == nil { text = ours.text }
    text?.append(more.text)
    return true
  }

  var whole: Line {
    guard let text, case .object(var members) = line.json else { return line }
    members["text"] = .string(text)
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

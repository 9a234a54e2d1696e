// What happens, told without a gap over any number of connections.
//
// Owns the cursor and the pauses between attempts. Must not know what the lines are for.

import Foundation

/// A place in the daemon's numbered lines.
public struct Cursor: Sendable, Equatable {
  public var seq: Int
  public var epoch: String

  public init(seq: Int, epoch: String) {
    self.seq = seq
    self.epoch = epoch
  }
}

actor Follower {
  private let session: String?
  private let sessions: Bool
  private let connect: @Sendable () async throws -> Connection
  private var cursor: Cursor?
  private var connection: Connection?
  private var lines: Mailbox?
  private var failures = 0

  init(
    session: String?, sessions: Bool = false, cursor: Cursor?,
    connect: @escaping @Sendable () async throws -> Connection
  ) {
    self.session = session
    self.sessions = sessions
    self.cursor = cursor
    self.connect = connect
  }

  /// The next line. It waits for a daemon for as long as nobody cancels. After a connection was lost
  /// `live` comes again, and the text of turns in flight from its beginning.
  ///
  /// Throws when the daemon refuses, as a cursor that is too old.
  func next() async throws -> Line? {
    while true {
      try Task.checkCancellation()
      do {
        if let line = try await subscribed().next() {
          note(line)
          if case .error(let error) = line.body, line.job == nil {
            throw AgentError.answered(error)
          }
          return line
        }
      } catch let error where Self.isForGood(error) {
        await drop()
        throw error
      } catch {
        // It is gone, or not there yet.
      }
      await drop()
      failures += 1
      let pause = min(10, 0.1 * Double(1 << min(failures, 7)))
      try await Task.sleep(for: .seconds(pause))
    }
  }

  private static func isForGood(_ error: Error) -> Bool {
    switch error {
    case is CancellationError: true
    case AgentError.answered(let line): !line.isRetryable
    case AgentError.notConnected(let fact, _): fact == .foreignUID
    case AgentError.helloRefused: true
    default: false
    }
  }

  private func subscribed() async throws -> Mailbox {
    if let lines { return lines }
    let fresh = try await connect()
    connection = fresh
    var members: Members = []
    if let session { members.append(("session", .string(session))) }
    if sessions { members.append(("sessions", .bool(true))) }
    if let cursor {
      members.append(("after", .integer(Int64(cursor.seq))))
      members.append(("epoch", .string(cursor.epoch)))
    }
    let mailbox = try await fresh.mailbox("subscribe", members)
    lines = mailbox
    return mailbox
  }

  private func note(_ line: Line) {
    failures = 0
    if case .live(let seq, let epoch) = line.body {
      cursor = Cursor(seq: seq, epoch: epoch)
    } else if let seq = line.seq, let epoch = cursor?.epoch {
      cursor = Cursor(seq: seq, epoch: epoch)
    }
  }

  private func drop() async {
    lines = nil
    await connection?.close()
    connection = nil
  }
}

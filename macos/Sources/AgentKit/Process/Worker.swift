// One child that speaks lines: its process, its conversation, and what it says besides.
//
// Owns these three together, from the start to the reaping. Must not know when one is wanted.

import Foundation

final class Worker: Sendable {
  let child: Child
  let connection: Connection
  let log: LogTail
  private let stderr: Reader

  /// Longest line of a worker: PROTOCOL.md part 8.
  static let maxLine = 16 * 1024 * 1024
  /// What a dead child wrote is in the pipe; who else holds it open isn't waited for longer.
  private static let drain = 0.5

  init(
    _ command: Command, peer: Peer = .child, onGivenUp: @escaping @Sendable () -> Void = {}
  ) throws {
    let log = LogTail()
    let pipes = try ChildPipes()
    let transport: LineTransport
    do {
      // Before it is started: nothing that fails later leaves a child that nobody reads.
      (stderr, transport) = try Self.readers(pipes, log)
    } catch {
      pipes.closeIts()
      throw error
    }
    let started = try Child(command, pipes)
    child = started
    self.log = log
    connection = Connection(
      transport, peer: peer, onNoise: { log.append(line: $0) }, onGivenUp: onGivenUp,
      ending: { await Self.reason(started, log) })
    let connection = connection
    Task {
      _ = await started.ended()
      _ = await Deadline(Self.drain).race { await connection.end() }
      await connection.stopReading()
    }
  }

  private static func readers(_ pipes: ChildPipes, _ log: LogTail) throws -> (Reader, LineTransport)
  {
    let stderr: Reader
    do {
      stderr = try Reader(pipes.errors.reading, take: { log.append($0) }, end: { log.finish() })
    } catch {
      pipes.input.ours.close()
      pipes.output.reading.close()
      throw error
    }
    return (
      stderr,
      try LineTransport(
        reading: pipes.output.reading, writing: pipes.input.ours, limit: maxLine)
    )
  }

  /// Nothing comes from it any more: why? One that lives and closed its output is as good as dead.
  private static func reason(_ child: Child, _ log: LogTail) async -> AgentError {
    let exit = await child.ended(within: drain)
    // What it said last may be a moment behind its end.
    await log.finished(within: drain)
    let said = log.lastWords
    let tail = said.isEmpty ? "" : "; it said: \(said)"
    return .childExited("the process \(exit?.description ?? "closed its output")\(tail)")
  }

  /// Ends it: first by the end of its input, then with signals to its group. At most three times as
  /// long as given, and then it is reaped.
  func end(within seconds: Double) async -> ExitReason {
    await connection.finish()
    var exit = await child.ended(within: seconds)
    if exit == nil {
      child.signal(SIGTERM)
      exit = await child.ended(within: seconds)
    }
    if exit == nil { child.signal(SIGKILL) }
    let last = await child.ended()
    await log.finished(within: Self.drain)
    await connection.close()
    stderr.stop()
    return exit ?? last
  }

  deinit {
    // Nobody waits for it: its input ends, it is told, and then it is killed.
    stderr.stop()
    child.signal(SIGTERM)
    Task { [connection, child] in
      await connection.finish()
      if await child.ended(within: Self.leavesWithin) == nil { child.signal(SIGKILL) }
    }
  }

  /// Seconds that one that was dropped has for leaving by itself.
  private static let leavesWithin = 2.0
}

// A program that is run to its end, with something to read.
//
// Owns that all three of its pipes are served at once, that what it prints is bounded, and that it
// ends. Must not know what it is.

import Foundation

/// What a program that ended had printed.
public struct Finished: Sendable, Equatable {
  public let exit: ExitReason
  public let output: String
  public let errors: String
}

enum Run {
  /// No program that is run here prints more.
  static let maxOutput = 4 * 1024 * 1024

  /// Runs it, with `input` as its standard input. After `seconds`, or cancelled, it is ended.
  static func finish(_ command: Command, input: String = "", within seconds: Double) async throws
    -> Finished
  {
    let pipes = try ChildPipes()
    let (output, errors) = try drains(pipes)
    let child: Child
    do {
      child = try Child(command, pipes)
    } catch {
      pipes.input.ours.close()
      throw error
    }
    let stdin = pipes.input.ours
    let bytes = Array(input.utf8)
    DispatchQueue.global().async {
      // One that doesn't read has left, or is ended below.
      _ = stdin.write(bytes)
      stdin.close()
    }
    let exit = await Deadline(seconds).raceUnlessCancelled { await child.ended() }
    guard let exit else {
      child.signal(SIGTERM)
      _ = await child.ended(within: 2)
      child.signal(SIGKILL)
      _ = await child.ended()
      output.stop()
      errors.stop()
      try Task.checkCancellation()
      throw AgentError.late(seconds: seconds)
    }
    return Finished(exit: exit, output: await output.text(), errors: await errors.text())
  }

  /// Who reads it, before it is started: nothing that fails later leaves a child that nobody reads.
  private static func drains(_ pipes: ChildPipes) throws -> (Drain, Drain) {
    do {
      let output: Drain
      do {
        output = try Drain(pipes.output.reading, limit: maxOutput)
      } catch {
        pipes.errors.reading.close()
        throw error
      }
      return (output, try Drain(pipes.errors.reading, limit: 64 * 1024))
    } catch {
      pipes.input.ours.close()
      pipes.closeIts()
      throw error
    }
  }
}

/// Everything that comes from one pipe, up to a limit; the rest is read and dropped.
private final class Drain: Sendable {
  private struct State {
    var bytes: [UInt8] = []
    var isDone = false
    var waiting: CheckedContinuation<Void, Never>?
  }

  private let state: Guarded<State>
  private let reader: Reader

  init(_ descriptor: Descriptor, limit: Int) throws {
    let state = Guarded(State())
    self.state = state
    reader = try Reader(
      descriptor,
      take: { portion in
        state.with { $0.bytes.append(contentsOf: portion.prefix(max(0, limit - $0.bytes.count))) }
      },
      end: {
        let waiting = state.with { state in
          state.isDone = true
          defer { state.waiting = nil }
          return state.waiting
        }
        waiting?.resume()
      })
  }

  func stop() {
    reader.stop()
  }

  /// Waits for the end of the pipe: of a dead program not long, as somebody may hold it open.
  func text() async -> String {
    let end = Deadline(1)
    _ = await end.race { [self] in
      await withCheckedContinuation { waiter in
        let isDone = state.with { state in
          if !state.isDone { state.waiting = waiter }
          return state.isDone
        }
        if isDone { waiter.resume() }
      }
    }
    reader.stop()
    return state.with { String(decoding: $0.bytes, as: UTF8.self) }
  }
}

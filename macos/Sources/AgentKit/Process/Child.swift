// A child process in a group of its own.
//
// Owns starting it, waiting for it, and ending it with its group. Every child is reaped. Must not
// know what is said to it.

import Foundation

/// How a process ended.
public struct ExitReason: Sendable, Equatable, CustomStringConvertible {
  public let code: Int32?
  public let signal: Int32?

  public var description: String {
    if let code { return "exited with code \(code)" }
    return "was ended by signal \(signal ?? 0)"
  }
}

/// What is run.
public struct Command: Sendable, Equatable {
  /// A path, or a name to look for on `PATH`.
  public var program: String
  public var arguments: [String]
  /// All of its environment; nil: ours.
  public var environment: [String: String]?
  public var directory: String?

  public init(
    _ program: String, _ arguments: [String] = [], environment: [String: String]? = nil,
    directory: String? = nil
  ) {
    self.program = program
    self.arguments = arguments
    self.environment = environment
    self.directory = directory
  }

  var resolvedEnvironment: [String: String] {
    environment ?? ProcessInfo.processInfo.environment
  }

  /// The file that is run. Relative entries of `PATH` mean the current directory: nothing in it is
  /// ever run.
  func path() throws -> String {
    if program.contains("/") { return program }
    let path = resolvedEnvironment["PATH"] ?? "/usr/local/bin:/usr/bin:/bin"
    let places = path.split(separator: ":").filter { $0.hasPrefix("/") }
    for place in places where access("\(place)/\(program)", X_OK) == 0 {
      return "\(place)/\(program)"
    }
    throw AgentError.notStarted("there is no `\(program)` on PATH (\(path))")
  }
}

/// The three ways to a child, before it is there.
struct ChildPipes {
  let input: (ours: Descriptor, its: Descriptor)
  let output: (reading: Descriptor, writing: Descriptor)
  let errors: (reading: Descriptor, writing: Descriptor)

  /// All of them or none.
  init() throws {
    var made: [Descriptor] = []
    do {
      let pair = try Descriptor.socketPair()
      made += [pair.0, pair.1]
      output = try Descriptor.pipe()
      made += [output.reading, output.writing]
      errors = try Descriptor.pipe()
      input = (pair.0, pair.1)
    } catch {
      for one in made { one.close() }
      throw error
    }
  }

  /// Nobody is started: whoever reads our ends reads their end.
  func closeIts() {
    for one in [input.its, output.writing, errors.writing] { one.close() }
  }
}

final class Child: Sendable {
  let pid: pid_t
  private let state = Guarded(State())

  private struct State {
    var exit: ExitReason?
    var waiters: [CheckedContinuation<ExitReason, Never>] = []
  }

  /// Starts it with its ends of the pipes, which are closed here in any case.
  convenience init(_ command: Command, _ pipes: ChildPipes) throws {
    try self.init(
      command, input: pipes.input.its, output: pipes.output.writing, error: pipes.errors.writing)
  }

  /// Starts it with these as standard input, output and error, which are closed here.
  init(_ command: Command, input: Descriptor, output: Descriptor, error: Descriptor) throws {
    defer {
      for descriptor in [input, output, error] { descriptor.close() }
    }
    pid = try Spawn.start(command, [input, output, error])
    let (pid, state) = (pid, state)
    let thread = Thread { Self.wait(for: pid, state) }
    thread.stackSize = 256 * 1024
    thread.name = "agentkit-child"
    thread.start()
  }

  /// Its end, if it has ended.
  var exit: ExitReason? { state.with { $0.exit } }

  /// Waits for its end.
  func ended() async -> ExitReason {
    await withCheckedContinuation { continuation in
      let exit: ExitReason? = state.with { state in
        if state.exit == nil { state.waiters.append(continuation) }
        return state.exit
      }
      if let exit { continuation.resume(returning: exit) }
    }
  }

  /// Waits for its end, at most so long.
  func ended(within seconds: Double) async -> ExitReason? {
    let steps = Deadline(seconds)
    return await steps.race { await self.ended() }
  }

  /// Signals the whole group. After its end the number may be somebody else's: nothing happens then.
  func signal(_ number: Int32) {
    state.with { state in
      if state.exit == nil { _ = kill(-pid, number) }
    }
  }

  /// A dead leader keeps its number until it is reaped: until then its group can't be somebody
  /// else's.
  private static func wait(for pid: pid_t, _ state: Guarded<State>) {
    var info = siginfo_t()
    while waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR {}
    _ = kill(-pid, SIGKILL)
    var status: Int32 = 0
    let waiters = state.with { state in
      while waitpid(pid, &status, 0) < 0 && errno == EINTR {}
      let signal = status & 0x7F
      let reason =
        signal == 0
        ? ExitReason(code: (status >> 8) & 0xFF, signal: nil)
        : ExitReason(code: nil, signal: signal)
      state.exit = reason
      defer { state.waiters = [] }
      return state.waiters.map { ($0, reason) }
    }
    for (waiter, reason) in waiters { waiter.resume(returning: reason) }
  }
}

extension Duration {
  /// So many seconds, whatever a caller means by that: no clock takes what isn't finite.
  static func bounded(_ seconds: Double) -> Duration {
    .seconds(seconds >= 0 ? min(seconds, 1e9) : 0)
  }
}

/// Waiting for something, at most so long. What is late goes on by itself.
struct Deadline {
  let seconds: Double

  init(_ seconds: Double) {
    self.seconds = seconds
  }

  func race<Value: Sendable>(_ wait: @escaping @Sendable () async -> Value) async -> Value? {
    await First<Value>().value(within: seconds, wait)
  }

  /// The same, and nil at once when the task is cancelled.
  func raceUnlessCancelled<Value: Sendable>(_ wait: @escaping @Sendable () async -> Value) async
    -> Value?
  {
    let first = First<Value>()
    return await withTaskCancellationHandler {
      await first.value(within: seconds, wait)
    } onCancel: {
      first.set(nil)
    }
  }
}

/// The first value that is set, for one who waits.
private final class First<Value: Sendable>: Sendable {
  private enum State {
    case open
    case awaited(CheckedContinuation<Value?, Never>)
    case done(Value?)
  }

  private let state = Guarded(State.open)

  func set(_ value: Value?) {
    let waiter: CheckedContinuation<Value?, Never>? = state.with { state in
      let before = state
      if case .done = before { return nil }
      state = .done(value)
      if case .awaited(let waiter) = before { return waiter }
      return nil
    }
    waiter?.resume(returning: value)
  }

  func value(within seconds: Double, _ wait: @escaping @Sendable () async -> Value) async -> Value?
  {
    let timer = Task {
      try? await Task.sleep(for: .bounded(seconds))
      if !Task.isCancelled { set(nil) }
    }
    Task {
      set(await wait())
      timer.cancel()
    }
    return await withCheckedContinuation { waiter in
      let done: Value?? = state.with { state in
        if case .done(let value) = state { return .some(value) }
        state = .awaited(waiter)
        return nil
      }
      if let done { waiter.resume(returning: done) }
    }
  }
}

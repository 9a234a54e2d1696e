// A child that answers sends, kept alive: an `agentctl stdio`, or any program that speaks the lines
// of PROTOCOL.md part 8, as `clawdis rpc` did.
//
// Owns when it is started, what its death means for whom, and its end. Must not know lines (that is
// `Connection`) nor processes (`Child`). Nothing here waits for the child to say how it is.

import Foundation

public actor RpcAgentProcess {
  /// What a fresh child is asked before it counts as up.
  public enum Handshake: String, Sendable {
    /// A worker: `status`.
    case status
    /// `agentctl stdio`: `hello`, of protocol 1.
    case hello
    /// `agentctl serve pi`, or `pi --mode rpc`: `get_state`. It answers one send at a time.
    case pi
  }

  public struct Configuration: Sendable {
    public var command: Command
    public var handshake = Handshake.status
    /// Seconds from the start to the answer.
    public var readyWithin = 10.0
    /// Seconds between the end of its input, the first signal, and the last.
    public var stopWithin = 2.0
    /// Seconds that a send has for its last line after it was aborted, and then the child for a sign
    /// of life.
    public var settleWithin = 5.0
    public var restarts = Restarts()

    public init(_ command: Command, handshake: Handshake = .status) {
      self.command = command
      self.handshake = handshake
    }
  }

  public enum State: String, Sendable {
    case idle, starting, live, waiting
    case broken = "crash-looped"
    case stopped
  }

  /// How it is, by what is known here.
  public struct Health: Sendable, Equatable {
    public var state: State
    public var pid: Int32?
    /// Starts that came up.
    public var generation: Int
    /// Deaths.
    public var restarts: Int
    public var lastExit: String?
  }

  private let configuration: Configuration
  private var restarts: Restarts
  private var current: Worker?
  private var currentSince = 0.0
  private var starting: Task<Worker, Error>?
  /// What a start waits for after a death.
  private var pausing: Task<Void, Never>?
  /// Those that are being ended.
  private var leaving: [ObjectIdentifier: Task<ExitReason, Never>] = [:]
  private var supervisor: Task<Void, Never>?
  private var generation = 0
  private var lastExit: String?
  private var state = State.idle

  public init(_ configuration: Configuration) {
    self.configuration = configuration
    restarts = configuration.restarts
  }

  public var health: Health {
    Health(
      state: state, pid: current?.child.pid, generation: generation, restarts: restarts.count,
      lastExit: lastExit)
  }

  /// The end of what it says besides the protocol.
  public var log: String { current?.log.text ?? "" }

  /// What came that nobody could use.
  public var strays: Strays {
    get async { await current?.connection.strays ?? Strays() }
  }

  /// Starts it, and returns when it is up. Whoever asks meanwhile waits for the same start.
  public func start() async throws {
    _ = try await running()
  }

  /// Sends, and waits for the answer: at most so long, from now on.
  ///
  /// Throws what happened to this send, and to no other.
  public func send(_ send: Send, within seconds: Double = 600) async throws -> TurnResult {
    for try await line in try await lines(send, within: seconds) where line.isFinal {
      switch line.body {
      case .messageEnd(let result): return result
      case .error(let error): throw AgentError.answered(error)
      default: continue
      }
    }
    throw AgentError.outcomeUnknown(key: send.key)
  }

  /// The same with all its lines.
  public func lines(_ send: Send, within seconds: Double = 600) async throws
    -> Lines
  {
    let begun = Self.now
    let found = await Deadline(seconds).raceUnlessCancelled { () -> Result<Worker, Error> in
      do { return .success(try await self.running()) } catch { return .failure(error) }
    }
    try Task.checkCancellation()
    guard let found else { throw AgentError.late(seconds: seconds) }
    let worker = try found.get()
    let left = max(0, seconds - (Self.now - begun))
    return try await worker.connection.lines(
      "send", send.members, key: send.key, within: left)
  }

  /// Asks the child itself how it is.
  public func status(within seconds: Double = 2) async throws -> Line {
    guard let current else { throw AgentError.childExited(lastExit ?? "it isn't running") }
    return try await current.connection.ask("status", within: seconds)
  }

  /// Ends it for good. When this returns, every child is reaped.
  public func stop() async {
    state = .stopped
    supervisor?.cancel()
    pausing?.cancel()
    if let starting {
      starting.cancel()
      _ = try? await starting.value
    }
    if let worker = current {
      current = nil
      lastExit = await end(worker).description
    }
    for one in leaving.values { _ = await one.value }
  }

  /// The cause is mended: starts at once, whatever happened before.
  public func restart() async throws {
    if state == .stopped { throw AgentError.stopped }
    restarts.forget()
    pausing?.cancel()
    if let worker = current {
      current = nil
      lastExit = await end(worker).description
    }
    try await start()
  }

  /// Ends one, and remembers it until it is reaped.
  private func end(_ worker: Worker) async -> ExitReason {
    let name = ObjectIdentifier(worker)
    let seconds = configuration.stopWithin
    let task = leaving[name] ?? Task { await worker.end(within: seconds) }
    leaving[name] = task
    let exit = await task.value
    leaving[name] = nil
    return exit
  }

  static var now: Double {
    Double(DispatchTime.now().uptimeNanoseconds) / 1e9
  }

  private func running() async throws -> Worker {
    if state == .stopped { throw AgentError.stopped }
    if let current { return current }
    if let starting { return try await starting.value }
    if restarts.isBroken(at: Self.now) {
      state = .broken
      throw AgentError.crashLooped(
        "the process died \(restarts.count) times; it is not started again for now"
          + (lastExit.map { ": \($0)" } ?? ""))
    }
    let pause = restarts.pause(at: Self.now)
    state = pause > 0 ? .waiting : .starting
    // A restart or the end cuts it short.
    let pausing = Task { _ = try? await Task.sleep(for: .bounded(pause)) }
    self.pausing = pausing
    let task = Task {
      defer { starting = nil }
      await pausing.value
      return try await spawn()
    }
    starting = task
    return try await task.value
  }

  /// One start. It is up when it has answered.
  private func spawn() async throws -> Worker {
    if state == .stopped { throw AgentError.stopped }
    state = .starting
    let begun = Self.now
    let worker: Worker
    do {
      let peer = configuration.handshake == .pi ? Peer.pi : .child
      worker = try Worker(configuration.command, peer: peer) { [weak self] in
        Task { await self?.judge() }
      }
    } catch {
      died("\(error)", lived: 0)
      throw error
    }
    do {
      try await greet(worker)
    } catch {
      let exit = await end(worker)
      var reason = "the process didn't come up: "
      switch error {
      case AgentError.notSent, AgentError.outcomeUnknown: reason += "it \(exit)"
      default: reason += "\(error)"
      }
      let said = worker.log.lastWords
      if !said.isEmpty, !reason.contains(said) { reason += "; it said: \(said)" }
      died(reason, lived: Self.now - begun)
      throw AgentError.notStarted(reason)
    }
    guard state != .stopped else {
      _ = await end(worker)
      throw AgentError.stopped
    }
    generation += 1
    current = worker
    currentSince = Self.now
    state = .live
    supervise(worker)
    return worker
  }

  private func greet(_ worker: Worker) async throws {
    let seconds = configuration.readyWithin
    switch configuration.handshake {
    case .status, .pi:
      let line = try await worker.connection.ask("status", within: seconds)
      if line.json["ok"] == false {
        throw AgentError.helloRefused(line.json["details"]?.string ?? "it says that it can't work")
      }
    case .hello:
      let members: Members = [("client", "AgentKit"), ("protocol", 1)]
      let line = try await worker.connection.ask("hello", members, within: seconds)
      guard case .hello(let hello) = line.body, hello.isOK, hello.protocolVersion == 1 else {
        throw AgentError.helloRefused("it answered `\(line.json.text.prefix(200))`")
      }
    }
  }

  /// Waits for its end, and starts the next one.
  private func supervise(_ worker: Worker) {
    supervisor = Task { [weak self, weak worker, connection = worker.connection] in
      await connection.end()
      if let worker { await self?.ended(worker) }
    }
  }

  private func ended(_ worker: Worker) async {
    guard current === worker else { return }
    current = nil
    // Counted at once: whoever starts the next one while this one is cleared away keeps to the pause.
    restarts.died(at: Self.now, after: Self.now - currentSince)
    // One that only closed its output is ended; its end is what it was.
    let exit = await end(worker)
    told("the process \(exit)")
    while state != .stopped, current == nil, !restarts.isBroken(at: Self.now) {
      // Whoever came up has somebody of its own who waits for its end.
      do {
        _ = try await running()
        return
      } catch AgentError.stopped { return } catch { continue }
    }
  }

  private func died(_ reason: String, lived: Double) {
    restarts.died(at: Self.now, after: lived)
    told(reason)
  }

  private func told(_ reason: String) {
    lastExit = reason
    // Somebody may have started the next one meanwhile.
    guard state != .stopped, current == nil else { return }
    state = restarts.isBroken(at: Self.now) ? .broken : .waiting
  }

  /// A child that doesn't end an aborted send is at fault, and is replaced: PROTOCOL.md part 8. As
  /// long as it serves others it needn't be, while it answers `status`. A send that failed is no
  /// fault of it.
  private func judge() async {
    guard let worker = current else { return }
    let connection = worker.connection
    let given = await connection.stuck
    while true {
      try? await Task.sleep(for: .bounded(configuration.settleWithin))
      guard current === worker, await !connection.stuck.isDisjoint(with: given) else { return }
      let servesOthers = await connection.servesOthers
      guard servesOthers, await answers(connection) else { break }
    }
    await connection.fail(.childExited("the process doesn't end what was aborted: it is replaced"))
  }

  private func answers(_ connection: Connection) async -> Bool {
    (try? await connection.ask("status", within: configuration.settleWithin)) != nil
  }
}

// A program's way to the agents of its user.
//
// Owns the one connection to the daemon, and when a request goes through `agentctl stdio` instead.
// Must not know how either is reached, nor what is shown.

import Foundation

public actor AgentClient {
  public struct Options: Sendable {
    /// The daemon's socket; nil: where it is by itself.
    public var endpoint: Endpoint?
    /// What we call ourselves.
    public var name = "AgentKit"
    /// What serves where there is no daemon; nil: nothing does.
    public var agentctl: Command? = Command("agentctl")
    /// May a turn run once without a daemon?
    public var runsAlone = true
    /// Is somebody there who answers questions?
    public var answersQuestions = false

    public init() {}
  }

  private let options: Options
  private var connection: Connection?
  private var opening: Task<Connection, Error>?
  /// How often it was closed: what was begun before is not kept.
  private var closes = 0
  /// Every `agentctl stdio` that runs.
  private var relays: [Int: Worker] = [:]
  private var lastRelay = 0

  public init(_ options: Options = Options()) {
    self.options = options
  }

  /// Sends, and waits for the answer. A refused or failed turn is thrown.
  public func send(text: String, session: String? = nil, thinking: Thinking? = nil) async throws
    -> TurnResult
  {
    try await send(Send(text, session: session, thinking: thinking))
  }

  /// The same with everything a send has. `seconds` is how long we wait: then the turn is aborted.
  public func send(_ send: Send, within seconds: Double? = nil) async throws -> TurnResult {
    var send = send
    send.stream = send.stream ?? false
    for try await line in try await lines(send, within: seconds) where line.isFinal {
      switch line.body {
      case .messageEnd(let result): return result
      case .error(let error): throw AgentError.answered(error)
      default: continue
      }
    }
    throw AgentError.outcomeUnknown(key: send.key)
  }

  /// The same with all its lines. Cancelling the task that reads them aborts the turn. When the
  /// daemon is lost meanwhile, the one that comes next is asked with the key, and tells on.
  public func lines(_ send: Send, within seconds: Double? = nil) async throws
    -> Lines
  {
    // With a key, an unknown outcome can be asked for.
    var keyed = send
    keyed.key = send.key ?? UUID().uuidString.lowercased()
    let (begun, before) = (ContinuousClock.now, closes)
    // Its outcome may be unknown already: then the store is that of the daemon that had it.
    let asked = Guarded<String?>(nil)
    let first: Lines
    do {
      first = try await direct { [keyed] connection in
        let epoch = await connection.epoch
        asked.with { $0 = epoch }
        return try await connection.linesOnceBegun(keyed, within: seconds)
      }
    } catch AgentError.notConnected(let fact, let reason) {
      return try await relayed(keyed, fact, reason, within: seconds)
    } catch AgentError.outcomeUnknown(let key) {
      first = Lines { throw AgentError.outcomeUnknown(key: key) }
    }
    let again = Again(first) { [weak self, keyed] in
      let epoch = asked.with { $0 }
      let left = seconds.map { $0 - (ContinuousClock.now - begun) / .seconds(1) }
      guard let self, let epoch, await self.closes == before, left ?? 1 > 0 else {
        throw AgentError.outcomeUnknown(key: keyed.key)
      }
      return try await self.again(keyed, epoch: epoch, within: left)
    }
    return Lines { try await again.take() }
  }

  /// Asks for a send whose conversation broke, with its key, at the daemon that comes next: what was
  /// accepted is told from its beginning. One with another store knows nothing of it.
  private func again(_ send: Send, epoch: String, within seconds: Double?) async throws -> Lines {
    let unknown = AgentError.outcomeUnknown(key: send.key)
    let until = ContinuousClock.now + .seconds(Fallback.patience)
    do {
      while true {
        do {
          return try await direct { connection in
            guard await connection.epoch == epoch else { throw unknown }
            return try await connection.linesOnceBegun(send, within: seconds)
          }
        } catch AgentError.notConnected where ContinuousClock.now < until {
          try await Task.sleep(for: .seconds(0.05))
        }
      }
    } catch AgentError.notConnected(let fact, let reason) {
      // It knows whether one is on its way, and waits for that.
      return try await relayed(send, fact, reason, within: seconds, epoch: epoch)
    }
  }

  /// Asks the daemon something else, and waits for its one answer.
  public func ask(_ kind: String, _ members: Members = [], within seconds: Double = 10) async throws
    -> Line
  {
    try await direct { try await $0.ask(kind, members, within: seconds) }
  }

  /// What a session is called in lists. Nil: how its first prompt begins.
  public func setTitle(_ title: String?, ofSession session: String) async throws {
    let title = title.map(JSONValue.string) ?? .null
    _ = try await ask("session.title", [("session", .string(session)), ("title", title)])
  }

  /// Makes another session, which begins with what the agent remembers of one, and names it. The
  /// agent makes its copy when the first turn of the new one begins.
  public func fork(session: String, to name: String? = nil) async throws -> String {
    var members: Members = [("session", .string(session))]
    if let name { members.append(("to", .string(name))) }
    let line = try await ask("session.fork", members)
    guard let made = line.json["session"]?.string else {
      throw AgentError.outcomeUnknown(key: nil)
    }
    return made
  }

  /// Another model, thinking level or mode for the turns of a session that are sent from now on. What
  /// isn't named stays, and something has to be.
  public func setModel(
    _ model: String? = nil, of provider: String? = nil, thinking: String? = nil,
    mode: String? = nil, ofSession session: String
  ) async throws -> Pins {
    var members: Members = [("session", .string(session))]
    let named = [
      ("provider", provider), ("model", model), ("thinking", thinking), ("mode", mode),
    ]
    for (name, value) in named {
      if let value { members.append((name, .string(value))) }
    }
    return Pins(try await ask("set_model", members).json)
  }

  /// Which models and modes an agent has, as it says itself, or that of a session; without either,
  /// the agent that a send would reach. A process of it is started if none lives.
  public func models(ofAgent agent: String? = nil, ofSession session: String? = nil) async throws
    -> ModelList
  {
    var members: Members = []
    if let agent { members.append(("agent", .string(agent))) }
    if let session { members.append(("session", .string(session))) }
    var found = ModelList()
    var page: Members = members
    while true {
      // The daemon gives a process less than that to come up and say it.
      let json = try await ask("models", page, within: 40).json
      found.add(json)
      guard let next = json["next"] else { return found }
      page = members + [("after", next)]
    }
  }

  /// Which slash commands an agent has, as it says itself, or that of a session; without either, the
  /// agent that a send would reach. A process of it is started if none lives.
  public func commands(ofAgent agent: String? = nil, ofSession session: String? = nil) async throws
    -> [SlashCommand]
  {
    var members: Members = []
    if let agent { members.append(("agent", .string(agent))) }
    if let session { members.append(("session", .string(session))) }
    // The daemon gives a process less than that to come up and say it.
    let line = try await ask("commands", members, within: 40)
    return line.json["commands"]?.array?.compactMap(SlashCommand.init) ?? []
  }

  /// How the daemon is. On a connection of its own, so that nothing else is waited for.
  public func status(within seconds: Double = 2) async throws -> Status {
    let (connection, _) = try await greeted(within: seconds)
    defer { Task { await connection.close() } }
    let line = try await connection.ask("status", within: seconds)
    guard case .status(let status) = line.body else {
      throw AgentError.helloRefused("it answered `\(line.kind)`")
    }
    return status
  }

  /// Everything that happens from now on, or after the cursor, over any number of connections. With
  /// `sessions`, what becomes of sessions, too: lines `session_changed`.
  public nonisolated func events(
    after cursor: Cursor? = nil, session: String? = nil, sessions: Bool = false
  ) -> Lines {
    let follower = Follower(session: session, sessions: sessions, cursor: cursor) { [options] in
      try await Self.greeted(options, within: Fallback.patience).0
    }
    return Lines { try await follower.next() }
  }

  /// Ends what is open. What a daemon accepted goes on there; a turn without one is aborted. When this
  /// returns, no process of ours is left.
  public func close() async {
    closes += 1
    opening?.cancel()
    opening = nil
    let old = connection
    connection = nil
    await old?.close()
    await withTaskGroup(of: Void.self) { group in
      for number in relays.keys { group.addTask { await self.leave(number, within: 1) } }
    }
  }

  /// Over the connection that is open, or a new one. What certainly wasn't sent is sent once more.
  private func direct<Result: Sendable>(
    _ use: @Sendable (Connection) async throws -> Result
  ) async throws -> Result {
    if let connection, await connection.isOpen {
      do {
        return try await use(connection)
      } catch AgentError.notSent {
        if self.connection === connection { self.connection = nil }
      }
    }
    let fresh = try await open()
    do {
      return try await use(fresh)
    } catch AgentError.notSent {
      throw AgentError.notConnected(.helloClosed, reason: "\(AgentError.notSent)")
    }
  }

  /// One connection, however many ask for it at once.
  private func open() async throws -> Connection {
    if let opening { return try await opening.value }
    if let connection, await connection.isOpen { return connection }
    if let opening { return try await opening.value }
    let before = closes
    let task = Task {
      defer {
        if closes == before { opening = nil }
      }
      do {
        let (fresh, _) = try await greeted(within: Fallback.patience)
        if closes == before {
          connection = fresh
          return fresh
        }
        await fresh.close()
      } catch is CancellationError {}
      throw AgentError.stopped
    }
    opening = task
    return try await task.value
  }

  private func greeted(within seconds: Double) async throws -> (Connection, HelloAnswer) {
    try await Self.greeted(options, within: seconds)
  }

  private static func greeted(_ options: Options, within seconds: Double) async throws
    -> (Connection, HelloAnswer)
  {
    let socket = try (options.endpoint ?? Endpoint.find()).connect()
    let reading: Descriptor
    do {
      reading = try socket.duplicate()
    } catch {
      socket.close()
      throw error
    }
    let transport = try LineTransport(
      reading: reading, writing: socket, limit: Connection.maxLine)
    return try await Connection.greeted(
      transport, as: options.name, within: seconds, answersQuestions: options.answersQuestions)
  }

  /// Nothing left so far. Who holds the whole rule decides what is right now. With an `epoch` the
  /// daemon with that store may have accepted it, and nobody else is asked.
  private func relayed(
    _ send: Send, _ fact: Fact, _ reason: String, within seconds: Double?, epoch: String? = nil
  ) async throws -> Lines {
    guard Fallback.decide(fact, waited: Fallback.patience) == .relay, var command = options.agentctl
    else {
      guard epoch == nil else { throw AgentError.outcomeUnknown(key: send.key) }
      throw AgentError.notConnected(fact, reason: reason)
    }
    if let endpoint = options.endpoint { command.arguments += ["--socket", endpoint.path] }
    let runsAlone = options.runsAlone && epoch == nil
    command.arguments += runsAlone ? ["stdio"] : ["stdio", "--no-fallback"]
    let (number, worker) = try relay(command)
    do {
      if let epoch {
        let hello = try await worker.connection.ask("hello", [("protocol", 1)])
        guard case .hello(let hello) = hello.body, hello.epoch == epoch else {
          throw AgentError.outcomeUnknown(key: send.key)
        }
      }
      let lines = try await worker.connection.linesOnceBegun(send, within: seconds)
      // Its input stays open until then: it may have to be told to abort.
      Task {
        await worker.connection.idle()
        await leave(number)
      }
      return lines
    } catch AgentError.childExited where epoch != nil {
      await leave(number)
      throw AgentError.outcomeUnknown(key: send.key)
    } catch AgentError.childExited(let why) {
      throw Self.meaning(of: await leave(number), why, send)
    } catch AgentError.notSent {
      await leave(number)
      guard epoch == nil else { throw AgentError.outcomeUnknown(key: send.key) }
      throw AgentError.notConnected(fact, reason: "\(reason); \(worker.log.lastWords)")
    } catch {
      Task { await leave(number) }
      throw error
    }
  }

  /// One that has to abort leaves soon, whatever it is doing.
  private func relay(_ command: Command) throws -> (Int, Worker) {
    lastRelay += 1
    let number = lastRelay
    let worker = try Worker(command) { Task { await self.leave(number) } }
    relays[number] = worker
    return (number, worker)
  }

  @discardableResult
  private func leave(_ number: Int, within seconds: Double = 5) async -> ExitReason? {
    let exit = await relays[number]?.end(within: seconds)
    relays[number] = nil
    return exit
  }

  /// `agentctl` ends with 3, 69 or 78 when nobody got the request.
  private static func meaning(of exit: ExitReason?, _ why: String, _ send: Send) -> AgentError {
    switch exit?.code {
    case 3, 69, 78: .notConnected(.noSocket, reason: why)
    default: .outcomeUnknown(key: send.key)
    }
  }
}

// One open conversation: requests with ids, and the lines that answer each.
//
// Owns the ids, who waits for which, deadlines, and what becomes of everybody when the other side
// goes. Must not know how the other side was reached, nor what a request means.

import Foundation

/// Who is on the other side.
enum Peer: Sendable, Equatable {
  /// A daemon, or `agentctl stdio`: only lines, and an over-long one is the end.
  case daemon
  /// A child: what isn't a line of the protocol is its log.
  case child
  /// A child that speaks pi's RPC.
  case pi
}

/// How much of what came nobody could use.
public struct Strays: Sendable, Equatable {
  /// Lines that aren't JSON objects, or are too long.
  public var noise = 0
  /// Lines with an id that nobody asked under, or not any more.
  public var unasked = 0
}

public actor Connection {
  /// Twice what a daemon of this version sends: a newer one may send more.
  static let maxLine = 2 * 1024 * 1024
  /// Seconds that the rest of a line has to leave once nobody waits for its answer. Who doesn't take
  /// it takes nothing from anybody.
  static let leavesWithin = 5.0

  private struct Pending {
    let mailbox: Mailbox
    let kind: String
    var key: String?
    var deadline: Task<Void, Never>?
    let outgoing: Outgoing
    /// It is late or cancelled and was aborted: what still comes is dropped.
    var isGivenUp = false
  }

  private let transport: LineTransport
  private let peer: Peer
  private var pi = PiLines()
  private let onNoise: @Sendable ([UInt8]) -> Void
  private let ending: @Sendable () async -> AgentError?
  private let onGivenUp: @Sendable () -> Void
  private var pending: [Int: Pending] = [:]
  private var lastID = 0
  private var ended: AgentError?
  private var endWaiters: [CheckedContinuation<Void, Never>] = []
  private var idleWaiters: [CheckedContinuation<Void, Never>] = []
  private var pump: Task<Void, Never>?
  public private(set) var strays = Strays()
  /// Which store is behind it, as `hello` said.
  private(set) var epoch: String?
  /// Came a turn's line without an id?
  private var knowsNoIDs = false

  /// `ending` is asked, once nothing comes any more, why: only who owns a child knows. `onGivenUp`
  /// is told of each send that was aborted.
  init(
    _ transport: LineTransport, peer: Peer = .daemon,
    onNoise: @escaping @Sendable ([UInt8]) -> Void = { _ in },
    onGivenUp: @escaping @Sendable () -> Void = {},
    ending: @escaping @Sendable () async -> AgentError? = { nil }
  ) {
    self.transport = transport
    self.peer = peer
    self.onNoise = onNoise
    self.onGivenUp = onGivenUp
    self.ending = ending
  }

  deinit {
    transport.close()
    for one in pending.values {
      one.deadline?.cancel()
      one.mailbox.finish(.failure(AgentError.outcomeUnknown(key: one.key)))
    }
  }

  /// Says `hello` on a fresh connection, and waits for its answer.
  static func greeted(
    _ transport: LineTransport, as name: String, within seconds: Double,
    answersQuestions: Bool = false
  ) async throws -> (Connection, HelloAnswer) {
    let connection = Connection(transport)
    var members: Members = [("client", .string(name)), ("protocol", 1)]
    if answersQuestions { members.append(("answers", true)) }
    let line: Line
    do {
      line = try await connection.ask("hello", members, within: seconds)
    } catch {
      await connection.close()
      throw Self.greetingFailed(error, within: seconds)
    }
    if case .hello(let hello) = line.body, hello.isOK, hello.protocolVersion == 1 {
      await connection.note(hello)
      return (connection, hello)
    }
    await connection.close()
    if case .hello(let hello) = line.body {
      throw AgentError.helloRefused(
        "it speaks protocol \(hello.protocolVersion) (version \(hello.version)), this is protocol 1"
      )
    }
    throw AgentError.helloRefused("it answered `\(line.json.text.prefix(200))`")
  }

  private func note(_ hello: HelloAnswer) {
    epoch = hello.epoch
  }

  private static func greetingFailed(_ error: Error, within seconds: Double) -> Error {
    switch error {
    case AgentError.late:
      AgentError.notConnected(.helloSilent, reason: "`hello` was not answered in \(seconds) s")
    case AgentError.answered(let line) where line.code == .draining:
      AgentError.notConnected(.helloDraining, reason: "the daemon is stopping")
    case AgentError.answered(let line) where line.isRetryable:
      AgentError.notConnected(.helloOther, reason: line.message)
    case AgentError.answered(let line): AgentError.helloRefused(line.message)
    case is CancellationError, AgentError.helloRefused: error
    default:
      AgentError.notConnected(
        .helloClosed, reason: "the connection was closed before `hello` was answered")
    }
  }

  /// Is the other side still there, as far as is known?
  public var isOpen: Bool { ended == nil }

  /// Requests that wait for their last line.
  public var inFlight: Int { pending.count }

  /// Asks, and waits for the one answer. An `error` is thrown.
  public func ask(_ kind: String, _ members: Members = [], within seconds: Double? = nil)
    async throws -> Line
  {
    let mailbox = try begin(kind, members, key: nil, within: seconds)
    while let line = try await mailbox.next() {
      guard line.isFinal else { continue }
      if case .error(let error) = line.body { throw AgentError.answered(error) }
      return line
    }
    throw AgentError.outcomeUnknown(key: nil)
  }

  /// Asks, and gives all lines that answer, the last one included. An `error` is the last line, and
  /// isn't thrown. Cancelling the task that reads aborts the turn; leaving the loop doesn't.
  public func lines(
    _ kind: String, _ members: Members = [], key: String? = nil, within seconds: Double? = nil
  ) async throws -> Lines {
    let mailbox = try begin(kind, members, key: key, within: seconds)
    return mailbox.stream(of: self)
  }

  /// The same for one reader that comes and goes.
  func mailbox(_ kind: String, _ members: Members) async throws -> Mailbox {
    try begin(kind, members, key: nil, within: nil)
  }

  /// The same, once the first line is there: a daemon that is stopping says so by it, and then the
  /// request may go elsewhere.
  func linesOnceBegun(_ send: Send, within seconds: Double?) async throws
    -> Lines
  {
    let mailbox = try begin("send", send.members, key: send.key, within: seconds)
    guard let first = try await mailbox.next() else { throw AgentError.outcomeUnknown(key: nil) }
    if case .error(let error) = first.body, error.code == .draining, error.job == nil {
      throw AgentError.notConnected(.requestDraining, reason: error.message)
    }
    mailbox.putBack(first)
    return mailbox.stream(of: self)
  }

  /// Waits until the other side is gone.
  public func end() async {
    if ended != nil { return }
    await withCheckedContinuation { endWaiters.append($0) }
  }

  /// Waits until every request has its last line.
  func idle() async {
    if pending.isEmpty { return }
    await withCheckedContinuation { idleWaiters.append($0) }
  }

  /// No more requests; what is asked is still answered.
  public func finish() {
    transport.finishWriting()
  }

  /// Ends it at once. What was accepted goes on there.
  public func close() {
    over(.stopped)
    transport.close()
  }

  /// The other side is gone for a reason that its own end doesn't tell.
  func fail(_ error: AgentError) {
    over(error)
    transport.close()
  }

  /// Puts it on its way, and doesn't wait for that: a line that the other side doesn't take mustn't
  /// keep anybody from giving up.
  private func begin(_ kind: String, _ members: Members, key: String?, within seconds: Double?)
    throws -> Mailbox
  {
    if let ended { throw ended == .stopped ? ended : AgentError.notSent }
    try Task.checkCancellation()
    lastID += 1
    let id = lastID
    let line =
      peer == .pi
      ? PiLines.request(kind, id: id, members) : Request.line(kind, id: id, members)
    guard line.count <= Request.maxLine + 1 else { throw AgentError.oversized(line.count - 1) }
    listen()
    let mailbox = Mailbox { [weak self] in
      // Held from now on, or nobody would abort the turn of a client that goes.
      guard let self else { return }
      Task { await self.giveUp(id) }
    }
    let outgoing = transport.write(line) { [weak self] error in
      Task { await self?.failedToWrite(id, error) }
    }
    var one = Pending(mailbox: mailbox, kind: kind, key: key, outgoing: outgoing)
    if let seconds {
      one.deadline = Task { [weak self] in
        try? await Task.sleep(for: .bounded(seconds))
        if !Task.isCancelled { await self?.late(id, after: seconds) }
      }
    }
    pending[id] = one
    return mailbox
  }

  private func failedToWrite(_ id: Int, _ error: AgentError) {
    guard let one = remove(id) else { return }
    let why = error == .notSent ? error : .outcomeUnknown(key: one.key)
    one.mailbox.finish(.failure(why))
  }

  /// The one task that takes what comes, begun with the first request.
  private func listen() {
    guard pump == nil else { return }
    let inbound = transport.inbound
    pump = Task { [weak self, transport, ending] in
      for await frames in inbound {
        await self?.take(frames)
        transport.taken()
      }
      let why = await ending()
      await self?.over(why)
    }
  }

  /// Takes nothing more, though somebody may still hold the other end open.
  func stopReading() {
    transport.stopReading()
  }

  private func take(_ frames: [Frame]) {
    for frame in frames {
      switch frame {
      case .line(let bytes):
        if let line = try? Line(bytes) {
          for line in peer == .pi ? pi.lines(line) : [line] { route(line) }
        } else {
          strays.noise += 1
          onNoise(bytes)
          // Before `hello` is answered, whatever this is isn't a daemon.
          if peer == .daemon, pending.values.contains(where: { $0.kind == "hello" }) {
            let shown = String(decoding: bytes.prefix(200), as: UTF8.self)
            fail(.helloRefused("it answered `\(shown)`"))
          }
        }
      case .tooLong:
        strays.noise += 1
        if peer == .daemon { fail(.outcomeUnknown(key: nil)) }
      }
    }
  }

  private func route(_ line: Line) {
    guard let id = owner(of: line), let one = pending[id] else {
      strays.unasked += 1
      return
    }
    // An abort goes under the id of its send, and is answered under it, too.
    if line.kind == "abort" && one.kind != "abort" { return }
    one.mailbox.put(line)
    if one.kind == "send" ? line.endsTurn : line.isFinal {
      // A subscription has its answer, and goes on.
      if line.kind == "live" || (one.kind == "subscribe" && line.kind != "error") { return }
      remove(id)?.mailbox.finish()
    }
  }

  /// Whose line it is. A child's without an id belongs to the only request that it can answer.
  private func owner(of line: Line) -> Int? {
    if let id = line.id { return id.integer }
    guard peer == .child else { return nil }
    let kind = line.kind == "status" ? "status" : "send"
    if line.endsTurn || !line.isFinal { knowsNoIDs = true }
    let asked = pending.filter { $0.value.kind == kind }
    return asked.count == 1 ? asked.first?.key : nil
  }

  @discardableResult
  private func remove(_ id: Int) -> Pending? {
    let one = pending.removeValue(forKey: id)
    one?.deadline?.cancel()
    if pending.isEmpty {
      for waiter in idleWaiters { waiter.resume() }
      idleWaiters = []
    }
    return one
  }

  private func late(_ id: Int, after seconds: Double) {
    guard let one = pending[id] else { return }
    one.mailbox.finish(.failure(AgentError.late(seconds: seconds)))
    giveUp(id)
  }

  /// Nobody waits for it any more: a send is aborted, anything else forgotten. What hasn't begun to
  /// leave never does.
  private func giveUp(_ id: Int) {
    guard let one = pending[id], !one.isGivenUp else { return }
    let isWithdrawn = one.outgoing.withdraw() == .withdrawn
    if !isWithdrawn {
      // It also holds this connection for so long: the turn is aborted though its client is gone.
      Task {
        try? await Task.sleep(for: .bounded(Self.leavesWithin))
        if !one.outgoing.hasLeft { fail(.outcomeUnknown(key: nil)) }
      }
    }
    guard one.kind == "send", !isWithdrawn else {
      remove(id)
      return
    }
    pending[id]?.isGivenUp = true
    pending[id]?.deadline?.cancel()
    // A connection that is gone says so by its end.
    transport.write(Request.line("abort", id: id))
    onGivenUp()
  }

  /// Ids of sends that were given up and have not ended.
  var stuck: Set<Int> {
    Set(pending.filter { $0.value.isGivenUp }.keys)
  }

  /// Does the child serve another send, or can it while one is stuck? Without ids it can't: nobody
  /// knows whose its lines are.
  var servesOthers: Bool {
    !knowsNoIDs && pending.values.contains { $0.kind == "send" && !$0.isGivenUp }
  }

  /// The other side is gone: everybody hears it, each by what is known of its own request.
  private func over(_ error: AgentError?) {
    guard ended == nil else { return }
    ended = error ?? .notSent
    for (id, _) in pending {
      guard let one = remove(id) else { continue }
      let lost = AgentError.outcomeUnknown(key: one.key)
      let why: AgentError =
        switch error {
        case nil, .outcomeUnknown, .notSent:
          one.outgoing.withdraw() == .withdrawn ? .notSent : lost
        case .stopped?: one.kind == "send" ? lost : .stopped
        case let error?: error
        }
      one.mailbox.finish(.failure(why))
    }
    for waiter in endWaiters { waiter.resume() }
    endWaiters = []
    transport.close()
  }
}

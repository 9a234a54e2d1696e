// AgentKit and a real agentd.

import Foundation
import Testing

@testable import AgentKit

@Suite(.enabled(if: binaries != nil, needsDaemon), .timeLimit(.minutes(1)))
struct RealDaemon {
  @Test func aSendIsAnswered() async throws {
    let daemon = try await Daemon()
    let client = daemon.client()
    let result = try await client.send(text: "hello there", session: "main")
    #expect(result.text == "hello there" && result.session == "main")
    #expect(result.servedBy == "daemon" && result.context == "new")
    let again = try await client.send(text: "again", session: "main")
    #expect(again.context == "continued")
    let status = try await client.status()
    #expect(status.state == "ready" && status.isLive && status.workers.count == 1)
    await client.close()
  }

  @Test func aChildThatSpeaksPisRpcIsDriven() async throws {
    let daemon = try await Daemon()
    let child = RpcAgentProcess(
      .init(daemon.command("agentctl", ["serve", "pi", "--agent", "chaos"]), handshake: .pi))
    try await child.start()
    #expect(await child.health.state == .live)
    var text = ""
    var last = ""
    for try await line in try await child.lines(Send("chaos:say hello there")) {
      if case .messageDelta(let delta) = line.body { text += delta.text }
      if case .messageEnd(let result) = line.body { last = result.text }
    }
    #expect(text == "hello there" && last == text)
    let again = try await child.send(Send("chaos:say again"))
    #expect(again.text == "again" && again.stop == "end_turn")
    // A turn that takes too long is ended, and the child serves the next one.
    let late = await failure {
      _ = try await child.send(Send("chaos:sleep-ms 600000"), within: 0.5)
    }
    guard case .late? = late as? AgentError else {
      Issue.record("\(String(describing: late))")
      return
    }
    let next = try await until("the next one") { try? await child.send(Send("chaos:say next")) }
    #expect(next.text == "next")
    #expect(await child.health.restarts == 0)
    await child.stop()
  }

  @Test func aTurnIsStreamedAndToldApart() async throws {
    let daemon = try await Daemon()
    let client = daemon.client()
    var kinds: [String] = []
    var text = ""
    for try await line in try await client.lines(Send("[[tool ls]] a b c", session: "s")) {
      kinds.append(line.kind)
      if case .messageDelta(let delta) = line.body { text += delta.text }
    }
    #expect(kinds.first == "accepted" && kinds.last == "message_end", "\(kinds)")
    #expect(kinds.contains("tool_start") && kinds.contains("tool_end"))
    #expect(text.contains("a b c"))
  }

  @Test func slashCommandsAreListedAsTheirAgentSays() async throws {
    let daemon = try await Daemon()
    let client = daemon.client()
    let listed = try await client.commands(ofAgent: "chaos")
    #expect(listed.map(\.name) == ["say"] && listed.first?.hint == "words")
    do {
      _ = try await client.commands(ofAgent: "timmy")
      Issue.record("no error")
    } catch AgentError.answered(let line) {
      #expect(line.code == .unsupported)
    }
    await client.close()
  }

  @Test func modelsAndModesAreListedAndSet() async throws {
    let daemon = try await Daemon()
    let client = daemon.client()
    let listed = try await client.models(ofAgent: "chaos")
    #expect(listed.agent == "chaos" && listed.models.count == 1 && listed.modes.isEmpty)
    let mode = #"{"id":"plan","label":"Plan","description":"Read-only"}"#
    var pages = ModelList()
    for page in [
      #"{"agent":"a","models":[{"model":"m"}],"modes":[\#(mode)],"mode":"plan","next":1}"#,
      #"{"agent":"a","models":[{"model":"n","default":true,"thinking":[]}],"note":"cut"}"#,
    ] {
      pages.add(try StrictJSON.object(Array(page.utf8)))
    }
    #expect(pages.models.map(\.model) == ["m", "n"] && pages.models[1].isDefault)
    #expect(pages.modes.map(\.description) == ["Read-only"] && pages.mode == "plan")
    _ = try await client.send(text: "a", session: "s")
    let set = try await client.setModel("scripted", of: "echo", ofSession: "s")
    #expect(set.model == "scripted" && set.provider == "echo" && set.mode == nil)
    do {
      _ = try await client.setModel(mode: "plan", ofSession: "s")
      Issue.record("no error")
    } catch AgentError.answered(let line) {
      #expect(line.code == .unsupported)
    }
    await client.close()
  }

  @Test func aFailedTurnIsThrownWithItsCodeAndJob() async throws {
    let daemon = try await Daemon()
    do {
      _ = try await daemon.client().send(text: "[[error=rate-limit]]")
      Issue.record("no error")
    } catch AgentError.answered(let line) {
      #expect(line.code == .rateLimit && line.isRetryable && line.job != nil)
    }
    do {
      _ = try await daemon.client().send(Send("a", agent: "tmmy"))
      Issue.record("no error")
    } catch let error as AgentError {
      #expect(error.nothingHappened && "\(error)".contains("timmy"))
    }
  }

  /// Whoever reads holds what it reads from.
  @Test func theLinesComeThoughTheClientIsGone() async throws {
    let daemon = try await Daemon()
    let lines: Lines
    do {
      let client = daemon.client()
      lines = try await client.lines(Send("[[sleep 200]] to its end"))
    }
    var text = ""
    for try await line in lines {
      if case .messageEnd(let end) = line.body { text = end.text }
    }
    #expect(text == "to its end")
  }

  /// Its task is cancelled, and nobody else holds the client: the turn is aborted all the same.
  @Test func theTurnOfAClientThatIsGoneIsAborted() async throws {
    let daemon = try await Daemon()
    let turn = Task { _ = try await daemon.client().send(Send("[[sleep 600000]]", session: "s")) }
    let other = daemon.client()
    _ = try await until("it runs") {
      (try? await other.status())?.inFlight == 1 ? true : nil
    }
    turn.cancel()
    _ = try await until("it was aborted") {
      (try? await other.status())?.inFlight == 0 ? true : nil
    }
  }

  @Test func manyAtOnceGetTheirOwnAnswers() async throws {
    let daemon = try await Daemon()
    let client = daemon.client()
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<16 {
        group.addTask {
          let text = "number \(number)"
          let result = try await client.send(text: text, session: "s\(number % 4)")
          #expect(result.text == text)
        }
      }
      try await group.waitForAll()
    }
  }

  @Test func cancellingTheTaskAbortsTheTurn() async throws {
    let daemon = try await Daemon()
    let client = daemon.client()
    let turn = Task { try await client.send(Send("[[sleep 600000]]", session: "long")) }
    _ = try await until("it runs") {
      (try? await client.status())?.inFlight == 1 ? true : nil
    }
    turn.cancel()
    await #expect(throws: CancellationError.self) { _ = try await turn.value }
    _ = try await until("it was aborted") {
      (try? await client.status())?.inFlight == 0 ? true : nil
    }
  }

  /// What was being opened isn't kept, and whoever waited for it hears why.
  @Test func closingWhileItIsOpenedLeavesNothingOpen() async throws {
    let (greeted, goOn) = (Guarded(0), DispatchSemaphore(value: 0))
    let server = try FakeServer { socket in
      _ = socket.readLine()
      greeted.with { $0 += 1 }
      goOn.wait()
      socket.say(helloAnswer)
      while socket.readLine() != nil {}
      greeted.with { $0 -= 1 }
    }
    var options = AgentClient.Options()
    options.endpoint = server.endpoint
    options.agentctl = nil
    let client = AgentClient(options)
    let asking = Task { try await client.ask("ping") }
    _ = try await until("it is greeted") { greeted.with { $0 == 1 ? true : nil } }
    await client.close()
    goOn.signal()
    await #expect(throws: AgentError.stopped) { _ = try await asking.value }
    _ = try await until("it is closed") { greeted.with { $0 == 0 ? true : nil } }
  }

  @Test func theSameKeyFindsTheTurnWhoseOutcomeWasUnknown() async throws {
    let daemon = try await Daemon()
    let client = daemon.client()
    let send = Send("[[sleep 300]] once", session: "s", key: "k1")
    let lines = try await client.lines(send)
    // The connection goes, the turn goes on.
    await client.close()
    await #expect(throws: AgentError.outcomeUnknown(key: "k1")) { for try await _ in lines {} }
    let found = try await client.send(send)
    #expect(found.replayed && found.text == "once")
  }

  @Test func eventsGoOnBehindTheCursorAfterACrashOfTheDaemon() async throws {
    let daemon = try await Daemon()
    let client = daemon.client()
    let seen = Guarded<[Line]>([])
    let following = Task {
      for try await line in client.events() { seen.with { $0.append(line) } }
    }
    defer { following.cancel() }
    _ = try await until("it follows") { seen.with { $0.isEmpty ? nil : true } }
    _ = try await client.send(text: "before", session: "s")
    await daemon.kill()
    try await daemon.start()
    _ = try await client.send(text: "after", session: "s")
    let ends = try await until("both ends") { () -> [Line]? in
      let ends = seen.with { $0.filter { $0.kind == "message_end" } }
      return ends.count >= 2 ? ends : nil
    }
    #expect(ends.compactMap { $0.json["text"]?.string } == ["before", "after"])
    let numbers = seen.with { $0.filter { $0.kind != "live" }.compactMap(\.seq) }
    #expect(numbers == numbers.sorted() && Set(numbers).count == numbers.count, "\(numbers)")
  }

  @Test func aCursorOfAnotherStoreIsRefusedAndNotTriedForEver() async throws {
    let daemon = try await Daemon()
    let events = daemon.client().events(after: Cursor(seq: 1, epoch: "another"))
    let error = await failure {
      for try await _ in events {}
    }
    guard case .answered(let line)? = error as? AgentError else {
      Issue.record("\(String(describing: error))")
      return
    }
    #expect(line.code == .cursorInvalid)
  }

  @Test func aQuestionIsAnswered() async throws {
    let daemon = try await Daemon()
    let client = daemon.client { $0.answersQuestions = true }
    let lines = try await client.lines(Send("chaos:ask approval", session: "q", agent: "chaos"))
    var text = ""
    for try await line in lines {
      switch line.body {
      case .question(let question):
        #expect(question.kind == "approval")
        _ = try await client.ask(
          "answer", [("question_id", .string(question.id)), ("approve", true)])
      case .messageEnd(let end): text = end.text
      default: continue
      }
    }
    #expect(text == "approve=true")
  }
}

@Suite(.enabled(if: binaries != nil, needsDaemon), .timeLimit(.minutes(1)))
struct WithoutDaemon {
  private func client(_ place: Place, alone: Bool = true) -> AgentClient {
    var options = AgentClient.Options()
    options.endpoint = Endpoint(path: place["agentd.sock"])
    options.agentctl = Daemon.command(place, "agentctl")
    options.runsAlone = alone
    return AgentClient(options)
  }

  private func place() throws -> Place {
    let place = Place()
    let config = "default_agent = \"timmy\"\n[agents.timmy]\nprovider = \"echo\"\n"
    try Data(config.utf8).write(to: URL(fileURLWithPath: place["config.toml"]))
    return place
  }

  @Test func theTurnRunsOnceThroughTheRelayAndSaysSo() async throws {
    let place = try place()
    let result = try await client(place).send(text: "alone", session: "s")
    #expect(result.text == "alone" && result.servedBy == "oneshot")
    #expect(result.fallbackReason == "no-socket")
  }

  /// Until its last line the relay can be told to abort; and then it leaves.
  @Test(arguments: ["cancelled", "late", "closed"])
  func aTurnThroughTheRelayThatIsGivenUpLeavesNobody(how: String) async throws {
    let place = try place()
    let client = client(place)
    let before = children()
    let runs = Guarded(false)
    let turn = Task {
      let send = Send("a [[sleep 600000]]", session: "s")
      for try await line in try await client.lines(send, within: how == "late" ? 6 : 600)
      where line.kind == "message_delta" { runs.with { $0 = true } }
    }
    _ = try await until("its turn runs") { runs.with { $0 ? true : nil } }
    let relay = try #require(children().subtracting(before).first)
    if how == "cancelled" { turn.cancel() }
    if how == "closed" {
      await client.close()
      #expect(kill(relay, 0) != 0)
    }
    await #expect(throws: (any Error).self) { try await turn.value }
    _ = try await until("the relay is gone") { kill(relay, 0) != 0 ? true : nil }
  }

  @Test func whereItMayNotRunAloneNothingHappened() async throws {
    let place = try place()
    do {
      _ = try await client(place, alone: false).send(text: "alone", session: "s")
      Issue.record("it ran")
    } catch let error as AgentError {
      #expect(error.nothingHappened, "\(error)")
    }
    #expect(!FileManager.default.fileExists(atPath: place["state/agentd.db"]))
  }

  /// A daemon that is stopping accepts nothing: the turn runs elsewhere, once.
  @Test func aDaemonThatStopsHandsOver() async throws {
    let daemon = try await Daemon()
    let (busy, other) = (daemon.client(), daemon.client())
    let turn = try await busy.lines(Send("[[sleep 600000]]", session: "busy"))
    _ = try await other.status()
    let stopping = Task { try await other.ask("daemon.stop", [("deadline", 3)]) }
    let result = try await until("it doesn't accept any more") { () -> TurnResult? in
      let result = try? await daemon.client().send(text: "after", session: UUID().uuidString)
      return result?.servedBy == "oneshot" ? result : nil
    }
    // By then it is stopping, or gone.
    #expect(["draining", "no-socket", "refused"].contains(result.fallbackReason))
    _ = try? await stopping.value
    _ = turn
  }

  /// A daemon that is restarted under a turn: whoever reads is told on, each thing once.
  @Test func aTurnIsToldOnByTheDaemonThatComesNext() async throws {
    let daemon = try await Daemon()
    let client = daemon.client()
    var send = Send("a [[sleep 500]]", session: "s", key: "k")
    send.more["retry"] = "auto"
    var lines: [Line] = []
    var isRestarted = false
    for try await line in try await client.lines(send) {
      lines.append(line)
      if line.kind == "message_start", !isRestarted {
        isRestarted = true
        await daemon.kill()
        try await daemon.start()
      }
    }
    #expect(lines.last?.kind == "message_end")
    let numbers = lines.compactMap(\.seq)
    #expect(numbers == numbers.sorted() && Set(numbers).count == numbers.count, "\(numbers)")
    #expect(lines.filter { $0.kind == "accepted" }.count == 1)
  }

  /// Killed with the request: nobody sends it again by itself, and the same key finds what it did.
  @Test func aDaemonKilledInTheTurnIsUnknownAndNothingRunsTwice() async throws {
    let daemon = try await Daemon()
    let client = daemon.client()
    let send = Send("a [[sleep 600000]]", session: "s", key: "k")
    let lines = try await client.lines(send)
    // It runs: what only waited would run after the restart, for the first time.
    for try await line in lines where line.kind == "message_delta" { break }
    await daemon.kill()
    await #expect(throws: AgentError.outcomeUnknown(key: "k")) { for try await _ in lines {} }
    try await daemon.start()
    do {
      _ = try await client.send(send)
      Issue.record("it ran again")
    } catch AgentError.answered(let line) {
      #expect(line.code == .interrupted)
    }
  }

  @Test func noAgentctlIsSaidToBeMissing() async throws {
    let place = try place()
    var options = AgentClient.Options()
    options.endpoint = Endpoint(path: place["agentd.sock"])
    options.agentctl = Command("agentctl", environment: ["PATH": "/nowhere:."])
    let error = await failure {
      _ = try await AgentClient(options).send(text: "a")
    }
    #expect("\(String(describing: error))".contains("there is no `agentctl` on PATH"))
  }
}

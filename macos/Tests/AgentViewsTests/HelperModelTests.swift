// What the menu shows, from lines and from a real daemon.

import Foundation
import Testing

@testable import AgentKit
@testable import AgentViews

private func line(_ text: String) throws -> Line {
  try Line(Array(text.utf8))
}

/// A daemon as a test describes it.
private final class FakeSource: HelperSource {
  let asked = Guarded<[String]>([])
  let answers: Guarded<[String: String]>
  let happens: [String]

  init(_ answers: [String: String], _ happens: [String] = []) {
    self.answers = Guarded(answers)
    self.happens = happens
  }

  func status(within seconds: Double) async throws -> Status {
    guard let text = answers.with({ $0["status"] }) else {
      throw AgentError.notConnected(.noSocket, reason: "no socket")
    }
    return Status(try StrictJSON.object(Array(text.utf8)))
  }

  func ask(_ kind: String, _ members: Members, within seconds: Double) async throws -> Line {
    let request = Request.line(kind, id: 1, members)
    asked.with { $0.append(String(decoding: request.dropLast(), as: UTF8.self)) }
    guard let text = answers.with({ $0[kind] }) else {
      throw AgentError.answered(
        ErrorLine(["code": "already-answered", "error": "somebody was faster"]))
    }
    return try line(text)
  }

  func events(after cursor: Cursor?, session: String?) -> Lines {
    let left = Guarded(happens[...])
    return Lines { try left.with { $0.popFirst() }.map(line) }
  }
}

private let ready =
  #"{"ok":true,"details":"fine","state":"ready","rpc":{"in_flight":0},"questions":0}"#
private let asks =
  #"{"type":"question","seq":3,"job":"j1","question_id":"j1-q1","kind":"approval","title":"rm?","options":[]}"#

@MainActor
@Suite(.timeLimit(.minutes(1))) struct Menu {
  @Test func aDaemonThatIsNotThereIsSaidToBe() async {
    let model = HelperModel(FakeSource([:]))
    await model.refresh()
    #expect(model.daemon.title == "agentd: not running" && !model.daemon.isUp)
  }

  @Test(arguments: [
    (#""state":"ready","rpc":{"in_flight":2},"questions":0"#, "agentd: 2 turns run"),
    (#""state":"ready","rpc":{"in_flight":2},"questions":1"#, "agentd: 1 question waits"),
    (#""state":"degraded","details":"the disk is full""#, "agentd: the disk is full"),
    (#""state":"draining""#, "agentd: starts no new turns"),
    (
      #""state":"ready","workers":[{"worker":1,"agent":"pi","state":"crash-looped"}]"#,
      "agentd: pi does not come up"
    ),
  ])
  func eachStateHasItsWords(members: String, title: String) throws {
    let status = Status(try StrictJSON.object(Array("{\(members)}".utf8)))
    #expect(DaemonView(status).title == title)
  }

  @Test func textIsPutTogetherAndComesOnceThoughItIsToldAgain() async throws {
    let model = HelperModel(FakeSource(["status": ready]))
    let delta = { (offset: Int, text: String) in
      #"{"type":"message_delta","job":"j1","message":0,"offset":\#(offset),"text":"\#(text)"}"#
    }
    for text in [
      #"{"type":"message_start","job":"j1","message":0,"role":"assistant"}"#, delta(0, "ä"),
      delta(2, "b"), delta(2, "b"), delta(9, "gap"),
    ] {
      model.take(try line(text))
    }
    #expect(model.running["j1"]?.text == "äb")
    model.take(try line(delta(0, "äbc")))
    #expect(model.running["j1"]?.text == "äbc")
    model.take(try line(#"{"type":"message_end","seq":9,"job":"j1","text":"äbc"}"#))
    #expect(model.running.isEmpty)
  }

  @Test func questionsAndFailuresAreNotifiedOnceTheyAreNews() async throws {
    let notices = Guarded<[Notice]>([])
    let model = HelperModel(FakeSource(["status": ready])) { notice in
      notices.with { $0.append(notice) }
    }
    let failed = #"{"type":"error","seq":4,"job":"j1","code":"agent-failed","error":"no"}"#
    // History isn't news.
    model.take(try line(failed))
    #expect(notices.with { $0.isEmpty })
    model.take(try line(#"{"type":"live","seq":2,"epoch":"e"}"#))
    model.take(try line(asks))
    #expect(model.questions.map(\.id) == ["j1-q1"])
    model.take(try line(failed))
    model.take(
      try line(#"{"type":"question_closed","seq":5,"question_id":"j1-q1","by":"exit"}"#))
    #expect(model.questions.isEmpty)
    let seen = notices.with { $0 }
    #expect(seen.count == 2 && seen.last == .failure(job: "j1", code: "agent-failed", words: "no"))
  }

  @Test func whatTheUserDoesIsAskedAndItsFailureShown() async throws {
    let source = FakeSource(["status": ready, "restart_worker": #"{"type":"restart_worker"}"#])
    let model = HelperModel(source)
    let question = try #require(Question(line(asks).json))
    await model.answer(question, approve: false)
    #expect(model.problem == "somebody was faster")
    let worker = Status(["workers": [["worker": 1, "agent": "pi"]]]).workers[0]
    await model.restart(worker)
    #expect(model.problem == nil)
    let asked = source.asked.with { $0.filter { $0.contains("answer") || $0.contains("restart") } }
    #expect(
      asked == [
        #"{"type":"answer","id":1,"question_id":"j1-q1","approve":false}"#,
        #"{"type":"restart_worker","id":1,"agent":"pi"}"#,
      ])
  }

  @Test func listsAreReadAndWhatWorksComesFirst() async throws {
    let source = FakeSource([
      "status": ready,
      "session.list":
        #"{"type":"session.list","ok":true,"sessions":[{"session":"a","state":"idle","agent":"pi"},{"session":"b","state":"working","agent":"pi","title":"B"}]}"#,
      "jobs":
        #"{"type":"jobs","ok":true,"jobs":[{"job":"j2","session":"b","agent":"pi","state":"running","preview":"do"},{"job":"j1","state":"completed"}]}"#,
    ])
    let model = HelperModel(source)
    await model.refresh()
    #expect(model.sessions.map(\.title) == ["B", "a"])
    #expect(model.jobs.map(\.canBeAborted) == [true, false])
  }

  @Test(
    .enabled(
      if: ProcessInfo.processInfo.environment["AGENTD_BIN"] != nil,
      "skipped: needs agentd, named by AGENTD_BIN"))
  func aRealDaemonIsShownAndItsQuestionAnsweredAndItsEndSeen() async throws {
    let binaries = ProcessInfo.processInfo.environment["AGENTD_BIN"] ?? ""
    let place = "/tmp/agentviews-\(UUID().uuidString.prefix(8))"
    try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: place) }
    let config = """
      [agents.chaos]
      kind = "jsonl"
      command = ["\(binaries)/examples/chaos-worker"]
      """
    try Data(config.utf8).write(to: URL(fileURLWithPath: place + "/config.toml"))
    let environment = [
      "PATH": "\(binaries):/usr/bin:/bin", "HOME": place, "AGENTD_SOCKET": place + "/s",
      "AGENTD_STATE_DIR": place + "/state", "AGENTD_CONFIG": place + "/config.toml",
      "AGENTD_ALIAS": place + "/alias",
    ]
    let null = { Descriptor(number: open("/dev/null", O_RDWR | O_CLOEXEC)) }
    let daemon = try Child(
      Command(binaries + "/agentd", environment: environment), input: null(), output: null(),
      error: null())
    defer { daemon.signal(SIGTERM) }
    var options = AgentClient.Options()
    options.endpoint = Endpoint(path: place + "/s")
    options.answersQuestions = true
    let client = AgentClient(options)
    let model = HelperModel(client)
    let following = Task { await model.follow() }
    defer { following.cancel() }
    try await until { model.daemon.isUp }
    let turn = Task {
      try await client.send(Send("chaos:ask approval", session: "q", agent: "chaos"))
    }
    try await until { model.questions.count == 1 && model.sessions.count == 1 }
    try await until { model.daemon.title == "agentd: 1 question waits" }
    await model.answer(model.questions[0], approve: true)
    #expect(try await turn.value.text == "approve=true")
    try await until { model.questions.isEmpty && model.jobs.first?.state == "completed" }
    #expect(model.workers.map(\.agent) == ["chaos"])
    #expect(model.daemon.title == "agentd: ready")
    // Neither says a word.
    daemon.signal(SIGSTOP)
    try await until { model.daemon.title == "agentd: does not answer" }
    daemon.signal(SIGKILL)
    try await until { model.daemon.title == "agentd: not running" }
    #expect(!model.daemon.isUp && model.workers.isEmpty)
  }

  @Test func aQuestionIsTheMenusFirstLineUntilItIsAnswered() async throws {
    let source = FakeSource(["status": ready.replacingOccurrences(of: ":0}", with: ":1}")])
    let model = HelperModel(source)
    model.take(try line(asks))
    try await until { model.daemon.title == "agentd: 1 question waits" }
    source.answers.with { $0["status"] = ready }
    model.take(try line(#"{"type":"question_closed","question_id":"j1-q1","by":"exit"}"#))
    try await until { model.daemon.title == "agentd: ready" }
  }

  /// However many lines come while the daemon is asked, it is asked once more.
  @Test func aBurstOfLinesIsFewQuestionsToTheDaemon() async throws {
    let source = FakeSource(["status": ready])
    let model = HelperModel(source)
    for number in 1...1000 {
      model.take(try line(#"{"type":"accepted","seq":\#(number),"job":"j\#(number)"}"#))
    }
    await model.refresh()
    #expect(source.asked.with { $0.filter { $0.contains("jobs") }.count } <= 2)
  }

  private func until(_ fact: () -> Bool) async throws {
    for _ in 0..<2000 where !fact() { try await Task.sleep(for: .milliseconds(10)) }
    #expect(fact())
  }
}

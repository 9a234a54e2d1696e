// One conversation: what a server can do to it.

import Foundation
import Testing

@testable import AgentKit

private func connect(_ server: FakeServer) throws -> LineTransport {
  let socket = try server.endpoint.connect()
  return try LineTransport(
    reading: socket.duplicate(), writing: socket, limit: Connection.maxLine)
}

private func greeted(_ server: FakeServer, within seconds: Double = 5) async throws -> Connection {
  try await Connection.greeted(try connect(server), as: "test", within: seconds).0
}

@Suite(.timeLimit(.minutes(1))) struct Greeting {
  @Test(arguments: [
    (helloAnswer.replacingOccurrences(of: #""protocol":1"#, with: #""protocol":2"#), "protocol 2"),
    ("220 smtp ready", "220 smtp ready"),
    (#"{"type":"pong","id":1}"#, "pong"),
    (#"{"type":"error","id":1,"code":"forbidden","error":"not you"}"#, "not you"),
  ])
  func whoIsNoDaemonOfThisProtocolIsRefusedInItsOwnWords(line: String, words: String)
    async throws
  {
    let server = try FakeServer { socket in
      _ = socket.readLine()
      socket.say(line)
      _ = socket.readLine()
    }
    do {
      _ = try await greeted(server)
      Issue.record("accepted \(line)")
    } catch AgentError.helloRefused(let why) {
      #expect(why.contains(words), "\(why)")
    }
  }

  @Test func eachWayOfNoAnswerHasItsFact() async throws {
    let cases: [(Fact, @Sendable (Descriptor) -> Void)] = [
      (.helloClosed, { _ = $0.readLine() }),
      (.helloSilent, { while $0.readLine() != nil {} }),
      (
        .helloDraining,
        {
          _ = $0.readLine()
          $0.say(#"{"type":"error","id":1,"code":"draining","error":"stopping"}"#)
          _ = $0.readLine()
        }
      ),
      // Later it may have room: whoever follows goes on trying.
      (
        .helloOther,
        {
          _ = $0.readLine()
          $0.say(
            #"{"type":"error","code":"too-many-connections","error":"full","retryable":true,"id":1}"#
          )
          _ = $0.readLine()
        }
      ),
    ]
    for (fact, serve) in cases {
      let server = try FakeServer(serve)
      do {
        _ = try await greeted(server, within: 0.3)
        Issue.record("\(fact)")
      } catch AgentError.notConnected(let found, _) {
        #expect(found == fact)
      }
    }
  }

  @Test func aPathThatIsTooLongIsSaidToBe() throws {
    let path = "/tmp/" + String(repeating: "x", count: Endpoint.maxPath)
    do {
      _ = try Endpoint(path: path).connect()
      Issue.record("connected")
    } catch AgentError.notConnected(let fact, let reason) {
      #expect(fact == .unusable && reason.contains("the limit here is \(Endpoint.maxPath)"))
    }
    #if os(macOS)
      #expect(Endpoint.maxPath == 103)
    #else
      #expect(Endpoint.maxPath == 107)
    #endif
  }

  /// Nothing is written to a server that runs as somebody else.
  @Test func aForeignServerHearsNothing() async throws {
    let heard = Guarded<[String?]>([])
    let server = try FakeServer { socket in
      let line = socket.readLine()
      heard.with { $0.append(line) }
    }
    do {
      _ = try server.endpoint.connect(as: geteuid() + 1)
      Issue.record("connected")
    } catch AgentError.notConnected(let fact, let reason) {
      #expect(fact == .foreignUID && reason.contains("nothing was sent"))
    }
    let lines = try await until("the server saw the end") {
      heard.with { $0.isEmpty ? nil : $0 }
    }
    #expect(lines == [nil])
  }

  @Test func nobodyThereAndAFullBacklogAreToldApart() async throws {
    let place = Place()
    func fact(_ path: String) -> Fact? {
      do { try Endpoint(path: path).connect().close() } catch AgentError.notConnected(let fact, _) {
        return fact
      } catch {}
      return nil
    }
    #expect(fact(place["none.sock"]) == .noSocket)
    let listener = try listening(on: place["full.sock"], backlog: 0)
    var held: [Descriptor] = []
    var found: Fact?
    while found == nil && held.count < 64 {
      do {
        held.append(try Endpoint(path: place["full.sock"]).connect())
      } catch AgentError.notConnected(let fact, _) { found = fact }
    }
    #if os(Linux)
      #expect(found == .backlogFull)
    #else
      // It says the same as of a socket where nobody listens.
      #expect(found == .refused)
    #endif
    for one in held + [listener] { one.close() }
    #expect(fact(place["full.sock"]) == .refused)
  }
}

@Suite(.timeLimit(.minutes(1))) struct Conversation {
  private func serving(_ serve: @escaping @Sendable (Descriptor) -> Void) throws -> FakeServer {
    try FakeServer { socket in
      _ = socket.readLine()
      socket.say(helloAnswer)
      serve(socket)
    }
  }

  @Test func answersAreMatchedByIdInWhateverOrderTheyCome() async throws {
    let server = try serving { socket in
      let lines = (0..<3).compactMap { _ in socket.readLine() }
      for line in lines.reversed() {
        let json = try! StrictJSON.object(Array(line.utf8))
        socket.say(#"{"type":"note","level":"info","code":"x","text":"y"}"#)
        socket.say(
          #"{"type":"message_end","id":\#(json["id"]!.text),"text":\#(json["text"]!.text)}"#)
      }
      _ = socket.readLine()
    }
    let connection = try await greeted(server)
    let answers = try await withThrowingTaskGroup(of: (String, String).self) { group in
      for text in ["one", "two", "three"] {
        group.addTask {
          let lines = try await connection.lines("send", Send(text).members)
          for try await line in lines {
            if case .messageEnd(let end) = line.body { return (text, end.text) }
          }
          return (text, "nothing")
        }
      }
      return try await group.reduce(into: []) { $0.append($1) }
    }
    #expect(answers.count == 3 && answers.allSatisfy { $0.0 == $0.1 }, "\(answers)")
  }

  @Test func anIdThatNobodyAskedUnderIsDroppedAndCounted() async throws {
    let server = try serving { socket in
      _ = socket.readLine()
      socket.say(#"{"type":"message_end","id":99,"text":"stray"}"#)
      socket.say(#"{"type":"message_end","id":{"a":1},"text":"stray"}"#)
      socket.say("not a line at all")
      socket.say(#"{"type":"pong","id":2}"#)
      _ = socket.readLine()
    }
    let connection = try await greeted(server)
    #expect(try await connection.ask("ping", within: 5).kind == "pong")
    let strays = await connection.strays
    #expect(strays == Strays(noise: 1, unasked: 2))
  }

  @Test func aDeadlineAbortsItsOwnSendAndNobodyElses() async throws {
    let heard = Guarded<[String]>([])
    let server = try serving { socket in
      while let line = socket.readLine() {
        heard.with { $0.append(line) }
        if line.contains("abort") {
          socket.say(#"{"type":"abort","id":2,"ok":true,"jobs":["j1"]}"#)
          socket.say(#"{"type":"message_end","id":2,"stop":"cancelled","text":""}"#)
          socket.say(#"{"type":"message_end","id":3,"text":"second"}"#)
        }
      }
    }
    let connection = try await greeted(server)
    let first = try await connection.lines("send", Send("first").members, within: 1)
    let second = try await connection.lines("send", Send("second").members)
    await #expect(throws: AgentError.late(seconds: 1)) { for try await _ in first {} }
    var text = ""
    for try await line in second {
      if case .messageEnd(let end) = line.body { text = end.text }
    }
    #expect(text == "second")
    #expect(heard.with { $0.last } == #"{"type":"abort","id":2}"#)
    #expect(await connection.inFlight == 0)
  }

  @Test func cancellingWhoReadsAborts() async throws {
    let heard = Guarded<[String]>([])
    let server = try serving { socket in
      while let line = socket.readLine() { heard.with { $0.append(line) } }
    }
    let connection = try await greeted(server)
    let lines = try await connection.lines("send", Send("long").members)
    let reading = Task { for try await _ in lines {} }
    _ = try await until("it left") { heard.with { $0.isEmpty ? nil : true } }
    reading.cancel()
    await #expect(throws: CancellationError.self) { try await reading.value }
    let aborts = try await until("it is aborted") {
      heard.with { $0.count == 2 ? $0 : nil }
    }
    #expect(aborts.last == #"{"type":"abort","id":2}"#)
  }

  /// A server that takes one byte of the first line, and the rest later or never.
  private func reluctant(
    _ began: Guarded<Bool>, _ goOn: DispatchSemaphore,
    then serve: @escaping @Sendable (Descriptor) -> Void = { _ in }
  ) throws -> FakeServer {
    try serving { socket in
      var byte: UInt8 = 0
      _ = read(socket.number, &byte, 1)
      began.with { $0 = true }
      goOn.wait()
      serve(socket)
    }
  }

  /// The first line fills every buffer and is given up half-way, the second one waits behind it.
  @Test func whatIsGivenUpBeforeItLeavesNeverDoes() async throws {
    let (began, goOn) = (Guarded(false), DispatchSemaphore(value: 0))
    let heard = Guarded("")
    let server = try reluctant(began, goOn) { socket in
      var bytes = [UInt8](repeating: 0, count: 1 << 20)
      while case let count = read(socket.number, &bytes, bytes.count), count > 0 {
        heard.with { $0 += String(decoding: bytes[..<count], as: UTF8.self) }
      }
    }
    defer { goOn.signal() }
    let connection = try await greeted(server)
    let long = Send(String(repeating: "x", count: 1_000_000))
    let lines = try await connection.lines("send", long.members)
    let reading = Task { for try await _ in lines {} }
    _ = try await until("it leaves") { began.with { $0 ? true : nil } }
    reading.cancel()
    await #expect(throws: CancellationError.self) { try await reading.value }
    let short = try await connection.lines("send", Send("short").members, within: 0.1)
    await #expect(throws: AgentError.late(seconds: 0.1)) { for try await _ in short {} }
    goOn.signal()
    let said = try await until("the first one is aborted") {
      heard.with { $0.contains("abort") ? $0 : nil }
    }
    #expect(said.hasSuffix("xxx\"}\n{\"type\":\"abort\",\"id\":2}\n"))
    #expect(await connection.inFlight == 1)
  }

  @Test func whoNeverTakesTheRestOfALineIsLeft() async throws {
    let (began, goOn) = (Guarded(false), DispatchSemaphore(value: 0))
    let server = try reluctant(began, goOn)
    defer { goOn.signal() }
    let connection = try await greeted(server)
    let long = Send(String(repeating: "x", count: 1_000_000))
    let lines = try await connection.lines("send", long.members)
    let reading = Task { for try await _ in lines {} }
    _ = try await until("it leaves") { began.with { $0 ? true : nil } }
    let behind = try await connection.lines("send", Send("behind").members)
    reading.cancel()
    // Of this one no byte left.
    await #expect(throws: AgentError.notSent) { for try await _ in behind {} }
    #expect(await !connection.isOpen)
  }

  @Test func aDeadlineThatIsNotFiniteIsALongOne() async throws {
    let server = try serving { socket in
      while socket.readLine() != nil { socket.say(#"{"type":"pong","id":2}"#) }
    }
    let connection = try await greeted(server)
    #expect(try await connection.ask("ping", within: .infinity).kind == "pong")
    #expect(await Deadline(.nan).race { await connection.end() } == nil)
  }

  @Test func whatIsCancelledBeforeItIsSentIsNotSent() async throws {
    let heard = Guarded<[String]>([])
    let server = try serving { socket in
      while let line = socket.readLine() {
        heard.with { $0.append(line) }
        socket.say(#"{"type":"pong","id":2}"#)
      }
    }
    let connection = try await greeted(server)
    let cancelled = Task {
      while !Task.isCancelled { await Task.yield() }
      _ = try await connection.lines("send", Send("no").members)
    }
    cancelled.cancel()
    await #expect(throws: CancellationError.self) { try await cancelled.value }
    _ = try await connection.ask("ping", within: 5)
    #expect(heard.with { $0.count } == 1)
  }

  /// 100,000 pieces of text while nobody reads: none is missing, and few lines are kept.
  @Test func aSlowReaderGetsAllTextInFewLines() async throws {
    let server = try serving { socket in
      _ = socket.readLine()
      for count in 0..<100_000 {
        socket.say(
          #"{"type":"message_delta","id":2,"job":"j1","message":0,"offset":\#(count * 4),"text":"abc ","native":true}"#
        )
      }
      socket.say(#"{"type":"message_end","id":2,"text":"done"}"#)
      _ = socket.readLine()
    }
    let connection = try await greeted(server)
    let mailbox = try await connection.mailbox("send", Send("flood").members)
    _ = try await until("all of it came") { await connection.inFlight == 0 ? true : nil }
    #expect(mailbox.waiting <= 3)
    var text = 0
    while let line = try await mailbox.next() {
      if case .messageDelta(let delta) = line.body {
        #expect(delta.offset == text)
        text += delta.text.utf8.count
      }
    }
    #expect(text == 400_000)
  }

  /// Pieces of old workers, which have no place, thinking between them, and what nobody waits for.
  @Test func aSlowReaderGetsAllTextInFewLinesWithoutOffsetsToo() async throws {
    let server = try serving { socket in
      _ = socket.readLine()
      for count in 0..<20_000 {
        socket.say(
          #"{"type":"message_delta","id":2,"text":"ab"}"# + "\n"
            + #"{"type":"thinking_delta","id":2,"text":"c"}"#)
        if count % 100 == 0 { socket.say(#"{"type":"note","id":2,"code":"n","text":"n"}"#) }
        if count > 19_000 {
          socket.say(#"{"type":"tool_update","id":2,"tool_call_id":"t","output":"x"}"#)
        }
      }
      socket.say(#"{"type":"message_end","id":2,"text":"done"}"#)
      _ = socket.readLine()
    }
    let connection = try await greeted(server)
    let mailbox = try await connection.mailbox("send", Send("flood").members)
    _ = try await until("all of it came") { await connection.inFlight == 0 ? true : nil }
    #expect(mailbox.waiting <= 3 * 200 + 3)
    var (text, thought, notes) = ("", "", 0)
    while let line = try await mailbox.next() {
      switch line.body {
      case .messageDelta(let delta): text += delta.text
      case .thinkingDelta(let delta): thought += delta.text
      case .note: notes += 1
      default: #expect(line.kind == "message_end")
      }
    }
    #expect(text == String(repeating: "ab", count: 20_000) && notes == 200)
    #expect(thought == String(repeating: "c", count: 20_000))
  }

  @Test func theEndOfTheOtherSideIsUnknownForWhatLeftAndNothingForWhatDidNot() async throws {
    let server = try serving { socket in _ = socket.readLine() }
    let connection = try await greeted(server)
    let lines = try await connection.lines("send", Send("a").members, key: "k1")
    await #expect(throws: AgentError.outcomeUnknown(key: "k1")) { for try await _ in lines {} }
    await connection.end()
    await #expect(throws: AgentError.notSent) {
      _ = try await connection.lines("send", Send("b").members)
    }
  }

  @Test func aLineBeyondEveryLimitEndsTheConversation() async throws {
    let server = try serving { socket in
      _ = socket.readLine()
      let portion = [UInt8](repeating: 0x78, count: 1 << 20)
      while socket.write(portion) == portion.count {}
    }
    let connection = try await greeted(server)
    await #expect(throws: AgentError.outcomeUnknown(key: nil)) {
      _ = try await connection.ask("ping", within: 20)
    }
  }

  @Test func aRequestOverTheLimitIsNotWritten() async throws {
    let server = try serving { socket in while socket.readLine() != nil {} }
    let connection = try await greeted(server)
    let long = Send(String(repeating: "x", count: Request.maxLine))
    let error = await failure {
      _ = try await connection.lines("send", long.members)
    }
    guard case .oversized? = error as? AgentError else {
      Issue.record("\(String(describing: error))")
      return
    }
    #expect(await connection.isOpen)
  }
}

// A child in worse shape than any worker has been: the rows of bad input.

import Foundation
import Testing

@testable import AgentKit

private func configuration(_ place: Place, _ script: String) -> RpcAgentProcess.Configuration {
  var configuration = RpcAgentProcess.Configuration(
    Command(
      place.script("child", script), environment: ["PATH": "/usr/bin:/bin"],
      directory: place.path))
  configuration.stopWithin = 0.5
  configuration.settleWithin = 0.3
  configuration.readyWithin = 10
  configuration.restarts.first = 0.01
  return configuration
}

#if os(Linux)
  private let noFile = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
#else
  private let noFile = RLIMIT_NOFILE
#endif

@Suite(.timeLimit(.minutes(1))) struct BadChildren {
  @Test(arguments: [
    ("exit 7", "exited with code 7"),
    ("read line; exit 7", "exited with code 7"),
    ("read line; printf '{\"type\":\"status\",\"id\":1'; exit 0", "exited with code 0"),
    ("kill -9 $$", "ended by signal 9"),
  ])
  func oneThatDiesInTheHandshakeIsNotUp(script: String, words: String) async throws {
    let place = Place()
    let child = RpcAgentProcess(configuration(place, "echo why >&2\n" + script))
    let error = await failure { try await child.start() }
    guard case .notStarted(let why)? = error as? AgentError else {
      Issue.record("\(String(describing: error))")
      return
    }
    // Its two pipes are read side by side, and what it says on one may come between.
    #expect(why.contains(words) && why.contains("it said: ") && why.contains("why"), "\(why)")
    #expect(await child.health.restarts == 1)
    await child.stop()
  }

  @Test func oneThatNeverAnswersTheHandshakeIsEnded() async throws {
    let place = Place()
    var slow = configuration(place, "trap '' TERM; while :; do sleep 1; done")
    slow.readyWithin = 0.2
    let child = RpcAgentProcess(slow)
    let error = await failure { try await child.start() }
    #expect("\(String(describing: error))".contains("no answer came within 0.2 s"))
    #expect(await child.health.pid == nil)
    await child.stop()
  }

  @Test func aProgramThatIsNotThereIsNamed() async throws {
    let child = RpcAgentProcess(.init(Command("no-such-agent", environment: ["PATH": "/bin"])))
    let error = await failure { try await child.start() }
    #expect("\(String(describing: error))".contains("there is no `no-such-agent` on PATH"))
    let wrong = RpcAgentProcess(.init(Command("/etc/passwd")))
    let refused = await failure { try await wrong.start() }
    #expect("\(String(describing: refused))".contains("cannot start `/etc/passwd`"))
  }

  @Test func halfALineAndThenDeathIsNoAnswer() async throws {
    let place = Place()
    let child = RpcAgentProcess(
      configuration(
        place,
        """
        read line; echo '{"type":"status","id":1,"ok":true}'
        read line; printf '{"type":"message_end","id":2,"text":"ha'; exit 0
        """))
    let error = await failure { _ = try await child.send(Send("a")) }
    guard case .childExited? = error as? AgentError else {
      Issue.record("\(String(describing: error))")
      return
    }
    await child.stop()
  }

  /// A whole last line counts though nobody ended it.
  @Test func aWholeLastLineWithoutItsNewlineIsAnAnswer() async throws {
    let place = Place()
    let child = RpcAgentProcess(
      configuration(
        place,
        """
        read line; echo '{"type":"status","id":1,"ok":true}'
        read line; printf '{"type":"message_end","id":2,"text":"whole"}'; exit 0
        """))
    #expect(try await child.send(Send("a")).text == "whole")
    await child.stop()
  }

  @Test func oneThatFloodsBothOutputsWhileItAnswersIsHeard() async throws {
    let place = Place()
    let child = RpcAgentProcess(
      configuration(
        place,
        """
        read line; echo '{"type":"status","id":1,"ok":true}'
        (head -c 8000000 /dev/zero | tr '\\0' e >&2) &
        read line
        head -c 20000000 /dev/zero | tr '\\0' l; echo
        wait
        echo '{"type":"message_end","id":98,"text":"stray"}'
        echo '{"type":"message_end","id":2,"text":"answer"}'
        read line
        """))
    #expect(try await child.send(Send("a"), within: 30).text == "answer")
    #expect(await child.strays == Strays(noise: 1, unasked: 1))
    await child.stop()
  }

  /// PROTOCOL.md part 8: without an id it belongs to the only send there is.
  @Test func aWorkerOfOldThatKnowsNoIdsIsUnderstood() async throws {
    let place = Place()
    let child = RpcAgentProcess(
      configuration(
        place,
        """
        read line; echo '{"type":"status","ok":true}'
        while read line; do
          echo '{"level":"info","a log":"in JSON"}'
          echo '{"type":"message_start","role":"assistant"}'
          echo '{"type":"message_end","text":"hi"}'
        done
        """))
    #expect(try await child.send(Send("a")).text == "hi")
    #expect(try await child.send(Send("b")).text == "hi")
    await child.stop()
  }

  /// It says so by its `status`, as one without a key does.
  @Test func oneThatCannotWorkIsNotUp() async throws {
    let place = Place()
    let child = RpcAgentProcess(
      configuration(
        place,
        """
        read line; echo '{"type":"status","id":1,"ok":false,"details":"no key"}'; read line
        """))
    let error = await failure { try await child.start() }
    #expect("\(String(describing: error))".contains("no key"))
    #expect(await child.health.pid == nil)
    await child.stop()
  }

  /// Without ids nobody knows whose its lines are once a send is stuck; with them others are served
  /// to their end.
  @Test(arguments: [true, false])
  func oneThatDoesNotEndWhatWasAbortedIsReplaced(knowsIDs: Bool) async throws {
    let place = Place()
    let id = knowsIDs ? #"'"id":'$i','"# : ""
    var patient = configuration(
      place,
      """
      asked=0
      while read -r line; do
        i=${line#*'"id":'}; i=${i%%[,\\}]*}
        id=\(id)
        case $line in
          *'"status"'*) echo '{"type":"status","id":'$i',"ok":true}'; asked=$((asked+1))
            [ $asked != 3 ] || echo '{"type":"message_end",'$other'"text":"served"}' ;;
          *stuck*) echo '{"type":"message_start",'$id'"role":"assistant"}' ;;
          *other*) other=$id ;;
          *fresh*) echo '{"type":"message_end",'$id'"text":"fresh"}' ;;
        esac
      done
      """)
    patient.settleWithin = 1
    let child = RpcAgentProcess(patient)
    try await child.start()
    #expect(await failure { _ = try await child.send(Send("stuck"), within: 0.2) } != nil)
    let other = await failure {
      let text = try await child.send(Send("other"), within: 30).text
      #expect(text == "served")
    }
    #expect((other == nil) == knowsIDs, "\(String(describing: other))")
    _ = try await until("it is replaced") { await child.health.generation == 2 ? true : nil }
    #expect(try await child.send(Send("fresh"), within: 10).text == "fresh")
    await child.stop()
  }

  /// One whose send hangs is at fault.
  @Test func oneThatHangsIsReplacedAndTheNextOneServes() async throws {
    let place = Place()
    let child = RpcAgentProcess(
      configuration(
        place,
        """
        read line; echo '{"type":"status","id":1,"ok":true}'
        if [ -e hung ]; then
          read line; echo '{"type":"message_end","id":2,"text":"well"}'; read line; exit
        fi
        touch hung; while :; do sleep 1; done
        """))
    try await child.start()
    #expect(await failure { _ = try await child.send(Send("a"), within: 0.5) } != nil)
    _ = try await until("it is replaced") { await child.health.generation == 2 ? true : nil }
    #expect(try await child.send(Send("b")).text == "well")
    await child.stop()
  }

  /// A text that the child doesn't take keeps nobody longer than its deadline.
  @Test func oneThatReadsNothingIsReplacedThoughTheTextIsLongerThanAnyBuffer() async throws {
    let place = Place()
    let child = RpcAgentProcess(
      configuration(
        place,
        """
        read line; echo '{"type":"status","id":1,"ok":true}'
        if [ -e hung ]; then
          read line; echo '{"type":"message_end","id":2,"text":"well"}'; read line; exit
        fi
        touch hung; while :; do sleep 1; done
        """))
    try await child.start()
    let long = Send(String(repeating: "x", count: 1_000_000))
    let error = await failure { _ = try await child.send(long, within: 0.5) }
    guard case .late? = error as? AgentError else {
      Issue.record("\(String(describing: error))")
      return
    }
    _ = try await until("it is replaced") { await child.health.generation == 2 ? true : nil }
    #expect(try await child.send(Send("b")).text == "well")
    await child.stop()
  }

  /// One that holds its standard output open in a session of its own holds nobody up.
  @Test func aGrandchildThatHoldsTheOutputOpenIsNotWaitedFor() async throws {
    let place = Place()
    let child = RpcAgentProcess(
      configuration(
        place,
        """
        read line; echo '{"type":"status","id":1,"ok":true}'
        read line
        session() { setsid "$@" || perl -MPOSIX -e 'POSIX::setsid(); exec @ARGV' "$@"; }
        session sh -c 'echo $$ >holds; exec sleep 15' &
        until [ -s holds ]; do sleep 0.05; done
        exit 4
        """))
    let begun = RpcAgentProcess.now
    let error = await failure { _ = try await child.send(Send("a"), within: 30) }
    #expect("\(String(describing: error))".contains("code 4"))
    #expect(RpcAgentProcess.now - begun < 10)
    let holder = try #require(pid_t(place.read("holds").dropLast()))
    #expect(!isGone(holder))
    kill(holder, SIGKILL)
    await child.stop()
  }

  @Test func oneThatIsDroppedWithoutAWordLeaves() async throws {
    let place = Place()
    var pid: Int32?
    do {
      let child = RpcAgentProcess(
        configuration(
          place, "read line; echo '{\"type\":\"status\",\"id\":1,\"ok\":true}'; cat >/dev/null"))
      try await child.start()
      pid = await child.health.pid
    }
    let gone = try #require(pid)
    _ = try await until("it is gone and reaped") { kill(gone, 0) != 0 ? true : nil }
  }

  /// One that heeds the end of its input and no signal.
  @Test func oneThatIsDroppedAndIgnoresTermLeavesToo() async throws {
    let place = Place()
    var pid: Int32?
    do {
      let child = RpcAgentProcess(
        configuration(
          place,
          """
          trap '' TERM
          read line; echo '{"type":"status","id":1,"ok":true}'; cat >/dev/null; echo end >over
          """))
      try await child.start()
      pid = await child.health.pid
    }
    let gone = try #require(pid)
    _ = try await until("it is gone and reaped") { kill(gone, 0) != 0 ? true : nil }
    #expect(place.read("over") == "end\n")
  }

  /// It closed its output and stays: its end is under way when `stop` is called.
  @Test func stoppingWaitsForOneThatIsBeingEnded() async throws {
    let place = Place()
    let child = RpcAgentProcess(
      configuration(
        place,
        """
        trap '' TERM
        read line; echo '{"type":"status","id":1,"ok":true}'; exec >&-; while :; do sleep 1; done
        """))
    try await child.start()
    let pid = try #require(await child.health.pid)
    _ = try await until("its end begins") { await child.health.pid == nil ? true : nil }
    await child.stop()
    #expect(kill(pid, 0) != 0, "it is there, or not reaped")
  }

  @Test func aRestartCutsThePauseShort() async throws {
    let place = Place()
    var slow = configuration(
      place,
      """
      [ -e mended ] || exit 1
      while read line; do echo '{"type":"status","id":1,"ok":true}'; done
      """)
    slow.restarts.first = 600
    slow.restarts.most = 600
    let child = RpcAgentProcess(slow)
    #expect(await failure { try await child.start() } != nil)
    let waiting = Task { try await child.start() }
    _ = try await until("it waits") { await child.health.state == .waiting ? true : nil }
    // Whoever waits for a start doesn't wait for it once cancelled.
    let cancelled = Task { _ = try await child.send(Send("a")) }
    cancelled.cancel()
    await #expect(throws: CancellationError.self) { try await cancelled.value }
    place.script("mended", "")
    try await child.restart()
    try await waiting.value
    #expect(await child.health.state == .live)
    await child.stop()
  }

  @Test func aProgramThatIsRunToItsEndIsEndedWhenItsTaskIsCancelled() async throws {
    let place = Place()
    let script = "echo $$ >pid; exec sleep 600"
    let run = Task {
      try await Run.finish(Command("/bin/sh", ["-c", script], directory: place.path), within: 600)
    }
    let pid = try await until("it runs") { pid_t(place.read("pid").dropLast()) }
    run.cancel()
    await #expect(throws: CancellationError.self) { _ = try await run.value }
    #expect(kill(pid, 0) != 0)
  }

  /// Whatever is lacking when it is started, nothing of the attempt is left.
  @Test func withoutDescriptorsNothingIsLost() async throws {
    let place = Place()
    let program = Command(place.script("child", "cat >/dev/null"))
    // What the system opens for itself with the first one isn't counted.
    _ = try await Run.finish(program, within: 20)
    let server = try FakeServer { socket in while socket.readLine() != nil {} }
    var options = AgentClient.Options()
    options.endpoint = server.endpoint
    options.agentctl = nil
    let client = AgentClient(options)
    var limit = rlimit()
    getrlimit(noFile, &limit)
    defer { setrlimit(noFile, &limit) }
    for free in 0..<14 {
      let before = openDescriptors()
      var few = limit
      few.rlim_cur = 512
      setrlimit(noFile, &few)
      var taken: [Int32] = []
      while case let one = open("/dev/null", O_RDONLY | O_CLOEXEC), one >= 0 { taken.append(one) }
      for one in taken.suffix(free) { _ = close(one) }
      _ = try? await Run.finish(program, within: 20)
      _ = await (try? Worker(program))?.end(within: 0.2)
      _ = try? await client.status(within: 0.1)
      for one in taken.dropLast(free) { _ = close(one) }
      setrlimit(noFile, &limit)
      _ = try await until("\(free) free: all is closed") {
        openDescriptors() <= before ? true : nil
      }
      _ = try await until("\(free) free: no child is left") { children().isEmpty ? true : nil }
    }
  }

  @Test func aDaemonOfANewerProtocolIsRefusedThroughTheRelayToo() async throws {
    let place = Place()
    var newer = configuration(
      place,
      "read line; echo '{\"type\":\"hello\",\"id\":1,\"ok\":true,\"protocol\":2}'; cat >/dev/null")
    newer.handshake = .hello
    let child = RpcAgentProcess(newer)
    let error = await failure { try await child.start() }
    #expect("\(String(describing: error))".contains("protocol"))
    await child.stop()
  }
}

@Suite struct Pauses {
  @Test func theyDoubleUpToTheMostAndBeginAnewAfterHealth() {
    var restarts = Restarts()
    restarts.deaths = 100
    var pauses: [Double] = []
    for now in 0..<9 {
      restarts.died(at: Double(now), after: 1)
      pauses.append(restarts.pause(at: Double(now)))
    }
    #expect(pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60])
    restarts.died(at: 200, after: 61)
    #expect(restarts.pause(at: 200) == 0.5)
    #expect(restarts.pause(at: 200.5) == 0)
  }

  @Test func fiveDeathsInThreeMinutesBreakItForTen() {
    var restarts = Restarts()
    for now in [0.0, 50, 100, 150, 181] { restarts.died(at: now, after: 1) }
    #expect(!restarts.isBroken(at: 181))
    restarts.died(at: 190, after: 1)
    #expect(restarts.isBroken(at: 190) && restarts.isBroken(at: 789))
    #expect(!restarts.isBroken(at: 790))
    restarts.died(at: 791, after: 1)
    restarts.forget()
    #expect(restarts.pause(at: 791) == 0)
  }
}

// The defects of the first `AgentRPC` on macOS, one test each: what it did, and that this doesn't.
//
// Each child is a shell script that does what the worker did then, or worse.

import Foundation
import Testing

@testable import AgentKit

/// Answers `status`, then runs the rest of the script.
private let up = """
  read line
  echo '{"type":"status","id":1,"ok":true}'
  """

/// Says each prompt back under its own id.
private let echo = """
  while read -r line; do
    id=${line#*'"id":'}; id=${id%%,*}; id=${id%%\\}*}
    text=${line#*'"text":"'}; text=${text%%'"'*}
    case $line in
      *'"type":"status"'*) echo '{"type":"status","id":'$id',"ok":true}' ;;
      *'"type":"send"'*) echo '{"type":"message_end","id":'$id',"text":"'"$text"'"}' ;;
    esac
  done
  """

private func process(
  _ place: Place, _ script: String,
  _ change: (inout RpcAgentProcess.Configuration) -> Void = { _ in }
) -> RpcAgentProcess {
  let file = place.script("child", script)
  var configuration = RpcAgentProcess.Configuration(
    Command(file, environment: ["PATH": "/usr/bin:/bin"], directory: place.path))
  configuration.stopWithin = 0.5
  configuration.settleWithin = 0.3
  configuration.restarts.first = 0.01
  change(&configuration)
  return RpcAgentProcess(configuration)
}

@Suite(.timeLimit(.minutes(1))) struct FifteenDefects {
  /// 1. Sends had no id: the answers of two could be swapped.
  @Test func defect01AnswersOfTwoSendsAreNotSwapped() async throws {
    let place = Place()
    let child = process(
      place,
      up + """

        read -r a; read -r b
        for line in "$b" "$a"; do
          id=${line#*'"id":'}; id=${id%%,*}
          text=${line#*'"text":"'}; text=${text%%'"'*}
          echo '{"type":"message_end","id":'$id',"text":"'"$text"'"}'
        done
        read line
        """)
    async let one = child.send(Send("one"))
    async let two = child.send(Send("two"))
    #expect(try await (one.text, two.text) == ("one", "two"))
    await child.stop()
  }

  /// 2. A send had no timeout: a hung model was a hung caller.
  @Test func defect02ASendHasADeadlineAndTheChildIsToldToAbort() async throws {
    let place = Place()
    let child = process(place, up + "\nwhile read -r line; do echo \"$line\" >>heard; done") {
      $0.settleWithin = 60
    }
    try await child.start()
    let error = await failure { _ = try await child.send(Send("hang"), within: 0.5) }
    guard case .late? = error as? AgentError else {
      Issue.record("\(String(describing: error))")
      return
    }
    let heard = try await until("the abort arrives") {
      place.read("heard").contains("abort") ? place.read("heard") : nil
    }
    #expect(heard.hasSuffix("{\"type\":\"abort\",\"id\":2}\n"))
    await child.stop()
  }

  /// 3. One failed send killed the worker and failed everybody who waited.
  @Test func defect03AFailedSendFailsNobodyElse() async throws {
    let place = Place()
    let child = process(
      place,
      up + """

        read -r a; read -r b
        echo '{"type":"error","id":2,"code":"rate-limit","error":"later","retryable":true}'
        echo '{"type":"message_end","id":3,"text":"fine"}'
        read -r c
        echo '{"type":"message_end","id":4,"text":"fine"}'
        read line
        """)
    try await child.start()
    let pid = await child.health.pid
    async let first = failure { _ = try await child.send(Send("a")) }
    async let second = failure { _ = try await child.send(Send("b")) }
    let failures = await [first, second].compactMap { $0 as? AgentError }
    #expect(failures.count == 1)
    guard case .answered(let line)? = failures.first else { return }
    #expect(line.code == .rateLimit)
    #expect(try await child.send(Send("c")).text == "fine")
    let health = await child.health
    #expect(health.pid == pid && health.restarts == 0)
    await child.stop()
  }

  /// 4. "Restart on exit" was never built: the next call started one, without any pause.
  @Test func defect04ItIsRestartedByItselfWithPausesAndABreaker() async throws {
    let place = Place()
    let child = process(place, "echo x >>starts\n" + up + "\nexit 9") { $0.restarts.deaths = 3 }
    try await child.start()
    let health = try await until("it is given up") {
      let health = await child.health
      return health.state == .broken ? health : nil
    }
    #expect(health.restarts == 3 && health.lastExit == "the process exited with code 9")
    #expect(place.read("starts") == "x\nx\nx\n")
    let error = await failure { _ = try await child.send(Send("a")) }
    guard case .crashLooped(let why)? = error as? AgentError else {
      Issue.record("\(String(describing: error))")
      return
    }
    #expect(why.contains("3 times") && why.contains("code 9"))
    #expect(place.read("starts") == "x\nx\nx\n", "a send started it in spite of the breaker")
    await child.stop()
  }

  /// 5. `start` returned while another start was under way: the second caller wrote to nothing.
  @Test func defect05TwoStartsAtOnceAreOneAndBothWait() async throws {
    let place = Place()
    let child = process(place, "echo x >>starts\nsleep 0.3\n" + echo)
    let answers = try await withThrowingTaskGroup(of: String.self) { group in
      for number in 0..<8 {
        group.addTask { try await child.send(Send("n\(number)")).text }
      }
      return try await group.reduce(into: Set<String>()) { $0.insert($1) }
    }
    #expect(answers.count == 8)
    #expect(place.read("starts") == "x\n")
    await child.stop()
  }

  /// 6. Nobody read standard error: the worker stopped at 64 KiB of it.
  @Test func defect06StandardErrorIsReadAndItsEndKept() async throws {
    let place = Place()
    let flood = "head -c 4000000 /dev/zero | tr '\\0' x >&2; echo the end >&2"
    let child = process(place, flood + "\n" + echo)
    #expect(try await child.send(Send("hi")).text == "hi")
    let log = await child.log
    #expect(log.hasSuffix("the end\n") && log.utf8.count <= 64 * 1024)
    await child.stop()
  }

  /// 7. Whatever else was printed got between the lines; thirty lines of it were fatal.
  @Test func defect07WhatIsNoLineIsLogAndNotAnAnswer() async throws {
    let place = Place()
    let junk = "i=0; while [ $i -lt 500 ]; do echo \"junk $i\"; echo '[1]'; i=$((i+1)); done"
    let child = process(place, junk + "\nprintf '\\377\\376\\n'\n" + echo)
    #expect(try await child.send(Send("hi")).text == "hi")
    #expect(await child.strays.noise == 1001)
    #expect(await child.log.contains("junk 499"))
    await child.stop()
  }

  /// 8. The end of standard output was overlooked: who waited, waited for ever.
  @Test(arguments: ["exit 3", "exec >&-; sleep 600", "printf '{\"type\":\"mess'; exit 0"])
  func defect08TheEndOfItsOutputIsItsEnd(end: String) async throws {
    let place = Place()
    let child = process(place, up + "\nread line\necho last words >&2\n" + end) {
      $0.restarts.deaths = 1
    }
    let error = await failure { _ = try await child.send(Send("a"), within: 30) }
    guard case .childExited(let why)? = error as? AgentError else {
      Issue.record("\(String(describing: error))")
      return
    }
    #expect(why.contains("last words"), "\(why)")
    await child.stop()
  }

  /// 9. TERM, KILL after 0.7 s, and nobody waited: processes were left.
  @Test func defect09StopEndsTheWholeGroupAndReapsIt() async throws {
    let place = Place()
    let child = process(
      place, "trap '' TERM\nsleep 600 & echo $! >grandchild\n" + up + "\nwhile :; do sleep 1; done")
    try await child.start()
    let pid = try #require(await child.health.pid)
    let grandchild = try #require(pid_t(place.read("grandchild").dropLast()))
    #expect(!isGone(grandchild) && children().contains(pid))
    let begun = RpcAgentProcess.now
    await child.stop()
    #expect(RpcAgentProcess.now - begun < 5)
    #expect(kill(pid, 0) != 0, "it is there, or not reaped")
    // Not ours to reap: init does that, a moment later.
    _ = try await until("the grandchild is gone") { isGone(grandchild) ? true : nil }
    await #expect(throws: AgentError.stopped) { _ = try await child.send(Send("a")) }
  }

  /// 10. Without a level, `"default"` was sent, which the worker refused.
  @Test func defect10WhatIsNotGivenIsNotSent() async throws {
    let place = Place()
    let child = process(place, up + "\nread -r line\necho \"$line\" >heard\n" + echo)
    let turn = Task { try await child.send(Send("hi")) }
    let heard = try await until("it arrives") {
      place.read("heard").isEmpty ? nil : place.read("heard")
    }
    turn.cancel()
    #expect(heard == "{\"type\":\"send\",\"id\":2,\"text\":\"hi\"}\n")
    #expect(!Thinking.allCases.map(\.rawValue).contains("default"))
    await child.stop()
  }

  /// 11. The session's name was sent as `sessionId`.
  @Test func defect11TheSessionIsCalledSession() async throws {
    let place = Place()
    let child = process(place, up + "\nread -r line\necho \"$line\" >heard\n" + echo)
    let turn = Task { try await child.send(Send("hi", session: "main")) }
    let heard = try await until("it arrives") {
      place.read("heard").isEmpty ? nil : place.read("heard")
    }
    turn.cancel()
    #expect(heard.contains(#""session":"main""#))
    await child.stop()
  }

  /// 12. The worker was another process than the relay: what one was told, the other didn't know.
  @Test(.enabled(if: binaries != nil, needsDaemon))
  func defect12TheRelayAndTheSocketAreOneDaemon() async throws {
    let daemon = try await Daemon()
    let relay = RpcAgentProcess(
      RpcAgentProcess.Configuration(daemon.command("agentctl", ["stdio"]), handshake: .hello))
    let first = try await relay.send(Send("by the relay", session: "main"))
    let second = try await daemon.client().send(text: "by the socket", session: "main")
    #expect(first.context == "new" && second.context == "continued")
    let jobs = try await daemon.client().ask("jobs").json["jobs"]?.array ?? []
    #expect(Set(jobs.map { $0["job"]?.string }) == [first.job, second.job])
    await relay.stop()
  }

  /// 13. The one-shot's exit was waited for before its pipes were read: 64 KiB were a deadlock.
  @Test func defect13AProgramMayPrintMoreThanAPipeHolds() async throws {
    let script =
      "cat >/dev/null; head -c 1000000 /dev/zero | tr '\\0' x; head -c 300000 /dev/zero >&2"
    let input = String(repeating: "y", count: 1_000_000)
    let finished = try await Run.finish(
      Command("/bin/sh", ["-c", script]), input: input, within: 20)
    #expect(finished.exit.code == 0 && finished.output.utf8.count == 1_000_000)
    #expect(finished.errors.utf8.count == 64 * 1024)
  }

  /// 14. `status` went by way of the main thread, and hung with it.
  @Test func defect14HowItIsIsKnownWhileTheChildHangsInATurn() async throws {
    let place = Place()
    let child = process(place, up + "\nread line\nkill -STOP $$")
    let turn = Task { try await child.send(Send("hang"), within: 60) }
    _ = try await until("it runs") { await child.health.state == .live ? true : nil }
    let begun = RpcAgentProcess.now
    #expect(await child.health.pid != nil)
    #expect(RpcAgentProcess.now - begun < 1)
    #expect(await failure { _ = try await child.status(within: 0.2) } != nil)
    await child.stop()
    _ = await turn.result
  }

  /// 15. With the worker down it fell back by itself, and ran what might have run already.
  @Test func defect15WhatLeftIsNeverSentAgain() async throws {
    let place = Place()
    let child = process(
      place, up + "\nread -r line\necho \"$line\" >>heard\nexit 1")
    let error = await failure { _ = try await child.send(Send("once", key: "k")) }
    #expect((error as? AgentError)?.nothingHappened == false, "\(String(describing: error))")
    _ = try await until("the next one is up") { await child.health.generation >= 2 ? true : nil }
    #expect(place.read("heard").components(separatedBy: "once").count == 2)
    await child.stop()
  }
}

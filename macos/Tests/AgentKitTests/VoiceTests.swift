// Speech: from a transcript to a session on another machine, which is a real sshd on loopback.

import Foundation
import Testing

@testable import AgentKit

private let sshd = "/usr/sbin/sshd"
private let canSSH =
  binaries != nil && FileManager.default.isExecutableFile(atPath: sshd)
  && FileManager.default.isExecutableFile(atPath: "/usr/bin/ssh-keygen")

/// Another machine, reached as `mac`: each connection gets an `sshd -i` of its own.
private final class OtherMachine: Sendable {
  let daemon: Daemon
  let here = Place()
  private let listener: Int32
  private let isUp = Guarded(true)

  init() async throws {
    daemon = try await Daemon()
    #if os(Linux)
      listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    #else
      listener = socket(AF_INET, SOCK_STREAM, 0)
    #endif
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let bound = withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(listener, $0, size) == 0 && getsockname(listener, $0, &size) == 0
      }
    }
    try #require(bound && listen(listener, 16) == 0)
    _ = fcntl(listener, F_SETFD, FD_CLOEXEC)
    try await configure(port: Int(UInt16(bigEndian: address.sin_port)))
    let (number, config, isUp) = (listener, here["sshd_config"], isUp)
    Thread.detachNewThread {
      while true {
        let accepted = accept(number, nil, nil)
        guard accepted >= 0 else { return }
        let line = Descriptor(number: accepted)
        guard isUp.with({ $0 }), let other = try? line.duplicate() else {
          line.close()
          continue
        }
        let null = open("/dev/null", O_WRONLY | O_CLOEXEC)
        _ = try? Child(
          Command(sshd, ["-i", "-f", config], environment: [:]), input: line, output: other,
          error: Descriptor(number: null))
      }
    }
  }

  private func configure(port: Int) async throws {
    for name in ["host", "key", "voice"] {
      let made = try await Run.finish(
        Command("/usr/bin/ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", here[name]]),
        within: 20)
      try #require(made.exit.code == 0)
    }
    let variables = daemon.command("agentctl").environment ?? [:]
    let set = variables.map { "\"\($0.key)=\($0.value)\"" }.joined(separator: " ")
    try write(
      "sshd_config",
      """
      HostKey \(here["host"])
      AuthorizedKeysFile \(here["authorized_keys"])
      PidFile none
      StrictModes no
      UsePAM no
      PasswordAuthentication no
      KbdInteractiveAuthentication no
      SetEnv \(set)

      """)
    let key = here.read("host.pub").split(separator: " ")
    try write("known_hosts", "[127.0.0.1]:\(port) \(key[0]) \(key[1])\n")
    // Only the key for speech is let in.
    try write("authorized_keys", here.read("voice.pub"))
    try write(
      "config",
      """
      Host mac
        HostName 127.0.0.1
        Port \(port)
      Host *
        IdentityFile \(here["key"])
        UserKnownHostsFile \(here["known_hosts"])
        GlobalKnownHostsFile /dev/null

      """)
    try FileManager.default.createDirectory(
      atPath: here["bin"], withIntermediateDirectories: true)
    // What it is called with is written down.
    here.script(
      "bin/ssh",
      "printf '%s\\n' \"$*\" >>\(here["argv"])\nexec /usr/bin/ssh -F \(here["config"]) \"$@\"")
  }

  private func write(_ name: String, _ text: String) throws {
    try Data(text.utf8).write(to: URL(fileURLWithPath: here[name]))
    chmod(here[name], 0o600)
  }

  func up(_ is: Bool) {
    isUp.with { $0 = `is` }
  }

  func forwarder(_ change: (inout VoiceSettings) -> Void = { _ in }) -> VoiceWakeForwarder {
    var settings = VoiceSettings()
    settings.targets = ["ssh \(NSUserName())@mac"]
    settings.identityFile = here["voice"]
    settings.prefix = ""
    change(&settings)
    var agentctl = Daemon.command(here, "agentctl")
    agentctl.environment?["PATH"] = "\(here["bin"]):\(binaries ?? ""):/usr/bin:/bin"
    return VoiceWakeForwarder(settings: settings, agentctl: agentctl, machine: "Ann's Mac")
  }

  /// What the session `main` there was told.
  func told() async throws -> [String] {
    let line = try await daemon.client().ask("session.history", [("session", "main")])
    return (line.json["turns"]?.array ?? []).compactMap { $0["text"]?.string }
  }

  deinit {
    _ = shutdown(listener, Int32(SHUT_RDWR))
    _ = close(listener)
  }
}

@Suite(
  .enabled(if: canSSH, "skipped: needs sshd, ssh-keygen and agentd, named by AGENTD_BIN"),
  .timeLimit(.minutes(1)))
struct VoiceToAnotherMachine {
  @Test func whatWasSaidIsATurnThereAndNeverAnArgument() async throws {
    let mac = try await OtherMachine()
    let transcript = Transcript(id: "u1", text: "what's on $(id) `id` '; id; \" today")
    let records = await mac.forwarder { $0.prefix = "Said on ${machine}." }.forward(transcript)
    guard case .answered(let result)? = records.first?.outcome else {
      Issue.record("\(records)")
      return
    }
    #expect(result.session == "main")
    #expect(try await mac.told() == ["Said on Ann's Mac.\n\n" + transcript.text])
    let argv = mac.here.read("argv").split(separator: "\n")
    #expect(argv.count == 1 && argv[0].hasSuffix(" -- mac agentctl stdio"), "\(argv)")
    #expect(argv[0].contains("BatchMode=yes") && argv[0].contains("-i \(mac.here["voice"])"))
    // The same utterance again is the same turn.
    _ = await mac.forwarder { $0.prefix = "Said on ${machine}." }.forward(transcript)
    #expect(try await mac.told().count == 1)
  }

  @Test func whatIsSaidWhileTheMachineIsAwayWaitsAndComesInOrder() async throws {
    let mac = try await OtherMachine()
    let forwarder = mac.forwarder()
    mac.up(false)
    for text in ["one", "two"] {
      let records = await forwarder.forward(Transcript(text: text))
      guard case .queued? = records.first?.outcome else {
        Issue.record("\(records)")
        return
      }
      #expect(records[0].summary.contains("queued on disk") && !records[0].summary.contains(text))
      #expect(records[0].summary.count <= 241)
    }
    mac.up(true)
    #expect(try await forwarder.flush() == ["\(NSUserName())@mac: 2 delivered"])
    #expect(try await mac.told() == ["one", "two"])
  }

  @Test func aCheckHasTwoStages() async throws {
    let mac = try await OtherMachine()
    let forwarder = mac.forwarder()
    #expect(
      try await forwarder.check()
        == [VoiceCheck(target: "\(NSUserName())@mac", ssh: true, daemon: true, error: nil)])
    await mac.daemon.kill()
    let alone = try await forwarder.check()[0]
    #expect(alone.ssh && !alone.daemon && alone.error != nil)
    mac.up(false)
    let away = try await forwarder.check()[0]
    #expect(!away.ssh && !away.daemon)
    #expect(away.error?.contains("can't be reached by ssh") == true)
  }

  @Test func aFileOfSpeechIsForwardedLineByLineAndARestartIsTagged() async throws {
    let mac = try await OtherMachine()
    try Data("one\n\ntwo\n".utf8).write(to: URL(fileURLWithPath: mac.here["speech"]))
    let records = Guarded<[VoiceRecord]>([])
    let source = FileSpeechSource(path: mac.here["speech"], name: "f")
    await mac.forwarder().run(source) { one in records.with { $0.append(one) } }
    #expect(try await mac.told() == ["one", "two"])
    #expect(records.with { $0.map(\.isTaggedRestart) } == [false, false])
    await mac.daemon.kill()
    try await mac.daemon.start()
    let last = await mac.forwarder().forward(Transcript(text: "three"))
    #expect(last.map(\.isTaggedRestart) == [true], "\(last)")
    #expect(last.first?.summary.hasPrefix("[rpc-restart] \(NSUserName())@mac: answered") == true)
  }
}

@Suite(.timeLimit(.minutes(1))) struct VoiceHere {
  @Test(arguments: [
    "-oProxyCommand=id", "mac;id", "mac$(id)", "mac id", "m\u{E4}c", "",
  ])
  func whatIsNoTargetIsRefusedBeforeAnythingRuns(target: String) async {
    var settings = VoiceSettings()
    settings.targets = [target]
    let forwarder = VoiceWakeForwarder(settings: settings, agentctl: Command("/bin/false"))
    let records = await forwarder.forward(Transcript(text: "hi"))
    guard case .failed(.settings(let why))? = records.first?.outcome else {
      Issue.record("\(records)")
      return
    }
    #expect(why.contains("expected [USER@]HOST[:PORT]"))
  }

  @Test func anIdentityFileThatIsNotThereIsNamed() {
    var settings = VoiceSettings()
    settings.identityFile = "/no/such/key"
    #expect(settings.problem == "there is no identity file `/no/such/key`")
    settings.identityFile = "key"
    #expect(settings.problem?.contains("absolute") == true)
  }

  /// `agentctl` as it ends in each way, and what that means.
  @Test(arguments: [
    ("echo 'error: there is no transcript' >&2; exit 2", "transcript"),
    ("echo 'error: neither sent nor kept: full' >&2; exit 75", "lost"),
    ("exit 127", "cliMissing"),
    (#"echo '{"type":"error","code":"agent-failed","error":"no","job":"j1"}'; exit 1"#, "turn"),
    ("exit 9", "unknown"),
    ("kill -9 $$", "unknown"),
  ])
  func eachEndHasItsClass(script: String, expected: String) async throws {
    let place = Place()
    let program = place.script("agentctl", "cat >/dev/null; " + script)
    let records = await VoiceWakeForwarder(agentctl: Command(program))
      .forward(Transcript(text: "hi"))
    guard case .failed(let failure)? = records.first?.outcome else {
      Issue.record("\(records)")
      return
    }
    #expect("\(failure)".hasPrefix(expected), "\(failure)")
  }

  @Test func aMissingProgramAndLongWordsAreClasses() async throws {
    let nowhere = VoiceWakeForwarder(agentctl: Command("agentctl", environment: ["PATH": "/x"]))
    guard case .failed(.cliMissing)? = await nowhere.forward(Transcript(text: "a")).first?.outcome
    else {
      Issue.record("found")
      return
    }
    let place = Place()
    let long = place.script("agentctl", "head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1")
    let record = try #require(
      await VoiceWakeForwarder(agentctl: Command(long)).forward(Transcript(text: "a")).first)
    #expect(record.summary.count == 241 && record.summary.hasSuffix("…"))
  }

  /// What a stopped recogniser still says begins nothing, and nothing begins once nobody listens.
  @Test func aRecognitionThatIsOverCountsNoMore() {
    var recognitions = Recognitions()
    var begun: [Int] = []
    for _ in 0..<2 {
      guard let number = recognitions.begin() else { break }
      begun.append(number)
      #expect(begun.map(recognitions.counts) == begun.map { $0 == number })
      if begun.count == 1 { recognitions.stop() }
      #expect(recognitions.counts(number) == (begun.count == 2))
    }
    #expect(begun.count == 2)
    recognitions.finish()
    #expect(!begun.contains(where: recognitions.counts))
    let another = recognitions.begin()
    #expect(another == nil)
  }

  @Test(arguments: [0, -1, .infinity, .nan])
  func aDeadlineThatIsNoneIsRefused(seconds: Double) {
    var settings = VoiceSettings()
    settings.deadline = seconds
    #expect(settings.problem?.contains("expected a number above 0") == true)
  }

  @Test func wakeWordsAreHeardWhateverTheirCase() {
    let words = WakeWords(["Hey Agent", "Computer"])
    #expect(words.command(in: "so, hey agent: what is on today?") == "what is on today?")
    #expect(words.command(in: "COMPUTER, stop") == "stop")
    #expect(words.command(in: "Hey Agent") == nil)
    #expect(words.command(in: "the agent said hey") == nil)
  }
}

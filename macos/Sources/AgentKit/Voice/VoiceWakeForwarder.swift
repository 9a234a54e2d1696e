// What was said, to the session it is for.
//
// Owns what became of each utterance and what is told about it. `agentctl voice` keeps it on disk,
// calls ssh with fixed words, delivers in order and each once: that rule is held there, and there
// only. Must not know who recognised the speech.

import Foundation

/// What became of an utterance at one target.
public enum VoiceOutcome: Sendable, Equatable {
  /// The agent answered.
  case answered(TurnResult)
  /// It is a job there, and still works.
  case accepted(job: String)
  /// It is kept on disk, and is delivered when the machine can be reached.
  case queued(why: String)
  case failed(VoiceFailure)
}

/// Why an utterance has no answer and none will come by itself.
public enum VoiceFailure: Error, Sendable, Equatable {
  /// The settings are wrong; nothing was sent.
  case settings(String)
  /// `agentctl` can't be run here; nothing was sent.
  case cliMissing(String)
  /// It isn't speech; nothing was sent.
  case transcript(String)
  /// The agent failed, or the daemon refused.
  case turn(ErrorLine)
  /// Neither sent nor kept.
  case lost(String)
  /// It may have happened.
  case unknown(String)
}

/// The two stages of a check.
public struct VoiceCheck: Sendable, Equatable {
  public let target: String
  /// Does ssh get there?
  public let ssh: Bool
  /// Does a daemon serve there?
  public let daemon: Bool
  public let error: String?
}

/// One line for the log of the app.
public struct VoiceRecord: Sendable, Equatable {
  public let target: String?
  public let outcome: VoiceOutcome
  /// What the forwarder noticed, each clipped.
  public let notes: [String]
  /// Was an RPC worker or daemon restarted since the last utterance?
  public let isTaggedRestart: Bool

  /// At most 240 characters. What was said isn't in it.
  public var summary: String {
    let tag = isTaggedRestart ? "[rpc-restart] " : ""
    let text =
      switch outcome {
      case .answered: "answered"
      case .accepted(let job): "accepted, still working: \(job)"
      case .queued(let why): "queued on disk: \(why)"
      case .failed(let failure): "failed: \(failure.words)"
      }
    return clipped("\(tag)\(target ?? "this machine"): \(text)")
  }
}

extension VoiceFailure {
  public var words: String {
    switch self {
    case .settings(let why), .cliMissing(let why), .transcript(let why), .lost(let why),
      .unknown(let why):
      why
    case .turn(let line): "\(line.code): \(line.message)"
    }
  }
}

/// At most 240 characters, and an ellipsis where some are gone.
func clipped(_ text: String) -> String {
  text.count > 240 ? text.prefix(240) + "…" : text
}

public struct VoiceWakeForwarder: Sendable {
  public var settings: VoiceSettings
  /// The program that does it.
  public var agentctl: Command
  /// What people call this machine.
  public var machine: String

  public init(
    settings: VoiceSettings = VoiceSettings(), agentctl: Command = Command("agentctl"),
    machine: String = ProcessInfo.processInfo.hostName
  ) {
    self.settings = settings
    self.agentctl = agentctl
    self.machine = machine
  }

  /// Forwards everything that a source hears, one after the other, until it ends.
  public func run(
    _ source: some SpeechSource, record: @escaping @Sendable (VoiceRecord) -> Void
  ) async {
    for await transcript in source.transcripts() {
      for one in await forward(transcript) { record(one) }
    }
  }

  /// Forwards one utterance to every target.
  public func forward(_ transcript: Transcript) async -> [VoiceRecord] {
    if let problem = settings.problem {
      return [
        VoiceRecord(
          target: nil, outcome: .failed(.settings(problem)), notes: [], isTaggedRestart: false)
      ]
    }
    var records: [VoiceRecord] = []
    for target in settings.destinations {
      let arguments = settings.forwardArguments(to: target, utterance: transcript.id)
      let text = settings.text(transcript.text, machine: machine)
      // `agentctl` ends by itself; ssh and a full disk have a moment more.
      let limit = settings.deadline + 20
      let finished = await run(arguments, input: text, within: limit)
      records.append(Self.record(target, finished))
    }
    return records
  }

  /// Asks each machine whether ssh gets there, and then whether a daemon serves there.
  public func check() async throws(VoiceFailure) -> [VoiceCheck] {
    if let problem = settings.problem { throw .settings(problem) }
    var checks: [VoiceCheck] = []
    for case let target? in settings.destinations {
      let finished = try await run(["voice", "check", "--json", "--", target], within: 30).get()
      guard let line = finished.output.split(separator: "\n").last,
        let json = try? StrictJSON.object(Array(line.utf8))
      else { throw .cliMissing(clipped(finished.errors)) }
      checks.append(
        VoiceCheck(
          target: target, ssh: json["ssh"]?.bool ?? false, daemon: json["daemon"]?.bool ?? false,
          error: json["error"]?.string.map(clipped)))
    }
    return checks
  }

  /// Delivers what waits on disk. Returns what `agentctl` says about it, a line for each machine.
  public func flush() async throws(VoiceFailure) -> [String] {
    let finished = try await run(["voice", "flush"], within: 90).get()
    return finished.output.split(separator: "\n").map { clipped(String($0)) }
  }

  private func run(_ arguments: [String], input: String = "", within seconds: Double) async
    -> Result<Finished, VoiceFailure>
  {
    var command = agentctl
    command.arguments += arguments
    if let key = settings.identityFile {
      var environment = command.resolvedEnvironment
      environment["AGENTD_SSH_KEY"] = key
      command.environment = environment
    }
    do {
      return .success(try await Run.finish(command, input: input, within: seconds))
    } catch AgentError.late(let seconds) {
      return .failure(.unknown("`agentctl` did not end within \(seconds) s"))
    } catch is CancellationError {
      return .failure(.unknown("cancelled before `agentctl` had ended"))
    } catch {
      return .failure(.cliMissing(clipped("\(error)")))
    }
  }

  /// What `agentctl` printed and how it ended, as what became of the utterance.
  static func record(_ target: String?, _ result: Result<Finished, VoiceFailure>) -> VoiceRecord {
    let finished: Finished
    switch result {
    case .success(let ended): finished = ended
    case .failure(let failure):
      return VoiceRecord(
        target: target, outcome: .failed(failure), notes: [], isTaggedRestart: false)
    }
    let notes = finished.errors.split(separator: "\n").filter { $0.hasPrefix("note: ") }
      .map { clipped(String($0.dropFirst(6))) }
    return VoiceRecord(
      target: target, outcome: outcome(of: finished), notes: notes,
      isTaggedRestart: notes.contains { $0.contains("[rpc-restart]") })
  }

  private static func outcome(of finished: Finished) -> VoiceOutcome {
    let said = finished.errors.split(separator: "\n").filter { !$0.hasPrefix("note: ") }
      .joined(separator: "; ")
    if let last = finished.output.split(separator: "\n").last,
      let line = try? Line(Array(last.utf8))
    {
      switch line.body {
      case .messageEnd(let result): return .answered(result)
      case .error(let error): return .failed(.turn(error))
      case .accepted(let accepted): return .accepted(job: accepted.job)
      default: break
      }
      if line.kind == "queued" { return .queued(why: clipped(line.json["error"]?.string ?? "")) }
    }
    let words = clipped(said.isEmpty ? "`agentctl` \(finished.exit)" : said)
    switch finished.exit.code {
    case 2: return .failed(.transcript(words))
    case 75: return .failed(.lost(words))
    case 126, 127: return .failed(.cliMissing(words))
    default: return .failed(.unknown(words))
    }
  }
}

// What a user sets for speech.
//
// Owns the settings, what is wrong with them, and the fixed words that `agentctl` is called with.
// Nothing that was said is ever among those words. Must not know how anything is run.

import Foundation

public struct VoiceSettings: Sendable, Equatable, Codable {
  /// Machines that get what was said, as `[USER@]HOST[:PORT]`; a leading `ssh ` is dropped. None:
  /// this machine.
  public var targets: [String] = []
  /// A private key for just that, by its absolute path.
  public var identityFile: String?
  /// Words before the transcript; nil: the usual ones, which say that it is speech. Empty: none.
  /// `${machine}` is this machine's name.
  public var prefix: String?
  public var session = "main"
  public var agent: String?
  /// How long an answer is waited for, in seconds. The turn goes on after that.
  public var deadline = 30.0

  public init() {}

  /// Whom to send to, as `agentctl` takes it; nil is this machine.
  var destinations: [String?] {
    targets.isEmpty ? [nil] : targets.map(Self.target)
  }

  static func target(_ text: String) -> String {
    let trimmed = text.trimmingCharacters(in: .whitespacesAndNewlines)
    return trimmed.hasPrefix("ssh ")
      ? trimmed.dropFirst(4).trimmingCharacters(in: .whitespaces) : trimmed
  }

  /// What is wrong, before anything is run; nil when nothing is.
  public var problem: String? {
    for target in targets.map(Self.target) {
      // What could be an option or a command is no target. `agentctl` checks the rest.
      let plain = target.unicodeScalars.allSatisfy {
        $0.isASCII
          && (CharacterSet.alphanumerics.contains($0) || "._-@:[]%".unicodeScalars.contains($0))
      }
      if target.isEmpty || target.hasPrefix("-") || !plain {
        return "the target is `\(target)`: expected [USER@]HOST[:PORT]"
      }
    }
    if let identityFile {
      guard identityFile.hasPrefix("/") else {
        return "the identity file is `\(identityFile)`: expected an absolute path"
      }
      guard FileManager.default.isReadableFile(atPath: identityFile) else {
        return "there is no identity file `\(identityFile)`"
      }
    }
    guard deadline > 0, deadline.isFinite else {
      return "the deadline is \(deadline) s: expected a number above 0"
    }
    return session.isEmpty ? "the session has no name" : nil
  }

  /// The text for standard input.
  func text(_ transcript: String, machine: String) -> String {
    guard let prefix, !prefix.isEmpty else { return transcript }
    return prefix.replacingOccurrences(of: "${machine}", with: machine) + "\n\n" + transcript
  }

  func forwardArguments(to target: String?, utterance: String) -> [String] {
    var arguments = ["voice", "forward", "--json", "--session=\(session)"]
    arguments += ["--utterance=\(utterance)", "--deadline=\(deadline)"]
    if let agent { arguments.append("--agent=\(agent)") }
    if let target { arguments.append("--host=\(target)") }
    if prefix != nil { arguments.append("--no-prefix") }
    return arguments
  }
}

// Where transcripts come from.
//
// Owns the protocol between a recogniser and the forwarder, the words that wake it, and a source
// that reads a file. Must not know what becomes of what was said.

import Foundation

/// One utterance.
public struct Transcript: Sendable, Equatable {
  /// What the recogniser calls it: the same again is the same turn.
  public let id: String
  public let text: String

  public init(id: String = UUID().uuidString.lowercased(), text: String) {
    self.id = id
    self.text = text
  }
}

/// A recogniser. Apple's is one, behind `canImport(Speech)`.
public protocol SpeechSource: Sendable {
  /// What was said to the agents, until the source is exhausted or nobody listens.
  func transcripts() -> AsyncStream<Transcript>
}

/// Which of a recogniser's recognitions counts: one is begun after each utterance, and the words and
/// errors of those before are over.
struct Recognitions: Sendable {
  private var current = 0
  private var isOver = false

  /// A new one; nil when nobody listens any more.
  mutating func begin() -> Int? {
    guard !isOver else { return nil }
    current += 1
    return current
  }

  /// None counts, until the next one is begun.
  mutating func stop() {
    current += 1
  }

  /// Nobody listens, and nobody will.
  mutating func finish() {
    isOver = true
  }

  func counts(_ number: Int) -> Bool {
    !isOver && number == current
  }
}

/// The words that say that the rest is for an agent.
public struct WakeWords: Sendable, Equatable {
  private let words: [[String]]

  public init(_ phrases: [String]) {
    words = phrases.map(Self.words).filter { !$0.isEmpty }
  }

  /// What was said behind the first wake phrase; nil where there is none, or nothing behind it.
  public func command(in said: String) -> String? {
    let parts = said.split(whereSeparator: \.isWhitespace)
    let plain = parts.map { Self.words(String($0)).joined() }
    for start in parts.indices {
      for phrase in words where plain[start...].starts(with: phrase) {
        let rest = parts[(start + phrase.count)...].joined(separator: " ")
        return rest.isEmpty ? nil : rest
      }
    }
    return nil
  }

  /// Without case, accents and punctuation.
  private static func words(_ text: String) -> [String] {
    text.folding(options: [.caseInsensitive, .diacriticInsensitive], locale: nil)
      .split(whereSeparator: \.isWhitespace)
      .map { $0.filter { $0.isLetter || $0.isNumber } }
      .filter { !$0.isEmpty }
  }
}

/// Each line of a file is an utterance. Its name is the file's and its number, so that reading it
/// twice says nothing twice.
public struct FileSpeechSource: SpeechSource {
  private let path: String
  private let name: String

  public init(path: String, name: String) {
    self.path = path
    self.name = name
  }

  public func transcripts() -> AsyncStream<Transcript> {
    let text = (try? String(contentsOfFile: path, encoding: .utf8)) ?? ""
    let lines = text.split(separator: "\n", omittingEmptySubsequences: false).enumerated()
    let (stream, continuation) = AsyncStream.makeStream(of: Transcript.self)
    for (number, line) in lines
    where !line.trimmingCharacters(in: .whitespaces).isEmpty {
      continuation.yield(Transcript(id: "\(name)-\(number + 1)", text: String(line)))
    }
    continuation.finish()
    return stream
  }
}

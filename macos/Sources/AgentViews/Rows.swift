// What a row of the menu says.
//
// Owns the words and symbols, and reading rows of the daemon's lists. Must not know SwiftUI.

import AgentKit
import Foundation

/// The daemon in the menu bar.
public struct DaemonView: Sendable, Equatable {
  /// The name of an SF symbol.
  public let symbol: String
  /// The first line of the menu, and what VoiceOver says.
  public let title: String
  public let isUp: Bool

  public static let unknown = DaemonView(
    symbol: "circle.dotted", title: "agentd: looking", isUp: false)

  init(symbol: String, title: String, isUp: Bool) {
    self.symbol = symbol
    self.title = title
    self.isUp = isUp
  }

  public init(_ status: Status) {
    let questions = status.questions
    let asks = questions == 1 ? "1 question waits" : "\(questions) questions wait"
    switch status.state {
    case "ready" where questions > 0:
      self.init(symbol: "questionmark.circle.fill", title: "agentd: \(asks)", isUp: true)
    case "ready" where status.workers.contains { $0.state == "crash-looped" }:
      let names = status.workers.filter { $0.state == "crash-looped" }.map(\.agent)
      self.init(
        symbol: "exclamationmark.triangle.fill",
        title: "agentd: \(names.joined(separator: ", ")) does not come up", isUp: true)
    case "ready" where status.inFlight > 0:
      let turns = status.inFlight == 1 ? "1 turn runs" : "\(status.inFlight) turns run"
      self.init(symbol: "circle.fill", title: "agentd: \(turns)", isUp: true)
    case "ready": self.init(symbol: "circle", title: "agentd: ready", isUp: true)
    case "draining":
      self.init(symbol: "pause.circle", title: "agentd: starts no new turns", isUp: true)
    default:
      self.init(
        symbol: "exclamationmark.circle", title: "agentd: \(status.details)", isUp: true)
    }
  }

  public init(_ error: Error) {
    switch error {
    case AgentError.notConnected(.noSocket, _), AgentError.notConnected(.refused, _):
      self.init(symbol: "circle.slash", title: "agentd: not running", isUp: false)
    case AgentError.notConnected(.helloSilent, _), AgentError.late:
      self.init(symbol: "exclamationmark.circle", title: "agentd: does not answer", isUp: false)
    default:
      self.init(symbol: "exclamationmark.circle", title: "agentd: \(error)", isUp: false)
    }
  }
}

public struct SessionView: Sendable, Equatable, Identifiable {
  public let id: String
  public let agent: String
  /// `idle`, `starting`, `working`, `waiting` or `held`.
  public let state: String
  public let title: String

  init?(_ row: JSONValue) {
    guard let id = row["session"]?.string else { return nil }
    self.id = id
    agent = row["agent"]?.string ?? ""
    state = row["state"]?.string ?? ""
    title = row["title"]?.string ?? row["preview"]?.string ?? id
  }
}

public struct JobView: Sendable, Equatable, Identifiable {
  public let id: String
  public let session: String
  public let agent: String
  /// `queued`, `held`, `running`, `completed`, `cancelled`, `failed` or `interrupted`.
  public let state: String
  public let preview: String

  init?(_ row: JSONValue) {
    guard let id = row["job"]?.string else { return nil }
    self.id = id
    session = row["session"]?.string ?? ""
    agent = row["agent"]?.string ?? ""
    state = row["state"]?.string ?? ""
    preview = row["preview"]?.string ?? ""
  }

  public var canBeAborted: Bool { ["queued", "held", "running"].contains(state) }
}

/// What a turn has said so far, at most so much of its end.
public struct RunningText: Sendable, Equatable {
  public private(set) var text = ""
  private var message = 0
  private var bytes = 0

  /// More than a menu shows.
  static let limit = 2000

  public init() {}

  mutating func start(_ number: Int) {
    guard number != message || bytes > 0 else { return }
    message = number
    bytes = 0
    text = ""
  }

  /// Text that was told before is passed over: after a lost connection it comes again.
  mutating func add(_ delta: Delta) {
    if delta.message != message || delta.offset == 0 {
      message = delta.message
      bytes = 0
      text = ""
    }
    guard delta.offset == bytes else { return }
    bytes += delta.text.utf8.count
    text = String((text + delta.text).suffix(Self.limit))
  }
}

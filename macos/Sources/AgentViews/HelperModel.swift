// Everything that the menu shows and does, without a pixel.
//
// Owns the state of the view: the daemon, its workers, sessions, jobs, running text and open
// questions, and which of it is worth a notification. Must not know SwiftUI, nor how the daemon is
// reached.

import AgentKit
import Foundation
import Observation

/// Where the model gets its facts. `AgentClient` is one.
public protocol HelperSource: Sendable {
  func status(within seconds: Double) async throws -> Status
  func ask(_ kind: String, _ members: Members, within seconds: Double) async throws -> Line
  func events(after cursor: Cursor?, session: String?) -> Lines
}

extension AgentClient: HelperSource {
  public nonisolated func events(after cursor: Cursor?, session: String?) -> Lines {
    events(after: cursor, session: session, sessions: false)
  }
}

/// Worth a notification.
public enum Notice: Sendable, Equatable {
  case question(Question)
  case failure(job: String, code: String, words: String)
}

@MainActor
@Observable
public final class HelperModel {
  public private(set) var daemon = DaemonView.unknown
  public private(set) var workers: [Status.Worker] = []
  public private(set) var sessions: [SessionView] = []
  public private(set) var jobs: [JobView] = []
  public private(set) var questions: [Question] = []
  /// What running turns have said so far, by job.
  public private(set) var running: [String: RunningText] = [:]
  /// What went wrong last with something the user did here.
  public private(set) var problem: String?

  /// No more jobs and sessions fit into a menu.
  public static let shown = 10
  /// Seconds between two looks at a daemon that says nothing: it may be gone or hang.
  public static let looks = 3.0

  private let source: any HelperSource
  private let notify: @Sendable (Notice) -> Void
  private var isLive = false
  private var refreshing: Task<Void, Never>?
  private var isStale = false

  public init(
    _ source: any HelperSource, notify: @escaping @Sendable (Notice) -> Void = { _ in }
  ) {
    self.source = source
    self.notify = notify
  }

  /// Follows the daemon until it is cancelled. Each line changes what is shown.
  public func follow() async {
    await withTaskGroup(of: Void.self) { group in
      group.addTask { await self.listen() }
      group.addTask {
        await self.refresh()
        while !Task.isCancelled {
          try? await Task.sleep(for: .seconds(Self.looks))
          _ = await self.seesDaemon()
        }
      }
    }
  }

  private func listen() async {
    while !Task.isCancelled {
      do {
        for try await line in source.events(after: nil, session: nil) { take(line) }
      } catch {
        if !Task.isCancelled { daemon = DaemonView(error) }
      }
      isLive = false
      try? await Task.sleep(for: .seconds(2))
    }
  }

  /// Asks for everything anew. Whoever wants it meanwhile shares the next time.
  public func refresh() async {
    await look().value
  }

  @discardableResult
  private func look() -> Task<Void, Never> {
    isStale = true
    if let refreshing { return refreshing }
    let task = Task {
      while isStale {
        isStale = false
        await ask()
      }
      refreshing = nil
    }
    refreshing = task
    return task
  }

  /// How the daemon itself is, and whether it answers.
  private func seesDaemon() async -> Bool {
    do {
      let status = try await source.status(within: 2)
      daemon = DaemonView(status)
      workers = status.workers
      return true
    } catch {
      daemon = DaemonView(error)
      workers = []
      return false
    }
  }

  private func ask() async {
    guard await seesDaemon() else { return }
    let limit: Members = [("limit", .integer(Int64(Self.shown)))]
    if let line = try? await source.ask("session.list", [], within: 5) {
      let all = (line.json["sessions"]?.array ?? []).compactMap(SessionView.init)
      sessions = Array(all.filter { $0.state != "idle" } + all.filter { $0.state == "idle" })
        .prefix(Self.shown).map { $0 }
    }
    if let line = try? await source.ask("jobs", limit, within: 5) {
      jobs = (line.json["jobs"]?.array ?? []).compactMap(JobView.init)
    }
    if let line = try? await source.ask("questions", [], within: 5) {
      questions = (line.json["questions"]?.array ?? []).compactMap(Question.init)
    }
  }

  /// One line of what happens. Nothing is waited for: the next line may be there.
  func take(_ line: Line) {
    switch line.body {
    case .live:
      isLive = true
      // What was shown of turns in flight comes again.
      running = [:]
      look()
    case .messageStart(let message, _, _):
      if let job = line.job { running[job, default: RunningText()].start(message) }
    case .messageDelta(let delta):
      if let job = line.job { running[job, default: RunningText()].add(delta) }
    case .question(let question):
      questions.removeAll { $0.id == question.id }
      questions.append(question)
      if isLive { notify(.question(question)) }
      look()
    case .questionClosed(let id, _):
      questions.removeAll { $0.id == id }
      look()
    case .messageEnd:
      if let job = line.job { running[job] = nil }
      look()
    case .error(let error):
      guard let job = line.job else { return }
      running[job] = nil
      if isLive {
        notify(.failure(job: job, code: error.code.rawValue, words: error.message))
      }
      look()
    case .accepted, .running: look()
    default: return
    }
  }

  public func answer(_ question: Question, approve: Bool) async {
    await act("answer", [("question_id", .string(question.id)), ("approve", .bool(approve))])
  }

  public func answer(_ question: Question, choice: String) async {
    await act("answer", [("question_id", .string(question.id)), ("choice", .string(choice))])
  }

  /// For `text` and `secret`. A secret is kept nowhere.
  public func answer(_ question: Question, text: String) async {
    await act("answer", [("question_id", .string(question.id)), ("text", .string(text))])
  }

  public func restart(_ worker: Status.Worker) async {
    await act("restart_worker", [("agent", .string(worker.agent))])
  }

  public func abort(_ job: JobView) async {
    await act("abort", [("job", .string(job.id))])
  }

  private func act(_ kind: String, _ members: Members) async {
    do {
      _ = try await source.ask(kind, members, within: 30)
      problem = nil
    } catch {
      problem = "\(error)"
    }
    await refresh()
  }
}

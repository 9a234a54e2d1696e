// What the switch does, by a list of launch agents that a test keeps.

import Foundation
import Testing

@testable import AgentViews

@MainActor
private final class FakeAgents: LaunchAgents {
  var states: [String: LaunchAgentState] = [:]
  /// What registering one leads to; nil: it is refused.
  var leadsTo: [String: LaunchAgentState] = [:]
  var calls: [String] = []

  struct Refused: Error {}

  func state(_ plist: String) -> LaunchAgentState { states[plist] ?? .off }

  func register(_ plist: String) throws {
    calls.append("register \(plist)")
    guard let state = leadsTo[plist] else { throw Refused() }
    states[plist] = state
  }

  func unregister(_ plist: String) throws {
    calls.append("unregister \(plist)")
    guard state(plist) != .off else { throw Refused() }
    states[plist] = .off
  }
}

@MainActor
@Suite struct Login {
  private let daemon = StartAtLogin.daemon
  private let helper = StartAtLogin.helper

  @Test func theSwitchDoesWhatIsLackingAndNothingElse() {
    let system = FakeAgents()
    system.leadsTo = [daemon: .on, helper: .on]
    system.states[daemon] = .on
    let item = StartAtLogin(system, daemonIsInstalled: false)
    #expect(!item.isOn)
    #expect(item.set(true) == [] && item.isOn)
    #expect(system.calls == ["register \(helper)"])
    system.states[helper] = .off
    #expect(item.set(false) == [] && !item.isOn)
    #expect(system.calls.last == "unregister \(daemon)" && system.calls.count == 2)
  }

  /// Nothing is taken back because the user has to allow it first.
  @Test func whatWaitsForApprovalIsOnAndSaysSo() {
    let system = FakeAgents()
    system.leadsTo = [daemon: .on, helper: .waitsForApproval]
    let item = StartAtLogin(system, daemonIsInstalled: false)
    #expect(item.set(true) == [])
    #expect(item.isOn && item.waitsForApproval)
    #expect(item.set(true) == [] && system.calls.count == 2)
  }

  @Test func aRefusalIsNamedAndTheOtherOneStays() {
    let system = FakeAgents()
    system.leadsTo = [daemon: .on]
    let item = StartAtLogin(system, daemonIsInstalled: false)
    let problems = item.set(true)
    #expect(problems.count == 1 && problems[0].hasPrefix(helper))
    #expect(!item.isOn && system.state(daemon) == .on)
  }

  /// Two launch agents of one name: launchd takes one of them.
  @Test func aDaemonThatIsInstalledIsLeftAlone() {
    let system = FakeAgents()
    system.leadsTo = [helper: .on]
    let item = StartAtLogin(system, daemonIsInstalled: true)
    #expect(item.set(true) == [] && item.isOn)
    #expect(system.calls == ["register \(helper)"])
  }

  @Test func onlyLaunchdsCopyStays() {
    let system = FakeAgents()
    let item = StartAtLogin(system, daemonIsInstalled: false)
    #expect(!item.givesWay(isLaunchds: false))
    system.states[helper] = .waitsForApproval
    #expect(!item.givesWay(isLaunchds: false))
    system.states[helper] = .on
    #expect(item.givesWay(isLaunchds: false) && !item.givesWay(isLaunchds: true))
  }

  /// A launch agent in the bundle that nobody registers is never started.
  @Test func everyLaunchAgentOfTheBundleIsKnown() throws {
    let script = URL(fileURLWithPath: #filePath)
      .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appendingPathComponent("packaging/bundle-macos.sh")
    let text = try String(contentsOf: script, encoding: .utf8)
    let named = text.matches(of: /Library\/LaunchAgents\/([a-z.]+\.plist)/).map { String($0.1) }
    #expect(Set(named) == [daemon, helper])
    #expect(text.contains("<key>local.agentd.helper.xpc</key>"))
  }
}

// What starts at login, and which copy of the app shows the menu.
//
// Owns the names of the bundle's launch agents and what the switch does with them. Must not know how
// the system is asked.

/// A launch agent of the bundle, as the system has it.
public enum LaunchAgentState: Sendable, Equatable {
  case off, on
  /// It is registered, and the user hasn't allowed it yet, or not any more.
  case waitsForApproval
}

/// The system's list of launch agents.
@MainActor
public protocol LaunchAgents {
  func state(_ plist: String) -> LaunchAgentState
  func register(_ plist: String) throws
  func unregister(_ plist: String) throws
}

@MainActor
public struct StartAtLogin {
  public static let daemon = "local.agentd.plist"
  /// The helper's own: only by it launchd makes the XPC service's name.
  public static let helper = "local.agentd.helper.plist"

  private let system: any LaunchAgents
  /// `agentctl service install` has its own launch agent for the daemon, of the same name.
  private let daemonIsInstalled: Bool

  public init(_ system: any LaunchAgents, daemonIsInstalled: Bool) {
    self.system = system
    self.daemonIsInstalled = daemonIsInstalled
  }

  /// The daemon first: the helper's registration starts another copy of the app.
  private var agents: [String] {
    daemonIsInstalled ? [Self.helper] : [Self.daemon, Self.helper]
  }

  /// As the switch shows it.
  public var isOn: Bool { agents.allSatisfy { system.state($0) != .off } }

  /// Has the user to allow something in the settings?
  public var waitsForApproval: Bool { agents.contains { system.state($0) == .waitsForApproval } }

  /// Whatever is as it should be is left alone. Returns what went wrong, in the system's words.
  public func set(_ wanted: Bool) -> [String] {
    agents.filter { (system.state($0) != .off) != wanted }.compactMap { plist in
      do {
        if wanted { try system.register(plist) } else { try system.unregister(plist) }
        return nil
      } catch {
        return "\(plist): \(error)"
      }
    }
  }

  /// Launchd's copy has the XPC service, so another one gives way to it, or there are two menus.
  public func givesWay(isLaunchds: Bool) -> Bool {
    !isLaunchds && system.state(Self.helper) == .on
  }
}

// What the system does for the app: notifications, start at login, logs. Not run on a Mac yet.
//
// Owns the calls of Apple's frameworks. Decides nothing: that is `StartAtLogin`.

#if canImport(SwiftUI) && canImport(AppKit)
  import AgentViews
  import AppKit
  import ServiceManagement
  import UserNotifications

  enum Notifications {
    static func prepare() {
      UNUserNotificationCenter.current().requestAuthorization(options: [.alert, .sound]) { _, _ in }
    }

    static func show(_ notice: Notice) {
      let content = UNMutableNotificationContent()
      let name: String
      switch notice {
      case .question(let question):
        content.title = "An agent asks"
        // A detail may have what isn't for a locked screen.
        content.body = question.title
        name = question.id
      case .failure(let job, let code, let words):
        content.title = "\(job) failed: \(code)"
        content.body = words
        name = job
      }
      let request = UNNotificationRequest(identifier: name, content: content, trigger: nil)
      UNUserNotificationCenter.current().add(request)
    }
  }

  /// The launch agents of the bundle.
  struct BundledAgents: LaunchAgents {
    func state(_ plist: String) -> LaunchAgentState {
      switch SMAppService.agent(plistName: plist).status {
      case .enabled: .on
      case .requiresApproval: .waitsForApproval
      default: .off
      }
    }

    func register(_ plist: String) throws {
      try SMAppService.agent(plistName: plist).register()
    }

    func unregister(_ plist: String) throws {
      try SMAppService.agent(plistName: plist).unregister()
    }
  }

  @MainActor
  enum LoginItem {
    /// Did launchd start this process, by the helper's launch agent?
    static let isLaunchds =
      ProcessInfo.processInfo.environment["XPC_SERVICE_NAME"] == "local.agentd.helper"

    static var item: StartAtLogin {
      let installed = FileManager.default.homeDirectoryForCurrentUser
        .appendingPathComponent("Library/LaunchAgents/\(StartAtLogin.daemon)")
      return StartAtLogin(
        BundledAgents(),
        daemonIsInstalled: FileManager.default.fileExists(atPath: installed.path))
    }

    /// What went wrong, or what the user has to do; nil when nothing is.
    static func set(_ wanted: Bool) -> String? {
      let problems = item.set(wanted)
      if wanted, item.waitsForApproval {
        SMAppService.openSystemSettingsLoginItems()
        return "Waits for your approval in System Settings, Login Items."
      }
      giveWay()
      return problems.isEmpty ? nil : problems.joined(separator: "; ")
    }

    /// Leaves the menu to launchd's copy, which is started if it isn't there. Where that fails this
    /// one stays.
    static func giveWay() {
      guard item.givesWay(isLaunchds: isLaunchds) else { return }
      let launchctl = Process()
      launchctl.executableURL = URL(fileURLWithPath: "/bin/launchctl")
      launchctl.arguments = ["kickstart", "gui/\(getuid())/local.agentd.helper"]
      launchctl.terminationHandler = { ended in
        guard ended.terminationStatus == 0 else { return }
        Task { @MainActor in NSApp.terminate(nil) }
      }
      try? launchctl.run()
    }
  }

  enum Logs {
    static func open() {
      let support = FileManager.default.urls(
        for: .applicationSupportDirectory, in: .userDomainMask)
      guard let file = support.first?.appendingPathComponent("agentd/agentd.log") else { return }
      NSWorkspace.shared.open(file)
    }
  }
#endif

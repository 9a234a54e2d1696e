// What the system does for the app: notifications, start at login, logs. Not run on a Mac yet.
//
// Owns the calls of Apple's frameworks. Decides nothing.

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

  /// The helper, and the daemon's launch agent that is in its bundle.
  enum LoginItem {
    private static let daemon = SMAppService.agent(plistName: "local.agentd.plist")

    static var isEnabled: Bool { SMAppService.mainApp.status == .enabled }

    /// What it is afterwards.
    static func set(_ wanted: Bool) -> Bool {
      for service in [daemon, SMAppService.mainApp] {
        do {
          if wanted { try service.register() } else { try service.unregister() }
        } catch {
          // The user may have to allow it there; the switch shows what is.
          SMAppService.openSystemSettingsLoginItems()
        }
      }
      return isEnabled
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

// The app: a menu, its service, and what the system is asked for. Not run on a Mac yet.
//
// Owns which parts there are. What is shown is `HelperModel`, what XPC answers is `AgentService`.

#if canImport(SwiftUI) && canImport(AppKit)
  import AgentKit
  import AgentViews
  import AppKit
  import OSLog
  import SwiftUI

  struct HelperApp: App {
    @NSApplicationDelegateAdaptor(HelperDelegate.self) private var delegate

    var body: some Scene {
      MenuBarExtra {
        MenuView(model: delegate.model)
      } label: {
        Image(systemName: delegate.model.daemon.symbol)
          .accessibilityLabel(delegate.model.daemon.title)
      }
      .menuBarExtraStyle(.window)
    }
  }

  @MainActor
  final class HelperDelegate: NSObject, NSApplicationDelegate {
    static let machService = "local.agentd.helper.xpc"
    let model: HelperModel
    private let client: AgentClient
    private let listener: XPCListener
    private let log = Logger(subsystem: "local.agentd.helper", category: "helper")
    private var following: Task<Void, Never>?

    override init() {
      var options = AgentClient.Options()
      options.name = "AgentHelper"
      options.answersQuestions = true
      // The programs that came with the app, wherever it is.
      if let beside = Bundle.main.url(forAuxiliaryExecutable: "agentctl") {
        options.agentctl = Command(beside.path)
      }
      client = AgentClient(options)
      model = HelperModel(client) { notice in Notifications.show(notice) }
      let log = log
      let service = AgentService(client) { failure in
        log.error("a call failed: \(failure, privacy: .public)")
      }
      listener = XPCListener(machService: Self.machService, service: service)
      super.init()
    }

    func applicationDidFinishLaunching(_ notification: Notification) {
      NSApp.setActivationPolicy(.accessory)
      LoginItem.giveWay()
      Notifications.prepare()
      // Nobody but launchd's copy owns the name.
      if LoginItem.isLaunchds { listener.start() }
      following = Task { await model.follow() }
    }

    /// Nothing of ours is left: the connection is closed, and relays end, before the process goes.
    func applicationShouldTerminate(_ sender: NSApplication) -> NSApplication.TerminateReply {
      following?.cancel()
      Task {
        await client.close()
        sender.reply(toApplicationShouldTerminate: true)
      }
      return .terminateLater
    }
  }
#endif

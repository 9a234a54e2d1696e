// The XPC service of the helper. Not run on a Mac yet.
//
// Owns the listener and the check of who calls. Everything else is `AgentService`.

#if canImport(Darwin) && canImport(Security)
  import Foundation
  import Security

  /// One request and one answer, both JSON: `AgentService.handle`.
  @objc public protocol AgentXPC {
    func call(_ request: Data, reply: @escaping @Sendable (Data) -> Void)
  }

  public final class XPCListener: NSObject, NSXPCListenerDelegate, AgentXPC {
    private let listener: NSXPCListener
    private let service: AgentService
    private let policy: CallerPolicy

    public init(machService: String, service: AgentService) {
      listener = NSXPCListener(machServiceName: machService)
      self.service = service
      policy = CallerPolicy(uid: geteuid(), teamID: Self.ownTeamID())
      super.init()
      // The system checks the signature before we hear of the call, by its audit token.
      if let team = policy.teamID {
        listener.setConnectionCodeSigningRequirement(
          "anchor apple generic and certificate leaf[subject.OU] = \"\(team)\"")
      }
      listener.delegate = self
    }

    public func start() {
      listener.resume()
    }

    public func listener(
      _ listener: NSXPCListener, shouldAcceptNewConnection connection: NSXPCConnection
    ) -> Bool {
      // Who doesn't meet the requirement above never gets here: its team is ours.
      let caller = Caller(uid: connection.effectiveUserIdentifier, teamID: policy.teamID)
      guard policy.admits(caller) else { return false }
      connection.exportedInterface = NSXPCInterface(with: AgentXPC.self)
      connection.exportedObject = self
      connection.resume()
      return true
    }

    public func call(_ request: Data, reply: @escaping @Sendable (Data) -> Void) {
      Task { [service] in reply(await service.handle(request)) }
    }

    /// Of our own signature; nil when it is an ad hoc one.
    private static func ownTeamID() -> String? {
      var code: SecCode?
      var still: SecStaticCode?
      var information: CFDictionary?
      guard SecCodeCopySelf([], &code) == errSecSuccess, let code,
        SecCodeCopyStaticCode(code, [], &still) == errSecSuccess, let still,
        SecCodeCopySigningInformation(
          still, SecCSFlags(rawValue: kSecCSSigningInformation), &information) == errSecSuccess
      else { return nil }
      return (information as? [String: Any])?[kSecCodeInfoTeamIdentifier as String] as? String
    }
  }
#endif

// Where the daemon is, and the way to it.
//
// Owns the search for the socket, connecting, and the check that the server is our own user before
// the first byte. Must not know the protocol, nor what to do when there is no daemon.

import Foundation

/// The rules for paths.
public enum PathRules: String, Sendable {
  case linux, macos

  public static var here: PathRules {
    #if os(macOS)
      .macos
    #else
      .linux
    #endif
  }
}

/// What the paths depend on.
public struct Places: Sendable {
  public var rules: PathRules
  public var uid: uid_t
  public var variables: [String: String]
  /// Is `/run/user/$UID` a directory of ours?
  public var runUserIsOurs: Bool

  public init(
    rules: PathRules, uid: uid_t, variables: [String: String], runUserIsOurs: Bool
  ) {
    self.rules = rules
    self.uid = uid
    self.variables = variables
    self.runUserIsOurs = runUserIsOurs
  }

  /// Those of this process.
  public static var ofProcess: Places {
    let uid = geteuid()
    var found = stat()
    let isOurs =
      lstat("/run/user/\(uid)", &found) == 0 && found.st_uid == uid
      && found.st_mode & S_IFMT == S_IFDIR
    return Places(
      rules: .here, uid: uid, variables: ProcessInfo.processInfo.environment,
      runUserIsOurs: isOurs)
  }

  /// The socket, where no living daemon's lock names another one.
  public var socket: String {
    if let named = named("AGENTD_SOCKET") { return named }
    if rules == .macos, let home = absolute("HOME") {
      return home + "/Library/Application Support/agentd/agentd.sock"
    }
    if let runtime = absolute("XDG_RUNTIME_DIR") { return runtime + "/agentd/agentd.sock" }
    if runUserIsOurs { return "/run/user/\(uid)/agentd/agentd.sock" }
    return "/tmp/agentd-\(uid)/agentd.sock"
  }

  /// The state directory; none without a home.
  public var stateDirectory: String? {
    if let named = named("AGENTD_STATE_DIR") { return named }
    if rules == .macos {
      return absolute("HOME").map { $0 + "/Library/Application Support/agentd" }
    }
    return (absolute("XDG_STATE_HOME") ?? absolute("HOME").map { $0 + "/.local/state" })
      .map { $0 + "/agentd" }
  }

  private func named(_ variable: String) -> String? {
    variables[variable].flatMap { $0.isEmpty ? nil : $0 }
  }

  private func absolute(_ variable: String) -> String? {
    variables[variable].flatMap { $0.hasPrefix("/") ? $0 : nil }
  }
}

/// A socket to try.
public struct Endpoint: Sendable, Equatable {
  public let path: String

  /// Longest path in bytes: the kernel's 104 (Linux: 108) without the closing zero.
  public static let maxPath = MemoryLayout.size(ofValue: sockaddr_un().sun_path) - 1

  public init(path: String) {
    self.path = path
  }

  /// What `$AGENTD_SOCKET` names, else what a living daemon's lock says, else the default.
  public static func find(_ places: Places = .ofProcess) -> Endpoint {
    if (places.variables["AGENTD_SOCKET"] ?? "").isEmpty, let state = places.stateDirectory,
      let held = DaemonLock.read(state + "/daemon.lock")
    {
      return Endpoint(path: held.socket)
    }
    return Endpoint(path: places.socket)
  }

  /// Connects, and checks that the server is us. Nothing is written in any case.
  public func connect() throws -> Descriptor {
    try connect(as: geteuid())
  }

  func connect(as us: uid_t) throws -> Descriptor {
    guard path.utf8.count <= Self.maxPath else {
      throw AgentError.notConnected(
        .unusable,
        reason:
          "the socket path is \(path.utf8.count) bytes, the limit here is \(Self.maxPath): "
          + "`\(path)`; set `AGENTD_SOCKET` to a shorter path")
    }
    let socket = try Descriptor.socket()
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
    // A connection of this family is there at once or not at all: nobody waits in a full backlog.
    socket.setBlocking(false)
    let result = withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connectSocket(socket.number, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    if result != 0 {
      let code = errno
      socket.close()
      throw AgentError.notConnected(
        Self.fact(code), reason: "cannot connect to `\(path)`: \(Self.describe(code))")
    }
    socket.setBlocking(true)
    let owner = socket.peerUser()
    guard owner == us else {
      socket.close()
      let whose = owner.map { "uid \($0)" } ?? "an unknown user"
      throw AgentError.notConnected(
        .foreignUID,
        reason: "the server on `\(path)` runs as \(whose), not as uid \(us); nothing was sent")
    }
    return socket
  }

  private static func fact(_ code: Int32) -> Fact {
    switch code {
    case ENOENT: .noSocket
    case ECONNREFUSED: .refused
    case EACCES, EPERM: .denied
    case EAGAIN: .backlogFull
    default: .unusable
    }
  }

  private static func describe(_ code: Int32) -> String {
    switch code {
    case ENOENT: "there is no socket"
    case ECONNREFUSED: "nobody listens on it"
    case EACCES, EPERM: "permission denied"
    case EAGAIN: "its backlog is full"
    default: String(cString: strerror(code))
    }
  }
}

/// What a living daemon wrote into its lock.
struct DaemonLock {
  let socket: String

  /// The lock's content, if a process holds it.
  static func read(_ path: String) -> DaemonLock? {
    let file = open(path, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return nil }
    defer { _ = close(file) }
    var bytes = [UInt8](repeating: 0, count: 16 * 1024)
    let count = Foundation.read(file, &bytes, bytes.count)
    guard count > 0, let json = try? StrictJSON.object(Array(bytes[..<count])),
      let pid = json["pid"]?.integer, let socket = json["socket"]?.string
    else { return nil }
    // Only a living process is worth probing: a probe could get into a starting daemon's way.
    if kill(pid_t(truncatingIfNeeded: pid), 0) != 0 && errno == ESRCH { return nil }
    if flock(file, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK { return nil }
    return DaemonLock(socket: socket)
  }
}

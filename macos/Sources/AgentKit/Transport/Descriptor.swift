// A descriptor, and what the systems differ in about it.
//
// Owns making sockets and pipes that no child inherits, writing without a signal, and asking who
// the other side is. Must not know what is written.

import Foundation

/// A file descriptor. Whoever made it closes it, once.
public struct Descriptor: Sendable, Equatable {
  public let number: Int32

  static func failure(_ what: String) -> AgentError {
    .notStarted("\(what): \(String(cString: strerror(errno)))")
  }

  /// A socket of the local family.
  static func socket() throws -> Descriptor {
    let number = newSocket()
    guard number >= 0 else { throw failure("no socket") }
    return Descriptor(number: number).prepared()
  }

  /// Two sockets that are each other's other side.
  static func socketPair() throws -> (Descriptor, Descriptor) {
    var pair: [Int32] = [-1, -1]
    guard newSocketPair(&pair) == 0 else { throw failure("no pair of sockets") }
    return (
      Descriptor(number: pair[0]).prepared(), Descriptor(number: pair[1]).prepared()
    )
  }

  /// A pipe: where it is read, and where it is written.
  static func pipe() throws -> (reading: Descriptor, writing: Descriptor) {
    var pair: [Int32] = [-1, -1]
    guard Foundation.pipe(&pair) == 0 else { throw failure("no pipe") }
    return (
      Descriptor(number: pair[0]).prepared(), Descriptor(number: pair[1]).prepared()
    )
  }

  /// Another number for the same.
  func duplicate() throws -> Descriptor {
    let number = fcntl(number, F_DUPFD_CLOEXEC, 0)
    guard number >= 0 else { throw Self.failure("no descriptor") }
    return Descriptor(number: number)
  }

  func setBlocking(_ blocks: Bool) {
    let flags = fcntl(number, F_GETFL)
    _ = fcntl(number, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK)
  }

  func close() {
    _ = Foundation.close(number)
  }

  /// No more reading, no more writing: whoever waits wakes up.
  func shutDown(_ how: ShutDown) {
    _ = shutdown(number, how.rawValue)
  }

  enum ShutDown {
    case writing, both

    var rawValue: Int32 {
      #if os(Linux)
        Int32(self == .writing ? SHUT_WR : SHUT_RDWR)
      #else
        self == .writing ? SHUT_WR : SHUT_RDWR
      #endif
    }
  }

  /// Writes everything, and returns how many bytes left: fewer than all when it failed.
  func write(_ bytes: [UInt8]) -> Int {
    #if os(Linux)
      let flags = Int32(MSG_NOSIGNAL)
    #else
      let flags: Int32 = 0
    #endif
    return bytes.withUnsafeBytes { buffer in
      var sent = 0
      while sent < buffer.count {
        let count = send(number, buffer.baseAddress! + sent, buffer.count - sent, flags)
        if count > 0 {
          sent += count
        } else if errno != EINTR {
          break
        }
      }
      return sent
    }
  }

  /// The user that the other side runs as.
  func peerUser() -> uid_t? {
    #if os(Linux)
      // Process, user and group, each of four bytes.
      var credentials: (pid_t, uid_t, gid_t) = (0, 0, 0)
      var length = socklen_t(MemoryLayout.size(ofValue: credentials))
      guard getsockopt(number, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 else {
        return nil
      }
      return credentials.1
    #else
      var user = uid_t.max
      var group = gid_t.max
      return getpeereid(number, &user, &group) == 0 ? user : nil
    #endif
  }

  /// What can't be said when a descriptor is made.
  private func prepared() -> Descriptor {
    _ = fcntl(number, F_SETFD, FD_CLOEXEC)
    #if !os(Linux)
      var on: Int32 = 1
      _ = setsockopt(
        number, SOL_SOCKET, SO_NOSIGPIPE, &on, socklen_t(MemoryLayout.size(ofValue: on)))
    #endif
    return self
  }
}

#if os(Linux)
  private let stream = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
#else
  private let stream = SOCK_STREAM
#endif

private func newSocket() -> Int32 {
  Foundation.socket(AF_UNIX, stream, 0)
}

private func newSocketPair(_ pair: inout [Int32]) -> Int32 {
  socketpair(AF_UNIX, stream, 0, &pair)
}

/// `connect` outside of types that have a method of that name.
func connectSocket(_ number: Int32, _ address: UnsafePointer<sockaddr>, _ length: socklen_t)
  -> Int32
{
  connect(number, address, length)
}

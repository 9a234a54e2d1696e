// Private places, a real daemon, and children that misbehave.
//
// Owns everything a test starts: when it ends, its processes are gone. Must not know what is tested.

import Foundation
import Testing

@testable import AgentKit

/// The repository.
let repository = URL(fileURLWithPath: #filePath)
  .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
  .deletingLastPathComponent()

func fixture(_ path: String) throws -> [UInt8] {
  Array(try Data(contentsOf: repository.appendingPathComponent("tests/fixtures/v1/\(path)")))
}

/// Where agentd, agentctl and timmy are; nil where nobody says so.
let binaries = ProcessInfo.processInfo.environment["AGENTD_BIN"]

/// What a test that needs a daemon says when there is none.
let needsDaemon: Comment = "skipped: needs agentd, named by AGENTD_BIN"

/// No single wait is longer.
let patience = 20.0

/// A directory that goes with its owner.
final class Place: Sendable {
  let path: String

  init() {
    // A socket's path is short.
    path = "/tmp/agentkit-" + UUID().uuidString.prefix(8).lowercased()
    try! FileManager.default.createDirectory(
      atPath: path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
  }

  subscript(name: String) -> String { "\(path)/\(name)" }

  /// A file that can be run.
  @discardableResult
  func script(_ name: String, _ text: String) -> String {
    let file = self[name]
    try! Data("#!/bin/sh\n\(text)\n".utf8).write(to: URL(fileURLWithPath: file))
    chmod(file, 0o755)
    return file
  }

  func read(_ name: String) -> String {
    (try? String(contentsOfFile: self[name], encoding: .utf8)) ?? ""
  }

  deinit {
    try? FileManager.default.removeItem(atPath: path)
  }
}

/// Waits for a fact, looking again and again: at most so long.
func until<T>(_ what: String, _ look: () async -> T?) async throws -> T {
  let begun = RpcAgentProcess.now
  while RpcAgentProcess.now - begun < patience {
    if let found = await look() { return found }
    try await Task.sleep(for: .milliseconds(10))
  }
  Issue.record("not within \(patience) s: \(what)")
  throw AgentError.late(seconds: patience)
}

/// What it throws.
func failure(of body: () async throws -> Void) async -> (any Error)? {
  do {
    try await body()
    return nil
  } catch {
    return error
  }
}

/// A daemon of its own, whose agent `timmy` says back what it is told.
final class Daemon: Sendable {
  let place: Place
  private let child: Guarded<Child?> = Guarded(nil)

  init(_ place: Place = Place()) async throws {
    self.place = place
    let chaos = "\(binaries ?? "")/examples/chaos-worker"
    let config = """
      default_agent = "timmy"
      [agents.timmy]
      provider = "echo"
      [agents.chaos]
      kind = "jsonl"
      command = ["\(chaos)", "--models", "1"]
      """
    try Data(config.utf8).write(to: URL(fileURLWithPath: place["config.toml"]))
    try await start()
  }

  func start() async throws {
    let null = open("/dev/null", O_RDWR | O_CLOEXEC)
    let log = open(place["log"], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
    let started = try Child(
      command("agentd"), input: Descriptor(number: null), output: Descriptor(number: dup(null)),
      error: Descriptor(number: log))
    child.with { $0 = started }
    _ = try await until("the daemon answers") {
      (try? endpoint.connect()).map { $0.close() }
    }
  }

  /// `kill -9`; everything is left as it is.
  func kill() async {
    let old = child.with { $0 }
    old?.signal(SIGKILL)
    _ = await old?.ended()
  }

  func signal(_ number: Int32) {
    child.with { $0?.signal(number) }
  }

  var endpoint: Endpoint { Endpoint(path: place["agentd.sock"]) }

  /// A program with nothing of this machine's user in its environment.
  func command(_ program: String, _ arguments: [String] = []) -> Command {
    Self.command(place, program, arguments)
  }

  static func command(_ place: Place, _ program: String, _ arguments: [String] = []) -> Command {
    let environment = [
      "PATH": "\(binaries ?? ""):/usr/bin:/bin", "HOME": place.path,
      "AGENTD_SOCKET": place["agentd.sock"], "AGENTD_STATE_DIR": place["state"],
      "AGENTD_CONFIG": place["config.toml"], "AGENTD_ALIAS": place["timmy.sock"],
    ]
    return Command(program, arguments, environment: environment, directory: place.path)
  }

  func client(_ change: (inout AgentClient.Options) -> Void = { _ in }) -> AgentClient {
    var options = AgentClient.Options()
    options.endpoint = endpoint
    options.agentctl = command("agentctl")
    change(&options)
    return AgentClient(options)
  }

  deinit {
    child.with { $0?.signal(SIGKILL) }
  }
}

/// A socket there that listens.
func listening(on path: String, backlog: Int32) throws -> Descriptor {
  let socket = try Descriptor.socket()
  var address = sockaddr_un()
  address.sun_family = sa_family_t(AF_UNIX)
  withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
  let size = socklen_t(MemoryLayout<sockaddr_un>.size)
  let bound = withUnsafePointer(to: &address) { pointer in
    pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(socket.number, $0, size) }
  }
  try #require(bound == 0 && listen(socket.number, backlog) == 0)
  return socket
}

/// A server that says what a test wants, on a socket of its own.
final class FakeServer: Sendable {
  let place = Place()
  private let listener: Int32
  private let stopped = Guarded(false)
  var endpoint: Endpoint { Endpoint(path: place["fake.sock"]) }

  /// `serve` gets each connection on a thread of its own, and closes nothing.
  init(_ serve: @escaping @Sendable (Descriptor) -> Void) throws {
    listener = try listening(on: place["fake.sock"], backlog: 8).number
    let (number, stopped) = (listener, stopped)
    Thread.detachNewThread {
      // Closed by whoever accepts on it: its number may soon be another server's.
      defer { _ = close(number) }
      while true {
        let accepted = accept(number, nil, nil)
        guard accepted >= 0 else { return }
        guard !stopped.with({ $0 }) else {
          _ = close(accepted)
          return
        }
        Thread.detachNewThread {
          serve(Descriptor(number: accepted))
          _ = close(accepted)
        }
      }
    }
  }

  deinit {
    // On Linux this ends the accepting, on macOS a connection does.
    _ = shutdown(listener, Int32(SHUT_RDWR))
    stopped.with { $0 = true }
    (try? endpoint.connect())?.close()
  }
}

extension Descriptor {
  /// Reads up to the next newline.
  func readLine() -> String? {
    var line: [UInt8] = []
    var byte: UInt8 = 0
    while read(number, &byte, 1) == 1 {
      if byte == 0x0A { return String(decoding: line, as: UTF8.self) }
      line.append(byte)
    }
    return nil
  }

  @discardableResult
  func say(_ line: String) -> Bool {
    write(Array((line + "\n").utf8)) == line.utf8.count + 1
  }
}

let helloAnswer =
  #"{"type":"hello","id":1,"ok":true,"server":"agentd","version":"9","protocol":1,"epoch":"e","pid":1,"uid":1,"capabilities":[],"served_by":"daemon"}"#

/// Descriptors that this process has open.
func openDescriptors() -> Int {
  let path = FileManager.default.fileExists(atPath: "/proc/self/fd") ? "/proc/self/fd" : "/dev/fd"
  return (try? FileManager.default.contentsOfDirectory(atPath: path).count) ?? 0
}

/// Children that have ended and that nobody reaped, or that still run.
func children() -> Set<Int32> {
  #if os(Linux)
    let own = getpid()
    let all = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
    return Set(all.compactMap { Int32($0) }.filter { stat(of: $0)?.parent == own })
  #else
    var found = [Int32](repeating: 0, count: 1024)
    let size = Int32(found.count * MemoryLayout<Int32>.size)
    let count = proc_listchildpids(getpid(), &found, size)
    return Set(found.prefix(Int(max(0, count))))
  #endif
}

/// Has it ended? What isn't our child may be dead and still there until init reaps it.
func isGone(_ pid: Int32) -> Bool {
  #if os(Linux)
    stat(of: pid).map { $0.state == "Z" } ?? true
  #else
    kill(pid, 0) != 0
  #endif
}

#if os(Linux)
  private func stat(of pid: Int32) -> (state: Substring, parent: Int32)? {
    let text = try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8)
    guard let rest = text?.split(separator: ")").last?.split(separator: " "), rest.count > 1,
      let parent = Int32(rest[1])
    else { return nil }
    return (rest[0], parent)
  }
#endif

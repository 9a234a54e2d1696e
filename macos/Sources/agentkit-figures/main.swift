// The figures of AgentKit, each printed with what it is held to. Ends with 1 when one misses.
//
// Owns how each is measured. Clients take turns, so that whatever the machine does is done to all.

import AgentKit
import Foundation

var missed = 0

@MainActor func figure(_ name: String, _ value: String, _ limit: String, _ holds: Bool) {
  print("\(holds ? "ok    " : "MISSES") \(name): \(value) (\(limit))")
  if !holds { missed += 1 }
}

@MainActor func seconds(_ work: @MainActor () async throws -> Void) async rethrows -> Double {
  let begun = DispatchTime.now().uptimeNanoseconds
  try await work()
  return Double(DispatchTime.now().uptimeNanoseconds - begun) / 1e9
}

func median(_ values: [Double]) -> Double {
  values.sorted()[values.count / 2]
}

func milliseconds(_ value: Double) -> String {
  String(format: "%.2f ms", value * 1000)
}

/// Lines of about 100 bytes, without JSON, in portions of 64 KiB.
@MainActor func splitting() async {
  let line = [UInt8](repeating: 0x78, count: 99) + [0x0A]
  let portion = Array(repeatElement(line, count: 655).joined())
  var rates: [Double] = []
  for _ in 0..<5 {
    var decoder = LineDecoder(limit: 1 << 20)
    var lines = 0
    let rounds = 2000
    let time = await seconds {
      for _ in 0..<rounds {
        portion.withUnsafeBytes { decoder.push($0) { _ in lines += 1 } }
      }
    }
    guard lines == rounds * 655 else {
      figure("lines split", "\(lines)", "\(rounds * 655)", false)
      return
    }
    rates.append(Double(rounds * portion.count) / time / 1e6)
  }
  let rate = median(rates)
  figure("line splitting", String(format: "%.0f MB/s", rate), "at least 100 MB/s", rate >= 100)
}

func openDescriptors() -> Int {
  (try? FileManager.default.contentsOfDirectory(atPath: "/dev/fd").count) ?? 0
}

/// Children of ours, dead or alive.
func children() -> Int {
  #if os(Linux)
    let entries = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
    return entries.filter { entry in
      guard Int32(entry) != nil,
        let stat = try? String(contentsOfFile: "/proc/\(entry)/stat", encoding: .utf8),
        let parent = stat.split(separator: ")").last?.split(separator: " ").dropFirst().first
      else { return false }
      return Int32(parent) == getpid()
    }.count
  #else
    var found = [Int32](repeating: 0, count: 4096)
    let size = Int32(found.count * MemoryLayout<Int32>.size)
    return Int(proc_listchildpids(getpid(), &found, size))
  #endif
}

/// A child that leaves at the end of its input, a thousand times anew.
@MainActor func restarts() async throws {
  let script = #"read line; echo '{"type":"status","id":1,"ok":true}'; while read line; do :; done"#
  let configuration = RpcAgentProcess.Configuration(Command("/bin/sh", ["-c", script]))
  // What the system opens for itself with the first one isn't counted.
  let first = RpcAgentProcess(configuration)
  try await first.start()
  await first.stop()
  let process = RpcAgentProcess(configuration)
  let (descriptors, others) = (openDescriptors(), children())
  let time = try await seconds {
    for _ in 0..<1000 { try await process.restart() }
    await process.stop()
  }
  // Threads close what is theirs a moment after the child is reaped.
  for _ in 0..<200 where openDescriptors() > descriptors {
    try await Task.sleep(for: .milliseconds(10))
  }
  let (left, alive) = (openDescriptors() - descriptors, children() - others)
  figure(
    "1,000 restarts",
    "\(left) descriptors and \(alive) children left, \(milliseconds(time / 1000))",
    "0 and 0", left <= 0 && alive == 0)
}

/// One send to the echo provider, on a connection that is open.
@MainActor func sends(_ socket: String, _ binaries: String) async throws {
  var options = AgentClient.Options()
  options.endpoint = Endpoint(path: socket)
  options.agentctl = nil
  let client = AgentClient(options)
  let bare = try BareClient(socket)
  let rust = try RustClient(binaries + "/examples/sends", socket)
  let count = 300
  var (ours, theirs, control): ([Double], [Double], [Double]) = ([], [], [])
  for number in 0..<count + 20 {
    let one = try await seconds { _ = try await client.send(text: "hi", session: "swift") }
    guard let other = rust.send() else {
      figure("send to echo", "the Rust client ended", "at most 2", false)
      return
    }
    let third = bare.send(number)
    if number >= 20 {
      ours.append(one)
      theirs.append(other)
      control.append(third)
    }
  }
  let ratio = median(ours) / median(theirs)
  figure(
    "send to echo",
    "\(milliseconds(median(ours))), the Rust client \(milliseconds(median(theirs))), "
      + "a bare socket \(milliseconds(median(control))), "
      + String(format: "ratio to the Rust client %.2f", ratio), "at most 2", ratio <= 2)
  await client.close()
}

/// The Rust client, which measures its own sends: `client/examples/sends.rs`.
final class RustClient {
  private let process = Foundation.Process()
  private let (input, output) = (Pipe(), Pipe())

  init(_ program: String, _ socket: String) throws {
    process.executableURL = URL(fileURLWithPath: program)
    process.arguments = [socket]
    process.standardInput = input
    process.standardOutput = output
    try process.run()
  }

  /// Seconds of one send; nil when it ended.
  func send() -> Double? {
    input.fileHandleForWriting.write(Data("\n".utf8))
    var said = Data()
    while said.last != 0x0A {
      let more = output.fileHandleForReading.availableData
      if more.isEmpty { return nil }
      said += more
    }
    return Double(String(decoding: said.dropLast(), as: UTF8.self)).map { $0 / 1e6 }
  }
}

/// Lines written and read by hand, blocking.
final class BareClient {
  private let socket: Int32
  private var buffer = [UInt8](repeating: 0, count: 1 << 16)

  init(_ path: String) throws {
    socket = try Endpoint(path: path).connect().number
    exchange(#"{"type":"hello"}"#)
  }

  func exchange(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    _ = write(socket, bytes, bytes.count)
    var said = ""
    while !said.contains(#""ok":true"#) && !said.contains(#""type":"message_end""#)
      || !said.hasSuffix("\n")
    {
      let count = read(socket, &buffer, buffer.count)
      guard count > 0 else { return }
      said += String(decoding: buffer[..<count], as: UTF8.self)
    }
  }

  func send(_ number: Int) -> Double {
    let begun = DispatchTime.now().uptimeNanoseconds
    exchange(
      #"{"type":"send","id":\#(number),"text":"hi","session":"bare","stream":false,"idempotency_key":"bare-\#(number)"}"#
    )
    return Double(DispatchTime.now().uptimeNanoseconds - begun) / 1e9
  }
}

@MainActor func withDaemon(_ use: @MainActor (String, String) async throws -> Void) async throws {
  guard let binaries = ProcessInfo.processInfo.environment["AGENTD_BIN"] else {
    print("skipped: send to echo needs agentd, named by AGENTD_BIN")
    missed += 1
    return
  }
  let place = "/tmp/agentkit-figures-\(getpid())"
  try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
  defer { try? FileManager.default.removeItem(atPath: place) }
  let config = "default_agent = \"timmy\"\n[agents.timmy]\nprovider = \"echo\"\n"
  try Data(config.utf8).write(to: URL(fileURLWithPath: place + "/config.toml"))
  let daemon = Foundation.Process()
  daemon.executableURL = URL(fileURLWithPath: binaries + "/agentd")
  daemon.environment = [
    "PATH": "\(binaries):/usr/bin:/bin", "HOME": place, "AGENTD_SOCKET": place + "/s",
    "AGENTD_STATE_DIR": place + "/state", "AGENTD_CONFIG": place + "/config.toml",
    "AGENTD_ALIAS": place + "/alias",
  ]
  for stream in [\Foundation.Process.standardOutput, \.standardError, \.standardInput] {
    daemon[keyPath: stream] = FileHandle.nullDevice
  }
  try daemon.run()
  defer { daemon.terminate() }
  for _ in 0..<1000 where !FileManager.default.fileExists(atPath: place + "/s") {
    try await Task.sleep(for: .milliseconds(10))
  }
  try await use(place + "/s", binaries)
}

await splitting()
try await restarts()
try await withDaemon { try await sends($0, $1) }
exit(missed == 0 ? 0 : 1)

// What the daemon says of itself.
//
// Owns the members of `status` that a client shows. Must not know how they are shown.

public struct Status: Sendable, Equatable {
  /// A sentence.
  public let details: String
  /// `ready`, `degraded` or `draining`; empty from a worker.
  public let state: String
  public let version: String?
  public let pid: Int?
  public let uptimeSeconds: Int?
  public let epoch: String?
  /// Where the log goes: `journal`, `stderr`, or a path.
  public let log: String?
  /// Does a worker live?
  public let isLive: Bool
  public let inFlight: Int
  public let queued: Int
  public let restarts: Int
  public let questions: Int
  public let workers: [Worker]
  public let json: JSONValue

  public struct Worker: Sendable, Equatable, Identifiable {
    public let id: Int
    public let agent: String
    public let session: String?
    /// `starting`, `idle`, `busy`, `settling`, `backoff`, `stopping`, `crash-looped`, `failed`.
    public let state: String
    public let pid: Int?
    public let restarts: Int
    public let lastError: String?
  }

  init(_ json: JSONValue) {
    self.json = json
    let daemon = json["daemon"] ?? .null
    let rpc = json["rpc"] ?? .null
    details = json["details"]?.string ?? ""
    state = json["state"]?.string ?? ""
    version = daemon["version"]?.string
    pid = daemon["pid"]?.integer
    uptimeSeconds = daemon["uptime_s"]?.integer
    epoch = daemon["epoch"]?.string
    log = daemon["log"]?["to"]?.string
    isLive = rpc["live"]?.bool ?? false
    inFlight = rpc["in_flight"]?.integer ?? 0
    queued = rpc["queued"]?.integer ?? 0
    restarts = rpc["restarts"]?.integer ?? 0
    questions = json["questions"]?.integer ?? 0
    workers = (json["workers"]?.array ?? []).map { row in
      Worker(
        id: row["worker"]?.integer ?? 0, agent: row["agent"]?.string ?? "",
        session: row["session"]?.string, state: row["state"]?.string ?? "",
        pid: row["pid"]?.integer, restarts: row["restarts"]?.integer ?? 0,
        lastError: row["last_error"]?.string)
    }
  }
}

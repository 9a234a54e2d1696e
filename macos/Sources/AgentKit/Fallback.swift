// What AgentKit decides itself when it has no answer: go on, leave it to `agentctl stdio`, or
// neither.
//
// Owns that decision. The whole rule (ARCHITECTURE.md, decision 6) is held by `agentctl stdio`,
// which waits for a daemon that restarts and runs the turn alone where none serves. Here it is only
// decided whether anything left: then, and only then, nobody may send it again. Must not know
// sockets or processes. It is compared with every row of tests/fixtures/v1/fallback.json.

/// What happened last, by the names of the table.
public enum Fact: String, Sendable, CaseIterable {
  case noSocket = "no-socket"
  case refused
  case denied
  case backlogFull = "backlog-full"
  case unusable
  case foreignUID = "foreign-uid"
  case helloSilent = "hello-silent"
  case helloClosed = "hello-closed"
  case helloDraining = "hello-draining"
  case helloOther = "hello-other"
  case helloOK = "hello-ok"
  case requestDraining = "request-draining"
  case requestLost = "request-lost"
}

public enum Decision: Sendable, Equatable {
  /// The request may be written.
  case connected
  /// The answer to `hello` may still come.
  case wait
  /// Nothing left: `agentctl stdio` may have the request.
  case relay
  /// Nothing left, and `agentctl` would find the same.
  case unreachable
  /// The request left: nobody sends it again.
  case unknown
}

public enum Fallback {
  /// How long `hello` may go unanswered.
  public static let patience = 2.0

  public static func decide(_ fact: Fact, waited seconds: Double) -> Decision {
    switch fact {
    case .helloOK: .connected
    case .requestLost: .unknown
    case .foreignUID, .denied, .unusable, .helloOther: .unreachable
    case .helloSilent: seconds < patience ? .wait : .relay
    case .noSocket, .refused, .backlogFull, .helloClosed, .helloDraining, .requestDraining: .relay
    }
  }
}

// The logic behind XPC: the calls, their answers, and who may call.

import Foundation
import Testing

@testable import AgentKit

private struct FakeBackend: AgentBackend {
  var sent = Guarded<[Send]>([])
  var answer: @Sendable (Send) throws -> TurnResult = { send in
    TurnResult(["text": .string("you said \(send.text)"), "job": "j1", "stop": "end_turn"])
  }

  func send(_ send: Send, within seconds: Double?) async throws -> TurnResult {
    sent.with { $0.append(send) }
    return try answer(send)
  }

  func status(within seconds: Double) async throws -> Status {
    Status(["state": "ready", "rpc": ["live": false]])
  }
}

private func call(_ service: AgentService, _ text: String) async throws -> JSONValue {
  try StrictJSON.object(Array(await service.handle(Data(text.utf8))))
}

@Suite struct XPCCalls {
  @Test func anAgentCallIsASendWithOnlyWhatWasGiven() async throws {
    let backend = FakeBackend()
    let service = AgentService(backend)
    let answer = try await call(service, #"{"type":"agent","message":"hi","session":"main"}"#)
    #expect(answer["ok"] == true)
    #expect(answer["payload"]?["payloads"]?.array?.first?["text"] == "you said hi")
    #expect(answer["payload"]?["meta"]?["job"] == "j1")
    let sent = try #require(backend.sent.with { $0.first })
    #expect(sent == Send("hi", session: "main", key: sent.key) && sent.key != nil)
  }

  @Test(arguments: [
    ("nonsense", "bad-json"),
    (#"{"type":"agent"}"#, "invalid-request"),
    (#"{"type":"agent","message":" \n"}"#, "invalid-request"),
    (#"{"type":"agent","message":"a","thinking":"default"}"#, "invalid-request"),
    (#"{"type":"runShell","message":"id"}"#, "unknown-command"),
    (#"{"type":"agent","message":"a","deliver":true}"#, "unsupported"),
    (#"{"type":"agent","message":"a","to":"+1"}"#, "unsupported"),
    ("[]", "not-an-object"),
  ])
  func whatIsNoCallIsRefusedAndNothingIsSent(text: String, code: String) async throws {
    let backend = FakeBackend()
    let answer = try await call(AgentService(backend), text)
    #expect(answer["ok"] == false && answer["code"]?.string == code, "\(answer.text)")
    #expect(backend.sent.with { $0.isEmpty })
  }

  @Test func aFailureIsAnsweredAndReported() async throws {
    let reports = Guarded<[String]>([])
    var backend = FakeBackend()
    backend.answer = { _ in
      throw AgentError.answered(
        ErrorLine(["code": "rate-limit", "error": "later", "retryable": true]))
    }
    let service = AgentService(backend) { report in reports.with { $0.append(report) } }
    let answer = try await call(
      service, #"{"type":"agent","message":"a","idempotency_key":"k","deliver":false}"#)
    #expect(
      answer == [
        "ok": false, "code": "rate-limit", "message": "later", "nothing_happened": true,
        "idempotency_key": "k",
      ])
    #expect(reports.with { $0 } == ["later"])
  }

  /// Whoever tries again has to know which: one may have happened, the other can't have.
  @Test(arguments: [
    (AgentError.outcomeUnknown(key: "x"), "outcome-unknown", false),
    (.late(seconds: 1), "timeout", false),
    (.stopped, "outcome-unknown", false),
    (.notConnected(.noSocket, reason: "there is no socket"), "not-connected", true),
    (.helloRefused("no"), "not-connected", true),
    (.oversized(17), "frame-too-long", true),
  ])
  func aFailureSaysWhetherAnythingHappened(error: AgentError, code: String, nothing: Bool)
    async throws
  {
    var backend = FakeBackend()
    backend.answer = { _ in throw error }
    let answer = try await call(AgentService(backend), #"{"type":"agent","message":"a"}"#)
    #expect(answer["code"]?.string == code && answer["nothing_happened"] == .bool(nothing))
    #expect(answer["idempotency_key"]?.string == backend.sent.with { $0.first?.key })
  }

  @Test func statusAndRpcStatusAreToldApart() async throws {
    let service = AgentService(FakeBackend())
    #expect(try await call(service, #"{"type":"status"}"#)["message"] == "ready")
    let rpc = try await call(service, #"{"type":"rpcStatus"}"#)
    #expect(rpc["ok"] == false && rpc["message"] == "no worker lives")
  }

  @Test func onlyTheSameUserMayCallAndWhereThereIsATeamOnlyThat() {
    let unsigned = CallerPolicy(uid: 501, teamID: nil)
    #expect(unsigned.admits(Caller(uid: 501, teamID: nil)))
    #expect(unsigned.admits(Caller(uid: 501, teamID: "OTHER")))
    #expect(!unsigned.admits(Caller(uid: 502, teamID: nil)))
    let signed = CallerPolicy(uid: 501, teamID: "OURS")
    #expect(signed.admits(Caller(uid: 501, teamID: "OURS")))
    #expect(!signed.admits(Caller(uid: 501, teamID: "OTHER")))
    #expect(!signed.admits(Caller(uid: 501, teamID: nil)))
    #expect(!signed.admits(Caller(uid: 0, teamID: "OURS")))
  }

  @Test(.enabled(if: binaries != nil, needsDaemon), .timeLimit(.minutes(1)))
  func theDaemonIsPreferredAndWithoutItTheTurnRunsOnce() async throws {
    let daemon = try await Daemon()
    let service = AgentService(daemon.client())
    let first = try await call(service, #"{"type":"agent","message":"hi","session":"s"}"#)
    #expect(first["payload"]?["meta"]?["served_by"] == "daemon", "\(first.text)")
    #expect(try await call(service, #"{"type":"rpcStatus"}"#)["ok"] == true)
    await daemon.kill()
    let alone = AgentService(daemon.client())
    let second = try await call(alone, #"{"type":"agent","message":"hi","session":"s"}"#)
    #expect(second["payload"]?["meta"]?["served_by"] == "oneshot", "\(second.text)")
    #expect(try await call(alone, #"{"type":"status"}"#)["ok"] == false)
  }
}

"""Without a daemon, and with servers that say strange things."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import agentd
from agentd import aio, errors

from .support import DEADLINE, HELLO, PROGRAMS, Place, Scripted, WithDaemon

ACCEPTED = {"type": "accepted", "job": "j1", "session": "s", "agent": "a", "seq": 1}
END = {"type": "message_end", "job": "j1", "session": "s", "stop": "end_turn", "text": "hi"}


class WithoutDaemon(Place):
    def test_the_turn_runs_once_without_it(self) -> None:
        result = agentd.run_session("hello", agent="timmy", idempotency_key="k")
        self.assertEqual((result.final_response, result.served_by), ("hello", "oneshot"))
        self.assertEqual(result.raw["fallback_reason"], "no-socket")
        again = asyncio.run(aio.run_session("hello", agent="timmy", idempotency_key="k"))
        self.assertEqual((again.job, again.replayed), (result.job, True))

    def test_a_cancelled_turn_leaves_nothing_running(self) -> None:
        async def cancelled() -> str:
            async with aio.Harness().stream("a [[sleep 600000]]") as stream:
                async for event in stream:
                    if event["type"] == "message_delta":
                        break
            return str(stream.job)

        job = asyncio.run(cancelled())
        result = agentd.Harness().collect([job], timeout=DEADLINE)[0]
        self.assertEqual(result.stop, "cancelled")

    def test_without_fallback_nothing_happens(self) -> None:
        with self.assertRaisesRegex(errors.UnreachableError, "there is no socket"):
            agentd.Harness(fallback=False).run_session("hello")
        with self.assertRaises(ConnectionError):
            agentd.Harness().dispatch_parallel([{"prompt": "a"}])
        self.assertFalse((self.dir / "state").exists())

    def test_what_the_program_says_when_it_cant_start_is_passed_on(self) -> None:
        Path(os.environ["AGENTD_CONFIG"]).write_text("nonsense = [")
        with self.assertRaisesRegex(errors.UnreachableError, "config.toml"):
            agentd.run_session("hello")
        # Relative: as good as the current directory.
        path = f":{os.path.relpath(PROGRAMS)}:"
        nowhere = mock.patch.dict(os.environ, {"PATH": path})
        with nowhere, self.assertRaisesRegex(errors.UnreachableError, "not on `PATH`"):
            agentd.run_session("hello")
        with self.assertRaisesRegex(errors.UnreachableError, "/nowhere/agentctl"):
            agentd.Harness(agentctl="/nowhere/agentctl").run_session("hello")

    def test_what_nobody_runs_is_not_waited_for(self) -> None:
        done = agentd.run_session("hello", agent="timmy").job
        assert done is not None
        self.assertEqual(agentd.Harness().collect([done])[0].final_response, "hello")
        with_daemon = WithDaemon()
        with_daemon.dir, with_daemon.socket = self.dir, self.socket
        with_daemon.harness = agentd.Harness(fallback=False)
        with_daemon.start()
        self.addCleanup(with_daemon.doCleanups)
        late = with_daemon.harness.dispatch_parallel(
            [{"prompt": "late", "start_at": "2099-01-01T00:00:00Z"}]
        )
        with_daemon.kill(with_daemon.daemon)
        with self.assertRaisesRegex(errors.UnreachableError, f"run them: {late[0]}"):
            agentd.Harness().collect([done, *late])
        with self.assertRaises(agentd.StillPendingError) as caught:
            agentd.Harness().collect([done, *late], timeout=0)
        self.assertEqual([one.job for one in caught.exception.results], [done])


class Strange(Place):
    def setUp(self) -> None:
        super().setUp()
        self.impatient()

    def harness(self, *connections: list[Any]) -> agentd.Harness:
        self.server = Scripted(self.socket, *connections)
        self.addCleanup(self.server.close)
        return agentd.Harness(fallback=False, patience=1.0)

    def test_a_newer_daemon_is_understood(self) -> None:
        hello = {**HELLO, "version": "9.9.9", "capabilities": ["send", "dream"], "mood": "good"}
        plan = {"type": "plan", "job": "j1", "steps": [1], "seq": 2}
        end = {
            **END,
            "karma": 3,
            "cost": {"usd": None, "status": "donated"},
            "usage": {"qubits": 1},
        }
        note = b'{"type":"weather","sunny":true}\n'
        harness = self.harness([hello, [note, {**ACCEPTED, "new": 1}, plan, end]])
        stream = harness.stream("x")
        self.assertEqual([event["type"] for event in stream], ["accepted", "plan"])
        assert stream.result is not None
        self.assertEqual(stream.result.raw["karma"], 3)
        self.assertEqual(stream.result.cost.status, "donated")

    def test_an_older_daemon_s_short_line_is_enough(self) -> None:
        harness = self.harness([HELLO, [ACCEPTED, {"type": "message_end", "job": "j1"}]])
        result = harness.run_session("x")
        self.assertEqual((result.final_response, result.messages, result.usage), ("", [], None))

    def test_another_protocol_gets_no_request(self) -> None:
        harness = self.harness([{**HELLO, "protocol": 2}])
        with self.assertRaisesRegex(errors.UnreachableError, "it speaks protocol 2"):
            harness.run_session("x")
        self.assertEqual([line["type"] for line in self.server.asked], ["hello"])

    def test_a_refused_hello_is_told_and_draining_is_not_waited_for(self) -> None:
        refused = {"type": "error", "code": "too-many-connections", "error": "full"}
        with self.assertRaisesRegex(errors.TooManyConnectionsError, "full"):
            self.harness([refused]).run_session("x")
        self.server.close()
        os.unlink(self.socket)
        draining = {"type": "error", "code": "draining", "error": "stopping"}
        with self.assertRaises(errors.DrainingError):
            self.harness([draining]).run_session("x")

    def test_a_request_that_is_draining_was_not_accepted(self) -> None:
        draining = {"type": "error", "code": "draining", "error": "stopping", "retryable": True}
        with self.assertRaises(errors.DrainingError) as caught:
            self.harness([HELLO, draining]).run_session("x")
        self.assertIsNone(caught.exception.job)

    def test_no_answer_after_the_request_is_an_unknown_outcome(self) -> None:
        for answer in (None, [ACCEPTED, None], b"nonsense\n", b"x" * 3_000_000 + b"\n"):
            with self.subTest(answer=str(answer)[:40]):
                harness = self.harness([HELLO, answer])
                with self.assertRaises(agentd.OutcomeUnknownError) as caught:
                    harness.run_session("x", idempotency_key="k")
                self.assertEqual(caught.exception.key, "k")
                self.server.close()
                os.unlink(self.socket)
        harness = self.harness([HELLO, None])
        with self.assertRaises(agentd.OutcomeUnknownError) as caught:
            harness.dispatch_parallel([{"prompt": "a"}, {"prompt": "b"}])
        self.assertEqual(len(caught.exception.keys), 2)
        self.assertIsNone(caught.exception.key)

    def test_an_error_without_id_is_the_only_request_s(self) -> None:
        strict = b'{"type":"error","code":"bad-json","error":"no"}\n'
        with self.assertRaises(errors.BadJsonError):
            self.harness([HELLO, strict]).run_session("x")

    def test_after_it_was_accepted_its_job_and_key_are_told(self) -> None:
        lost = {"type": "error", "code": "outcome-unknown", "error": "the daemon went"}
        truncated = b'{"type":"error","code":"truncated","error":"half a line"}\n'
        for answer, job in (([ACCEPTED, lost], "j1"), ([ACCEPTED, truncated], "j1"), (lost, None)):
            with self.subTest(answer=answer):
                harness = self.harness([HELLO, answer])
                with self.assertRaises(agentd.OutcomeUnknownError) as caught:
                    harness.run_session("x", idempotency_key="k")
                self.assertEqual((caught.exception.key, caught.exception.job), ("k", job))
                self.server.close()
                os.unlink(self.socket)
        harness = self.harness([HELLO, lost])
        with self.assertRaises(agentd.OutcomeUnknownError) as caught:
            harness.dispatch_parallel([{"prompt": "a", "idempotency_key": "k"}])
        self.assertEqual(caught.exception.keys, ["k"])

    def test_an_end_counts_though_nonsense_comes_with_it(self) -> None:
        end = json.dumps({**END, "id": 1}).encode() + b"\nnonsense\n"
        self.assertEqual(
            self.harness([HELLO, [ACCEPTED, end]]).run_session("x").final_response, "hi"
        )

    def test_messages_are_told_apart_and_replaced_ones_end(self) -> None:
        def delta(message: int, text: str) -> dict[str, Any]:
            return {"type": "message_delta", "job": "j1", "message": message, "text": text}

        lines = [
            delta(0, "half "),
            delta(0, "an ans"),
            {"type": "message_start", "job": "j1", "message": 1, "replaces": 0},
            delta(0, "late"),
            delta(1, "whole "),
            delta(1, "answer"),
        ]
        harness = self.harness([HELLO, [ACCEPTED, *lines, END]])
        self.assertEqual("".join(harness.stream("x").text()), "half an ans\n\nwhole answer")

    def test_strange_answers_are_errors_of_this_package(self) -> None:
        odd = {"type": "dispatch", "ok": True, "jobs": [{}]}
        with self.assertRaises(agentd.OutcomeUnknownError) as caught:
            self.harness([HELLO, odd]).dispatch_parallel([{"prompt": "a", "idempotency_key": "k"}])
        self.assertEqual(caught.exception.key, "k")
        for answer in ({"type": "collect", "ok": True}, {"type": "collect", "results": [1]}):
            self.again()
            with self.assertRaises(errors.UnreachableError):
                self.harness([HELLO, answer]).collect(["j1"])
        for rows in (5, ["j1"], [{"job": "j1", "accepted_at": "yesterday"}]):
            self.again()
            with self.assertRaisesRegex(errors.UnreachableError, "can't be read"):
                self.harness([HELLO, {"type": "jobs", "ok": True, "jobs": rows}]).jobs()
        self.again()
        free = {**END, "cost": "free"}
        result = self.harness([HELLO, [ACCEPTED, free]]).run_session("x")
        self.assertEqual(result.cost, agentd.Cost(None, "unknown"))

    def test_a_server_that_always_leaves_is_not_asked_for_ever(self) -> None:
        harness = self.harness(*([HELLO, None] for _ in range(9)))
        with self.assertRaisesRegex(errors.UnreachableError, "ended before the answer"):
            harness.collect(["j1"])
        asked = [line["type"] for line in self.server.asked]
        self.assertEqual(asked.count("collect"), 3)

    def again(self) -> None:
        self.server.close()
        os.unlink(self.socket)

    def test_what_the_system_refuses_is_an_error_of_this_package(self) -> None:
        full = OSError(errno.EMFILE, "too many")
        with (
            mock.patch("socket.socket", side_effect=full),
            self.assertRaisesRegex(errors.UnreachableError, "too many"),
        ):
            agentd.Harness(fallback=False).run_session("x")
        with (
            mock.patch("socket.socketpair", side_effect=full),
            self.assertRaisesRegex(errors.UnreachableError, "too many"),
        ):
            agentd.run_session("x")

    def test_a_silent_server_isnt_waited_for_for_ever(self) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.socket)
            listener.listen()
            with self.assertRaisesRegex(errors.UnreachableError, "`hello` was not answered"):
                agentd.Harness(fallback=False).run_session("x")

    def test_a_restart_is_waited_for(self) -> None:
        # Closed before `hello` was answered, then served.
        harness = self.harness([None], [HELLO, [ACCEPTED, END]])
        self.assertEqual(harness.run_session("x").final_response, "hi")


if __name__ == "__main__":
    unittest.main()

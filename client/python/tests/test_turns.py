"""Turns against a real daemon."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import agentd
from agentd import aio, errors

from .support import DEADLINE, WithDaemon, until
from .test_cancel import at_write


class Turns(WithDaemon):
    def test_the_whole_result_is_there(self) -> None:
        result = agentd.run_session(
            provider="echo", prompt="hello [[tool ls]]", timeout=300, labels={"run": "1"}
        )
        self.assertEqual(result.final_response, "hello")
        self.assertEqual((result.stop, result.job, result.ok), ("end_turn", "j1", True))
        self.assertEqual(result.messages, [{"role": "assistant", "content": "hello"}])
        self.assertEqual(result.tool_trace[0]["name"], "ls")
        self.assertEqual((result.cost.usd, result.cost.status), (0.0, "actual"))
        self.assertEqual((result.api_calls, result.usage), ([], None))
        self.assertEqual(
            (result.agent, result.provider, result.model), ("timmy", "echo", "scripted")
        )
        self.assertEqual((result.served_by, result.replayed), ("daemon", False))
        jobs = self.harness.request("jobs", label="run=1")["jobs"]
        self.assertEqual([job["job"] for job in jobs], ["j1"])
        self.assertEqual(self.harness.status()["rpc"]["clients"], {"python": 1})

    def test_a_failed_turn_is_an_exception_of_its_code_with_what_it_said(self) -> None:
        with self.assertRaises(errors.RateLimitError) as caught:
            self.harness.run_session("a [[error=rate-limit]]")
        self.assertEqual(caught.exception.job, "j1")
        self.assertTrue(caught.exception.retryable)
        assert caught.exception.result is not None
        self.assertEqual(caught.exception.result.final_response, "a")

    def test_a_refused_send_is_an_exception_without_a_job(self) -> None:
        with self.assertRaises(errors.UnknownAgentError) as caught:
            self.harness.run_session("a", agent="tmmy")
        self.assertIsNone(caught.exception.job)
        self.assertIn("did you mean `timmy`?", str(caught.exception))
        with self.assertRaisesRegex(errors.UnsupportedError, "colour"):
            self.harness.dispatch({"prompt": "a", "colour": 5})
        with self.assertRaises(ValueError) as wrong:
            self.harness.run_session("   ")
        self.assertIsInstance(wrong.exception, errors.InvalidRequestError)

    def test_a_schedule_is_added_run_changed_and_removed(self) -> None:
        sends = {"prompt": "tick", "provider": "echo", "labels": {"by": "cron"}}
        added = self.harness.cron_add(sends, cron="0 9 * * 1-5", tz="Europe/Berlin", name="mine")
        self.assertEqual((added.schedule, added.state, len(added.next)), ("c1", "active", 3))
        job = self.harness.cron_run("mine")
        self.assertEqual(self.harness.collect([job])[0].final_response, "tick")
        [run] = self.harness.cron_runs("c1")
        self.assertEqual((run.job, run.state, run.by_hand), (job, "completed", True))
        edited = self.harness.cron_edit(
            "c1", {"every": "1h", "name": None, "send": {"text": "tock"}}
        )
        self.assertEqual((edited.cron, edited.every, edited.name), (None, "1h", None))
        self.assertEqual(self.harness.cron_pause("c1").state, "paused")
        self.assertEqual(self.harness.cron_resume("c1").send["text"], "tock")
        self.assertEqual([one.schedule for one in self.harness.cron_list()], ["c1"])
        self.harness.cron_remove("c1")
        with self.assertRaisesRegex(errors.InvalidRequestError, "no schedule"):
            self.harness.cron_run("c1")
        with self.assertRaisesRegex(errors.InvalidRequestError, "exactly one"):
            self.harness.cron_add(sends)

    def test_a_timeout_is_one_of_python_s_too(self) -> None:
        with self.assertRaises(TimeoutError) as caught:
            self.harness.run_session("a [[sleep 600000]]", timeout=0.2)
        self.assertIsInstance(caught.exception, errors.TurnTimeoutError)

    def test_the_same_key_is_the_same_job(self) -> None:
        first = self.harness.run_session("once", idempotency_key="k")
        again = self.harness.run_session("once", idempotency_key="k")
        self.assertEqual((again.job, again.replayed), (first.job, True))
        with self.assertRaises(errors.IdempotencyConflictError):
            self.harness.run_session("twice", idempotency_key="k")

    def test_a_hundred_callers_with_one_key_are_one_job(self) -> None:
        with ThreadPoolExecutor(20) as pool:
            results = list(
                pool.map(
                    lambda _: self.harness.run_session("once", idempotency_key="k"), range(100)
                )
            )
        self.assertEqual({result.job for result in results}, {"j1"})

    def test_lines_come_while_the_turn_runs(self) -> None:
        gate = self.dir / "gate"
        with self.harness.stream(
            f"chaos:say one;wait-file {gate};say two", agent="chaos"
        ) as stream:
            kinds = []
            for event in stream:
                kinds.append(event["type"])
                if event["type"] == "message_delta" and event["text"] == "one":
                    gate.touch()
            self.assertEqual(kinds[0], "accepted")
            self.assertEqual(kinds.count("message_delta"), 2)
            assert stream.result is not None
            self.assertEqual(stream.result.final_response, "onetwo")
        self.assertEqual("".join(self.harness.stream("a b c").text()), "a b c")

    def test_a_stream_left_early_ends_its_turn(self) -> None:
        with self.harness.stream("a [[sleep 600000]]") as stream:
            for event in stream:
                if event["type"] == "message_delta":
                    break
        assert stream.job is not None
        result = self.harness.collect([stream.job], timeout=DEADLINE)[0]
        self.assertEqual((result.stop, result.final_response), ("cancelled", "a"))
        self.assertFalse(result.ok)

    def test_a_session_s_turns_know_of_each_other(self) -> None:
        with self.harness.session() as session:
            self.assertEqual(session.run("a").context, "new")
            self.assertEqual(session.run("b").context, "continued")
            name = session.name
        with self.assertRaises(errors.UnknownSessionError):
            self.harness.request("session.close", session=name)
        with self.harness.session("main", agent="chaos") as session:
            self.assertEqual(session.run("chaos:count").final_response, "1")
        with self.harness.session("main") as session:
            self.assertEqual(session.run("chaos:count").final_response, "2")

    def test_a_session_s_model_is_changed(self) -> None:
        with self.harness.session("main", agent="chaos") as session:
            session.run("chaos:say a")
            session.set_model("small", thinking="low")
            self.harness.set_model("main", "large")
            row = self.harness.request("set_model", session="main", model="large")
            self.assertEqual((row["model"], row["thinking"]), ("large", "low"))
            self.assertEqual(session.models().modes, [])
            with self.assertRaises(errors.UnsupportedError):
                session.set_model(mode="plan")
        with (
            self.harness.session("nobody") as session,
            self.assertRaises(errors.UnknownSessionError),
        ):
            session.set_model("large")

    def test_an_agent_s_models_are_listed(self) -> None:
        models = self.harness.models("chaos")
        self.assertEqual([row.model for row in models], ["model-0", "model-1"])
        self.assertEqual((models[0].provider, models[0].default), ("chaos", True))
        self.assertEqual((models[1].thinking, models[1].context_window), (None, None))
        with self.harness.session("main", agent="chaos") as session:
            session.run("chaos:say a")
            session.set_model("model-1", provider="chaos")
            self.assertEqual([row.default for row in session.models()], [False, True])
        self.assertIsNone(models.note)
        with self.assertRaises(errors.UnknownAgentError):
            self.harness.models("nobody")

    def test_an_agent_without_models_says_why(self) -> None:
        config = self.dir / "config.toml"
        config.write_text(config.read_text().replace('provider = "echo"', ""))
        models = self.harness.models("timmy")
        self.assertEqual(models, [])
        self.assertIn("there is nobody to ask", models.note or "")

    def test_a_result_has_the_refusal_and_the_notes_of_its_turn(self) -> None:
        stream = self.harness.stream("a")
        result = stream.finish()
        self.assertEqual([note["code"] for note in result.notes], ["echo"])
        self.assertEqual((result.refusal, result.suspected_refusal), (None, False))
        line = {"type": "message_end", "stop": "refusal", "refusal": "no", "text": ""}
        refused = agentd.Result.of_line(line)
        self.assertEqual((refused.refusal, refused.ok), ("no", False))

    def test_a_session_takes_paths_as_a_send_does(self) -> None:
        for cwd in (".", Path(".")):
            with self.harness.session(cwd=cwd) as session:
                session.run("a")
                rows = self.harness.request("session.list")["sessions"]
                self.assertIn((session.name, os.getcwd()), [(r["session"], r["cwd"]) for r in rows])
        with self.harness.session("here", cwd="."):
            pass
        self.harness.run_session("a", session="there", cwd_if_new=".")

    def test_any_request_has_its_one_answer(self) -> None:
        self.assertEqual(self.harness.request("ping")["type"], "pong")
        for kind in ("send", "subscribe"):
            with self.assertRaisesRegex(errors.InvalidRequestError, "several lines"):
                self.harness.request(kind)
        with self.assertRaises(errors.InvalidRequestError):
            self.harness.request("status", id=9)
        with self.assertRaises(errors.InvalidRequestError):
            self.harness.dispatch({"prompt": "x", "id": 7})

    def test_the_socket_may_be_a_path(self) -> None:
        harness = agentd.Harness(Path(self.socket), fallback=False)
        self.assertEqual(harness.run_session("a").final_response, "a")

    def test_a_question_is_answered_from_elsewhere(self) -> None:
        with self.harness.stream("chaos:ask choice", agent="chaos", on_question="wait") as stream:
            for event in stream:
                if event["type"] == "question":
                    number = event["question_id"]
                    self.harness.request("answer", question_id=number, choice="left")
            assert stream.result is not None
            self.assertEqual(stream.result.final_response, 'choice="left"')

    def test_events_of_all_jobs_are_told_from_a_cursor_on(self) -> None:
        self.harness.run_session("a")
        kinds = []
        for event in self.harness.events(after=0):
            kinds.append(event["type"])
            if event["type"] == "live":
                break
        self.assertEqual(kinds[0], "accepted")
        self.assertIn("message_end", kinds)
        with self.assertRaises(errors.CursorInvalidError):
            next(iter(self.harness.events(after=10_000)))

    def test_long_texts_arrive_whole(self) -> None:
        text = "ü" * 200_000
        self.assertEqual(self.harness.run_session(text).final_response, text)
        events = self.harness.stream("chaos:flood 8", agent="chaos", include=[])
        said = sum(len(piece) for piece in events.text())
        self.assertGreaterEqual(said, 8_000_000)

    def test_a_slow_reader_loses_nothing(self) -> None:
        other = threading.Event()
        total = 0
        with self.harness.stream("chaos:emit 20000", agent="chaos") as stream:
            for event in stream:
                if event["type"] == "message_delta":
                    total += len(event["text"].encode())
                    if not other.is_set():
                        # Nobody else waits for it meanwhile.
                        self.assertEqual(self.harness.run_session("b").final_response, "b")
                        other.set()
        self.assertEqual(total, sum(len(f"d{n} ") for n in range(20_000)))


class Jobs(WithDaemon):
    def test_several_agents_work_at_once_and_one_dies(self) -> None:
        jobs = self.harness.dispatch_parallel(
            [
                {"agent": "timmy", "prompt": "one"},
                {"agent": "chaos", "prompt": "chaos:say half;exit 9"},
                {"agent": "chaos", "prompt": "three", "tools": None},
            ]
        )
        results = self.harness.collect(jobs, timeout=DEADLINE)
        self.assertEqual([result.job for result in results], jobs)
        self.assertEqual([result.ok for result in results], [True, False, True])
        self.assertIsInstance(results[1].error, errors.WorkerExitedError)
        self.assertEqual(results[1].final_response, "half")
        with self.assertRaises(errors.WorkerExitedError):
            results[1].raise_for_error()

    def test_all_are_accepted_or_none(self) -> None:
        with self.assertRaises(errors.UnknownAgentError):
            self.harness.dispatch_parallel([{"prompt": "a"}, {"prompt": "b", "agent": "tmmy"}])
        self.assertEqual(self.harness.request("jobs")["jobs"], [])
        self.assertEqual(self.harness.dispatch_parallel([]), [])

    def test_more_than_fit_into_one_request_are_collected_in_order(self) -> None:
        jobs: list[str] = []
        for _ in range(3):
            jobs += self.harness.dispatch_parallel([{"prompt": "a"}] * 100)
        results = self.harness.collect(list(reversed(jobs)), timeout=DEADLINE)
        self.assertEqual([result.job for result in results], list(reversed(jobs)))

    def test_results_larger_than_a_line_are_collected(self) -> None:
        jobs = self.harness.dispatch_parallel([{"prompt": "x" * 400_000, "include": []}] * 5)
        results = self.harness.collect(jobs + jobs[:1], timeout=DEADLINE)
        self.assertEqual([len(result.final_response) for result in results], [400_000] * 6)

    def test_what_isnt_done_in_time_is_named_and_goes_on(self) -> None:
        gate = self.dir / "gate"
        jobs = self.harness.dispatch_parallel(
            [{"prompt": f"chaos:wait-file {gate}", "agent": "chaos"}, {"prompt": "b"}]
        )
        first = next(iter(self.harness.as_completed(jobs, timeout=DEADLINE)))
        self.assertEqual(first.job, jobs[1])
        with self.assertRaises(agentd.StillPendingError) as caught:
            self.harness.collect(jobs, timeout=0)
        self.assertEqual(caught.exception.pending, jobs[:1])
        self.assertEqual([result.job for result in caught.exception.results], jobs[1:])
        gate.touch()
        done = [result.job for result in self.harness.as_completed(jobs, timeout=DEADLINE)]
        self.assertEqual(sorted(filter(None, done)), sorted(jobs))

    def test_a_job_is_aborted_by_anybody(self) -> None:
        jobs = self.harness.dispatch_parallel([{"prompt": "a [[sleep 600000]]"}])
        self.assertEqual(self.harness.abort(jobs[0]), jobs)
        self.assertEqual(self.harness.collect(jobs, timeout=math.inf)[0].stop, "cancelled")
        with self.assertRaises(errors.UnknownJobError):
            self.harness.collect(["j99"])


class Async(WithDaemon):
    def test_a_cancelled_task_aborts_its_turn(self) -> None:
        async def cancelled() -> None:
            harness = aio.Harness(fallback=False)
            task = asyncio.create_task(harness.run_session("a [[sleep 600000]]"))
            await asyncio.to_thread(self.running)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        self.assertEqual(self.harness.collect(["j1"], timeout=DEADLINE)[0].stop, "cancelled")

    def test_five_turns_run_at_once(self) -> None:
        async def five() -> list[agentd.Result]:
            return await asyncio.gather(
                *(
                    aio.run_session(f"chaos:alone {self.dir}/{n};say {n}", agent="chaos")
                    for n in range(5)
                )
            )

        results = asyncio.run(five())
        self.assertEqual([result.final_response for result in results], list("01234"))

    def test_everything_else_is_there_too(self) -> None:
        async def all_of_it() -> None:
            harness = aio.Harness()
            jobs = await harness.dispatch_parallel([{"prompt": "a"}, {"prompt": "b"}])
            results = await harness.collect(jobs, timeout=DEADLINE)
            self.assertEqual([result.final_response for result in results], ["a", "b"])
            self.assertEqual(len([one async for one in harness.as_completed(jobs)]), 2)
            async with harness.session() as session:
                self.assertEqual((await session.run("c")).context, "new")
                said = [piece async for piece in session.stream("d e").text()]
                self.assertEqual("".join(said), "d e")
            async for event in harness.events(after=0):
                self.assertEqual(event["type"], "accepted")
                break
            async with harness.stream("f [[sleep 600000]]") as stream:
                async for event in stream:
                    if event["type"] == "message_delta":
                        break
            assert stream.job is not None
            last = (await harness.collect([stream.job], timeout=DEADLINE))[0]
            self.assertEqual(last.stop, "cancelled")
            with self.assertRaises(errors.AgentFailedError):
                await harness.run_session("[[error=agent-failed]]")

        asyncio.run(all_of_it())


class Faults(WithDaemon):
    def test_a_daemon_killed_in_the_middle_leaves_a_key_that_finds_the_turn(self) -> None:
        self.impatient()
        prompt = "a [[sleep 600000]]"
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(self.harness.run_session, prompt)
            self.running()
            self.kill(self.daemon)
            with self.assertRaises(agentd.OutcomeUnknownError) as caught:
                waiting.result(DEADLINE)
        self.assertEqual(caught.exception.job, "j1")
        key = caught.exception.key
        self.start()
        with self.assertRaises(errors.TurnInterruptedError) as again:
            self.harness.run_session(prompt, idempotency_key=key)
        self.assertEqual(again.exception.job, "j1")
        assert again.exception.result is not None
        self.assertTrue(again.exception.result.replayed)

    def test_a_turn_goes_on_at_the_daemon_that_comes_next(self) -> None:
        gate = self.dir / "gate"
        prompt = f"chaos: say one; wait-file {gate}; say two"
        told: list[str] = []

        def streamed() -> agentd.Result:
            stream = self.harness.stream(prompt, agent="chaos", retry="auto")
            told.extend(stream.text())
            return stream.finish()

        with ThreadPoolExecutor(2) as pool:
            waiting = pool.submit(self.harness.run_session, prompt, agent="chaos", retry="auto")
            streaming = pool.submit(streamed)
            self.running(2)
            self.kill(self.daemon)
            gate.touch()
            self.start()
            for result in (waiting.result(DEADLINE), streaming.result(DEADLINE)):
                self.assertEqual(result.final_response, "onetwo")
        self.assertEqual(len(self.harness.request("jobs")["jobs"]), 2)
        self.assertEqual("".join(told), "onetwo")

    def test_what_is_handed_in_again_with_its_keys_is_the_same(self) -> None:
        first = self.daemon
        with ThreadPoolExecutor(1) as pool, at_write(b'"dispatch"', lambda: self.kill(first)):
            waiting = pool.submit(
                self.harness.dispatch_parallel, [{"prompt": "a"}, {"prompt": "b"}]
            )
            until(lambda: first.poll() is not None, "the kill")
            self.start()
            jobs = waiting.result(DEADLINE)
        self.assertEqual(len(self.harness.request("jobs")["jobs"]), 2)
        results = self.harness.collect(jobs, timeout=DEADLINE)
        self.assertEqual([result.final_response for result in results], ["a", "b"])

    def test_what_was_handed_in_survives_the_daemon(self) -> None:
        gate = self.dir / "gate"
        blocked = {"prompt": f"chaos:wait-file {gate}", "agent": "chaos", "session": "s"}
        behind = {"prompt": "b", "agent": "chaos", "session": "s", "after_failure": "run"}
        jobs = self.harness.dispatch_parallel([blocked, behind])
        self.running()
        self.kill(self.daemon)
        self.start()
        results = self.harness.collect(jobs, timeout=DEADLINE)
        self.assertIsInstance(results[0].error, errors.TurnInterruptedError)
        self.assertEqual(results[1].final_response, "b")

    def test_results_are_waited_for_over_a_restart(self) -> None:
        gate = self.dir / "gate"
        jobs = self.harness.dispatch_parallel(
            [
                {"prompt": "a"},
                {"prompt": f"chaos:wait-file {gate}", "agent": "chaos", "retry": "auto"},
            ]
        )
        self.harness.collect(jobs[:1], timeout=DEADLINE)
        asked = threading.Event()
        with ThreadPoolExecutor(2) as pool, at_write(b'"collect"', asked.set):
            waiting = pool.submit(self.harness.collect, jobs)
            until(asked.is_set, "the question")
            self.running()
            self.kill(self.daemon)
            self.start()
            gate.touch()
            results = waiting.result(DEADLINE)
        self.assertEqual([result.job for result in results], jobs)
        self.assertEqual([result.ok for result in results], [True, True])

    def test_a_stopped_daemon_is_noticed(self) -> None:
        self.impatient()
        harness = agentd.Harness(fallback=False, patience=0.3)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(harness.run_session, "a [[sleep 600000]]")
            self.running()
            os.kill(self.daemon.pid, signal.SIGSTOP)
            try:
                with self.assertRaisesRegex(agentd.OutcomeUnknownError, "sign of life"):
                    waiting.result(DEADLINE)
                with self.assertRaisesRegex(errors.UnreachableError, "not answered"):
                    harness.run_session("b")
            finally:
                os.kill(self.daemon.pid, signal.SIGCONT)

    def test_a_long_silent_turn_is_waited_for(self) -> None:
        harness = agentd.Harness(fallback=False, patience=0.05)
        gate = self.dir / "gate"
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(
                harness.run_session, f"chaos:wait-file {gate};say late", agent="chaos"
            )
            self.running()
            # Several times its patience, as seen by the daemon.
            uptime = self.harness.status()["daemon"]["uptime_s"]
            until(lambda: self.harness.status()["daemon"]["uptime_s"] > uptime + 1, "two seconds")
            gate.touch()
            self.assertEqual(waiting.result(DEADLINE).final_response, "late")

    def test_ctrl_c_aborts_the_turn(self) -> None:
        import subprocess
        import sys

        # Whoever runs the tests in the background of a script has it ignored.
        heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        code = f"{heard}; import agentd; agentd.run_session('a [[sleep 600000]]')"
        child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        self.running()
        child.send_signal(signal.SIGINT)
        child.wait(DEADLINE)
        self.assertEqual(self.harness.collect(["j1"], timeout=DEADLINE)[0].stop, "cancelled")

    def test_a_vanished_client_cancels_nothing(self) -> None:
        import subprocess
        import sys

        gate = self.dir / "gate"
        prompt = json.dumps(f"chaos:wait-file {gate};say done")
        code = f"import agentd; agentd.run_session({prompt}, agent='chaos')"
        child = subprocess.Popen([sys.executable, "-c", code])
        self.running()
        child.kill()
        child.wait(DEADLINE)
        gate.touch()
        self.assertEqual(self.harness.collect(["j1"], timeout=DEADLINE)[0].final_response, "done")


if __name__ == "__main__":
    unittest.main()

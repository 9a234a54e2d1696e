"""Cancels, Ctrl-C and aborts, at whatever moment they come."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import agentd
from agentd import _io, aio, errors

from .support import DEADLINE, Place, WithDaemon, until

LONG = "a [[sleep 600000]]"
FORKED = """
import os, agentd
harness = agentd.Harness()
with harness.stream("a [[sleep 600000]]") as stream:
    for event in stream:
        if event["type"] == "message_delta":
            break
    child = os.fork()
    if child == 0:
        stream.__exit__(None, None, None)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(harness.request("jobs", state="running")["jobs"][0]["job"])
"""


@contextmanager
def at_write(part: bytes, then: Callable[[], None]) -> Iterator[None]:
    """Does something as soon as a line with this part was written."""
    write = _io._BlockingChannel.write

    async def written(self: _io._BlockingChannel, data: bytes, patience: float) -> None:
        await write(self, data, patience)
        if part in data:
            then()

    with mock.patch.object(_io._BlockingChannel, "write", written):
        yield


def interrupt() -> None:
    raise KeyboardInterrupt


class Cancelled(WithDaemon):
    def states(self) -> list[str]:
        """Those of all jobs, once none runs any more."""

        def ended() -> list[str]:
            rows = self.harness.request("jobs")["jobs"]
            states = [str(row["state"]) for row in rows]
            return [] if "running" in states or "queued" in states else states

        states: list[str] = until(ended, "the end of all jobs")
        return states

    def test_a_cancel_is_heard_wherever_it_comes(self) -> None:
        async def cancelled_after(steps: int) -> None:
            task = asyncio.create_task(aio.run_session(LONG))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=DEADLINE)
            self.assertTrue(done, f"not heard after {steps} steps")
            self.assertTrue(task.cancelled(), steps)

        async def all_of_them() -> None:
            for steps in range(24):
                await cancelled_after(steps)

        asyncio.run(all_of_them())
        # However far it came: nothing is left.
        self.harness.dispatch_parallel([{"prompt": "a"}])
        states = self.states()
        self.assertEqual(states[0], "completed")
        self.assertLessEqual(set(states[1:]), {"cancelled"})

    def test_ctrl_c_behind_the_write_ends_the_turn(self) -> None:
        with at_write(b'"send"', interrupt), self.assertRaises(KeyboardInterrupt):
            self.harness.run_session(LONG)
        self.assertEqual(self.states(), ["cancelled"])

    def test_a_send_that_waits_in_the_buffer_is_aborted_too(self) -> None:
        write = _io._AsyncioChannel.write
        begun: list[asyncio.Event] = []

        async def stopped(self: _io._AsyncioChannel, data: bytes, patience: float) -> None:
            if len(data) > 1_000_000:
                os.kill(daemon, signal.SIGSTOP)
                begun[0].set()
            await write(self, data, patience)

        async def cancelled() -> None:
            begun.append(asyncio.Event())
            task = asyncio.create_task(aio.run_session("x" * 12_000_000 + " [[sleep 600000]]"))
            await begun[0].wait()
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            os.kill(daemon, signal.SIGCONT)
            with self.assertRaises(asyncio.CancelledError):
                await task

        daemon = self.daemon.pid
        with mock.patch.object(_io._AsyncioChannel, "write", stopped):
            asyncio.run(cancelled())
        self.assertEqual(self.states(), ["cancelled"])

    def test_what_was_handed_in_by_a_cancelled_call_is_taken_back(self) -> None:
        sends = [{"prompt": LONG}, {"prompt": LONG}]
        with at_write(b'"dispatch"', interrupt), self.assertRaises(KeyboardInterrupt):
            self.harness.dispatch_parallel(sends)
        self.assertEqual(self.states(), ["cancelled"] * 2)

        async def cancelled_after(steps: int) -> None:
            task = asyncio.create_task(aio.Harness().dispatch_parallel(sends))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=DEADLINE)
            self.assertTrue(done and task.cancelled(), steps)

        asyncio.run(cancelled_after(8))
        self.assertEqual(set(self.states()), {"cancelled"})

    def test_jobs_go_on_when_their_collect_is_cancelled(self) -> None:
        jobs = self.harness.dispatch_parallel([{"prompt": LONG}])
        self.running()
        with at_write(b'"collect"', interrupt), self.assertRaises(KeyboardInterrupt):
            self.harness.collect(jobs)
        self.assertEqual(self.harness.job(jobs[0]).state, "running")
        self.assertEqual(self.harness.abort(jobs[0]), jobs)

    def test_a_stream_is_sent_once_whatever_becomes_of_it(self) -> None:
        stream = self.harness.stream(LONG)
        stream.abort()
        with self.assertRaisesRegex(agentd.AgentdError, "was aborted"):
            stream.finish()
        begun = self.harness.stream(LONG)
        next(begun)
        begun.abort()
        with self.assertRaisesRegex(agentd.AgentdError, "was aborted"):
            next(begun)
        failed = self.harness.stream("[[error=rate-limit]]", idempotency_key="k")
        for _ in range(2):
            with self.assertRaises(errors.RateLimitError):
                failed.finish()
        refused = self.harness.stream("a", agent="tmmy")
        for _ in range(2):
            with self.assertRaises(errors.UnknownAgentError):
                refused.finish()
        ended = self.harness.stream("a")
        ended.finish()
        ended.abort()
        self.assertEqual(ended.finish().final_response, "a")
        self.assertEqual(self.states(), ["completed", "failed", "cancelled"])

    def test_somebody_else_s_turn_is_not_aborted(self) -> None:
        jobs = self.harness.dispatch_parallel([{"prompt": LONG}])
        stream = self.harness.stream("mine")
        for wrong in ((stream.job, None), (None, None), ("j1", "s")):
            with self.assertRaises(errors.InvalidRequestError):
                self.harness.abort(wrong[0], session=wrong[1])
        self.assertEqual(self.running()[0]["job"], jobs[0])
        self.assertEqual(self.harness.abort(jobs[0]), jobs)

    def test_a_forked_process_leaves_the_turn_alone(self) -> None:
        done = subprocess.run(
            [sys.executable, "-c", FORKED],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        self.assertEqual((done.stdout, done.returncode), ("j1\n", 0), done.stderr)
        self.assertEqual(self.states(), ["cancelled"])


class Alone(Place):
    def test_a_run_that_is_cancelled_while_it_starts_leaves_nothing(self) -> None:
        async def cancelled() -> None:
            started = asyncio.Event()
            popen = subprocess.Popen
            children: list[subprocess.Popen[bytes]] = []

            def starting(*args: object, **words: object) -> subprocess.Popen[bytes]:
                children.append(popen(*args, **words))  # type: ignore[call-overload]
                started.set()
                return children[0]

            with mock.patch("subprocess.Popen", starting):
                task = asyncio.create_task(aio.run_session(LONG))
                await started.wait()
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
            child = children.pop()
            await asyncio.to_thread(until, lambda: child.returncode is not None, "its end")

        asyncio.run(cancelled())


if __name__ == "__main__":
    unittest.main()

"""What callers write and see: names, types, help, texts of errors, and the README."""

from __future__ import annotations

import inspect
import os
import pickle
import pydoc
import re
import subprocess
import sys
import threading
import traceback
import unittest
import unittest.mock
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import agentd
from agentd import aio, errors, types

from .support import DEADLINE, Models, Place, WithDaemon

README = (Path(__file__).parents[1] / "README.md").read_text()


def members(kind: type) -> dict[str, Callable[..., Any]]:
    """The public methods of a class."""
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: one for name, one in found if not name.startswith("_") or name == "__init__"}


class Arguments(Place):
    def refused(self, kind: type[Exception], words: str, call: Callable[..., Any]) -> None:
        """Not behind the line of the call but for the one that says so."""
        try:
            call()
        except kind as error:
            self.assertIn(words, str(error))
            frames = [Path(one.filename).name for one in traceback.extract_tb(error.__traceback__)]
            self.assertEqual(frames[1:], ["test_calls.py", "_arguments.py"])
            self.assertEqual("".join(traceback.format_exception(error)).count("Traceback"), 1)
        else:
            self.fail("it was taken")

    def test_a_wrong_keyword_is_told_with_the_nearest_one(self) -> None:
        wrong: dict[str, Any] = {"timeot": 4}
        for harness in (agentd.Harness(), aio.Harness()):
            session = harness.session("s")
            for call in (harness.run_session, harness.stream, session.run, session.stream):
                self.refused(TypeError, "Did you mean 'timeout'?", lambda c=call: c("x", **wrong))
            jobs: Any = harness.jobs
            for words in ("Harness.jobs() got an unexpected", "'state'?"):
                self.refused(TypeError, words, lambda j=jobs: j(stat="running"))
        for run in (agentd.run_session, aio.run_session):
            self.refused(TypeError, "Did you mean 'timeout'?", lambda r=run: r("x", **wrong))
        socket: dict[str, Any] = {"sokcet": "s"}
        self.refused(TypeError, "Harness() got", lambda: agentd.Harness(**socket))
        far: dict[str, Any] = {"qqq": 1}
        self.refused(
            TypeError, "It takes prompt, agent, provider", lambda: agentd.run_session("x", **far)
        )

    def test_a_wrong_type_is_told_with_the_right_one(self) -> None:
        harness = agentd.Harness()
        run: Any = harness.run_session
        collect: Any = harness.collect
        for words, call in (
            (
                "timeout='abc', expected float or timedelta: seconds",
                lambda: run("x", timeout="abc"),
            ),
            ("timeout=True", lambda: run("x", timeout=True)),
            ("toolsets='file', expected list[str]", lambda: run("x", toolsets="file")),
            ("toolsets[1]=5, expected str", lambda: run("x", toolsets=["a", 5])),
            ("cwd=5, expected str or PathLike[str]", lambda: run("x", cwd=5)),
            ("labels={'a': 1}, expected dict[str, str]", lambda: run("x", labels={"a": 1})),
            (
                "'pth' in attachments[0]. Did you mean 'path'?",
                lambda: run("x", attachments=[{"pth": "a"}]),
            ),
            ("prompt=5, expected str", lambda: run(5)),
            ("missing a required argument: 'prompt'", lambda: run()),
            ("too many positional", lambda: run("x", "y")),
            (
                "'timout' in send. Did you mean",
                lambda: harness.dispatch({"prompt": "a", "timout": 4}),
            ),
            (
                "sends[1]['timeout']='4'",
                lambda: harness.dispatch_parallel([{"prompt": "a"}, {"timeout": "4"}]),
            ),
            ("jobs='j1', expected Iterable[str]", lambda: collect("j1")),
            ("timeout='5m'", lambda: collect(["j1"], timeout="5m")),
        ):
            self.refused(TypeError, words, call)
        self.refused(
            ValueError, "mode='queu', expected 'queue' or 'reject'", lambda: run("x", mode="queu")
        )

    def test_help_has_every_option_with_its_meaning(self) -> None:
        for module in (agentd, aio):
            takers = [module.run_session, module.Harness.run_session, module.Harness.stream]
            for taker in (*takers, module.Session.run, module.Session.stream):
                shown = pydoc.plain(pydoc.render_doc(taker))
                for option in types.Options.__annotations__:
                    self.assertRegex(shown, rf"{option}: \S.* = None")
                    self.assertRegex(shown, rf"\n +{option}: \S")
                for word in ("seconds that the turn may take", "3600 by", "RateLimitError"):
                    self.assertIn(word, shown)

    def test_with_and_without_a_loop_everything_is_the_same(self) -> None:
        for one, other in (
            (agentd.Harness, aio.Harness),
            (agentd.Session, aio.Session),
            (agentd.Stream, aio.Stream),
        ):
            ours, theirs = members(one), members(other)
            self.assertEqual(ours.keys(), theirs.keys())
            for name in ours.keys() - {"__init__"} if one is not agentd.Harness else ours:
                signatures = [inspect.signature(each[name]) for each in (ours, theirs)]
                self.assertEqual(signatures[0].parameters, signatures[1].parameters, name)
                kinds = {each.kind for each in signatures[0].parameters.values()}
                self.assertEqual(inspect.Parameter.VAR_KEYWORD in kinds, name == "request", name)
                self.assertTrue(ours[name].__doc__ or name == "__init__", name)


class Errors(Place):
    def test_what_needs_a_daemon_says_so_and_how_to_start_it(self) -> None:
        harness = agentd.Harness()
        for call in (
            lambda: harness.dispatch_parallel([{"prompt": "a"}]),
            lambda: harness.steer("a", job="j1"),
            lambda: next(harness.events()),
        ):
            with self.assertRaises(errors.UnreachableError) as caught:
                call()
            self.assertIn("` needs a daemon: cannot connect", caught.exception.message)
            self.assertIn("`agentctl start`", str(caught.exception))
            self.assertIn("`agentctl service install`", str(caught.exception))
            shown = "".join(traceback.format_exception(caught.exception))
            self.assertEqual(shown.count("Error:"), 1)

    def test_names_that_could_be_meant_are_told_as_they_are(self) -> None:
        line = {"type": "error", "code": "unknown-agent", "error": "there is none"}
        told = errors.of_line({**line, "hint": "did you mean `status`?"})
        self.assertEqual(told.hint, "did you mean `status`?")
        lost = errors.OutcomeUnknownError("lost", keys=["k"])
        self.assertIn("idempotency_key=error.key", str(lost))


class Ambiguous(WithDaemon):
    def start(self) -> None:
        (self.dir / "config.toml").write_text(
            "".join(
                f'[agents.{name}]\nkind = "exec"\ncommand = ["cat"]\n' for name in ("pi", "claude")
            )
        )
        super().start()

    def test_several_agents_that_could_are_told_as_an_argument(self) -> None:
        with self.assertRaises(errors.AmbiguousError) as caught:
            self.harness.run_session("hello")
        self.assertEqual(caught.exception.choices, ["claude", "pi", "timmy"])
        ways = 'name one, as agent="claude" or agent="pi" or agent="timmy"'
        self.assertIn(ways, str(caught.exception))

    def test_hints_of_the_daemon_are_told_as_calls(self) -> None:
        with self.assertRaises(errors.UnknownSessionError) as caught:
            self.harness.history("nobody")
        self.assertEqual(caught.exception.hint, "`Harness().sessions()` lists them")


class Lists(WithDaemon):
    def test_jobs_sessions_and_turns_are_typed(self) -> None:
        harness = self.harness
        harness.run_session("one", session="main", labels={"run": "7"})
        with self.assertRaises(errors.RateLimitError):
            harness.run_session("two " + "x" * 9000 + "[[error=rate-limit]]", session="main")
        harness.run_session("three", session="other")
        self.assertEqual([job.job for job in harness.jobs()], ["j3", "j2", "j1"])
        self.assertEqual(
            [job.job for job in harness.jobs(label="run=7", since=timedelta(hours=1))], ["j1"]
        )
        self.assertEqual([job.job for job in harness.jobs(limit=2)], ["j3", "j2"])
        with unittest.mock.patch("agentd._core.MOST_ROWS", 2):
            self.assertEqual(len(harness.jobs(limit=None)), 3)
            self.assertEqual(len(harness.sessions()), 2)
            self.assertEqual(len(harness.sessions(agent="timmy", idle_for=0)), 2)
            self.assertEqual(harness.sessions(agent="nobody"), [])
            self.assertEqual(harness.sessions(idle_for=timedelta(hours=1)), [])
        job = harness.job("j2")
        self.assertEqual(
            (job.state, job.code, job.session, job.agent), ("failed", "rate-limit", "main", "timmy")
        )
        assert job.accepted_at is not None
        self.assertLess(
            abs(datetime.now(timezone.utc) - job.accepted_at), timedelta(seconds=DEADLINE)
        )
        for unknown, kind in (("j99", errors.UnknownJobError), ("99", errors.InvalidRequestError)):
            with self.assertRaises(kind):
                harness.job(unknown)
        turns = harness.session("main").history()
        self.assertEqual([turn.job for turn in turns], ["j1", "j2"])
        assert turns[0].final is not None and turns[1].final is not None
        self.assertEqual(turns[0].final.final_response, "one")
        self.assertIsInstance(turns[1].final.error, errors.RateLimitError)
        used = harness.usage()
        self.assertEqual(
            [(row.job, row.cost.usd) for row in used], [("j3", 0.0), ("j2", 0.0), ("j1", 0.0)]
        )
        agents = {agent.name: agent for agent in harness.agents()}
        self.assertTrue(agents["timmy"].usable and agents["timmy"].default)
        for rows in (harness.jobs(), harness.sessions(), turns, used, list(agents.values())):
            for row in rows:
                self.assertLess(len(repr(row)), 600)
                self.assertTrue(repr(row).startswith(type(row).__name__ + "("))
                self.assertEqual(pickle.loads(pickle.dumps(row)), row)

        def names(**which: Any) -> list[str]:
            return [session.session for session in harness.sessions(**which)]

        self.assertEqual(names(), ["main", "other"])
        self.assertEqual((names(newest=5), names(newest=1)), (["other", "main"], ["other"]))
        self.assertEqual((len(names(cwd=Path.home())), names(cwd="/")), (2, []))
        with harness.session("gone", agent="timmy", close=True) as session:
            session.run("four")
        self.assertEqual((names(), names(closed=True)), (["main", "other"], ["gone"]))
        self.assertEqual(job, harness.job("j2"))
        self.assertNotEqual(job, harness.job("j1"))

    def test_a_question_is_seen_and_answered(self) -> None:
        with self.harness.stream(
            "chaos:ask choice", agent="chaos", session="q", on_question="wait"
        ) as turn:
            for event in turn:
                if event["type"] == "question":
                    self.assertEqual(self.harness.questions(session="other"), [])
                    (question,) = self.harness.questions()
                    self.assertEqual(
                        (question.kind, question.options, question.job),
                        ("choice", ["left", "right"], turn.job),
                    )
                    self.harness.answer(question, choice="left")
                    with self.assertRaises(errors.AlreadyAnsweredError):
                        self.harness.answer(question.question_id, cancel=True)
            assert turn.result is not None
            self.assertEqual(turn.result.final_response, 'choice="left"')

    def test_a_yes_goes_as_far_as_it_says(self) -> None:
        with self.harness.stream(
            "chaos:ask approval session", agent="chaos", session="q", on_question="wait"
        ) as turn:
            for event in turn:
                if event["type"] == "question":
                    (question,) = self.harness.questions()
                    self.assertEqual(
                        (question.tool_call_id, question.data, question.scopes),
                        ("c1", {"command": "ls"}, ["once", "session"]),
                    )
                    with self.assertRaises(errors.InvalidRequestError):
                        self.harness.answer(question, approve=True, scope="always")
                    self.harness.answer(question, approve=True, scope="session")
            assert turn.result is not None
            self.assertEqual(turn.result.final_response, 'approve=truescope="session"')

    def test_a_session_begins_with_more_than_a_prompt(self) -> None:
        begins: types.Options = {
            "session": "main",
            "agent": "chaos",
            "system": "be brief",
            "history": [{"role": "user", "text": "hi"}, {"role": "assistant", "text": "ho"}],
        }
        with self.harness.stream("chaos:say ok", **begins) as turn:
            codes = [event.get("code") for event in turn if event["type"] == "note"]
        self.assertEqual(codes, ["in-prompt"])
        with self.assertRaises(errors.InvalidRequestError) as refused:
            self.harness.run_session("more", **begins)
        self.assertIn("`main` has begun", str(refused.exception))
        wrong: dict[str, Any] = {"history": [{"role": "user", "txt": "hi"}]}
        with self.assertRaises(TypeError):
            self.harness.run_session("x", **wrong)

    def test_a_session_has_a_title_and_news(self) -> None:
        self.harness.run_session("one", session="main")
        told: list[dict[str, Any]] = []
        live = threading.Event()

        def hears() -> None:
            for event in self.harness.events(sessions=True):
                live.set()
                told.append(event)
                if event.get("change") == "titled":
                    return

        reader = threading.Thread(target=hears)
        reader.start()
        self.assertTrue(live.wait(DEADLINE))
        self.harness.set_title("main", "the parser")
        reader.join(DEADLINE)
        self.assertEqual((told[-1]["session"], told[-1]["title"]), ("main", "the parser"))
        self.assertEqual(self.harness.sessions()[0].title, "the parser")
        self.harness.set_title("main", None)
        self.assertEqual(self.harness.sessions()[0].title, "one")
        self.assertEqual([row.session for row in self.harness.usage(session="main")], ["main"])
        self.assertEqual(self.harness.usage(session="nobody"), [])
        self.assertEqual(self.harness.fork("main", "other"), "other")
        self.assertEqual(self.harness.run_session("two", session="other").context, "continued")
        with self.assertRaises(errors.SessionConflictError):
            self.harness.fork("main", "other")

    def test_a_turn_is_steered_and_a_session_shortened(self) -> None:
        with self.harness.session("s", agent="chaos") as session:
            with session.stream("chaos:say first;steered") as turn:
                for event in turn:
                    if event.get("text") == "first":
                        self.assertEqual(session.steer(" left"), turn.job)
                assert turn.result is not None
                self.assertEqual(turn.result.final_response, "first left")
            with self.assertRaises(errors.SessionIdleError):
                self.harness.steer("right", job="j1")
            with self.assertRaises(errors.InvalidRequestError):
                self.harness.steer("right")
            self.assertEqual(session.compact("names"), "short: names")
        send = {"prompt": "a [[sleep 600000]]", "session": "long"}
        jobs = self.harness.dispatch_parallel([send, send])
        self.running()
        self.assertEqual(sorted(self.harness.session("long").abort(queued=True)), jobs)

    def test_durations_and_times_are_python_s(self) -> None:
        with self.assertRaises(TimeoutError):
            self.harness.run_session("a [[sleep 600000]]", timeout=timedelta(milliseconds=100))
        later = datetime.now().replace(microsecond=5) + timedelta(days=1)
        jobs = self.harness.dispatch_parallel([{"prompt": "a", "start_at": later}])
        start = self.harness.job(jobs[0]).start_at
        assert start is not None
        self.assertLess(abs(start - later.astimezone()), timedelta(seconds=2))
        with self.assertRaises(agentd.StillPendingError):
            self.harness.collect(jobs, timeout=timedelta(0))

    def test_a_result_is_printed_compared_and_pickled(self) -> None:
        result = self.harness.run_session("hello [[tool ls]]" + "x" * 20_000)
        self.assertEqual(str(result), result.final_response)
        self.assertLess(len(repr(result)), 500)
        (job,) = self.harness.dispatch_parallel([{"prompt": "a [[error=rate-limit]]"}])
        (failed,) = self.harness.collect([job])
        for one in (result, failed):
            copy = pickle.loads(pickle.dumps(one))
            self.assertEqual(copy, one)
            self.assertEqual(copy.raw, one.raw)
        self.assertIsInstance(pickle.loads(pickle.dumps(failed)).error, errors.RateLimitError)
        self.assertNotEqual(result, failed)

    def test_no_thread_is_left_behind(self) -> None:
        before = threading.active_count()
        self.harness.run_session("a")
        with self.harness.stream("a [[sleep 600000]]") as turn:
            next(turn)
        self.harness.jobs()
        agentd.Harness(str(self.dir / "nobody")).run_session("b")
        self.assertEqual(threading.active_count(), before)


class Readme(WithDaemon):
    def setUp(self) -> None:
        self.models = Models()
        self.addCleanup(self.models.close)
        super().setUp()

    def start(self) -> None:
        with open(self.dir / "config.toml", "a") as file:
            file.write(f'[providers.kimi-coding]\nbase_url = "{self.models.url}"\n')
            file.write('[agents.claude]\nkind = "exec"\ncommand = ["cat"]\n')
            file.write('[agents.pi]\nkind = "exec"\ncommand = ["cat"]\n')
        os.environ["KIMI_API_KEY"] = "sk-kimi-test"
        super().start()

    def test_its_blocks_run_as_they_stand(self) -> None:
        blocks = re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S)
        self.assertGreaterEqual(len(blocks), 6)
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(blocks)],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[0], "hello")
        self.assertEqual(self.harness.jobs(limit=None)[-1].preview, "hello")


class ReadmeAlone(Place):
    def test_its_first_block_needs_nothing_at_all(self) -> None:
        Path(os.environ["AGENTD_CONFIG"]).write_text("")
        first = README.split("```python\n")[1].split("```")[0]
        done = subprocess.run(
            [sys.executable, "-c", first],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        self.assertEqual((done.stdout, done.returncode), ("hello\n", 0), done.stderr)


if __name__ == "__main__":
    unittest.main()

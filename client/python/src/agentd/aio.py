"""The same as the package itself, for programs with an asyncio loop.

Cancelling a task that waits for a turn aborts the turn.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, ClassVar, Literal

from ._arguments import checked
from ._connection import Way
from ._core import Core, Turn, session_name
from ._io import Asyncio, Io
from ._wire import absolute, send_fields
from .errors import InvalidRequestError, UnknownJobError
from .result import Result
from .rows import (
    Agent,
    Command,
    HistoryTurn,
    Job,
    ModelList,
    Question,
    Run,
    Schedule,
    SessionInfo,
    Usage,
)
from .types import Event, Options, Send, Unpack

_SEVERAL_LINES = {"send": "stream", "subscribe": "events"}

__all__ = ["Harness", "Session", "Stream", "run_session"]


class Stream:
    """``agentd.Stream``, read by ``async for event in stream``."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def __repr__(self) -> str:
        return f"<Stream job={self.job} {'ended' if self.result else 'open'}>"

    @property
    def job(self) -> str | None:
        """The job, once it is accepted."""
        return self._turn.job

    @property
    def key(self) -> str:
        """The idempotency key: a send with it attaches to this turn."""
        return self._turn.key

    @property
    def result(self) -> Result | None:
        """The result, once all lines were read."""
        return self._turn.result

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self._turn.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def text(self) -> AsyncIterator[str]:
        """Only what the agent says, piece by piece, with an empty line between messages. A message
        that the agent gives up and begins anew was said already: ``result`` has only the new one.
        """
        last = None
        replaced: set[object] = set()
        async for event in self:
            message = event.get("message")
            if event.get("type") == "message_start" and "replaces" in event:
                replaced.add(event["replaces"])
            if event.get("type") != "message_delta" or message in replaced:
                continue
            if last is not None and message is not None and message != last:
                yield "\n\n"
            last = message
            yield event["text"]

    async def finish(self) -> Result:
        """Reads the rest and gives the result."""
        return await self._turn.finish()

    async def abort(self) -> None:
        """Ends the turn."""
        await self._turn.abort()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._turn.abort()


class Session:
    """``agentd.Session``, whose methods are waited for."""

    def __init__(self, harness: Harness, name: str | None, close: bool | None, new: dict[str, Any]):
        self._harness = harness
        self._close = name is None if close is None else close
        self._make = name is None
        self._new = new
        self.name = name or session_name()

    def __repr__(self) -> str:
        return f"<Session {self.name}>"

    @checked
    async def run(self, prompt: str, **options: Unpack[Options]) -> Result:
        """One turn. Raises for one that failed."""
        return await self._turn(prompt, options, stream=False).finish()

    @checked
    def stream(self, prompt: str, **options: Unpack[Options]) -> Stream:
        """One turn, line by line."""
        return Stream(self._turn(prompt, options, stream=True))

    @checked
    async def set_model(
        self,
        model: str | None = None,
        *,
        provider: str | None = None,
        thinking: str | None = None,
        mode: str | None = None,
    ) -> None:
        """Another model, thinking level or mode for the turns that are sent from now on; what
        isn't named stays. ``models()`` has the modes."""
        named = {"provider": provider, "thinking": thinking, "mode": mode}
        await self._harness.set_model(self.name, model, **named)

    @checked
    async def set_title(self, title: str | None) -> None:
        """What it is called in lists; None: how its first prompt begins."""
        await self._harness.set_title(self.name, title)

    @checked
    async def models(self) -> ModelList:
        """Which models its agent has; the default is what its next turn takes."""
        return await self._harness.models(session=self.name)

    async def commands(self) -> list[Command]:
        """Which slash commands its agent has."""
        return await self._harness.commands(session=self.name)

    @checked
    async def history(self, *, limit: int | None = None) -> list[HistoryTurn]:
        """What was said, oldest first."""
        return await self._harness.history(self.name, limit=limit)

    @checked
    async def steer(self, text: str) -> str:
        """A word to its running turn; gives the job when the agent has taken it."""
        return await self._harness.steer(text, session=self.name)

    @checked
    async def abort(self, *, queued: bool = False) -> list[str]:
        """Cancels what runs in it, with ``queued`` what waits, too; gives the jobs."""
        return await self._harness.abort(session=self.name, queued=queued)

    @checked
    async def compact(self, instructions: str | None = None) -> str | None:
        """The agent shortens what it remembers; gives its summary, if it says one."""
        return await self._harness.compact(self.name, instructions)

    def _turn(self, prompt: str, options: Mapping[str, Any], *, stream: bool) -> Turn:
        new = {} if self._make else self._new
        send = {**new, **options, "prompt": prompt, "session": self.name}
        return self._harness._core.turn(send, stream=stream)

    async def __aenter__(self) -> Session:
        if self._make:
            new = {"session": self.name, **self._new}
            await self._harness._core.ask("session.new", new, changes=True)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._close:
            return
        try:
            core = self._harness._core
            await core.ask("session.close", {"session": self.name}, changes=True)
        except Exception:
            # What ended the block says more than a session that is still busy.
            if error is None:
                raise


class Harness:
    """``agentd.Harness``, whose methods are waited for."""

    _io: ClassVar[type[Io]] = Asyncio

    @checked
    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        fallback: bool = True,
        name: str = "python",
        agentctl: str | None = None,
        patience: float = 15.0,
    ) -> None:
        path = None if socket is None else os.fsdecode(socket)
        self._core = Core(Way(self._io(), path, fallback, name, agentctl, patience))

    @checked
    async def run_session(self, prompt: str, **options: Unpack[Options]) -> Result:
        """Runs one turn and gives its result. Ctrl-C, or a cancel of the task, aborts the turn."""
        return await self._core.turn({**options, "prompt": prompt}).finish()

    @checked
    async def dispatch(self, send: Send | Mapping[str, Any]) -> Result:
        """``run_session`` for a mapping of the same options and its ``prompt``."""
        return await self._core.turn(send).finish()

    @checked
    def stream(self, prompt: str, **options: Unpack[Options]) -> Stream:
        """One turn, line by line. Nothing is sent before the first line is asked for."""
        return Stream(self._core.turn({**options, "prompt": prompt}, stream=True))

    @checked
    async def dispatch_parallel(self, sends: Iterable[Send | Mapping[str, Any]]) -> list[str]:
        """Hands in up to 256 turns, all or none, and gives their jobs. Needs a daemon: it keeps
        them, over restarts, until they are collected. Cancelled before the jobs are known, as by
        Ctrl-C, it cancels them."""
        return await self._core.dispatch_parallel(sends)

    @checked
    async def collect(
        self, jobs: Iterable[str], timeout: float | timedelta | None = None
    ) -> list[Result]:
        """The results of jobs, in the order asked; those that failed have ``error``. It goes on
        over a restart of the daemon.

        Raises ``errors.StillPendingError`` after ``timeout`` seconds; 0 looks. Without ``timeout``,
        ``errors.UnreachableError`` when some aren't done and there is no daemon to run them.
        """
        return await self._core.collect(jobs, timeout)

    @checked
    def as_completed(
        self, jobs: Iterable[str], timeout: float | timedelta | None = None
    ) -> AsyncIterator[Result]:
        """The results of up to 256 jobs, each as soon as it is there."""
        return self._core.as_completed(jobs, timeout)

    @checked
    def session(
        self,
        name: str | None = None,
        *,
        agent: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        toolsets: list[str] | None = None,
        close: bool | None = None,
    ) -> Session:
        """A conversation. ``close``: is it closed at the end of its block? By default one without a
        name is."""
        path = None if cwd is None else absolute("cwd", cwd)
        given = {"agent": agent, "cwd": path, "toolsets": toolsets}
        new = {name: value for name, value in given.items() if value is not None}
        return Session(self, name, close, new)

    @checked
    async def jobs(
        self,
        *,
        session: str | None = None,
        state: Literal[
            "queued", "held", "running", "completed", "cancelled", "failed", "interrupted"
        ]
        | None = None,
        label: str | None = None,
        parent: str | None = None,
        since: float | timedelta | None = None,
        limit: int | None = 50,
    ) -> list[Job]:
        """Which jobs there are, newest first. ``label`` is ``key`` or ``key=value``; ``since``: not
        older than so many seconds; ``limit=None`` gives all."""
        asked = {"session": session, "state": state, "label": label, "parent": parent}
        asked["since"] = _seconds(since)
        rows = await self._core.rows("jobs", asked, "jobs", "before", limit)
        return Job.of_lines(rows)

    @checked
    async def job(self, job: str) -> Job:
        """How a job is; ``collect`` has its result. Raises ``errors.UnknownJobError``."""
        number = re.fullmatch(r"j(\d{1,18})", job)
        if number is None:
            raise InvalidRequestError(f"{job!r} is no job: expected `j` and a number, as 'j41'")
        # A list goes from the newest on.
        before = {"before": f"j{int(number[1]) + 1}", "limit": 1}
        line = await self._core.ask("jobs", before, changes=False)
        for found in Job.of_lines(line.get("jobs")):
            if found.job == job:
                return found
        raise UnknownJobError(f"there is no job {job!r}", hint="`jobs()` lists those that are kept")

    @checked
    async def sessions(
        self,
        *,
        agent: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        idle_for: float | timedelta | None = None,
        newest: int | None = None,
        closed: bool = False,
    ) -> list[SessionInfo]:
        """Which sessions there are, in the order they were made. ``cwd``: those of a directory;
        ``idle_for``: those that have nothing to do, and had nothing for so many seconds;
        ``newest``: the so many that were used last, up to 500, these first; ``closed``: those that
        were closed instead."""
        fields: dict[str, Any] = {"agent": agent, "idle_for": _seconds(idle_for)}
        fields["cwd"] = None if cwd is None else absolute("cwd", cwd)
        fields["newest"], fields["closed"] = newest is not None, closed
        rows = await self._core.rows("session.list", fields, "sessions", "after", newest)
        return SessionInfo.of_lines(rows)

    @checked
    async def history(self, session: str, *, limit: int | None = None) -> list[HistoryTurn]:
        """What was said in a session, oldest first; at most ``limit`` turns."""
        rows = await self._core.rows(
            "session.history", {"session": session}, "turns", "after", limit
        )
        return HistoryTurn.of_lines(rows)

    @checked
    async def agents(self) -> list[Agent]:
        """Every agent that is known or was looked for; it may take seconds, as programs are asked
        for their versions."""
        line = await self._core.ask("agents", {}, changes=False)
        return Agent.of_lines(line.get("agents"))

    @checked
    async def models(self, agent: str | None = None, *, session: str | None = None) -> ModelList:
        """Which models an agent has, as it says itself, or that of a session; a process of it is
        started if none lives. The list is empty where it has none, and its ``note`` says why."""
        asked = {"agent": agent, "session": session}
        pages = self._core.pages("models", asked, "models", "after")
        return ModelList.of_pages([page async for page in pages])

    @checked
    async def commands(
        self, agent: str | None = None, *, session: str | None = None
    ) -> list[Command]:
        """Which slash commands an agent has, as it says itself, or that of a session; a process of
        it is started if none lives."""
        asked = {"agent": agent, "session": session}
        line = await self._core.ask("commands", asked, changes=False)
        return Command.of_lines(line.get("commands"))

    @checked
    async def usage(
        self, *, since: float | timedelta | None = None, session: str | None = None
    ) -> list[Usage]:
        """What turns that have ended used, newest first; ``since``: accepted no longer ago than so
        many seconds; ``session``: only of this one."""
        asked = {"since": _seconds(since), "session": session}
        rows = await self._core.rows("usage", asked, "turns", "before")
        return Usage.of_lines(rows)

    @checked
    async def questions(self, *, session: str | None = None) -> list[Question]:
        """What agents ask and nobody has answered."""
        asked = {"session": session}
        line = await self._core.ask("questions", asked, changes=False, alone=False)
        return Question.of_lines(line.get("questions"))

    @checked
    async def answer(
        self,
        question: str | Question,
        *,
        approve: bool | None = None,
        scope: str | None = None,
        choice: str | None = None,
        text: str | None = None,
        cancel: bool = False,
    ) -> None:
        """Answers a question, or the one with this ``question_id``. By its ``kind``: ``approve``,
        one of its options as ``choice``, ``text`` (of a secret, too), or ``cancel=True``. With
        ``approve=True`` the ``scope`` is one of its ``scopes``, and ``once`` when it isn't given.

        Raises ``errors.AlreadyAnsweredError`` when somebody was faster.
        """
        number = question.question_id if isinstance(question, Question) else question
        said = {"question_id": number, "approve": approve, "scope": scope, "choice": choice}
        said |= {"text": text, "cancel": cancel or None}
        await self._core.ask("answer", said, changes=True, alone=False)

    @checked
    async def steer(self, text: str, *, job: str | None = None, session: str | None = None) -> str:
        """A word to the running turn of just one of both; gives the job when the agent has taken
        it. Raises ``errors.SessionIdleError`` when no turn runs."""
        target = {"text": text, **_target(job, session, "to steer")}
        line = await self._core.ask("steer", target, changes=True, alone=False)
        return str(line.get("job"))

    @checked
    async def set_model(
        self,
        session: str,
        model: str | None = None,
        *,
        provider: str | None = None,
        thinking: str | None = None,
        mode: str | None = None,
    ) -> None:
        """Another model, thinking level or mode for the turns of a session that are sent from now
        on; what isn't named stays, and something has to be. ``models()`` has the modes."""
        named = {"session": session, "model": model, "provider": provider, "thinking": thinking}
        named["mode"] = mode
        await self._core.ask("set_model", named, changes=True, alone=False)

    @checked
    async def set_title(self, session: str, title: str | None) -> None:
        """What a session is called in lists; None: how its first prompt begins."""
        named = {"session": session, "title": title}
        await self._core.ask("session.title", named, changes=True, alone=False)

    @checked
    async def fork(self, session: str, name: str | None = None) -> str:
        """Makes another session, which begins with what the agent remembers of one, and names it.
        The agent makes its copy when the first turn of the new one begins: what the old one is told
        until then is in both.

        Raises ``errors.UnsupportedError`` where the agent can't, ``errors.SessionBusyError`` while
        the session has unfinished turns.
        """
        named = {"session": session, "to": name}
        line = await self._core.ask("session.fork", named, changes=True, alone=False)
        return str(line.get("session"))

    @checked
    async def compact(self, session: str, instructions: str | None = None) -> str | None:
        """The agent shortens what it remembers of a session, ``instructions`` say what to keep;
        gives its summary, if it says one. It asks a model: that may take minutes."""
        named = {"session": session, "instructions": instructions}
        line = await self._core.ask("compact", named, changes=True, alone=False)
        return line.get("summary")

    @checked
    async def abort(
        self, job: str | None = None, *, session: str | None = None, queued: bool = False
    ) -> list[str]:
        """Cancels a job, or what runs in a session, with ``queued`` what waits there, too; gives
        the jobs. Just one of both is given."""
        # Without a target the daemon takes the only turn that runs, whosever that is.
        target = _target(job, session, "to abort; `stream.abort()` needs neither")
        return await self._core.abort({**target, "queued": queued or None})

    @checked
    async def cron_add(
        self,
        send: Send | Mapping[str, Any],
        *,
        at: str | None = None,
        every: str | None = None,
        cron: str | None = None,
        tz: str | None = None,
        name: str | None = None,
        jitter: str | None = None,
        missed: Literal["skip", "last", "all"] | None = None,
        overlap: Literal["skip", "queue", "replace", "parallel"] | None = None,
        keep: int | None = None,
        backoff: str | None = None,
        max_failures: int | None = None,
    ) -> Schedule:
        """Has the daemon send a turn by itself, each due time once: ``at`` a time (``+1m``,
        ``2026-12-01T09:00``), ``every`` so long (``30m``), or as the five fields of ``cron`` say,
        in the time zone ``tz``. ``client/PROTOCOL.md`` part 5 has the rest."""
        fields = send_fields(send)
        del fields["idempotency_key"]
        named: dict[str, Any] = {"send": fields, "at": at, "every": every, "cron": cron}
        named |= {"tz": tz, "name": name, "jitter": jitter, "missed": missed}
        named |= {"overlap": overlap, "keep": keep, "backoff": backoff}
        named["max_failures"] = max_failures
        return await self._schedule("cron.add", named)

    @checked
    async def cron_edit(self, schedule: str, fields: Mapping[str, Any]) -> Schedule:
        """Has a schedule, by id or name, say something else: these fields take the place of those
        that it has, those of ``send`` likewise, and ``None`` takes one away."""
        return await self._schedule("cron.edit", {"schedule": schedule, "set": dict(fields)})

    @checked
    async def cron_pause(self, schedule: str) -> Schedule:
        """Lets a schedule rest."""
        return await self._schedule("cron.pause", {"schedule": schedule})

    @checked
    async def cron_resume(self, schedule: str) -> Schedule:
        """Lets it go on, from its next due time."""
        return await self._schedule("cron.resume", {"schedule": schedule})

    @checked
    async def cron_remove(self, schedule: str) -> Schedule:
        """Forgets a schedule; its jobs stay."""
        return await self._schedule("cron.remove", {"schedule": schedule})

    @checked
    async def cron_run(self, schedule: str) -> str:
        """Runs a schedule once now, besides; gives the job."""
        named = {"schedule": schedule}
        line = await self._core.ask("cron.run", named, changes=True, alone=False)
        return str(line.get("job"))

    @checked
    async def cron_list(self) -> list[Schedule]:
        """Which schedules there are, as they were made."""
        return Schedule.of_lines(await self._core.rows("cron.list", {}, "schedules", "after"))

    @checked
    async def cron_runs(self, schedule: str, *, limit: int | None = 50) -> list[Run]:
        """What became of its due times, newest first; ``limit=None`` gives all."""
        named = {"schedule": schedule}
        return Run.of_lines(await self._core.rows("cron.runs", named, "runs", "before", limit))

    async def _schedule(self, kind: str, fields: Mapping[str, Any]) -> Schedule:
        line = await self._core.ask(kind, fields, changes=True, alone=False)
        return Schedule.of_lines([line.get("schedule") or {}])[0]

    @checked
    async def status(self) -> dict[str, Any]:
        """How the daemon is: ``client/PROTOCOL.md`` part 5."""
        return await self._core.ask("status", {}, changes=False, alone=False)

    @checked
    async def request(self, kind: str, /, **fields: Any) -> dict[str, Any]:
        """Any other request of ``client/PROTOCOL.md`` part 5, and its one answer. A ``send`` and a
        ``subscribe`` have more: ``stream`` and ``events`` are for them."""
        if kind in _SEVERAL_LINES:
            raise InvalidRequestError(
                f"`{kind}` is answered by several lines", hint=f"use `{_SEVERAL_LINES[kind]}`"
            )
        return await self._core.ask(kind, fields, changes=True)

    @checked
    def events(
        self,
        *,
        session: str | None = None,
        jobs: list[str] | None = None,
        after: int | None = None,
        epoch: str | None = None,
        sessions: bool = False,
    ) -> AsyncIterator[Event]:
        """What happens, of all jobs or of a ``session`` or some ``jobs``, without end. With
        ``after``, the ``seq`` of an event, first what happened since; 0 is the beginning.
        ``epoch`` is the store's, as the event ``live`` says it. With ``sessions``, what becomes of
        sessions, too, as events ``session_changed``."""
        named = {"session": session, "jobs": jobs, "after": after, "epoch": epoch}
        named["sessions"] = sessions or None
        return self._core.events({name: one for name, one in named.items() if one is not None})


def _seconds(given: float | timedelta | None) -> Any:
    return given.total_seconds() if isinstance(given, timedelta) else given


def _target(job: str | None, session: str | None, what: str) -> dict[str, Any]:
    if (job is None) == (session is None):
        raise InvalidRequestError(f"expected either job=… or session=… {what}")
    return {"job": job, "session": session}


@checked
async def run_session(prompt: str, **options: Unpack[Options]) -> Result:
    """Runs one turn and gives its result: ``Harness().run_session``."""
    return await Harness().run_session(prompt, **options)

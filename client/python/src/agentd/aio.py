"""The same as the package itself, for programs with an asyncio loop.

Cancelling a task that waits for a turn aborts the turn.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any

from ._connection import Way
from ._core import Core, Turn, session_name
from ._io import Asyncio
from ._wire import absolute
from .errors import InvalidRequestError
from .result import Result
from .types import Event, Options, Unpack

_SEVERAL_LINES = {"send": "stream", "subscribe": "events"}

__all__ = ["Harness", "Session", "Stream", "run_session"]


class Stream:
    """The lines of a turn as they come. As a context manager, it aborts the turn when it is left
    before its end; else the turn goes on without a listener. Read on after an abort or a failure,
    it raises, and sends nothing again."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

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
    """A conversation: its turns know of each other.

    Without a name it is made when the block is entered and closed when it is left. With a name it
    is made by its first turn and stays, for whoever names it next.
    """

    def __init__(self, core: Core, name: str | None, close: bool | None, new: dict[str, Any]):
        self._core = core
        self._close = name is None if close is None else close
        self._make = name is None
        self._new = new
        self.name = name or session_name()

    async def run(self, prompt: str, **options: Unpack[Options]) -> Result:
        """One turn. Raises for one that failed."""
        return await self._turn(prompt, options, stream=False).finish()

    def stream(self, prompt: str, **options: Unpack[Options]) -> Stream:
        """One turn, line by line."""
        return Stream(self._turn(prompt, options, stream=True))

    async def set_model(
        self, model: str, *, provider: str | None = None, thinking: str | None = None
    ) -> None:
        """Another model for the turns that are sent from now on; what isn't named stays."""
        await self._core.set_model(self.name, model, provider, thinking)

    def _turn(self, prompt: str, options: Mapping[str, Any], *, stream: bool) -> Turn:
        new = {} if self._make else self._new
        send = {**new, **options, "prompt": prompt, "session": self.name}
        return self._core.turn(send, stream=stream)

    async def __aenter__(self) -> Session:
        if self._make:
            await self._core.ask("session.new", {"session": self.name, **self._new}, changes=True)
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
            await self._core.ask("session.close", {"session": self.name}, changes=True)
        except Exception:
            # What ended the block says more than a session that is still busy.
            if error is None:
                raise


class Harness:
    """The agents of this machine.

    ``socket``: another daemon's than the usual one. ``fallback=False``: fail rather than run
    without a daemon. ``agentctl``: the program for that, else the one on ``PATH``. ``name`` is for
    the daemon's log. ``patience``: seconds of silence after which the daemon is asked for a sign of
    life; without one within as many again, the outcome is unknown.
    """

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
        self._core = Core(Way(Asyncio(), path, fallback, name, agentctl, patience))

    async def run_session(self, prompt: str, **options: Unpack[Options]) -> Result:
        """Runs one turn and gives its result; ``types.Options`` has the options.

        Raises the class of ``errors`` for its code when it is refused or fails, ``errors.
        OutcomeUnknownError`` when the connection is lost in the middle. Cancelled, it aborts the
        turn.
        """
        return await self._core.turn({**options, "prompt": prompt}).finish()

    async def dispatch(self, send: Mapping[str, Any]) -> Result:
        """The same, for a send as a mapping (``types.Send``)."""
        return await self._core.turn(send).finish()

    def stream(self, prompt: str, **options: Unpack[Options]) -> Stream:
        """The same, line by line. Nothing is sent before the first line is asked for."""
        return Stream(self._core.turn({**options, "prompt": prompt}, stream=True))

    async def dispatch_parallel(self, sends: Iterable[Mapping[str, Any]]) -> list[str]:
        """Hands in up to 256 turns, all or none, and gives their jobs. Needs a daemon: it keeps
        them, over restarts, until they are collected. Cancelled before the jobs are known, as by
        Ctrl-C, it cancels them."""
        return await self._core.dispatch_parallel(sends)

    async def collect(self, jobs: Iterable[str], timeout: float | None = None) -> list[Result]:
        """The results of jobs, in the order asked; those that failed have ``error``. It goes on
        over a restart of the daemon.

        Raises ``errors.StillPendingError`` after ``timeout`` seconds; 0 looks. Without ``timeout``,
        ``errors.UnreachableError`` when some aren't done and there is no daemon to run them.
        """
        return await self._core.collect(jobs, timeout)

    def as_completed(
        self, jobs: Iterable[str], timeout: float | None = None
    ) -> AsyncIterator[Result]:
        """The results of up to 256 jobs, each as soon as it is there."""
        return self._core.as_completed(jobs, timeout)

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
        return Session(self._core, name, close, new)

    async def abort(self, job: str | None = None, *, session: str | None = None) -> list[str]:
        """Cancels a job, or what runs in a session; gives the jobs. Just one of them is given."""
        given = {"job": job, "session": session}
        if (job is None) == (session is None):
            # Without a target the daemon takes the only turn that runs, whosever that is.
            raise InvalidRequestError(
                "expected either a job or a session to abort",
                hint="a stream knows its job from its first line on; `stream.abort()` needs none",
            )
        target = {name: value for name, value in given.items() if value is not None}
        return await self._core.abort(target)

    async def status(self) -> dict[str, Any]:
        """How the daemon is."""
        return await self._core.ask("status", {}, changes=False, alone=False)

    async def request(self, kind: str, /, **fields: Any) -> dict[str, Any]:
        """Any other request of ``client/PROTOCOL.md`` part 5, and its one answer. A ``send`` and a
        ``subscribe`` have more: ``stream`` and ``events`` are for them."""
        if kind in _SEVERAL_LINES:
            raise InvalidRequestError(
                f"`{kind}` is answered by several lines", hint=f"use `{_SEVERAL_LINES[kind]}`"
            )
        return await self._core.ask(kind, fields, changes=True)

    def events(self, **fields: Any) -> AsyncIterator[Event]:
        """What happens, of all jobs or of some (``subscribe``), without end; with ``after`` what
        happened first."""
        return self._core.events(fields)


async def run_session(prompt: str, **options: Unpack[Options]) -> Result:
    """``Harness().run_session``."""
    return await Harness().run_session(prompt, **options)

"""What users without a loop see: each method of ``aio``, run to its end.

Owns nothing but this translation.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

from . import aio
from ._connection import Way
from ._core import Core
from ._io import Blocking, run
from .result import Result
from .types import Event, Options, Unpack

T = TypeVar("T")


def _each(items: AsyncIterator[T]) -> Iterator[T]:
    """Left before its end, it closes the other one."""
    try:
        while True:
            try:
                yield run(_following(items))
            except StopAsyncIteration:
                return
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            run(close())


async def _following(items: AsyncIterator[T]) -> T:
    return await items.__anext__()


class Stream:
    """The lines of a turn as they come. As a context manager, it aborts the turn when it is left
    before its end; else the turn goes on without a listener. Read on after an abort or a failure,
    it raises, and sends nothing again."""

    def __init__(self, stream: aio.Stream) -> None:
        self._stream = stream

    @property
    def job(self) -> str | None:
        """The job, once it is accepted."""
        return self._stream.job

    @property
    def key(self) -> str:
        """The idempotency key: a send with it attaches to this turn."""
        return self._stream.key

    @property
    def result(self) -> Result | None:
        """The result, once all lines were read."""
        return self._stream.result

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        try:
            return run(self._stream.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def text(self) -> Iterator[str]:
        """Only what the agent says, piece by piece, with an empty line between messages. A message
        that the agent gives up and begins anew was said already: ``result`` has only the new one.
        """
        return _each(self._stream.text())

    def finish(self) -> Result:
        """Reads the rest and gives the result."""
        return run(self._stream.finish())

    def abort(self) -> None:
        """Ends the turn."""
        run(self._stream.abort())

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abort()


class Session:
    """A conversation: its turns know of each other.

    Without a name it is made when the block is entered and closed when it is left. With a name it
    is made by its first turn and stays, for whoever names it next.
    """

    def __init__(self, session: aio.Session) -> None:
        self._session = session

    @property
    def name(self) -> str:
        """What it is called."""
        return self._session.name

    def run(self, prompt: str, **options: Unpack[Options]) -> Result:
        """One turn. Raises for one that failed."""
        return run(self._session.run(prompt, **options))

    def stream(self, prompt: str, **options: Unpack[Options]) -> Stream:
        """One turn, line by line."""
        return Stream(self._session.stream(prompt, **options))

    def set_model(
        self, model: str, *, provider: str | None = None, thinking: str | None = None
    ) -> None:
        """Another model for the turns that are sent from now on; what isn't named stays."""
        run(self._session.set_model(model, provider=provider, thinking=thinking))

    def __enter__(self) -> Session:
        run(self._session.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run(self._session.__aexit__(kind, error, trace))


class Harness:
    """The agents of this machine. Threads may share one.

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
        self._harness = aio.Harness.__new__(aio.Harness)
        path = None if socket is None else os.fsdecode(socket)
        self._harness._core = Core(Way(Blocking(), path, fallback, name, agentctl, patience))

    def run_session(self, prompt: str, **options: Unpack[Options]) -> Result:
        """Runs one turn and gives its result; ``types.Options`` has the options.

        Raises the class of ``errors`` for its code when it is refused or fails, ``errors.
        OutcomeUnknownError`` when the connection is lost in the middle. Ctrl-C aborts the turn.
        """
        return run(self._harness.run_session(prompt, **options))

    def dispatch(self, send: Mapping[str, Any]) -> Result:
        """The same, for a send as a mapping (``types.Send``)."""
        return run(self._harness.dispatch(send))

    def stream(self, prompt: str, **options: Unpack[Options]) -> Stream:
        """The same, line by line. Nothing is sent before the first line is asked for."""
        return Stream(self._harness.stream(prompt, **options))

    def dispatch_parallel(self, sends: Iterable[Mapping[str, Any]]) -> list[str]:
        """Hands in up to 256 turns, all or none, and gives their jobs. Needs a daemon: it keeps
        them, over restarts, until they are collected. Cancelled before the jobs are known, as by
        Ctrl-C, it cancels them."""
        return run(self._harness.dispatch_parallel(sends))

    def collect(self, jobs: Iterable[str], timeout: float | None = None) -> list[Result]:
        """The results of jobs, in the order asked; those that failed have ``error``. It goes on
        over a restart of the daemon.

        Raises ``errors.StillPendingError`` after ``timeout`` seconds; 0 looks. Without ``timeout``,
        ``errors.UnreachableError`` when some aren't done and there is no daemon to run them.
        """
        return run(self._harness.collect(jobs, timeout))

    def as_completed(self, jobs: Iterable[str], timeout: float | None = None) -> Iterator[Result]:
        """The results of up to 256 jobs, each as soon as it is there."""
        return _each(self._harness.as_completed(jobs, timeout))

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
        session = self._harness.session(name, agent=agent, cwd=cwd, toolsets=toolsets, close=close)
        return Session(session)

    def abort(self, job: str | None = None, *, session: str | None = None) -> list[str]:
        """Cancels a job, or what runs in a session; gives the jobs. Just one of them is given."""
        return run(self._harness.abort(job, session=session))

    def status(self) -> dict[str, Any]:
        """How the daemon is."""
        return run(self._harness.status())

    def request(self, kind: str, /, **fields: Any) -> dict[str, Any]:
        """Any other request of ``client/PROTOCOL.md`` part 5, and its one answer. A ``send`` and a
        ``subscribe`` have more: ``stream`` and ``events`` are for them."""
        return run(self._harness.request(kind, **fields))

    def events(self, **fields: Any) -> Iterator[Event]:
        """What happens, of all jobs or of some (``subscribe``), without end; with ``after`` what
        happened first."""
        return _each(self._harness.events(**fields))


def run_session(prompt: str, **options: Unpack[Options]) -> Result:
    """``Harness().run_session``."""
    return Harness().run_session(prompt, **options)

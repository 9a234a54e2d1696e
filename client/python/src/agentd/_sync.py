"""What users without a loop see: each method of ``aio``, run to its end.

Owns nothing but this translation.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from . import aio
from ._arguments import checked
from ._io import Blocking, run
from .result import Result
from .types import Event, Options, Unpack

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")


class _Harness(aio.Harness):
    _io = Blocking


def _blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """A method that waits for the other one's end."""
    inner = inspect.unwrap(method)

    def call(self: Any, /, *given: P.args, **keywords: P.kwargs) -> T:
        work: Coroutine[Any, Any, T] = inner(self._inner, *given, **keywords)
        return run(work)

    return cast(Callable[Concatenate[Any, P], T], checked(inner, call))


def _wrapping(
    method: Callable[Concatenate[Any, P], T], wrap: Callable[[T], U], returns: object
) -> Callable[Concatenate[Any, P], U]:
    """A method that gives what the other one gives, for who has no loop."""
    inner = inspect.unwrap(method)

    def call(self: Any, /, *given: P.args, **keywords: P.kwargs) -> U:
        return wrap(inner(self._inner, *given, **keywords))

    return cast(Callable[Concatenate[Any, P], U], checked(inner, call, returns))


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
    """The lines of a turn as they come: ``for event in stream``. As a context manager, it aborts
    the turn when it is left before its end; else the turn goes on without a listener. Read on after
    an abort or a failure, it raises, and sends nothing again."""

    def __init__(self, stream: aio.Stream) -> None:
        self._inner = stream

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def job(self) -> str | None:
        """The job, once it is accepted."""
        return self._inner.job

    @property
    def key(self) -> str:
        """The idempotency key: a send with it attaches to this turn."""
        return self._inner.key

    @property
    def result(self) -> Result | None:
        """The result, once all lines were read."""
        return self._inner.result

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        try:
            return run(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    text = _wrapping(aio.Stream.text, _each, Iterator[str])
    finish = _blocking(aio.Stream.finish)
    abort = _blocking(aio.Stream.abort)

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run(self._inner.__aexit__(kind, error, trace))


class Session:
    """A conversation: its turns know of each other.

    Without a name it is made when the block is entered and closed when it is left. With a name it
    is made by its first turn and stays, for whoever names it next.
    """

    def __init__(self, session: aio.Session) -> None:
        self._inner = session

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def name(self) -> str:
        """Its name."""
        return self._inner.name

    run = _blocking(aio.Session.run)
    stream = _wrapping(aio.Session.stream, Stream, Stream)
    set_model = _blocking(aio.Session.set_model)
    set_title = _blocking(aio.Session.set_title)
    models = _blocking(aio.Session.models)
    commands = _blocking(aio.Session.commands)
    history = _blocking(aio.Session.history)
    steer = _blocking(aio.Session.steer)
    abort = _blocking(aio.Session.abort)
    compact = _blocking(aio.Session.compact)

    def __enter__(self) -> Session:
        run(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run(self._inner.__aexit__(kind, error, trace))


class Harness:
    """The agents of this machine.

    ``socket``: another daemon's than the usual one. ``fallback=False``: fail rather than run
    without a daemon. ``agentctl``: the program for that, else the one on ``PATH``. ``name`` is for
    the daemon's log. ``patience``: seconds of silence after which the daemon is asked for a sign of
    life; without one within as many again, the outcome is unknown.

    It holds no connection and needs no closing. Threads and tasks may share one.
    """

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
        self._inner = _Harness(
            socket, fallback=fallback, name=name, agentctl=agentctl, patience=patience
        )

    run_session = _blocking(aio.Harness.run_session)
    dispatch = _blocking(aio.Harness.dispatch)
    stream = _wrapping(aio.Harness.stream, Stream, Stream)
    dispatch_parallel = _blocking(aio.Harness.dispatch_parallel)
    collect = _blocking(aio.Harness.collect)
    as_completed = _wrapping(aio.Harness.as_completed, _each, Iterator[Result])
    session = _wrapping(aio.Harness.session, Session, Session)
    jobs = _blocking(aio.Harness.jobs)
    job = _blocking(aio.Harness.job)
    sessions = _blocking(aio.Harness.sessions)
    history = _blocking(aio.Harness.history)
    agents = _blocking(aio.Harness.agents)
    models = _blocking(aio.Harness.models)
    commands = _blocking(aio.Harness.commands)
    usage = _blocking(aio.Harness.usage)
    questions = _blocking(aio.Harness.questions)
    answer = _blocking(aio.Harness.answer)
    steer = _blocking(aio.Harness.steer)
    set_model = _blocking(aio.Harness.set_model)
    set_title = _blocking(aio.Harness.set_title)
    fork = _blocking(aio.Harness.fork)
    compact = _blocking(aio.Harness.compact)
    abort = _blocking(aio.Harness.abort)
    cron_add = _blocking(aio.Harness.cron_add)
    cron_edit = _blocking(aio.Harness.cron_edit)
    cron_list = _blocking(aio.Harness.cron_list)
    cron_pause = _blocking(aio.Harness.cron_pause)
    cron_remove = _blocking(aio.Harness.cron_remove)
    cron_resume = _blocking(aio.Harness.cron_resume)
    cron_run = _blocking(aio.Harness.cron_run)
    cron_runs = _blocking(aio.Harness.cron_runs)
    status = _blocking(aio.Harness.status)
    request = _blocking(aio.Harness.request)
    events = _wrapping(aio.Harness.events, _each, Iterator[Event])


@checked
def run_session(prompt: str, **options: Unpack[Options]) -> Result:
    """Runs one turn and gives its result: ``Harness().run_session``."""
    return run(_Harness().run_session(prompt, **options))

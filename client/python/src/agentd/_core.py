"""Turns, jobs and sessions, as coroutines over either way to wait.

Owns when an answer means what, abort on cancellation, and the order of results. Must not know how
bytes travel. What users see of it is ``aio`` and ``_sync``.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from ._again import MOST_LOSSES, Heard, follow
from ._connection import (
    Connection,
    Lost,
    Wait,
    Way,
    connect,
    connect_to_daemon,
    one_shot,
    seen,
)
from ._endpoint import START, Endpoint
from ._wire import Line, send_fields
from .errors import (
    AgentdError,
    DrainingError,
    OutcomeUnknownError,
    StillPendingError,
    UnreachableError,
    of_line,
)
from .result import Result
from .types import Event

Timeout = float | timedelta | None
MOST_ROWS = 500
"""Rows that one page of a list may have."""
COLLECT_AT_ONCE = 256
"""Jobs that one ``collect`` may name."""
ABORT_PATIENCE = 5.0
"""How long the end of an aborted turn is waited for."""
RETURN_PATIENCE = 10.0
"""How long a daemon that went is waited for, in the middle of a ``collect``."""
_LASTING = 1.0
_QUICK_LOSSES = 3
"""So many conversations in a row that were lost sooner than that: they will always be."""
_FINAL = ("message_end", "error")


class Turn:
    """One send, from its first byte to its final line. It runs once, whatever becomes of it: a
    daemon that goes away is followed by the next one, which is asked with the same key."""

    def __init__(self, way: Way, send: Mapping[str, Any], *, stream: bool) -> None:
        fields = send_fields(send)
        answers = way.answers or fields.get("on_question") == "wait"
        self._way = replace(way, answers=answers)
        self._fields = {**fields, "stream": stream}
        self._connection: Connection | None = None
        self._number: int | None = None
        self._first: Line | None = None
        self._begun = False
        self._heard = Heard()
        self._notes: list[dict[str, Any]] = []
        self._losses = 0
        self._failure: AgentdError | None = None
        self.key: str = fields["idempotency_key"]
        self.job: str | None = None
        self.session: str | None = None
        self.result: Result | None = None

    async def next(self) -> Event | None:
        """The next line before the final one; none after it. Raises for a turn that failed, and
        then again."""
        if self._failure is not None:
            raise self._failure
        if self.result is not None:
            self.result.raise_for_error()
            return None
        try:
            return await self._event()
        except AgentdError as failure:
            self._failure = failure
            self._leave()
            raise
        except BaseException:
            # Cancelled, as by Ctrl-C: so is the turn.
            await self._way.io.sheltered(self.abort())
            raise

    async def _event(self) -> Event | None:
        line: Line | None = None
        while line is None:
            try:
                line = await self._line()
                if self._losses and _is_draining(line):
                    raise Lost("the daemon is stopping")
            except Lost as lost:
                if not await self._again():
                    raise self._unknown(
                        f"{lost}, after the request was written: its outcome is unknown"
                    ) from lost
                line = None
                continue
            line = self._heard.fresh(line)
        self.job = line.get("job", self.job)
        self.session = line.get("session", self.session)
        if line.get("type") == "note":
            self._notes.append({name: line.get(name) for name in ("level", "code", "text")})
        if line.get("type") not in _FINAL:
            return line
        if line["type"] == "error" and line.get("job") is None:
            refusal = of_line(line)
            if self.job is not None or isinstance(refusal, OutcomeUnknownError):
                # It is about the conversation: what was accepted goes on.
                raise self._unknown(refusal.message, line=line)
            raise refusal
        self.result = Result.of_line(line)
        self.result.notes.extend(self._notes)
        if self._connection is not None:
            await self._connection.close()
        self._connection = None
        self.result.raise_for_error()
        return None

    async def _again(self) -> bool:
        """Asks the daemon that comes next, if one does."""
        while self._connection is not None and self._losses < MOST_LOSSES:
            self._losses += 1
            following = await follow(self._way, self._connection)
            self._leave()
            if following is None:
                return False
            self._heard.again = True
            self._connection, self._number = following, following.number()
            try:
                await following.request("send", self._fields, self._number)
                return True
            except Lost:
                continue
        return False

    def _unknown(self, message: str, **others: Any) -> OutcomeUnknownError:
        return OutcomeUnknownError(message, keys=[self.key], job=self.job, **others)

    async def finish(self) -> Result:
        """Runs it to its end."""
        try:
            while await self.next() is not None:
                pass
        except AgentdError:
            raise
        except BaseException:
            # Ctrl-C between two lines.
            await self._way.io.sheltered(self.abort())
            raise
        assert self.result is not None
        return self.result

    async def abort(self) -> None:
        """Ends the turn, unless it has ended, and the conversation. A worker that doesn't listen
        is left to the daemon after a while."""
        if self.result is None and self._failure is None:
            self._failure = AgentdError(
                "the turn was aborted", hint="a new stream sends it again", job=self.job
            )
        connection, number = self._connection, self._number
        if connection is None:
            return
        self._connection = None
        try:
            if number is not None and connection.is_ours:
                # Under the send's own number it means that one, accepted or not. Behind half a send
                # it makes a line that is none, and nothing is accepted.
                until = time.monotonic() + ABORT_PATIENCE
                await connection.request("abort", {}, number, patience=ABORT_PATIENCE)
                while (left := until - time.monotonic()) > 0:
                    line = await connection.soon(left)
                    if line.get("id", number) == number and line.get("type") in _FINAL:
                        await connection.close()
                        break
        except (Lost, TimeoutError):
            # It goes on until the daemon finds out: nothing more can be done from here.
            pass
        finally:
            connection.abandon()

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.abandon()
        self._connection = None
        self._number = None

    async def _line(self) -> Line:
        if not self._begun:
            self._begun = True
            await self._begin()
        if self._first is not None:
            line, self._first = self._first, None
            return line
        if self._connection is None or self._number is None:
            raise Lost("the turn was aborted")
        return await self._connection.answer(self._number)

    async def _begin(self) -> None:
        """Writes it and takes its first line: ``accepted`` or a refusal. A daemon that answers
        ``draining`` has accepted nothing."""
        wait = Wait()
        connection = await connect(self._way)
        while True:
            # The number is there before the first byte: an abort needs it from then on.
            self._connection, self._number = connection, connection.number()
            await connection.request("send", self._fields, self._number)
            line = await connection.answer(self._number)
            if not _is_draining(line) or connection.is_alone:
                self._first = line
                return
            endpoint = Endpoint.find(self._way.socket)
            decision = seen(self._way, endpoint, "request-draining", wait)
            if decision.choice == "retry":
                self._leave()
                connection = await connect(self._way)
            elif decision.choice == "one-shot":
                self._leave()
                connection = await one_shot(self._way, "the daemon is stopping")
            else:
                self._first = line
                return


def _is_draining(line: Line) -> bool:
    """Nothing was accepted: the daemon is on its way out."""
    return line.get("code") == "draining" and line.get("job") is None


class Core:
    """All requests of one way to connect. Each has a conversation of its own, so that threads and
    tasks never wait for each other."""

    def __init__(self, way: Way) -> None:
        self.way = way

    def turn(self, send: Mapping[str, Any], *, stream: bool = False) -> Turn:
        """A send that isn't sent yet."""
        return Turn(self.way, send, stream=stream)

    async def ask(
        self, kind: str, fields: Mapping[str, Any], *, changes: bool, alone: bool = True
    ) -> Line:
        """One request and its answer; a field that is ``None`` isn't said. ``alone``: a run
        without the daemon can answer it, too."""
        said = {name: value for name, value in fields.items() if value is not None}
        connection = await (connect(self.way) if alone else connect_to_daemon(self.way, kind))
        try:
            line = await ask_on(connection, kind, said, changes=changes)
        except BaseException:
            connection.abandon()
            raise
        await connection.close()
        return line

    async def dispatch_parallel(self, sends: Iterable[Mapping[str, Any]]) -> list[str]:
        """Hands in several turns, all or none, and gives their jobs. A daemon that goes away is
        followed by the next one, which is asked with the same keys. Cancelled, it takes back what
        the daemon has accepted meanwhile."""
        jobs = [send_fields(send) for send in sends]
        if not jobs:
            return []
        keys = [job["idempotency_key"] for job in jobs]
        # Somebody has to run them when we are gone.
        connection = await connect_to_daemon(self.way, "dispatch_parallel")
        number = connection.number()
        losses = 0
        try:
            while True:
                try:
                    line = await ask_on(
                        connection,
                        "dispatch",
                        {"jobs": jobs},
                        changes=True,
                        keys=keys,
                        number=number,
                    )
                    break
                except OutcomeUnknownError:
                    losses += 1
                    following = None if losses > MOST_LOSSES else await follow(self.way, connection)
                    if following is None:
                        raise
                    connection.abandon()
                    connection, number = following, following.number()
            numbers = _jobs(line, changes=True, keys=keys)
        except AgentdError:
            connection.abandon()
            raise
        except BaseException:
            await self.way.io.sheltered(_take_back(connection, number))
            raise
        await connection.close()
        return numbers

    async def collect(self, jobs: Iterable[str], timeout: Timeout) -> list[Result]:
        """The results in the order asked, however many lines that takes."""
        order = list(jobs)
        found: dict[str, Result] = {}
        left = list(dict.fromkeys(order))
        late: list[str] = []
        if left:
            collector = Collector(self.way, timeout)
            try:
                while left:
                    part, left = left[:COLLECT_AT_ONCE], left[COLLECT_AT_ONCE:]
                    results, pending = await collector.ask(part, "all")
                    found.update(results)
                    # What didn't fit into the line is asked for again, as long as that gives any.
                    if results:
                        left = pending + left
                    else:
                        late += pending
            except BaseException:
                collector.abandon()
                raise
            await collector.close()
        if late:
            done = [found[job] for job in dict.fromkeys(order) if job in found]
            raise StillPendingError(done, late)
        return [found[job] for job in order]

    async def as_completed(self, jobs: Iterable[str], timeout: Timeout) -> AsyncIterator[Result]:
        """The results as they come, at most 256."""
        left = list(dict.fromkeys(jobs))
        collector = Collector(self.way, timeout)
        try:
            while left:
                results, left = await collector.ask(left, "any")
                if not results:
                    raise StillPendingError([], left)
                for result in results.values():
                    yield result
        finally:
            collector.abandon()

    async def rows(
        self, kind: str, fields: Mapping[str, Any], rows: str, cursor: str, limit: int | None = None
    ) -> list[Line]:
        """What a list has, up to ``limit`` rows."""
        pages = self.pages(kind, fields, rows, cursor, limit)
        return [row async for page in pages for row in page[rows]]

    async def pages(
        self, kind: str, fields: Mapping[str, Any], rows: str, cursor: str, limit: int | None = None
    ) -> AsyncIterator[Line]:
        """The same, page by page."""
        count = 0
        fields = {**fields, "limit": MOST_ROWS}
        while limit is None or count < limit:
            if limit is not None:
                fields["limit"] = min(MOST_ROWS, limit - count)
            line = await self.ask(kind, fields, changes=False)
            if not isinstance(line.get(rows), list):
                raise UnreachableError(f"the daemon's answer to `{kind}` can't be read", line=line)
            count += len(line[rows])
            yield line
            if line.get("next") is None:
                break
            fields[cursor] = line["next"]

    async def abort(self, target: Mapping[str, Any]) -> list[str]:
        """Gives what is being cancelled."""
        return _jobs(await self.ask("abort", target, changes=True, alone=False), changes=True)

    async def events(self, fields: Mapping[str, Any]) -> AsyncIterator[Event]:
        """The lines of a subscription, without end."""
        connection = await connect_to_daemon(self.way, "events")
        try:
            number = await connection.request("subscribe", fields)
            answered = False
            while True:
                line = await connection.answer(number)
                if not answered and line.get("type") == "error" and line.get("job") is None:
                    raise of_line(line)
                answered = True
                yield line
        except Lost as lost:
            raise UnreachableError(
                str(lost), hint='go on with events(after=event["seq"]) of the last one'
            ) from lost
        finally:
            connection.abandon()


class Collector:
    """Asks for results, on one conversation after another: asking changes nothing."""

    def __init__(self, way: Way, timeout: Timeout) -> None:
        if isinstance(timeout, timedelta):
            timeout = timeout.total_seconds()
        self._way = way
        self._until = None if timeout in (None, math.inf) else time.monotonic() + (timeout or 0.0)
        self._connection: Connection | None = None
        self._opened = 0.0
        self._quick_losses = 0

    async def ask(self, jobs: list[str], wait: str) -> tuple[dict[str, Result], list[str]]:
        """What is done of some jobs, and what isn't when the time is over. ``wait``: for ``any``
        or ``all`` of them."""
        while True:
            connection = self._connection
            if connection is None:
                connection = await connect(self._way)
                self._connection, self._opened = connection, time.monotonic()
            # Alone, nobody runs them: without a limit that would be waited for for ever.
            looks = connection.is_alone and self._until is None
            fields: dict[str, Any] = {"jobs": jobs, "wait": wait}
            if looks or self._until is not None:
                fields["timeout"] = 0.0 if looks else self._left()
            try:
                line = await ask_on(connection, "collect", fields, changes=False)
            except (UnreachableError, DrainingError) as lost:
                self.abandon()
                await self._again(lost)
                continue
            results, pending = _results(line)
            if looks and pending and not results:
                names = ", ".join(pending)
                raise UnreachableError(
                    f"not done, and no daemon is there to run them: {names}",
                    hint=f"{START}; then collect them again",
                )
            return results, pending

    def _left(self) -> float:
        return math.inf if self._until is None else max(0.0, self._until - time.monotonic())

    async def _again(self, lost: AgentdError) -> None:
        """Waits until a daemon is there again, as after its restart; if none comes, whoever asks
        next finds out. One that goes whenever it is asked isn't asked for ever."""
        quick = time.monotonic() - self._opened < _LASTING
        self._quick_losses = self._quick_losses + 1 if quick else 0
        if self._quick_losses >= _QUICK_LOSSES:
            raise lost
        way = replace(self._way, fallback=False)
        until = time.monotonic() + min(RETURN_PATIENCE, self._left())
        while True:
            try:
                self._connection, self._opened = await connect(way), time.monotonic()
                return
            except (UnreachableError, DrainingError):
                if time.monotonic() >= until:
                    return
                await self._way.io.sleep(0.1)

    async def close(self) -> None:
        """Ends the conversation."""
        if self._connection is not None:
            await self._connection.close()
        self._connection = None

    def abandon(self) -> None:
        """Leaves at once."""
        if self._connection is not None:
            self._connection.abandon()
        self._connection = None


async def ask_on(
    connection: Connection,
    kind: str,
    fields: Mapping[str, Any],
    *,
    changes: bool,
    keys: list[str] | None = None,
    number: int | None = None,
) -> Line:
    """One request on an open conversation. What a lost answer means depends on whether something
    may have changed."""
    try:
        line = await connection.answer(await connection.request(kind, fields, number))
    except Lost as lost:
        if changes:
            raise OutcomeUnknownError(
                f"{lost}, after the request was written: its outcome is unknown", keys=keys
            ) from lost
        raise UnreachableError(str(lost)) from lost
    if line.get("type") != "error":
        return line
    error = of_line(line)
    if isinstance(error, OutcomeUnknownError):
        if not changes:
            raise UnreachableError(error.message, line=line)
        error.keys = keys or []
    raise error


async def _take_back(connection: Connection, number: int) -> None:
    """Cancels the jobs of a ``dispatch`` whose caller has left, as far as that can be done soon."""
    until = time.monotonic() + ABORT_PATIENCE

    async def answer(number: int) -> Line:
        while True:
            line = await connection.soon(max(0.0, until - time.monotonic()))
            if line.get("id", number) == number:
                return line

    try:
        # Behind half a request it makes a line that is none: its error comes without `id`.
        await connection.request("ping", {}, -1, patience=ABORT_PATIENCE)
        line = await answer(number)
        for job in _jobs(line, changes=True) if line.get("type") == "dispatch" else ():
            await answer(await connection.request("abort", {"job": job}))
    except (Lost, TimeoutError, AgentdError):
        # They go on: nothing more can be done from here.
        pass
    finally:
        connection.abandon()


def _jobs(line: Line, *, changes: bool, keys: list[str] | None = None) -> list[str]:
    """The jobs that an answer names."""
    try:
        return [str(row["job"] if isinstance(row, Mapping) else row) for row in line["jobs"]]
    except (KeyError, TypeError) as error:
        message = f"the daemon's answer to `{line.get('type')}` names no jobs"
        if changes:
            raise OutcomeUnknownError(message, keys=keys, line=line) from error
        raise UnreachableError(message, line=line) from error


def _results(line: Line) -> tuple[dict[str, Result], list[str]]:
    """What the answer to a ``collect`` has."""
    try:
        results = [Result.of_line(result) for result in line["results"]]
        pending = [str(job) for job in line["pending"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreachableError(
            "the daemon's answer to `collect` has no results", line=line
        ) from error
    return {result.job: result for result in results if result.job is not None}, pending


def session_name() -> str:
    """A name that nobody else has."""
    return f"python-{secrets.token_hex(8)}"

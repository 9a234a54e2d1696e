"""Turns, jobs and sessions, as coroutines over either way to wait.

Owns when an answer means what, abort on cancellation, and the order of results. Must not know how
bytes travel. What users see of it is ``aio`` and ``_sync``.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ._connection import Connection, Lost, Way, connect, one_shot, seen
from ._endpoint import Endpoint
from ._wire import Line, send_fields
from .errors import (
    AgentdError,
    OutcomeUnknownError,
    StillPendingError,
    UnreachableError,
    of_line,
)
from .result import Result
from .types import Event

COLLECT_AT_ONCE = 256
"""Jobs that one ``collect`` may name."""
ABORT_PATIENCE = 5.0
"""How long the end of an aborted turn is waited for."""
_FINAL = ("message_end", "error")


class Turn:
    """One send, from its first byte to its final line."""

    def __init__(self, way: Way, send: Mapping[str, Any], *, stream: bool) -> None:
        fields = send_fields(send)
        answers = way.answers or fields.get("on_question") == "wait"
        self._way = replace(way, answers=answers)
        self._fields = {**fields, "stream": stream}
        self._connection: Connection | None = None
        self._number: int | None = None
        self._first: Line | None = None
        self.key: str = fields["idempotency_key"]
        self.job: str | None = None
        self.session: str | None = None
        self.result: Result | None = None

    async def next(self) -> Event | None:
        """The next line before the final one; none after it. Raises for a turn that failed."""
        if self.result is not None:
            return None
        try:
            line = await self._line()
        except Lost as lost:
            self._leave()
            raise OutcomeUnknownError(
                f"{lost}, after the request was written: its outcome is unknown",
                hint="ask again with the same `idempotency_key`",
                keys=[self.key],
                job=self.job,
            ) from lost
        except AgentdError:
            self._leave()
            raise
        except BaseException:
            # Cancelled, as by Ctrl-C: so is the turn.
            await self._way.io.sheltered(self.abort())
            raise
        self.job = line.get("job", self.job)
        self.session = line.get("session", self.session)
        if line.get("type") not in _FINAL:
            return line
        if self._connection is not None:
            await self._connection.close()
        self._connection = None
        if line["type"] == "error" and self.job is None:
            raise of_line(line)
        self.result = Result.of_line(line)
        self.result.raise_for_error()
        return None

    async def finish(self) -> Result:
        """Runs it to its end."""
        while await self.next() is not None:
            pass
        if self.result is None:
            raise RuntimeError("the turn was aborted")
        return self.result

    async def abort(self) -> None:
        """Ends the turn, unless it has ended, and the conversation. A worker that doesn't listen
        is left to the daemon after a while."""
        connection, number = self._connection, self._number
        if connection is None:
            return
        self._connection = None
        try:
            if number is not None:
                # Under the send's own number it means that one, accepted or not.
                await connection.request("abort", {}, number)
                until = time.monotonic() + ABORT_PATIENCE
                while (left := until - time.monotonic()) > 0:
                    line = await connection.soon(left)
                    if line.get("id") == number and line.get("type") in _FINAL:
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

    async def _line(self) -> Line:
        if self._connection is None:
            await self._begin()
        if self._connection is None or self._number is None:
            raise RuntimeError("the turn was aborted")
        if self._first is not None:
            line, self._first = self._first, None
            return line
        return await self._connection.answer(self._number)

    async def _begin(self) -> None:
        """Writes it and takes its first line: ``accepted`` or a refusal. A daemon that answers
        ``draining`` has accepted nothing."""
        begun = time.monotonic()
        self._connection = await connect(self._way)
        while True:
            self._number = await self._connection.request("send", self._fields)
            line = await self._connection.answer(self._number)
            draining = line.get("code") == "draining" and line.get("job") is None
            if not draining or self._connection.is_alone:
                self._first = line
                return
            endpoint = Endpoint.find(self._way.socket)
            decision = seen(self._way, endpoint, "request-draining", begun)
            if decision.choice == "retry":
                self._leave()
                self._connection = await connect(self._way)
            elif decision.choice == "one-shot":
                self._leave()
                self._connection = await one_shot(self._way, "the daemon is stopping")
            else:
                self._first = line
                return


class Core:
    """All requests of one way to connect. Each has a conversation of its own, so that threads and
    tasks never wait for each other."""

    def __init__(self, way: Way) -> None:
        self.way = way

    def turn(self, send: Mapping[str, Any], *, stream: bool = False) -> Turn:
        """A send that isn't sent yet."""
        return Turn(self.way, send, stream=stream)

    async def ask(
        self,
        kind: str,
        fields: Mapping[str, Any],
        *,
        changes: bool,
        keys: list[str] | None = None,
        alone: bool = True,
    ) -> Line:
        """One request and its answer. ``alone``: a run without the daemon can answer it, too."""
        way = self.way if alone else replace(self.way, fallback=False)
        connection = await connect(way)
        try:
            line = await ask_on(connection, kind, fields, changes=changes, keys=keys)
        except BaseException:
            connection.abandon()
            raise
        await connection.close()
        return line

    async def dispatch_parallel(self, sends: Iterable[Mapping[str, Any]]) -> list[str]:
        """Hands in several turns, all or none, and gives their jobs."""
        jobs = [send_fields(send) for send in sends]
        if not jobs:
            return []
        keys = [job["idempotency_key"] for job in jobs]
        # Somebody has to run them when we are gone.
        line = await self.ask("dispatch", {"jobs": jobs}, changes=True, keys=keys, alone=False)
        return [str(row["job"]) for row in line["jobs"]]

    async def collect(self, jobs: Iterable[str], timeout: float | None) -> list[Result]:
        """The results in the order asked, however many lines that takes."""
        order = list(jobs)
        found: dict[str, Result] = {}
        until = None if timeout is None else time.monotonic() + timeout
        left = list(dict.fromkeys(order))
        late: list[str] = []
        if left:
            connection = await connect(self.way)
            try:
                while left:
                    part, left = left[:COLLECT_AT_ONCE], left[COLLECT_AT_ONCE:]
                    results, pending = await _collected(connection, part, until, "all")
                    found.update(results)
                    # What didn't fit into the line is asked for again, as long as that gives any.
                    if results:
                        left = pending + left
                    else:
                        late += pending
            except BaseException:
                connection.abandon()
                raise
            await connection.close()
        if late:
            done = [found[job] for job in dict.fromkeys(order) if job in found]
            raise StillPendingError(done, late)
        return [found[job] for job in order]

    async def as_completed(
        self, jobs: Iterable[str], timeout: float | None
    ) -> AsyncIterator[Result]:
        """The results as they come, at most 256."""
        until = None if timeout is None else time.monotonic() + timeout
        left = list(dict.fromkeys(jobs))
        connection = await connect(self.way)
        try:
            while left:
                results, left = await _collected(connection, left, until, "any")
                if not results:
                    raise StillPendingError([], left)
                for result in results.values():
                    yield result
        finally:
            connection.abandon()

    async def abort(self, target: Mapping[str, Any]) -> list[str]:
        """Gives what is being cancelled."""
        line = await self.ask("abort", target, changes=True, alone=False)
        return [str(job) for job in line["jobs"]]

    async def events(self, fields: Mapping[str, Any]) -> AsyncIterator[Event]:
        """The lines of a subscription, without end."""
        connection = await connect(replace(self.way, fallback=False))
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
            raise UnreachableError(str(lost), hint="go on with `after` of the last `seq`") from lost
        finally:
            connection.abandon()


async def ask_on(
    connection: Connection,
    kind: str,
    fields: Mapping[str, Any],
    *,
    changes: bool,
    keys: list[str] | None = None,
) -> Line:
    """One request on an open conversation. What a lost answer means depends on whether something
    may have changed."""
    try:
        number = await connection.request(kind, fields)
        while True:
            line = await connection.answer(number)
            if line.get("type") == "error":
                raise of_line(line)
            if line.get("type") == kind:
                return line
    except Lost as lost:
        if changes:
            raise OutcomeUnknownError(
                f"{lost}, after the request was written: its outcome is unknown", keys=keys
            ) from lost
        raise UnreachableError(str(lost)) from lost


async def _collected(
    connection: Connection, jobs: list[str], until: float | None, wait: str
) -> tuple[dict[str, Result], list[str]]:
    fields: dict[str, Any] = {"jobs": jobs, "wait": wait}
    if until is not None:
        fields["timeout"] = max(0.0, until - time.monotonic())
    line = await ask_on(connection, "collect", fields, changes=False)
    results = [Result.of_line(result) for result in line["results"]]
    named = {result.job: result for result in results if result.job is not None}
    return named, [str(job) for job in line["pending"]]


def session_name() -> str:
    """A name that nobody else has."""
    return f"python-{secrets.token_hex(8)}"

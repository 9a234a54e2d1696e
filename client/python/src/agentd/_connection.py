"""One conversation, and who is at its other end: the daemon, or a run without it.

Owns connecting with retries, the moment of falling back, request numbers, and how long silence
may last. Every choice is ``_fallback.decide``'s. Must not know what a request means.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import IO, Any

from ._endpoint import START, Endpoint, NotConnected
from ._fallback import COMING, Decision, Fact, Lock, decide
from ._io import Channel, Io
from ._version import VERSION
from ._wire import BadLine, Decoder, Line, encode
from .errors import DrainingError, UnreachableError, of_line

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.2
_LOOK = 0.25
"""One look at a silent daemon; in between the lock is read again."""
_START_PATIENCE = 30.0
"""A run without the daemon may have to migrate the store before it answers."""
_LEAVE_PATIENCE = 20.0
"""It stops its worker before it leaves."""
_LAST_WORDS = 2048
_WRITE_PATIENCE = 60.0
"""A daemon that is up takes what is written at once."""


class Lost(Exception):  # noqa: N818
    """The conversation ended, or nothing sensible came any more."""


@dataclass(frozen=True)
class Way:
    """How to connect."""

    io: Io
    socket: str | None
    fallback: bool
    name: str
    agentctl: str | None
    patience: float
    """Seconds of silence before a sign of life is asked for, and again until it must be there."""
    answers: bool = False


class Connection:
    """An open conversation."""

    def __init__(self, way: Way, channel: Channel, child: _Child | None = None) -> None:
        self._way = way
        self._channel = channel
        self._child = child
        self._decoder = Decoder()
        self._lines: deque[Line] = deque()
        self._last = 0
        self._process = os.getpid()
        self.hello: Line = {}

    @property
    def is_ours(self) -> bool:
        """Was it this process that began it, and not one that this one was forked from?"""
        return self._process == os.getpid()

    def number(self) -> int:
        """An ``id`` for a request. Who may be cancelled in the middle of one takes it before."""
        self._last += 1
        return self._last

    async def request(
        self,
        kind: str,
        fields: Mapping[str, Any],
        number: int | None = None,
        *,
        patience: float = _WRITE_PATIENCE,
    ) -> int:
        """Writes a request and gives the ``id`` that its answers carry. Raises ``Lost`` when part
        of it may have left."""
        if not self.is_ours:
            raise Lost("the conversation belongs to the process that began it")
        if number is None:
            number = self.number()
        line = encode(kind, number, fields)
        try:
            await self._channel.write(line, patience)
        except OSError as error:
            raise Lost(f"the connection failed: {error}") from error
        return number

    async def next(self) -> Line:
        """The next line. A daemon that is silent for too long is asked for a sign of life."""
        try:
            return await self._line(self._way.patience)
        except TimeoutError:
            await self.request("ping", {}, -1)
        try:
            return await self._line(self._way.patience)
        except TimeoutError:
            patience = self._way.patience
            raise Lost(f"the daemon gave no sign of life within {patience:g} s") from None

    async def soon(self, timeout: float) -> Line:
        """The next line, or ``TimeoutError``."""
        return await self._line(timeout)

    async def answer(self, number: int) -> Line:
        """The next line for this request. An error without ``id`` is for the only one there is."""
        while True:
            line = await self.next()
            if line.get("id") == number or ("id" not in line and line.get("type") == "error"):
                return line

    async def _line(self, timeout: float) -> Line:
        while not self._lines:
            if not self.is_ours:
                raise Lost("the conversation belongs to the process that began it")
            try:
                self._decoder.check()
                data = await self._channel.read(timeout)
                if not data:
                    raise Lost("the connection ended before the answer")
                self._lines.extend(self._decoder.push(data))
            except TimeoutError:
                raise
            except OSError as error:
                raise Lost(f"the connection failed: {error}") from error
            except BadLine as error:
                raise Lost(f"the daemon sent {error}") from error
        return self._lines.popleft()

    async def greet(self, timeout: float) -> None:
        """The answer to ``hello``. Raises ``NotConnected``; after ``hello-silent`` it may be asked
        for again."""
        try:
            line = await self._line(timeout)
        except TimeoutError:
            raise NotConnected("hello-silent", "`hello` was not answered") from None
        except Lost as lost:
            raise NotConnected("hello-closed", f"no answer to `hello`: {lost}") from lost
        if line.get("type") == "hello" and line.get("ok") and line.get("protocol") == 1:
            self.hello = line
            return
        if line.get("type") == "hello":
            theirs = f"protocol {line.get('protocol')} (version {line.get('version')})"
            raise NotConnected(
                "hello-other", f"it speaks {theirs}, this is protocol 1 (version {VERSION})"
            )
        if line.get("code") == "too-many-connections":
            raise of_line(line)
        said = str(line.get("error") or line)[:200]
        fact: Fact = "hello-draining" if line.get("code") == "draining" else "hello-other"
        raise NotConnected(fact, f"`hello` was refused: {said}")

    async def close(self) -> str:
        """Ends the conversation. Who runs without the daemon is waited for; what it said on its
        standard error is given."""
        words = ""
        if self._child is not None and self.is_ours:
            self._channel.finish()
            until = time.monotonic() + _LEAVE_PATIENCE
            while self._child.process.poll() is None and time.monotonic() < until:
                await self._way.io.sleep(_FIRST_PAUSE)
            words = self._child.last_words()
        self.abandon()
        return words

    def abandon(self) -> None:
        """Leaves at once; what was accepted goes on."""
        self._channel.close()
        if self._child is not None:
            self._child.leave()

    @property
    def is_alone(self) -> bool:
        """Is this a run without the daemon?"""
        return self._child is not None


async def connect(way: Way) -> Connection:
    """Connects, or starts a run without the daemon where that is right and allowed.

    Raises ``UnreachableError`` or ``DrainingError``: nothing happened then.
    """
    endpoint = Endpoint.find(way.socket)
    wait = Wait()
    pause = _FIRST_PAUSE
    while True:
        try:
            return await _open(way, endpoint, wait)
        except NotConnected as failed:
            decision = seen(way, endpoint, failed.fact, wait)
            if decision.choice == "retry":
                await way.io.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, _LONGEST_PAUSE)
            elif decision.choice == "one-shot":
                return await one_shot(way, str(failed))
            elif decision.choice == "refused":
                raise DrainingError(
                    "the daemon is stopping and takes no new work", retryable=True
                ) from None
            else:
                raise UnreachableError(str(failed), hint=failed.hint) from None


async def connect_to_daemon(way: Way, request: str) -> Connection:
    """The same, for what a run without it can't do."""
    try:
        return await connect(replace(way, fallback=False))
    except UnreachableError as error:
        message = f"`{request}` needs a daemon: {error.message}"
        raise UnreachableError(message, hint=error.hint) from None


class Wait:
    """How long somebody waits for a daemon."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._coming: float | None = None

    def waited_ms(self, lock: Lock) -> float:
        """Once the lock said that a daemon comes, that one has patience of its own."""
        now = time.monotonic()
        if lock in COMING:
            self._coming = now
            return (now - self._begun) * 1000
        return (now - (self._coming or self._begun)) * 1000


def seen(way: Way, endpoint: Endpoint, fact: Fact, wait: Wait) -> Decision:
    """What to do about what happened."""
    lock = endpoint.lock()
    return decide(fact, lock, wait.waited_ms(lock), fallback=way.fallback)


async def _open(way: Way, endpoint: Endpoint, wait: Wait) -> Connection:
    connection = Connection(way, await way.io.channel(endpoint.connect()))
    try:
        await _say_hello(way, connection)
        while True:
            try:
                await connection.greet(_LOOK)
                return connection
            except NotConnected as failed:
                if seen(way, endpoint, failed.fact, wait).choice != "wait":
                    raise
    except BaseException:
        connection.abandon()
        raise


async def _say_hello(way: Way, connection: Connection) -> None:
    fields = {"client": way.name, "version": VERSION, "protocol": 1, "answers": way.answers}
    # Who left already may have said why: that is read.
    with contextlib.suppress(Lost):
        await connection.request("hello", fields, 0)


@dataclass(frozen=True)
class _Child:
    process: subprocess.Popen[bytes]
    stderr: IO[bytes]

    def leave(self) -> None:
        """It ends by itself; somebody has to hear of it."""
        self.stderr.close()
        if self.process.poll() is None:
            threading.Thread(target=self.process.wait, daemon=True).start()

    def last_words(self) -> str:
        self.stderr.seek(0)
        return self.stderr.read()[-_LAST_WORDS:].decode(errors="replace").strip()


async def one_shot(way: Way, why: str) -> Connection:
    """``agentctl stdio``, which serves this one conversation. Raises ``UnreachableError``."""
    program = way.agentctl or _on_path("agentctl")
    if program is None:
        raise UnreachableError(
            f"{why}; and to run without the daemon `agentctl` is needed, which is not on `PATH`",
            hint=f"{START}, or put `agentctl` on `PATH`",
        )
    command = [program, *(("--socket", way.socket) if way.socket else ()), "stdio"]
    try:
        ours, child = _started(command)
    except OSError as error:
        raise UnreachableError(f"{why}; and `{program}` can't be started: {error}") from None
    try:
        channel = await way.io.channel(ours)
    except BaseException:
        child.leave()
        raise
    connection = Connection(way, channel, child)
    try:
        await _say_hello(way, connection)
        await connection.greet(_START_PATIENCE)
    except NotConnected as failed:
        words = await connection.close() or str(failed)
        raise UnreachableError(f"{why}; and running without it failed: {words}") from None
    except BaseException:
        connection.abandon()
        raise
    return connection


def _started(command: list[str]) -> tuple[socket.socket, _Child]:
    """A program, and the other end of what it reads and writes."""
    with contextlib.ExitStack() as opened:
        ours, theirs = socket.socketpair()
        opened.callback(ours.close)
        stderr = opened.enter_context(tempfile.TemporaryFile())
        with theirs:
            # In a session of its own: the terminal's Ctrl-C is ours, and reaches the turn as an
            # `abort`.
            process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=stderr,
                start_new_session=True,
            )
        ours.setblocking(False)
        opened.pop_all()
    return ours, _Child(process, stderr)


def _on_path(name: str) -> str | None:
    """Relative and empty entries of ``PATH`` mean the current directory: nothing in it is run."""
    for directory in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(directory, name)
        if os.path.isabs(directory) and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None

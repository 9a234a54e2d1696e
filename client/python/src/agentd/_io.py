"""Two ways to wait: blocking, and on asyncio's loop.

Everything else of this library is written once, as coroutines over these few words. Blocking, none
of them ever gives up control, so that one step runs a coroutine to its end.
Must not know lines or requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar, cast

from .errors import AgentdError

T = TypeVar("T")

_READ = 64 * 1024


class Channel(Protocol):
    """Bytes to and from whoever serves us."""

    async def read(self, timeout: float) -> bytes:
        """Some bytes, none at the end. Raises ``TimeoutError``; nothing is lost then."""
        ...

    async def write(self, data: bytes, patience: float) -> None:
        """All of it, or an ``OSError``: ``TimeoutError`` when it isn't taken within so many
        seconds."""

    def finish(self) -> None:
        """No more is written."""

    def close(self) -> None:
        """Neither is read."""


class Io(Protocol):
    """How to wait."""

    async def channel(self, sock: socket.socket) -> Channel:
        """A channel over a connected socket, which is its own from now on."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Waits."""

    async def sheltered(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs something to its end though the caller was cancelled."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine over ``Blocking``."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    except AgentdError as error:
        # Where the caller called, rather than how we found out.
        raise error.with_traceback(None) from None
    work.close()
    raise RuntimeError("a blocking coroutine waited for a loop: a bug in agentd")


class Blocking:
    """For programs without a loop."""

    async def channel(self, sock: socket.socket) -> Channel:
        return _BlockingChannel(sock)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def sheltered(self, work: Coroutine[Any, Any, None]) -> None:
        await work


class _BlockingChannel:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    async def read(self, timeout: float) -> bytes:
        self._sock.settimeout(max(timeout, 0.001))
        return self._sock.recv(_READ)

    async def write(self, data: bytes, patience: float) -> None:
        self._sock.settimeout(max(patience, 0.001))
        self._sock.sendall(data)

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._sock.close()


class Asyncio:
    """On the running loop."""

    async def channel(self, sock: socket.socket) -> Channel:
        try:
            return _AsyncioChannel(*await asyncio.open_unix_connection(sock=sock))
        except BaseException:
            sock.close()
            raise

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def sheltered(self, work: Coroutine[Any, Any, None]) -> None:
        await asyncio.shield(work)


class _AsyncioChannel:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._reading: asyncio.Future[bytes] | None = None

    async def read(self, timeout: float) -> bytes:
        # A read that comes too late, or whose reader is cancelled, is the next one's.
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._reader.read(_READ))
        await asyncio.wait((self._reading,), timeout=timeout)
        if not self._reading.done():
            raise TimeoutError
        done, self._reading = self._reading, None
        return done.result()

    async def write(self, data: bytes, patience: float) -> None:
        self._writer.write(data)
        # Not by `wait_for`: before 3.12 it swallows a cancel that comes when all is written.
        drain = asyncio.ensure_future(self._writer.drain())
        try:
            await asyncio.wait((drain,), timeout=patience)
            if not drain.done():
                raise TimeoutError
            drain.result()
        finally:
            if not drain.cancel() and not drain.cancelled():
                drain.exception()

    def finish(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write_eof()

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        with contextlib.suppress(RuntimeError):
            self._writer.close()

"""A conversation that broke: the daemon that comes next, and what of a turn was told already.

The same rules as ``client/src/again.rs``. Must not know what was asked: whoever comes back asks
with the key that it holds, so that nothing runs twice, and no run without the daemon ever serves
what may have been accepted.
"""

from __future__ import annotations

from dataclasses import replace

from ._connection import Connection, Wait, Way, connect, seen
from ._endpoint import Endpoint
from ._wire import Line
from .errors import AgentdError

MOST_LOSSES = 20
"""Conversations that one request may lose: a daemon that dies of it isn't asked for ever."""
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.2


async def follow(way: Way, lost: Connection) -> Connection | None:
    """The conversation after one that was lost, with the same store behind it; none when no daemon
    comes in time, or one that doesn't know what the first one accepted."""
    if lost.is_alone or not lost.is_ours:
        # It was the only one who knew; or it is another process's.
        return None
    alone = replace(way, fallback=False)
    wait = Wait()
    endpoint = Endpoint.find(way.socket)
    pause = _FIRST_PAUSE
    while True:
        try:
            connection = await connect(alone)
        except AgentdError:
            # As long as for one that closes before it answers `hello`.
            if seen(alone, endpoint, "hello-closed", wait).choice != "retry":
                return None
            await way.io.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            continue
        if connection.hello.get("epoch") == lost.hello.get("epoch"):
            return connection
        connection.abandon()
        return None


class Heard:
    """What of a turn was told, over all conversations: the key asked for again tells it from its
    beginning."""

    def __init__(self) -> None:
        self.again = False
        """Was a conversation lost? From then on what comes may have come before."""
        self._seq = 0
        self._told: dict[tuple[str, int], int] = {}

    def fresh(self, line: Line) -> Line | None:
        """What of a line wasn't told before; notes it."""
        fresh = self._fresh(line)
        return fresh if self.again else line

    def _fresh(self, line: Line) -> Line | None:
        kind, seq = line.get("type"), line.get("seq")
        if isinstance(seq, int):
            if seq <= self._seq:
                return None
            self._seq = seq
            return line
        message = line.get("message")
        if not isinstance(message, int):
            return line
        if kind == "message_start":
            begun = (kind, message) in self._told
            self._told[kind, message] = 0
            return None if begun else line
        if kind not in ("message_delta", "thinking_delta"):
            return line
        offset, text = line.get("offset") or 0, (line.get("text") or "").encode()
        told = self._told.get((kind, message), 0)
        self._told[kind, message] = max(told, offset + len(text))
        known = told - offset
        if known <= 0:
            return line
        if known >= len(text):
            return None
        rest = text[known:].decode(errors="replace")
        return {**line, "offset": told, "text": rest}

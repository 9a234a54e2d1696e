"""When running without the daemon is right: one pure function.

The same rule as ``client/src/fallback.rs``; ``tests/fixtures/v1/fallback.json`` holds both to one
table. Must not know sockets, clocks or processes: observations come in, a decision goes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PATIENCE_MS = 2_000
"""How long is tried before a daemon counts as silent."""
RESTART_PATIENCE_MS = 60_000
"""The same while the daemon's lock says that it starts, or that another follows."""
COMING = ("starting", "restarting")
"""What the lock says while a daemon comes."""

Fact = Literal[
    "no-socket",
    "refused",
    "denied",
    "backlog-full",
    "unusable",
    "foreign-uid",
    "hello-silent",
    "hello-closed",
    "hello-draining",
    "hello-other",
    "hello-ok",
    "request-draining",
    "request-lost",
]
Lock = Literal["free", "starting", "running", "restarting", "stopping"]
Choice = Literal["connected", "retry", "wait", "one-shot", "refused", "unreachable", "unknown"]


@dataclass(frozen=True)
class Decision:
    """What to do, and for a one-shot why."""

    choice: Choice
    reason: str | None = None


def decide(fact: Fact, lock: Lock, waited_ms: float, *, fallback: bool) -> Decision:
    """The rule. Falls back only when the request never left. What is waited counts from the first
    attempt, or from when the lock last said that a daemon comes."""
    patient = waited_ms < (RESTART_PATIENCE_MS if lock in COMING else PATIENCE_MS)

    def alone(reason: str) -> Decision:
        return Decision("one-shot", reason) if fallback else Decision("unreachable")

    if fact == "hello-ok":
        return Decision("connected")
    if fact == "request-lost":
        return Decision("unknown")
    if fact in ("no-socket", "refused"):
        # Held with nobody listening: it is just starting.
        if lock in ("starting", "running", "restarting") and patient:
            return Decision("retry")
        return alone("draining" if lock == "stopping" else fact)
    if fact == "backlog-full":
        return Decision("retry") if patient else alone("backlog-full")
    if fact == "hello-closed" and patient:
        return Decision("retry")
    if fact == "hello-silent" and patient:
        return Decision("wait")
    if fact in ("hello-closed", "hello-silent"):
        return alone("unanswered")
    if fact in ("hello-draining", "request-draining"):
        # A restart is worth waiting for: the next daemon takes the request.
        if lock in COMING and patient:
            return Decision("retry")
        return alone("draining") if fallback else Decision("refused")
    return Decision("unreachable")

"""What became of a turn.

Owns the names of its parts; the words are those of the final line in ``client/PROTOCOL.md``.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from .errors import AgentdError, of_line


class Shown:
    """Something whose ``repr`` fits a screen: what isn't said is left out, what is long is cut."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __repr__(self) -> str:
        short = reprlib.Repr()
        short.maxstring, short.maxother, short.maxlevel = 60, 60, 2
        told = [
            f"{one.name}={value if isinstance(value, datetime) else short.repr(value)}"
            for one in dataclasses.fields(self)
            if one.repr
            and (value := getattr(self, one.name)) not in (None, "", [], {}, one.default)
        ]
        return f"{type(self).__name__}({', '.join(told)})"


@dataclass(frozen=True)
class Cost:
    """What a turn cost."""

    usd: float | None
    """US dollars; ``None`` unless ``status`` is ``actual`` or ``estimated``."""
    status: str
    """``actual``, ``estimated``, ``included`` or ``unknown``."""

    @classmethod
    def of_line(cls, cost: object) -> Cost:
        """Reads one; what isn't there is unknown."""
        if not isinstance(cost, Mapping):
            cost = {}
        return cls(cost.get("usd"), cost.get("status") or "unknown")


@dataclass(frozen=True, repr=False)
class Result(Shown):
    """The final line of a turn, well or not. ``print(result)`` prints what the agent said.

    ``run_session`` and ``dispatch`` raise for a turn that failed; ``collect`` gives it back, with
    ``error`` set and what it had said and done so far.
    """

    final_response: str
    """What the agent said last."""
    stop: str | None
    """``end_turn``, ``max_tokens``, ``max_turn_requests``, ``refusal``, ``cancelled``; ``None`` for
    a failure."""
    job: str | None
    session: str | None
    agent: str | None
    provider: str | None
    model: str | None
    messages: list[dict[str, Any]] = field(repr=False)
    """All that was said in the turn, message by message: ``role`` and ``content``. The role is
    ``assistant``, or ``user`` for words that steered the turn; the prompt isn't among them."""
    tool_trace: list[dict[str, Any]] = field(repr=False)
    """Each tool call: ``name``, ``input``, ``ok``, ``output``, ``duration_ms``."""
    api_calls: list[dict[str, Any]] | None = field(repr=False)
    """Each request to a model; ``None`` where the agent reports none."""
    usage: dict[str, int] | None
    """Tokens; ``None`` where the agent reports none."""
    cost: Cost
    context: str | None
    """``new``, ``continued`` or ``lost``."""
    queued_ms: int
    duration_ms: int
    served_by: str | None
    """``daemon``, or ``oneshot`` when none was running."""
    replayed: bool
    """Was it the job of an earlier request with the same key?"""
    error: AgentdError | None = field(default=None, compare=False)
    refusal: str | None = None
    """With ``stop`` ``refusal``: the words of the model or its provider, where there are any."""
    context_tokens: int | None = None
    """Tokens in the session's context after the turn; ``None`` where the agent doesn't say."""
    context_window: int | None = None
    """Tokens that fit into it."""
    suspected_refusal: bool = False
    """Does the text read like a refusal, though the turn ended as others do?"""
    notes: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """What a person would want to know of the turn, each with ``level``, ``code`` and ``text``.
    Only a turn that was streamed has heard them."""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The whole line, with what a newer daemon may say."""

    def __str__(self) -> str:
        return self.final_response

    @property
    def ok(self) -> bool:
        """Did the turn end by itself, neither failed, cancelled nor refused?"""
        return self.error is None and self.stop not in ("cancelled", "refusal")

    def raise_for_error(self) -> Result:
        """Itself, or the failure as an exception."""
        if self.error is not None:
            raise self.error
        return self

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Result:
        """Reads a final line. Members that are missing are empty."""
        result = cls(
            final_response=line.get("text") or "",
            stop=line.get("stop"),
            job=line.get("job"),
            session=line.get("session"),
            agent=line.get("agent"),
            provider=line.get("provider"),
            model=line.get("model"),
            messages=line.get("messages") or [],
            tool_trace=line.get("tool_trace") or [],
            api_calls=line.get("api_calls"),
            usage=line.get("usage"),
            cost=Cost.of_line(line.get("cost")),
            context=line.get("context"),
            queued_ms=line.get("queued_ms") or 0,
            duration_ms=line.get("duration_ms") or 0,
            served_by=line.get("served_by"),
            replayed=bool(line.get("replayed")),
            error=of_line(line) if line.get("type") == "error" else None,
            refusal=line.get("refusal"),
            context_tokens=line.get("context_tokens"),
            context_window=line.get("context_window"),
            suspected_refusal=bool(line.get("suspected_refusal")),
            raw=line,
        )
        if result.error is not None:
            result.error.result = result
        return result

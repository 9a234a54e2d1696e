"""What lists of the daemon say: jobs, sessions, turns, agents, questions.

Owns their names, which are those of ``client/PROTOCOL.md`` part 5. Members that are missing are
empty, and ``raw`` has what a newer daemon may say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from .errors import UnreachableError
from .result import Cost, Result, Shown

R = TypeVar("R", bound="Row")


@dataclass(frozen=True, kw_only=True, repr=False)
class Row(Shown):
    """What all of them have."""

    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The whole, as it came."""

    @classmethod
    def of_line(cls: type[R], line: Mapping[str, Any]) -> R:
        """Reads one."""
        read = {
            one.name: _read(one.name, line[one.name])
            for one in dataclasses.fields(cls)
            if line.get(one.name) is not None
        }
        return cls(**{**read, "raw": line})

    @classmethod
    def of_lines(cls: type[R], lines: Iterable[Mapping[str, Any]] | None) -> list[R]:
        """Reads several. Raises ``UnreachableError`` for what makes no sense: asking changed
        nothing."""
        try:
            return [cls.of_line(line) for line in lines or ()]
        except (AttributeError, TypeError, ValueError) as error:
            message = f"the daemon's list of {cls.__name__} can't be read: {error}"
            raise UnreachableError(message) from error


def _read(name: str, value: Any) -> Any:
    if name.endswith("_at"):
        return datetime.fromisoformat(value.replace("Z", "+00:00"))
    if name == "cost":
        return Cost.of_line(value)
    return Result.of_line(value) if name == "final" else value


@dataclass(frozen=True, kw_only=True, repr=False)
class Job(Row):
    """A turn that was handed in."""

    job: str = ""
    session: str = ""
    agent: str = ""
    state: str = ""
    """``queued``, ``held``, ``running``, ``completed``, ``cancelled``, ``failed`` or
    ``interrupted``."""
    attempt: int = 0
    preview: str = ""
    """The beginning of its prompt."""
    labels: dict[str, str] = field(default_factory=dict)
    parent: str | None = None
    accepted_at: datetime | None = None
    start_at: datetime | None = None
    started_at: datetime | None = None
    """When the turn began that runs now."""
    doing: str | None = None
    """What the turn does that runs, in a few words for people."""
    cut_off: bool = False
    """Stored as running, and the process that ran it is gone: the next daemon decides."""
    finished_at: datetime | None = None
    stop: str | None = None
    """Why it ended, as in ``Result``."""
    code: str | None = None
    """Of a failure: that of a class of ``errors``."""
    routed: dict[str, Any] | None = None
    """Where the routes chose its agent: ``rule``, ``because``, ``considered``."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SessionInfo(Row):
    """A conversation."""

    session: str = ""
    agent: str = ""
    cwd: str = ""
    state: str = ""
    """``idle``, ``starting``, ``working``, ``waiting`` or ``held``."""
    title: str = ""
    preview: str = ""
    """The end of what was said."""
    model: str | None = None
    turns: int = 0
    context_tokens: int | None = None
    """Tokens in its context after the last turn whose agent said so."""
    context_window: int | None = None
    """Tokens that fit into it."""
    created_at: datetime | None = None
    last_active_at: datetime | None = None
    idle_s: int | None = None
    """Seconds since then, as far as the daemon saw them pass."""
    closed_as: str | None = None
    """Of one that was closed, the name by which its past is read when another has its own."""


@dataclass(frozen=True, kw_only=True, repr=False)
class HistoryTurn(Row):
    """A turn of a session, as it was said."""

    job: str = ""
    state: str = ""
    accepted_at: datetime | None = None
    text: str = ""
    """The prompt."""
    truncated: bool = False
    """Was the prompt cut?"""
    attachments: list[dict[str, Any]] = field(default_factory=list, repr=False)
    messages: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """What the agent said, each with ``text``; long ones are cut and have ``truncated``."""
    questions: list[dict[str, Any]] = field(default_factory=list, repr=False)
    final: Result | None = field(default=None, repr=False)
    """The result, once it has ended."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Agent(Row):
    """An agent that is there, or was looked for."""

    name: str = ""
    kind: str = ""
    command: list[str] = field(default_factory=list)
    found: str = ""
    """``config``, ``path``, ``place``, ``built-in`` or ``looked-for``: it isn't there."""
    version: str | None = None
    logged_in: bool | None = None
    """``None`` where that can't be seen."""
    note: str | None = None
    usable: bool = False
    why_not: str | None = None
    default: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class Model(Row):
    """A model that an agent has. ``provider`` and ``model`` are what a send takes."""

    provider: str | None = None
    model: str = ""
    label: str | None = None
    """What people call it."""
    thinking: list[str] | None = None
    """Its levels; ``None`` where the agent doesn't say."""
    input: list[str] | None = None
    """What it takes, as ``text`` and ``image``; ``None`` where the agent doesn't say."""
    context_window: int | None = None
    """In tokens."""
    default: bool = False
    """Does a turn take it that names none?"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Command(Row):
    """A slash command of an agent: a prompt that begins with ``/`` and its name is one."""

    name: str = ""
    description: str | None = None
    hint: str | None = None
    """What may stand behind the name."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Mode(Row):
    """A mode of an agent, its own way of working. ``id`` is what ``set_model`` takes."""

    id: str = ""
    label: str | None = None
    """What people call it."""
    description: str | None = None


class ModelList(list[Model]):
    """The models of an agent, in its order."""

    modes: list[Mode]
    """Its own ways of working; empty where it has none."""
    mode: str | None = None
    """The one that is in force, where that is known."""
    note: str | None = None
    """What is not as one may think: why there is none, or what was left out."""

    def __init__(self, models: Iterable[Model] = ()) -> None:
        super().__init__(models)
        self.modes = []

    @classmethod
    def of_pages(cls, pages: Iterable[Mapping[str, Any]]) -> ModelList:
        """Reads the answers to ``models``."""
        found = cls()
        for page in pages:
            found += Model.of_lines(page.get("models"))
            found.modes = Mode.of_lines(page.get("modes")) or found.modes
            found.mode = page.get("mode") or found.mode
            found.note = page.get("note") or found.note
        return found


@dataclass(frozen=True, kw_only=True, repr=False)
class Question(Row):
    """What an agent asks, for ``Harness.answer``."""

    question_id: str = ""
    job: str = ""
    session: str = ""
    kind: str = ""
    """``approval``, ``choice``, ``text`` or ``secret``."""
    title: str = ""
    detail: str | None = None
    options: list[str] = field(default_factory=list)
    """Of a ``choice``."""
    tool_call_id: str | None = None
    """The tool call that leave is asked for."""
    data: dict[str, Any] | None = field(default=None, repr=False)
    """What that would do: ``command``, ``cwd``, ``diff``; ``None`` where the agent doesn't say."""
    tool_kind: str | None = None
    """What that call does, as ``edit`` or ``execute``; ``None`` where it isn't known."""
    locations: list[dict[str, Any]] = field(default_factory=list)
    """The files that it is about, each with ``path`` and maybe ``line``."""
    scopes: list[str] = field(default_factory=list)
    """Of an ``approval``: how far a yes can go, of ``once``, ``session`` and ``always``."""
    expires_at: datetime | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Usage(Row):
    """What a turn that has ended used."""

    job: str = ""
    accepted_at: datetime | None = None
    agent: str = ""
    session: str | None = None
    provider: str | None = None
    model: str | None = None
    local: bool | None = None
    """Did a model on the user's own machines answer? ``None`` where nobody knows."""
    state: str = ""
    code: str | None = None
    usage: dict[str, int] | None = None
    """Tokens, as ``input_tokens`` and ``output_tokens``; ``None`` where the agent reports none."""
    cost: Cost = field(default_factory=lambda: Cost.of_line(None))
    others: list[dict[str, Any]] = field(default_factory=list)
    """What models other than the turn's own used of it."""
    queued_ms: int = 0
    duration_ms: int = 0


@dataclass(frozen=True, kw_only=True, repr=False)
class Run(Row):
    """What became of a due time of a schedule."""

    due_at: datetime | None = None
    outcome: str = ""
    """``job``, ``skipped`` or ``refused``."""
    job: str | None = None
    state: str | None = None
    """How its job ended, or is."""
    code: str | None = None
    preview: str | None = None
    """How its answer, or what it failed of, begins."""
    usd: float | None = None
    late_ms: int = 0
    by_hand: bool = False
    """Did somebody ask for it?"""
    why: str | None = None
    """Why it was left out or refused."""
    times: int | None = None
    """How many due times it stands for, if more than one."""
    at: str = ""


@dataclass(frozen=True, kw_only=True, repr=False)
class Schedule(Row):
    """A turn that is sent by itself."""

    schedule: str = ""
    """Its id, as ``c1``."""
    name: str | None = None
    state: str = ""
    """``active``, ``paused`` or ``done``."""
    why: str | None = None
    """Why it is paused, if agentd did that."""
    at: str | None = None
    every: str | None = None
    cron: str | None = None
    tz: str | None = None
    jitter: str | None = None
    missed: str = "last"
    overlap: str = "skip"
    keep: int | None = None
    backoff: str | None = None
    max_failures: int | None = None
    send: dict[str, Any] = field(default_factory=dict)
    next: list[str] = field(default_factory=list)
    """The next three due times, in its time zone."""
    failures: int = 0
    """In a row."""
    created_at: datetime | None = None
    last: dict[str, Any] | None = None
    """Its last run."""

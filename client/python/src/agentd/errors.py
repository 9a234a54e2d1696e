"""Why there is no result: one class for each code of ``client/PROTOCOL.md`` part 9.

Owns the names and the table. Must not know connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from .result import Result


class AgentdError(Exception):
    """What went wrong, in the words of whoever found out."""

    code: ClassVar[str] = ""
    """The protocol's code of this class."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        retryable: bool = False,
        job: str | None = None,
        line: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        """What to do, where that is known."""
        self.retryable = retryable
        """May the same request succeed later?"""
        self.job = job
        """The job, if it was accepted: without one nothing happened."""
        self.line = line
        """The line that said so, if one did."""
        self.result: Result | None = None
        """What the turn had said and done, if it had begun."""

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UnreachableError(AgentdError, ConnectionError):
    """Nobody serves us, or nobody answered a question that changes nothing: nothing happened.
    Jobs that were handed in are none the worse."""


class UnknownCodeError(AgentdError):
    """A code that this version doesn't know; ``line`` has it."""


class StillPendingError(AgentdError, TimeoutError):
    """The time of a ``collect`` is over, and not all jobs are done. They go on."""

    def __init__(self, results: list[Result], pending: list[str]) -> None:
        super().__init__(
            f"not done in time: {', '.join(pending)}", hint="they go on: `collect` them again"
        )
        self.results = results
        """Of those that are done, in the order asked."""
        self.pending = pending
        """The jobs that aren't."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.results, self.pending), self.__dict__


class OutcomeUnknownError(AgentdError, ConnectionError):
    """The connection was lost after the request was written; ask again with ``key``."""

    code = "outcome-unknown"

    def __init__(self, message: str, *, keys: list[str] | None = None, **others: Any) -> None:
        if keys:
            others["hint"] = (
                "send it again with idempotency_key=error.key: it never runs twice"
                if len(keys) == 1
                else "send each again with its idempotency_key of error.keys: none runs twice"
            )
        super().__init__(message, **{"retryable": True, **others})
        self.keys = keys or []
        """The idempotency keys of the request: with them nothing runs twice."""

    @property
    def key(self) -> str | None:
        """The only key, if there is one."""
        return self.keys[0] if len(self.keys) == 1 else None


class FrameTooLongError(AgentdError):
    """The line is longer than 16 MiB, or unfinished lines take 64 MiB; it was skipped."""

    code = "frame-too-long"


class BadJsonError(AgentdError):
    """The line isn't JSON as strict as part 1."""

    code = "bad-json"


class BadUtf8Error(AgentdError):
    """The line isn't UTF-8."""

    code = "bad-utf8"


class NotAnObjectError(AgentdError):
    """The line is JSON, but not an object."""

    code = "not-an-object"


class TruncatedError(AgentdError):
    """The input ended, or 30 s passed, in the middle of a line."""

    code = "truncated"


class UnknownCommandError(AgentdError):
    """There is no such request."""

    code = "unknown-command"


class InvalidRequestError(AgentdError, ValueError):
    """A field is missing or wrong, or the request doesn't fit the connection."""

    code = "invalid-request"


class AmbiguousError(AgentdError):
    """Several agents or jobs could be meant; ``choices`` names the agents."""

    code = "ambiguous"

    @property
    def choices(self) -> list[str]:
        """The agents that could answer, if those could be meant."""
        found = (self.line or {}).get("choices")
        return [str(one) for one in found] if isinstance(found, list) else []


class UnknownAgentError(AgentdError):
    """There is no such agent."""

    code = "unknown-agent"


class NoAgentError(AgentdError):
    """No agent is there, or the named one isn't installed."""

    code = "no-agent"


class UnknownSessionError(AgentdError):
    """There is no such session here."""

    code = "unknown-session"


class UnknownJobError(AgentdError):
    """There is no such job."""

    code = "unknown-job"


class UnknownQuestionError(AgentdError):
    """There is no such question."""

    code = "unknown-question"


class UnknownWebhookError(AgentdError):
    """No endpoint is configured for the URL, or there is no such delivery."""

    code = "unknown-webhook"


class AlreadyAnsweredError(AgentdError):
    """Somebody was faster."""

    code = "already-answered"


class SessionBusyError(AgentdError):
    """The session has a turn in flight, or is open in another process."""

    code = "session-busy"


class SessionIdleError(AgentdError):
    """The session has no turn in flight."""

    code = "session-idle"


class SessionConflictError(AgentdError):
    """The session was made with another agent, directory or tools."""

    code = "session-conflict"


class QueueFullError(AgentdError):
    """A limit on waiting turns is reached."""

    code = "queue-full"


class TooManyConnectionsError(AgentdError):
    """No connection is free."""

    code = "too-many-connections"


class DrainingError(AgentdError):
    """The daemon is stopping."""

    code = "draining"


class IdempotencyConflictError(AgentdError):
    """The key belongs to another request."""

    code = "idempotency-conflict"


class UnsupportedError(AgentdError):
    """Part of the protocol, but not of this version or not possible with this agent."""

    code = "unsupported"


class ForbiddenError(AgentdError):
    """An agent can't do this from inside its worker."""

    code = "forbidden"


class ContextLostError(AgentdError):
    """The session's earlier turns are gone, and ``require_context`` was set or the agent just
    found out."""

    code = "context-lost"


class AgentFailedError(AgentdError):
    """The agent said that it failed."""

    code = "agent-failed"


class AgentAuthError(AgentdError):
    """The agent isn't logged in, or its key is refused."""

    code = "agent-auth"


class NoModelError(AgentdError):
    """The built-in agent has no model to ask; the error says what was looked for, and what to
    do."""

    code = "no-model"


class RateLimitError(AgentdError):
    """The model's provider says: later."""

    code = "rate-limit"


class ContextOverflowError(AgentdError):
    """The conversation is longer than the model takes."""

    code = "context-overflow"


class OutputLimitError(AgentdError):
    """The turn produced more than 64 MiB."""

    code = "output-limit"


class WorkerStartFailedError(AgentdError):
    """The agent's process doesn't come up."""

    code = "worker-start-failed"


class WorkerExitedError(AgentdError):
    """The agent's process died during the turn."""

    code = "worker-exited"


class WorkerUnresponsiveError(AgentdError):
    """The agent's process doesn't answer."""

    code = "worker-unresponsive"


class CrashLoopedError(AgentdError):
    """The agent's process died again and again; it is tried again after 10 min."""

    code = "crash-looped"


class TurnInterruptedError(AgentdError):
    """The daemon died or was stopped during the turn."""

    code = "interrupted"


class TurnTimeoutError(AgentdError, TimeoutError):
    """The turn, with the start of its process, took longer than its ``timeout``."""

    code = "timeout"


class ExpiredError(AgentdError):
    """The turn waited longer than its ``expires``."""

    code = "expired"


class DiskFullError(AgentdError):
    """There is no room for new work."""

    code = "disk-full"


class StoreFailedError(AgentdError):
    """The store can't be read or written."""

    code = "store-failed"


class NeedsDaemonError(AgentdError):
    """A one-shot can't do this."""

    code = "needs-daemon"


class CursorExpiredError(AgentdError):
    """Some events after the cursor are gone; the error names the oldest cursor."""

    code = "cursor-expired"


class CursorInvalidError(AgentdError):
    """The cursor is of another store; the error names this one's epoch, or its last number."""

    code = "cursor-invalid"


class InternalError(AgentdError):
    """A bug in agentd."""

    code = "internal"


BY_CODE: dict[str, type[AgentdError]] = {
    one.code: one for one in AgentdError.__subclasses__() if one.code
}
"""The class of each code."""


_IN_PYTHON = {
    "`abort` with `session` and `queued`": "`Harness().abort(session=NAME, queued=True)`",
    "`agents`": "`Harness().agents()`",
    "`collect` of": "`Harness().collect()` of",
    "`questions`": "`Harness().questions()`",
    "`restart_worker`": '`Harness().request("restart_worker", agent=NAME)`',
    "`session.list`": "`Harness().sessions()`",
    "`set_model`": "`Harness().set_model()`",
    "`status`": "`Harness().status()`",
    "`undrain`": '`Harness().request("undrain")`',
    "`webhooks`": '`Harness().request("webhooks")`',
}
"""Requests that the daemon's hints name, and what they are called here."""


def _hint(line: Mapping[str, Any]) -> str | None:
    hint = line.get("hint")
    if not isinstance(hint, str):
        return None
    choices = line.get("choices")
    if line.get("code") == "ambiguous" and isinstance(choices, list) and choices:
        ways = " or ".join(f'agent="{one}"' for one in choices)
        return f"name one, as {ways}, or set `default_agent` in config.toml"
    # What could be meant are names of others.
    if not hint.startswith("did you mean "):
        for request, call in _IN_PYTHON.items():
            hint = hint.replace(request, call)
    return hint


def of_line(line: Mapping[str, Any]) -> AgentdError:
    """The exception of an ``error`` line."""
    kind = BY_CODE.get(str(line.get("code")), UnknownCodeError)
    return kind(
        str(line.get("error") or line.get("code") or "an error without words"),
        hint=_hint(line),
        retryable=bool(line.get("retryable")),
        job=line.get("job"),
        line=line,
    )

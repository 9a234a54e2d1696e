"""What a send may say. Owns names and types only; ``client/PROTOCOL.md`` part 4 has the meaning."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
elif sys.version_info >= (3, 11):
    from typing import Unpack
else:

    class Unpack:
        """Only a name: 3.10 has none for it, and who reads signatures finds the options."""

        def __class_getitem__(cls, item: type) -> type:
            return item


class Attachment(TypedDict, total=False):
    """A file, by ``path``; or content in base64, by ``mime`` and ``data``."""

    path: str | os.PathLike[str]
    mime: str
    data: str
    name: str


class Options(TypedDict, total=False):
    """Everything of a send but its prompt. What is absent, or ``None``, is the daemon's choice."""

    agent: str | None
    """Who answers."""
    provider: str | None
    """Pins the model's provider."""
    model: str | None
    """Pins the model."""
    thinking: str | None
    """How hard to think, in the agent's words."""
    fallback_chain: list[str] | None
    """What to ask when the model fails, in this order; each ``provider/model``, or a name that the
    agent knows."""
    session: str | None
    """The conversation; made on first use."""
    cwd: str | os.PathLike[str] | None
    """Working directory."""
    cwd_if_new: str | os.PathLike[str] | None
    """The same, if this send makes the session."""
    toolsets: list[str] | None
    """Restricts the agent's tools; ``tools`` is the same."""
    timeout: float | None
    """Seconds that the turn may take."""
    expires: float | None
    """Seconds that it may wait before it begins."""
    start_at: str | None
    """RFC 3339: not before."""
    idempotency_key: str | None
    """The same key is the same job; a random one when absent."""
    mode: Literal["queue", "reject"] | None
    """When the session is busy."""
    on_question: Literal["wait", "deny"] | None
    """What becomes of the agent's questions."""
    retry: Literal["never", "auto"] | None
    """May it run again after a crash?"""
    after_failure: Literal["hold", "run"] | None
    """When the turn before it in its session was interrupted."""
    attachments: list[Attachment] | None
    """Files and pictures."""
    callback_url: str | None
    """Who is told when the job has ended; an endpoint of ``agentctl webhook add``."""
    callback: dict[str, Any] | None
    """The same as it stands in the protocol, ``{"url": …, "result": True}``: with ``result`` the
    text is told, too."""
    labels: dict[str, str] | None
    """Free, to find jobs by."""
    parent: str | None
    """The job from inside which it comes."""
    require_context: bool | None
    """Fail rather than run without the session's earlier turns."""
    include: list[str] | None
    """Extra members of the final line; ``["messages"]`` when absent."""
    must: list[str] | None
    """Fields without which it isn't to run."""


class Send(Options, total=False):
    """A whole send: its options and its prompt, by any of its names."""

    prompt: str
    text: str
    message: str
    tools: list[str] | None


Event = dict[str, Any]
"""A line of a turn as it stands in ``client/PROTOCOL.md``; ``event["type"]`` says which."""

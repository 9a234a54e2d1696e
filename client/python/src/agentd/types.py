"""What a send may say. Owns names, types and what help says of them; ``client/PROTOCOL.md`` part 4
has the whole meaning."""

from __future__ import annotations

import os
import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
elif sys.version_info >= (3, 11):
    from typing import Unpack
else:

    class Unpack:
        """Only a name: 3.10 has none for it."""

        def __class_getitem__(cls, item: type) -> type:
            return item


class Attachment(TypedDict, total=False):
    """A file, by ``path``; or content in base64, by ``mime`` and ``data``."""

    path: str | os.PathLike[str]
    mime: str
    data: str
    name: str


class Earlier(TypedDict):
    """A message that was said elsewhere before a session began."""

    role: Literal["user", "assistant"]
    text: str


class McpServer(TypedDict, total=False):
    """An MCP server: a program, by ``command``, ``args`` and ``env``; or an address, by ``url`` and
    ``headers``. Each has a ``type`` and a ``name``."""

    type: Literal["stdio", "http", "sse"]
    name: str
    command: str
    args: list[str]
    env: dict[str, str]
    url: str
    headers: dict[str, str]


class Options(TypedDict, total=False):
    """Everything of a send but its prompt. What is absent, or ``None``, is the daemon's choice."""

    agent: Annotated[
        str | None,
        'who answers, as "timmy" or "claude"; `Harness.agents()` lists them. By default the '
        "`default_agent` of config.toml, else the only one that can",
    ]
    provider: Annotated[str | None, "pins the model's provider, from this turn of its session on"]
    model: Annotated[str | None, "pins the model, from this turn of its session on"]
    thinking: Annotated[str | None, 'how hard to think, in the agent\'s words, as "low"']
    fallback_chain: Annotated[
        list[str] | None,
        'what to ask when the model fails, in this order, at most 16: "provider/model", or a name '
        "that the agent knows",
    ]
    session: Annotated[
        str | None, "the conversation, made on first use; by default one for this turn only"
    ]
    cwd: Annotated[
        str | os.PathLike[str] | None, "working directory; by default the session's, else home"
    ]
    cwd_if_new: Annotated[
        str | os.PathLike[str] | None, "the same, counting only if this turn makes the session"
    ]
    system: Annotated[
        str | None,
        "what the agent is told before the conversation; only with the turn that begins a session",
    ]
    history: Annotated[
        list[Earlier] | None,
        'what was said before elsewhere, oldest first, as {"role": "user", "text": "hi"}; only '
        "with the turn that begins a session",
    ]
    mcp_servers: Annotated[
        list[McpServer] | None,
        "MCP servers that the agent has besides its own, from this turn of its session on; [] is "
        "none; by default those that the session has",
    ]
    toolsets: Annotated[
        list[str] | None,
        'the only tools that the agent may use, as ["terminal", "file"]; [] is none; by default '
        "all that it has",
    ]
    tools: Annotated[list[str] | None, "another name of `toolsets`"]
    timeout: Annotated[
        float | timedelta | None,
        "seconds that the turn may take, with the start of its process; 3600 by default. Then "
        "`TurnTimeoutError`",
    ]
    expires: Annotated[
        float | timedelta | None,
        "seconds that the turn may wait before it begins; 3600 by default, a day when it was "
        "handed in by `dispatch_parallel`. Then `ExpiredError`",
    ]
    start_at: Annotated[
        str | datetime | None,
        'not before this time, as "2026-11-21T19:00:00Z" or a `datetime`, which is local time '
        "unless it has a zone; by default at once",
    ]
    idempotency_key: Annotated[
        str | None,
        "the same key is the same job and never runs twice; a random one by default. With another "
        "request `IdempotencyConflictError`",
    ]
    mode: Annotated[
        Literal["queue", "reject"] | None,
        'when the session is busy: wait ("queue", the default), or `SessionBusyError`',
    ]
    on_question: Annotated[
        Literal["wait", "deny"] | None,
        'what becomes of the agent\'s questions: "wait" for `Harness.answer`, or "deny" at once, '
        "which is the default while nobody is there who answers",
    ]
    retry: Annotated[
        Literal["never", "auto"] | None,
        'with "auto" the turn runs again after a crash, at most three times; "never" by default',
    ]
    after_failure: Annotated[
        Literal["hold", "run"] | None,
        'when the turn before it in its session was interrupted: be held ("hold", the default), '
        "or run",
    ]
    attachments: Annotated[
        list[Attachment] | None,
        'files and pictures, as {"path": "plan.pdf"}, or content as {"mime": "text/plain", '
        '"data": BASE64}; at most 16',
    ]
    callback_url: Annotated[
        str | None,
        "who is told when the job has ended; its endpoint is added by `agentctl webhook add`",
    ]
    callback: Annotated[
        dict[str, Any] | None, 'the same as {"url": URL, "result": True}, which tells the text, too'
    ]
    labels: Annotated[
        dict[str, str] | None, 'free words to find jobs by, as {"run": "7"}; at most 16'
    ]
    parent: Annotated[str | None, "the job from inside which it comes; found by itself"]
    require_context: Annotated[
        bool | None, "`ContextLostError` rather than a turn without the session's earlier ones"
    ]
    include: Annotated[list[str] | None, 'extra parts of the result; ["messages"] by default']
    must: Annotated[list[str] | None, "fields without which an older daemon isn't to run it"]


class Send(Options, total=False):
    """A whole send: its options and its prompt, by any of its names."""

    prompt: str
    text: str
    message: str


Event = dict[str, Any]
"""A line of a turn as it stands in ``client/PROTOCOL.md``; ``event["type"]`` says which."""

"""AI agents through agentd, the daemon of this machine.

    from agentd import run_session
    print(run_session("hello", agent="timmy", provider="echo"))

``agentd.aio`` has the same for asyncio, ``agentd.errors`` what is raised.
"""

from . import aio, errors
from ._sync import Harness, Session, Stream, run_session
from ._version import VERSION
from .errors import AgentdError, OutcomeUnknownError, StillPendingError
from .result import Cost, Result
from .rows import (
    Agent,
    Command,
    HistoryTurn,
    Job,
    Mode,
    Model,
    ModelList,
    Question,
    Run,
    Schedule,
    SessionInfo,
    Usage,
)
from .types import Attachment, Earlier, Event, McpServer, Options, Send

__version__ = VERSION

__all__ = [
    "Agent",
    "AgentdError",
    "Attachment",
    "Command",
    "Cost",
    "Earlier",
    "Event",
    "Harness",
    "HistoryTurn",
    "Job",
    "McpServer",
    "Mode",
    "Model",
    "ModelList",
    "Options",
    "OutcomeUnknownError",
    "Question",
    "Result",
    "Run",
    "Schedule",
    "Send",
    "Session",
    "SessionInfo",
    "StillPendingError",
    "Stream",
    "Usage",
    "__version__",
    "aio",
    "errors",
    "run_session",
]

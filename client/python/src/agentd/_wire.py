"""Requests as bytes and bytes as lines.

Owns encoding, framing and what a send of this library always says. Must not know where bytes come
from or go to.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from .errors import FrameTooLongError, InvalidRequestError
from .types import Options

MAX_LINE_IN = 16 * 1024 * 1024
"""Longest line that a daemon takes."""
MAX_LINE = 2 * 1024 * 1024
"""Twice what a daemon of this version sends: a newer one may send more."""

Line = dict[str, Any]


class BadLine(Exception):  # noqa: N818
    """What came isn't a line of the protocol."""


def encode(kind: str, number: object, fields: Mapping[str, Any]) -> bytes:
    """One request as a line, its newline included.

    Raises ``InvalidRequestError`` or ``FrameTooLongError`` when it can't be written down: nothing
    happened then.
    """
    for name in ("id", "type"):
        if name in fields:
            raise InvalidRequestError(
                f"`{name}` can't be given: this package numbers its requests itself",
                hint="`labels` are there to find a job by",
            )
    try:
        text = json.dumps(
            {"type": kind, "id": number, **fields},
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
        )
        line = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError("the request has half a surrogate pair: expected text") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the request can't be written as JSON: {error}") from error
    if len(line) > MAX_LINE_IN:
        # The daemon would skip it, and say so without our `id`.
        raise FrameTooLongError(
            f"the request has {len(line)} bytes, the limit is {MAX_LINE_IN}",
            hint='give long content by its file, as attachments=[{"path": "plan.pdf"}]',
        )
    return line + b"\n"


class Decoder:
    """Pieces of bytes in, whole lines out."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._bad: BadLine | None = None

    def check(self) -> None:
        """Raises the ``BadLine`` that came behind good ones."""
        if self._bad is not None:
            raise self._bad

    def push(self, data: bytes) -> list[Line]:
        """The lines that end in ``data``. Raises ``BadLine``; behind good lines, at the next
        ``check`` or ``push``."""
        self.check()
        searched = len(self._rest)
        self._rest += data
        lines: list[Line] = []
        begin = 0
        while (end := self._rest.find(b"\n", max(begin, searched))) >= 0:
            if end - begin > MAX_LINE:
                break
            raw = bytes(self._rest[begin:end]).strip()
            begin = end + 1
            try:
                if raw:
                    lines.append(_parse(raw))
            except BadLine as bad:
                self._bad = bad
                break
        del self._rest[:begin]
        if self._bad is None and len(self._rest) > MAX_LINE:
            self._bad = BadLine(f"a line longer than {MAX_LINE} bytes")
        if not lines:
            self.check()
        return lines


def _parse(raw: bytes) -> Line:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"a line that isn't JSON: {error}") from error
    if not isinstance(line, dict):
        raise BadLine("a line that isn't an object")
    return line


_ALIASES = {"prompt": "text", "message": "text", "tools": "toolsets", "callback_url": "callback"}
_KNOWN = {"text", *Options.__annotations__}
_RESTRICTING = ("toolsets", "on_question", "fallback_chain")


def absolute(name: str, path: str | os.PathLike[str]) -> str:
    """A path from here as one that the daemon finds, too."""
    try:
        return os.path.abspath(os.fsdecode(path))
    except TypeError as error:
        raise InvalidRequestError(f"`{name}` is {path!r}: expected a path") from error


def send_fields(send: Mapping[str, Any]) -> dict[str, Any]:
    """A send as it is written: with a key, all messages, and ``must``.

    ``must`` names each field that restricts, and each that this library doesn't know: a daemon
    that doesn't know it either refuses rather than ignores it.
    """
    fields: dict[str, Any] = {}
    for name, value in send.items():
        if name in ("id", "type"):
            raise InvalidRequestError(
                f"a send has no `{name}`: its job is the number that it gets",
                hint="`labels` are there to find it by, `idempotency_key` to send it once",
            )
        if value is None:
            continue
        if isinstance(value, timedelta):
            value = value.total_seconds()
        if isinstance(value, datetime):
            value = value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
        if name == "callback_url":
            value = {"url": value}
        name = _ALIASES.get(name, name)
        if name in fields:
            raise InvalidRequestError(f"`{name}` is given twice, once by another of its names")
        fields[name] = value
    if not isinstance(fields.get("text"), str):
        raise InvalidRequestError("`prompt` is missing: expected a string")
    for name in ("cwd", "cwd_if_new"):
        if name in fields:
            fields[name] = absolute(name, fields[name])
    if "attachments" in fields:
        fields["attachments"] = [
            {**one, "path": absolute("path", one["path"])} if "path" in one else one
            for one in fields["attachments"]
        ]
    must = [name for name in fields if name in _RESTRICTING or name not in _KNOWN]
    must = [*fields.get("must", ()), *(name for name in must if name not in fields.get("must", ()))]
    if must:
        fields["must"] = must
    fields.setdefault("idempotency_key", secrets.token_hex(16))
    fields.setdefault("include", ["messages"])
    return fields

"""Requests as bytes and bytes as lines.

Owns encoding, framing and what a send of this library always says. Must not know where bytes come
from or go to.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
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
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the request can't be written as JSON: {error}") from error
    if len(line) > MAX_LINE_IN:
        # The daemon would skip it, and say so without our `id`.
        raise FrameTooLongError(f"the request has {len(line)} bytes, the limit is {MAX_LINE_IN}")
    return line + b"\n"


class Decoder:
    """Pieces of bytes in, whole lines out."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def push(self, data: bytes) -> list[Line]:
        """The lines that end in ``data``. Raises ``BadLine``."""
        searched = len(self._rest)
        self._rest += data
        lines = []
        begin = 0
        while (end := self._rest.find(b"\n", max(begin, searched))) >= 0:
            if end - begin > MAX_LINE:
                break
            raw = bytes(self._rest[begin:end]).strip()
            begin = end + 1
            if raw:
                lines.append(_parse(raw))
        del self._rest[:begin]
        if len(self._rest) > MAX_LINE:
            raise BadLine(f"a line longer than {MAX_LINE} bytes")
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


def send_fields(send: Mapping[str, Any]) -> dict[str, Any]:
    """A send as it is written: with a key, all messages, and ``must``.

    ``must`` names each field that restricts, and each that this library doesn't know: a daemon
    that doesn't know it either refuses rather than ignores it.
    """
    fields: dict[str, Any] = {}
    for name, value in send.items():
        if value is None:
            continue
        if name == "callback_url":
            value = {"url": value}
        name = _ALIASES.get(name, name)
        if name in fields:
            raise InvalidRequestError(f"`{name}` is given twice, once by another of its names")
        fields[name] = value
    if not isinstance(fields.get("text"), str):
        raise InvalidRequestError("`prompt` is missing: expected a string")
    if "cwd" in fields:
        fields["cwd"] = os.path.abspath(fields["cwd"])
    if "attachments" in fields:
        fields["attachments"] = [
            {**one, "path": os.path.abspath(one["path"])} if "path" in one else one
            for one in fields["attachments"]
        ]
    must = [name for name in fields if name in _RESTRICTING or name not in _KNOWN]
    must = [*fields.get("must", ()), *(name for name in must if name not in fields.get("must", ()))]
    if must:
        fields["must"] = must
    fields.setdefault("idempotency_key", secrets.token_hex(16))
    fields.setdefault("include", ["messages"])
    return fields

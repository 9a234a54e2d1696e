"""A receiver of agentd's webhooks, with nothing but the standard library.

    AGENTD_WEBHOOK_SECRET=whsec_… python webhook_receiver.py [PORT]

It prints each delivery once: what came under an id that it has seen is answered, and not done
again. A real one keeps the ids where they survive a restart, for as long as deliveries are
repeated, which is a day, and a month for those that are replayed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE = 5 * 60
"""Seconds that the clocks of both sides may differ: what is older may be sent again by a thief."""
MOST_BYTES = 20 * 1024
"""A longer body is none of agentd's."""
MOST_IDS = 100_000
"""Ids that are remembered; the oldest go first."""


class RefusedError(Exception):
    """It isn't from who has the secret, or not from now."""


def key(secret: str) -> bytes:
    """The key that ``whsec_…`` stands for."""
    prefix, _, encoded = secret.partition("_")
    if prefix != "whsec":
        raise ValueError("expected a secret that begins with whsec_")
    return base64.b64decode(encoded, validate=True)


def verify(
    keys: Iterable[bytes], headers: Mapping[str, str], body: bytes, *, now: float | None = None
) -> str:
    """Gives the id of a delivery that is signed with one of the keys; raises ``RefusedError``."""
    webhook = headers.get("webhook-id")
    stamp = headers.get("webhook-timestamp")
    given = headers.get("webhook-signature")
    if not webhook or not stamp or not given:
        raise RefusedError("a header is missing")
    if not (stamp.isascii() and stamp.isdigit()):
        raise RefusedError("the timestamp is no number")
    now = time.time() if now is None else now
    if abs(now - int(stamp)) > TOLERANCE:
        raise RefusedError("the timestamp is too far from now")
    signed = f"{webhook}.{stamp}.".encode() + body
    expected = [hmac.new(one, signed, hashlib.sha256).digest() for one in keys]
    for one in given.split(" "):
        version, _, signature = one.partition(",")
        if version != "v1":
            continue
        try:
            found = base64.b64decode(signature, validate=True)
        except binascii.Error:
            continue
        if any(hmac.compare_digest(found, right) for right in expected):
            return webhook
    raise RefusedError("no signature fits")


class Seen:
    """Ids that were dealt with."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self._lock = threading.Lock()

    def is_new(self, webhook: str) -> bool:
        """True once for each id."""
        with self._lock:
            if webhook in self._ids:
                return False
            self._ids[webhook] = None
            while len(self._ids) > MOST_IDS:
                del self._ids[next(iter(self._ids))]
            return True


class Handler(BaseHTTPRequestHandler):
    """Verifies first, reads afterwards."""

    keys: tuple[bytes, ...] = ()
    seen = Seen()
    timeout = 15

    def do_POST(self) -> None:
        """One delivery."""
        length = self.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()) or int(length) > MOST_BYTES:
            self.answer(413)
            return
        body = self.rfile.read(int(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            webhook = verify(self.keys, headers, body)
        except RefusedError as refused:
            print(f"refused: {refused}", file=sys.stderr, flush=True)
            self.answer(401)
            return
        if self.seen.is_new(webhook):
            print(f"{webhook} {body.decode()}", flush=True)
        self.answer(204)

    def answer(self, status: int) -> None:
        """Nothing but a status."""
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Requests aren't logged: a URL may hold a token."""


def main() -> None:
    """Serves until it is stopped."""
    secrets = os.environ.get("AGENTD_WEBHOOK_SECRET", "")
    if not secrets:
        sys.exit("set AGENTD_WEBHOOK_SECRET to what `agentctl webhook add` printed")
    # Two with a comma, while they are rotated.
    Handler.keys = tuple(key(secret) for secret in secrets.split(","))
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()

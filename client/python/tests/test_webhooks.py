"""Callbacks, and the reference receiver: against the vectors, a real daemon, and the library of
Standard Webhooks where that is there (``AGENTD_STANDARD_WEBHOOKS`` names its Python)."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import io
import json
import os
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Iterator
from pathlib import Path

import agentd

from .support import DEADLINE, PROGRAMS, REPOSITORY, WithDaemon, until

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

import webhook_receiver as receiver  # noqa: E402

VECTORS = json.loads((REPOSITORY / "tests/fixtures/webhooks/signatures.json").read_text())
LIBRARY = os.environ.get("AGENTD_STANDARD_WEBHOOKS")
"""Said in the environment, which each test's place hides."""

Delivery = tuple[dict[str, str], bytes]


def headers_of(vector: dict[str, str]) -> dict[str, str]:
    return {
        "webhook-id": vector["id"],
        "webhook-timestamp": str(vector["timestamp"]),
        "webhook-signature": vector["signature"],
    }


def library(code: str, given: object) -> None:
    """Runs code where the library is."""
    if LIBRARY is None:
        if os.environ.get("AGENTD_TEST_NEEDS") == "all":
            raise AssertionError("CI must have standardwebhooks")
        raise unittest.SkipTest("skipped: needs standardwebhooks")
    done = subprocess.run(
        [LIBRARY, "-c", code],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)


class Vectors(unittest.TestCase):
    def test_each_secret_of_each_vector_verifies(self) -> None:
        self.assertGreaterEqual(len(VECTORS), 4)
        for vector in VECTORS:
            for secret in vector["secrets"]:
                found = receiver.verify(
                    [receiver.key(secret)],
                    headers_of(vector),
                    vector["body"].encode(),
                    now=vector["timestamp"],
                )
                self.assertEqual(found, vector["id"], vector["name"])

    def test_what_was_changed_is_refused(self) -> None:
        vector = VECTORS[1]
        keys = [receiver.key(vector["secrets"][0])]
        right, body, now = headers_of(vector), vector["body"].encode(), vector["timestamp"]
        for name, value in (
            ("webhook-id", "evt_other"),
            ("webhook-timestamp", str(now + 1)),
            ("webhook-timestamp", "soon"),
            ("webhook-timestamp", "-1"),
            ("webhook-timestamp", ""),
            ("webhook-signature", ""),
            ("webhook-signature", "v1,"),
            ("webhook-signature", "v1,!!"),
            ("webhook-signature", right["webhook-signature"].replace("v1,", "v2,")),
            ("webhook-signature", right["webhook-signature"][:-8]),
        ):
            with self.assertRaises(receiver.RefusedError, msg=f"{name}: {value}"):
                receiver.verify(keys, {**right, name: value}, body, now=now)
        with self.assertRaises(receiver.RefusedError):
            receiver.verify(keys, right, body + b" ", now=now)
        with self.assertRaises(receiver.RefusedError):
            receiver.verify([receiver.key("whsec_" + "AAAA" * 8)], right, body, now=now)
        for late in (receiver.TOLERANCE + 1, -receiver.TOLERANCE - 1):
            with self.assertRaisesRegex(receiver.RefusedError, "too far"):
                receiver.verify(keys, right, body, now=now + late)

    def test_the_library_signs_the_same(self) -> None:
        library(
            """
import datetime, json, sys
from standardwebhooks.webhooks import Webhook
for vector in json.load(sys.stdin):
    at = datetime.datetime.fromtimestamp(vector["timestamp"], datetime.timezone.utc)
    signed = [Webhook(one).sign(vector["id"], at, vector["body"]) for one in vector["secrets"]]
    assert " ".join(signed) == vector["signature"], vector["name"]
""",
            VECTORS,
        )


class Handler(http.server.BaseHTTPRequestHandler):
    came: list[Delivery]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.came.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Callbacks(WithDaemon):
    def add(self, url: str) -> str:
        program = str(PROGRAMS / "agentctl")
        command = [program, "webhook", "add", url, "--allow-private", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
        secret: str = json.loads(done.stdout)["secret"]
        return secret

    @contextlib.contextmanager
    def receiving(self) -> Iterator[tuple[str, list[Delivery]]]:
        came: list[Delivery] = []
        handler = type("Kept", (Handler,), {"came": came})
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/hook", came
            finally:
                server.shutdown()
                thread.join()

    def test_a_dispatch_calls_back_and_the_library_takes_it(self) -> None:
        with self.receiving() as (url, came):
            secret = self.add(url)
            jobs = self.harness.dispatch_parallel(
                [
                    {"prompt": "one", "callback_url": url},
                    {"prompt": "two", "callback": {"url": url}},
                    {"prompt": "three"},
                ]
            )
            self.assertEqual(len(self.harness.collect(jobs, timeout=DEADLINE)), 3)
            until(lambda: len(came) == 2, "two deliveries")
        told = {json.loads(body)["data"]["job"] for _, body in came}
        self.assertEqual(told, set(jobs[:2]))
        for headers, body in came:
            found = receiver.verify([receiver.key(secret)], headers, body)
            self.assertEqual(found, headers["webhook-id"])
        library(
            """
import json, sys
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
given = json.load(sys.stdin)
for headers, body in given["came"]:
    Webhook(given["secret"]).verify(body, headers)
    try:
        Webhook(given["secret"]).verify(body + " ", headers)
    except WebhookVerificationError:
        continue
    sys.exit("a body that was changed was taken")
""",
            {"secret": secret, "came": [(headers, body.decode()) for headers, body in came]},
        )

    def test_a_callback_that_is_not_configured_is_refused(self) -> None:
        with self.assertRaises(agentd.errors.UnknownWebhookError):
            self.harness.dispatch({"prompt": "x", "callback_url": "https://ci.example/hook"})
        with self.assertRaises(agentd.errors.InvalidRequestError):
            self.harness.dispatch({"prompt": "x", "callback_url": "file:///etc/passwd"})

    def test_the_reference_receiver_takes_each_delivery_once(self) -> None:
        # Nobody has the secret before there is an endpoint, and no port before it serves.
        with self.receiving() as (url, _):
            base = url.removesuffix("/hook")
        secret = self.add(base)
        port = base.rsplit(":", 1)[1]
        served = subprocess.Popen(
            [sys.executable, EXAMPLES / "webhook_receiver.py", port],
            env={**os.environ, "AGENTD_WEBHOOK_SECRET": secret},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(self.kill, served)
        assert served.stdout is not None
        printed = io.TextIOWrapper(served.stdout)
        self.addCleanup(printed.close)
        self.assertIn(port, printed.readline())
        callback = {"callback_url": base + "/hook"}
        [job] = self.harness.dispatch_parallel([{"prompt": "hello", **callback}])
        webhook, _, body = printed.readline().partition(" ")
        self.assertEqual(json.loads(body)["data"]["job"], job)

        def state() -> dict[str, object]:
            rows = self.harness.request("webhooks", webhook=webhook)["deliveries"]
            row: dict[str, object] = rows[0]
            return row

        until(lambda: state()["state"] == "delivered", "the first delivery")
        self.harness.request("webhook.replay", webhook=webhook)
        until(lambda: state()["state"] == "delivered", "the second delivery")
        # It was answered, and not done again: what is printed next is of the next job.
        [other] = self.harness.dispatch_parallel([{"prompt": "again", **callback}])
        second, _, body = printed.readline().partition(" ")
        self.assertEqual((second != webhook, json.loads(body)["data"]["job"]), (True, other))
        # A stranger's is refused.
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=DEADLINE)
        forged = {
            "webhook-id": "evt_forged",
            "webhook-timestamp": str(int(time.time())),
            "webhook-signature": "v1," + "A" * 43 + "=",
        }
        connection.request("POST", "/hook", b"{}", forged)
        self.assertEqual(connection.getresponse().status, 401)
        connection.close()


if __name__ == "__main__":
    unittest.main()

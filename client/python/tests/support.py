"""A daemon of its own for each test, a server that says what it is told, and facts to wait for.

Owns private directories and what is started in them: when a test ends, its processes are gone.
"""

from __future__ import annotations

import contextlib
import gc
import http.server
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import agentd

REPOSITORY = Path(os.environ.get("AGENTD_REPOSITORY", Path(__file__).resolve().parents[3]))
PROGRAMS = Path(os.environ.get("AGENTD_PROGRAMS", REPOSITORY / "target" / "debug"))
DEADLINE = 30.0
"""No single wait is longer: a test that needs more is stuck."""

CONFIG = """default_agent = "timmy"
[agents.timmy]
provider = "echo"
[agents.chaos]
kind = "jsonl"
command = [{chaos}, "--models", "2"]
"""


def until(fact: Callable[[], Any], what: str) -> Any:
    """Waits for a fact and gives it."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        found = fact()
        if found:
            return found
        threading.Event().wait(0.005)
    raise AssertionError(f"waited {DEADLINE:g} s in vain for {what}")


class Place(unittest.TestCase):
    """Private directories, which are this process's, too."""

    def setUp(self) -> None:
        # What isn't closed warns from its `__del__`, where an exception only gets printed.
        self.unraisable: list[str] = []
        self.enter(warnings.catch_warnings())
        warnings.simplefilter("error", ResourceWarning)
        self.enter(mock.patch("sys.unraisablehook", self.note))
        self.addCleanup(self.all_is_closed)
        # Socket paths are short.
        self.dir = Path(tempfile.mkdtemp(prefix="agentd-py-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        (self.dir / "home").mkdir()
        chaos = json.dumps(str(PROGRAMS / "examples" / "chaos-worker"))
        (self.dir / "config.toml").write_text(CONFIG.format(chaos=chaos))
        self.socket = str(self.dir / "agentd.sock")
        path = f"{PROGRAMS}{os.pathsep}{os.environ.get('PATH', '')}"
        variables = {
            "PATH": path,
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "HOME": str(self.dir / "home"),
            "AGENTD_SOCKET": self.socket,
            "AGENTD_STATE_DIR": str(self.dir / "state"),
            "AGENTD_CONFIG": str(self.dir / "config.toml"),
            "AGENTD_ALIAS": str(self.dir / "timmy.sock"),
        }
        self.enter(mock.patch.dict(os.environ, variables, clear=True))

    def enter(self, context: contextlib.AbstractContextManager[object]) -> None:
        """Until the test ends. (`enterContext` of 3.11.)"""
        context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)

    def impatient(self) -> None:
        """Nobody comes back in this test: that is found out soon."""
        self.enter(mock.patch("agentd._fallback.PATIENCE_MS", 200))

    def note(self, told: Any) -> None:
        """What went wrong where nobody could be told."""
        self.unraisable.append(f"{told.err_msg or ''} {told.exc_value!r}")

    def all_is_closed(self) -> None:
        """Nothing was left to the garbage."""
        gc.collect()
        self.assertEqual(self.unraisable, [])


class WithDaemon(Place):
    """A place with a daemon: its agents are `timmy`, which says its prompt back, and `chaos`."""

    def setUp(self) -> None:
        super().setUp()
        self.harness = agentd.Harness(fallback=False)
        self.start()

    def start(self) -> None:
        """Starts it and waits until it answers."""
        with open(self.dir / "log", "ab") as log:
            self.daemon = subprocess.Popen(
                [PROGRAMS / "agentd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.addCleanup(self.kill, self.daemon)
        until(self.is_up, "the daemon")

    def is_up(self) -> bool:
        """Does it answer?"""
        try:
            return bool(self.harness.status())
        except agentd.errors.UnreachableError:
            return False

    @staticmethod
    def kill(daemon: subprocess.Popen[bytes]) -> None:
        """As `kill -9` does."""
        daemon.kill()
        daemon.wait()

    def running(self, count: int = 1) -> list[dict[str, Any]]:
        """Waits until so many jobs run."""

        def found() -> list[dict[str, Any]] | None:
            jobs: list[dict[str, Any]] = self.harness.request("jobs", state="running")["jobs"]
            return jobs if len(jobs) >= count else None

        rows: list[dict[str, Any]] = until(found, f"{count} running jobs")
        return rows


HELLO: dict[str, Any] = {
    "type": "hello",
    "ok": True,
    "server": "agentd",
    "version": "0.1.0",
    "protocol": 1,
    "capabilities": [],
}


class Models:
    """A server of one provider's models, as OpenAI's: each says its name, those of ``broken``
    nothing. ``asked`` has what it got."""

    def __init__(self, broken: tuple[str, ...] = ()) -> None:
        models = self
        self.asked: list[dict[str, Any]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                models.asked.append(asked)
                if asked["model"] in broken:
                    self.send_error(404, "no such model")
                    return
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                choice = {"index": 0, "delta": {"content": asked["model"]}, "finish_reason": None}
                end = {"index": 0, "delta": {}, "finish_reason": "stop"}
                usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
                for part in ({"choices": [choice]}, {"choices": [end], "usage": usage}):
                    self.wfile.write(b"data: " + json.dumps(part).encode() + b"\n\n")
                self.wfile.write(b"data: [DONE]\n\n")

            def log_message(self, *_args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Nobody listens any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Scripted:
    """A server that answers each line with what its script says, on one connection after another.

    An answer is an object, whose ``id`` is put in; bytes, as they are; or None: it leaves.
    """

    def __init__(self, path: str, *connections: list[Any]) -> None:
        self.asked: list[dict[str, Any]] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, args=connections, daemon=True)
        self._thread.start()

    def _serve(self, *connections: list[Any]) -> None:
        for script in connections:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            with stream, stream.makefile("rb") as lines:
                for answers in script:
                    line = json.loads(lines.readline() or "{}")
                    self.asked.append(line)
                    # A client that heard enough leaves.
                    with contextlib.suppress(OSError):
                        for answer in answers if isinstance(answers, list) else [answers]:
                            self._say(stream, line, answer)
                with contextlib.suppress(OSError):
                    while stream.recv(1024):
                        pass

    @staticmethod
    def _say(stream: socket.socket, asked: dict[str, Any], answer: Any) -> None:
        if answer is None:
            stream.shutdown(socket.SHUT_RDWR)
        elif isinstance(answer, bytes):
            stream.sendall(answer)
        else:
            stream.sendall(json.dumps({**answer, "id": asked.get("id")}).encode() + b"\n")

    def close(self) -> None:
        """Accepts nobody any more."""
        self._listener.close()

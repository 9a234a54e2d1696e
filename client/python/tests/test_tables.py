"""The tables that all clients share: the fallback rule, paths, codes, framing."""

from __future__ import annotations

import errno
import inspect
import json
import os
import pickle
import re
import socket
import subprocess
import tempfile
import threading
import time
import typing
import unittest
from pathlib import Path
from unittest import mock

import agentd
from agentd import AgentdError, Result, _endpoint, errors
from agentd._endpoint import MAX_SOCKET_PATH, Endpoint, NotConnected, Places
from agentd._fallback import decide
from agentd._version import VERSION
from agentd._wire import MAX_LINE, BadLine, Decoder, encode, send_fields

from .support import REPOSITORY, Place

FIXTURES = REPOSITORY / "tests" / "fixtures" / "v1"


class Tables(unittest.TestCase):
    def test_the_rule_is_the_table(self) -> None:
        rows = json.loads((FIXTURES / "fallback.json").read_text())
        self.assertGreater(len(rows), 100)
        for row in rows:
            found = decide(
                row["fact"], row["lock"], row["waited_ms"], fallback=row["fallback"] == "allowed"
            )
            self.assertEqual(
                (found.choice, found.reason), (row["decision"], row.get("reason")), row
            )

    def test_a_lock_on_a_silent_disk_is_waited_for_once(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            lock = Path(place) / "daemon.lock"
            # Who opens it waits for whoever writes into it.
            os.mkfifo(lock)
            opens = threading.Timer(5, lock.write_text, ["{}"])
            opens.daemon = True
            opens.start()
            begun = time.monotonic()
            endpoint = Endpoint(str(Path(place) / "none.sock"), str(lock))
            self.assertEqual([endpoint.lock() for _ in range(100)], ["free"] * 100)
            self.assertLess(time.monotonic() - begun, 2)
            opens.cancel()
            # It answers again, so it is asked again. It is gone before the read that hangs ends:
            # the next would hang as well.
            with lock.open("w") as disk:
                lock.unlink()
                disk.write("{}")
            deadline = time.monotonic() + 5
            while _endpoint._reads_that_hang:
                endpoint.lock()
                self.assertLess(time.monotonic(), deadline, "the read has ended")

    def test_paths_are_found_as_everywhere(self) -> None:
        for row in json.loads((FIXTURES / "paths.json").read_text()):
            system = {"macos": "darwin"}.get(row["os"], row["os"])
            places = Places.of(row["env"], system, row["uid"], row["run_user_is_ours"])
            self.assertEqual(places.state_dir, row["state"], row["name"])
            named = row["env"].get("AGENTD_SOCKET")
            if not named:
                self.assertEqual(places.socket, row["socket"], row["name"])

    def test_each_code_of_the_protocol_has_a_class(self) -> None:
        text = (REPOSITORY / "client" / "PROTOCOL.md").read_text().split("## 9. Codes")[1]
        codes = set(re.findall(r"^\| `([a-z0-9-]+)` \| (?:yes|no) \|", text, re.M))
        self.assertEqual(codes, set(errors.BY_CODE))
        line = {"type": "error", "code": "timeout", "error": "too long", "job": "j1"}
        self.assertIsInstance(errors.of_line(line), TimeoutError)
        newer = errors.of_line({"type": "error", "code": "on-fire", "error": "hot"})
        self.assertIsInstance(newer, errors.UnknownCodeError)
        self.assertEqual(newer.line, {"type": "error", "code": "on-fire", "error": "hot"})

    def test_each_class_comes_through_a_pickle(self) -> None:
        line = {"type": "error", "error": "no", "hint": "yes", "job": "j1", "retryable": True}
        result = Result.of_line({"type": "message_end", "job": "j2", "text": "hi"})
        told: list[AgentdError] = [
            errors.of_line({**line, "code": code}) for code in (*errors.BY_CODE, "on-fire")
        ]
        told += [
            errors.UnreachableError("nobody"),
            errors.StillPendingError([result], ["j1"]),
            errors.OutcomeUnknownError("lost", keys=["k"], job="j1"),
        ]
        for error in told:
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual(
                (type(copy), str(copy), vars(copy)), (type(error), str(error), vars(error))
            )

    def test_the_licences_are_the_repository_s(self) -> None:
        for name in ("LICENSE-APACHE", "LICENSE-MIT"):
            ours = (Path(__file__).parents[1] / name).read_text()
            self.assertEqual(ours, (REPOSITORY / name).read_text())

    def test_signatures_can_be_read_by_programs(self) -> None:
        for module in (agentd, agentd.aio):
            for kind in (module.Harness, module.Session, module.Stream):
                for name, member in inspect.getmembers(kind, inspect.isfunction):
                    self.assertIsInstance(typing.get_type_hints(member), dict, name)
            self.assertIn("timeout", inspect.signature(module.run_session).parameters)

    def test_the_script_of_the_ci_deletes_only_what_it_made(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            kept = Path(place) / "kept"
            kept.touch()
            done = subprocess.run(
                ["bash", str(REPOSITORY / "packaging" / "ci" / "python.sh"), place],
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("no Python environment", done.stderr)
            self.assertTrue(kept.exists())

    def test_the_version_is_the_package_s(self) -> None:
        text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
        self.assertIn(f'version = "{VERSION}"', text)


class Wire(unittest.TestCase):
    def test_lines_come_out_however_they_are_cut(self) -> None:
        data = b'{"a":1}\r\n\n{"b":"\xc3\xbc"}\n{"c":3}\n{"d"'
        for size in range(1, len(data) + 1):
            decoder = Decoder()
            pieces = [data[at : at + size] for at in range(0, len(data), size)]
            lines = [line for piece in pieces for line in decoder.push(piece)]
            self.assertEqual(lines, [{"a": 1}, {"b": "ü"}, {"c": 3}], size)

    def test_what_is_no_line_ends_the_conversation(self) -> None:
        for bad in (b"nonsense\n", b"[1]\n", b"\xff\n", b"[" * 100_000 + b"\n"):
            with self.assertRaises(BadLine):
                Decoder().push(bad)
        with self.assertRaisesRegex(BadLine, "longer"):
            Decoder().push(b"x" * (MAX_LINE + 1))
        behind = Decoder()
        self.assertEqual(behind.push(b'{"a":1}\nnonsense\n{"b":2}\n'), [{"a": 1}])
        with self.assertRaises(BadLine):
            behind.push(b'{"c":3}\n')
        long = b'{"x":"' + b"y" * (MAX_LINE - 100) + b'"}\n'
        self.assertEqual(len(Decoder().push(long)), 1)

    def test_what_cant_be_written_down_is_refused_here(self) -> None:
        with self.assertRaises(errors.InvalidRequestError):
            encode("send", 1, {"text": "\ud800"})
        with self.assertRaises(errors.InvalidRequestError):
            encode("send", 1, {"timeout": float("nan")})
        with self.assertRaises(errors.FrameTooLongError):
            encode("send", 1, {"text": "x" * 16 * 1024 * 1024})
        with self.assertRaises(errors.InvalidRequestError):
            encode("send", 1, {"labels": {"a": {1}}})
        for name in ("id", "type"):
            with self.assertRaises(errors.InvalidRequestError):
                encode("status", 1, {name: 9})
        self.assertEqual(encode("ping", 3, {}), b'{"type":"ping","id":3}\n')

    def test_a_send_insists_on_what_restricts_it_and_on_what_is_unknown_here(self) -> None:
        fields = send_fields({"prompt": "a", "tools": ["file"], "timout": 3, "agent": None})
        self.assertEqual(len(fields.pop("idempotency_key")), 32)
        self.assertEqual(
            fields,
            {
                "text": "a",
                "toolsets": ["file"],
                "timout": 3,
                "include": ["messages"],
                "must": ["toolsets", "timout"],
            },
        )
        here = send_fields({"prompt": "a", "cwd_if_new": ".", "cwd": Path("b")})
        self.assertEqual((here["cwd_if_new"], here["cwd"]), (os.getcwd(), os.path.abspath("b")))
        for wrong in (
            {},
            {"prompt": 5},
            {"prompt": "a", "text": "b"},
            {"prompt": "a", "id": 7},
            {"prompt": "a", "type": "ping"},
            {"prompt": "a", "cwd": 5},
        ):
            with self.assertRaises(errors.InvalidRequestError):
                send_fields(wrong)


class Sockets(Place):
    def fact(self, path: str) -> str:
        with self.assertRaises(NotConnected) as caught:
            Endpoint(path, None).connect()
        return caught.exception.fact

    def test_each_way_of_not_connecting_is_told_apart(self) -> None:
        path = str(self.dir / "s")
        self.assertEqual(self.fact(path), "no-socket")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        self.assertEqual(self.fact(path), "refused")
        listener.listen(0)
        with Endpoint(path, None).connect():
            self.assertEqual(self.fact(path), "backlog-full")
        listener.close()
        self.assertEqual(self.fact(str(self.dir / ("x" * MAX_SOCKET_PATH))), "unusable")
        denied = OSError(errno.EACCES, "no")
        with mock.patch("socket.socket.connect", side_effect=denied):
            self.assertEqual(self.fact(path), "denied")

    def test_a_server_of_somebody_else_gets_no_byte(self) -> None:
        path = str(self.dir / "s")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            with mock.patch("os.geteuid", return_value=os.geteuid() + 1):
                self.assertEqual(self.fact(path), "foreign-uid")
            stream, _ = listener.accept()
            self.assertEqual(stream.recv(1), b"")
            stream.close()

    def test_a_lock_counts_while_a_living_process_holds_it(self) -> None:
        import fcntl

        path = self.dir / "state" / "daemon.lock"
        path.parent.mkdir()
        held = {"pid": os.getpid(), "socket": self.socket, "state": "restarting"}
        path.write_text(json.dumps(held))
        endpoint = Endpoint(self.socket, str(path))
        self.assertEqual(endpoint.lock(), "free")
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.assertEqual(endpoint.lock(), "restarting")
            self.assertEqual(Endpoint("/other", str(path)).lock(), "free")
            with mock.patch.dict(os.environ):
                del os.environ["AGENTD_SOCKET"]
                self.assertEqual(Endpoint.find(None).path, self.socket)
                self.assertEqual(Endpoint.find("/given").path, "/given")
            for word, state in [("starting", "starting"), ("new", "running")]:
                path.write_text(json.dumps({**held, "state": word}))
                self.assertEqual(endpoint.lock(), state)
            for broken in ("", "[]", "{}", '{"pid":-1,"socket":"s","state":"running"}'):
                path.write_text(broken)
                self.assertEqual(endpoint.lock(), "free", broken)

    def test_that_another_daemon_follows_is_believed_for_a_minute(self) -> None:
        path = self.dir / "daemon.lock"
        endpoint = Endpoint(self.socket, str(path))
        now = time.clock_gettime(time.CLOCK_BOOTTIME) * 1000
        for state, until, found in [
            ("restarting", now + 30_000, "restarting"),
            ("stopping", now + 30_000, "free"),
            ("restarting", now - 1, "free"),
            ("restarting", now + 120_000, "free"),
            ("restarting", None, "free"),
        ]:
            left = {"pid": 2**31 - 1, "socket": self.socket, "state": state}
            until_ms = None if until is None else int(until)
            path.write_text(json.dumps({**left, "until_boot_ms": until_ms}))
            self.assertEqual(endpoint.lock(), found, (state, until))

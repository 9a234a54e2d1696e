"""Where the daemon is, and the way to it.

Owns the search for the socket, what ``daemon.lock`` says, connecting, and the check that the
server is our own user before the first byte. The same rules as ``client/src/endpoint.rs`` and
``places.rs``. Must not know the protocol, nor what to do when there is no daemon.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ._fallback import RESTART_PATIENCE_MS, Fact, Lock

START = "start it: `agentd`, or `agentctl start`; for good with `agentctl service install`"
"""What to do where no daemon is."""
MAX_SOCKET_PATH = 103 if sys.platform == "darwin" else 107
"""Longest socket path in bytes: the kernel's ``sun_path`` without its closing zero."""
_MAX_LOCK = 16 * 1024
_READ_WITHIN = 0.7
"""A disk that takes longer for the lock hangs, and who waits for that waits for ever."""
_reads_that_hang: dict[str, threading.Thread] = {}
"""Reads that have taken too long so far, one for each file: another one would hang as well."""


@dataclass(frozen=True)
class Places:
    """Where things are when nobody says otherwise."""

    socket: str
    state_dir: str | None

    @classmethod
    def of(cls, env: Mapping[str, str], system: str, uid: int, run_user_is_ours: bool) -> Places:
        """A pure function of the environment."""

        def absolute(name: str) -> str | None:
            value = env.get(name, "")
            return value if value.startswith("/") else None

        home = absolute("HOME")
        support = f"{home}/Library/Application Support/agentd"
        if system == "darwin" and home:
            path, state = f"{support}/agentd.sock", support
        else:
            runtime = absolute("XDG_RUNTIME_DIR")
            if runtime:
                directory = f"{runtime}/agentd"
            elif run_user_is_ours:
                directory = f"/run/user/{uid}/agentd"
            else:
                directory = f"/tmp/agentd-{uid}"
            path = f"{directory}/agentd.sock"
            base = absolute("XDG_STATE_HOME") or (home and f"{home}/.local/state")
            state = f"{base}/agentd" if base else ""
        return cls(path, env.get("AGENTD_STATE_DIR") or state or None)

    @classmethod
    def of_process(cls) -> Places:
        """Those of this process."""
        uid = os.geteuid()
        try:
            found = os.lstat(f"/run/user/{uid}")
            ours = stat.S_ISDIR(found.st_mode) and found.st_uid == uid
        except OSError:
            ours = False
        return cls.of(os.environ, sys.platform, uid, ours)


class NotConnected(Exception):  # noqa: N818
    """Why there is no connection. Nothing was written in any case."""

    def __init__(self, fact: Fact, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.fact: Fact = fact
        self.hint = hint


@dataclass(frozen=True)
class Endpoint:
    """A socket to try, and the lock that says how its daemon is."""

    path: str
    lock_file: str | None

    @classmethod
    def find(cls, given: str | None) -> Endpoint:
        """What was given, ``$AGENTD_SOCKET``, a held ``daemon.lock``, the default."""
        places = Places.of_process()
        lock_file = f"{places.state_dir}/daemon.lock" if places.state_dir else None
        path = given or os.environ.get("AGENTD_SOCKET")
        if not path:
            held = _read_lock(lock_file)
            path = held[0] if held else places.socket
        return cls(path, lock_file)

    def lock(self) -> Lock:
        """What the daemon's lock says about this socket now."""
        held = _read_lock(self.lock_file)
        if held is None or not _same_socket(held[0], self.path):
            return "free"
        return _STATES.get(held[1], "running")

    def connect(self) -> socket.socket:
        """Connects and checks that the server is us: a connection of this family is there at
        once or not at all."""
        length = len(os.fsencode(self.path))
        if length > MAX_SOCKET_PATH:
            raise NotConnected(
                "unusable",
                f"the socket path is {length} bytes, the limit here is {MAX_SOCKET_PATH}: "
                f"`{self.path}`",
                "set `AGENTD_SOCKET` to a shorter path",
            )
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise _failed(self.path, error) from error
        try:
            sock.setblocking(False)
            sock.connect(self.path)
            owner = _peer_uid(sock)
        except (OSError, ValueError) as error:
            sock.close()
            raise _failed(self.path, error) from error
        if owner != os.geteuid():
            sock.close()
            raise NotConnected(
                "foreign-uid",
                f"the server on `{self.path}` runs as uid {owner}, not as uid {os.geteuid()}",
                "nothing was sent; name your own socket with `AGENTD_SOCKET`",
            )
        return sock


_FACTS: dict[int | None, tuple[Fact, str]] = {
    errno.ENOENT: ("no-socket", "there is no socket"),
    errno.ECONNREFUSED: ("refused", "nobody listens on it"),
    errno.EACCES: ("denied", "permission denied"),
    errno.EPERM: ("denied", "permission denied"),
    errno.EAGAIN: ("backlog-full", "its backlog is full"),
}


def _failed(path: str, error: Exception) -> NotConnected:
    number = error.errno if isinstance(error, OSError) else None
    fact, words = _FACTS.get(number, ("unusable", str(error)))
    hints: dict[Fact, str] = {
        "denied": "the socket belongs to somebody else, or its directory does",
        "no-socket": START,
        "refused": START,
    }
    return NotConnected(fact, f"cannot connect to `{path}`: {words}", hints.get(fact))


def _peer_uid(sock: socket.socket) -> int:
    if sys.platform == "darwin":
        # `struct xucred`: version, uid, groups. SOL_LOCAL is 0, LOCAL_PEERCRED is 1.
        answer = sock.getsockopt(0, 1, 76)
        return int(struct.unpack_from("=II", answer)[1])
    answer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("=iIi", answer)[1])


def _same_socket(one: str, other: str) -> bool:
    """A link such as ``/tmp/timmy.sock`` leads to the daemon's own path."""
    if one == other:
        return True
    try:
        return os.path.realpath(one, strict=True) == os.path.realpath(other, strict=True)
    except OSError:
        return False


_STATES: dict[str, Lock] = {
    "starting": "starting",
    "restarting": "restarting",
    "stopping": "stopping",
}
"""What isn't known is from a newer daemon: it is there."""


def _read_lock(path: str | None) -> tuple[str, str] | None:
    """The socket and the state that the lock names, where that is true: a living process holds it,
    or one that is gone said that another follows, less than a minute ago. Nothing is known of one
    whose disk hangs."""
    if path is None:
        return None
    before = _reads_that_hang.get(path)
    if before is not None and before.is_alive():
        return None
    found: list[tuple[str, str] | None] = []
    # `start` returns when it has begun: a busy machine isn't taken for a disk that hangs.
    reading = threading.Thread(
        target=lambda: found.append(_read_lock_now(path)), name="agentd-lock", daemon=True
    )
    try:
        reading.start()
    except RuntimeError:
        # No thread can be made, or the interpreter ends.
        return _read_lock_now(path)
    reading.join(_READ_WITHIN)
    if reading.is_alive():
        _reads_that_hang[path] = reading
        return None
    _reads_that_hang.pop(path, None)
    return found[0] if found else None


def _read_lock_now(path: str) -> tuple[str, str] | None:
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read(_MAX_LOCK))
            pid, found, state = content["pid"], content["socket"], content["state"]
            if not (isinstance(pid, int) and isinstance(found, str) and isinstance(state, str)):
                return None
            if pid <= 0:
                return None
            # A probe could get into a starting daemon's way.
            held = _lives(pid) and _is_locked(file.fileno())
            if held or (state == "restarting" and _is_to_come(content.get("until_boot_ms"))):
                return found, state
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _is_to_come(until_boot_ms: object) -> bool:
    if not isinstance(until_boot_ms, int):
        return False
    # As the daemon counts: the time of suspend, too.
    clock = time.CLOCK_MONOTONIC if sys.platform == "darwin" else time.CLOCK_BOOTTIME
    left = until_boot_ms - time.clock_gettime(clock) * 1000
    return 0 <= left <= RESTART_PATIENCE_MS


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True

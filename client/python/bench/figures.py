"""What the package costs, each figure beside a control of the same run.

    python bench/figures.py PROGRAMS [--strict]

PROGRAMS is the directory of `agentd` and `examples/chaos-worker`, of a release build.

`run_session`, warm: beside the same turn over a connection that is open already, one after the
other. 100 dispatches on 8 workers: beside the same 100 turns given by hand, by pipe, to 8 workers
of their own, each the next one when it is free. With `--strict` a missed limit is an error.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from agentd import Harness, Send

PAIRS = 300
REPETITIONS = 5
TURNS = 100
WORKERS = 8
TURN_MS = 200
ADDED_MS = 3.0
"""Limit of what `run_session` adds to a warm turn."""
OVER = 1.05
"""Limit of the dispatches' time beside the ideal."""


def main() -> int:
    """Measures both and prints a table."""
    programs = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="agentd-figures-", dir="/tmp") as directory:
        place = Path(directory)
        worker = str(programs / "examples" / "chaos-worker")
        config = f'[agents.chaos]\nkind = "jsonl"\ncommand = [{json.dumps(worker)}]\n'
        (place / "config.toml").write_text(config)
        os.environ.update(
            HOME=directory,
            AGENTD_SOCKET=f"{directory}/s",
            AGENTD_STATE_DIR=f"{directory}/state",
            AGENTD_CONFIG=f"{directory}/config.toml",
            AGENTD_ALIAS=f"{directory}/alias",
        )
        daemon = subprocess.Popen([programs / "agentd"], stderr=subprocess.DEVNULL)
        try:
            while not Path(f"{directory}/s").exists():
                if daemon.poll() is not None:
                    raise SystemExit("agentd didn't start")
                time.sleep(0.01)
            print("| figure | control | Python, median [range] | judged | limit | |")
            print("|---|---|---|---|---|---|")
            held = [session_figure(), dispatch_figure(worker)]
            return int("--strict" in sys.argv and not all(held))
        finally:
            daemon.terminate()
            daemon.wait()


def told(figure: str, control: str, ours: str, judged: str, limit: str, *, holds: bool) -> bool:
    """One row."""
    word = "holds" if holds else "**misses**"
    print(f"| {figure} | {control} | {ours} | {judged} | {limit} | {word} |", flush=True)
    return holds


def session_figure() -> bool:
    """`run_session` beside a turn over an open connection."""
    harness = Harness(fallback=False)
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(os.environ["AGENTD_SOCKET"])
        lines = stream.makefile("rb")
        stream.sendall(b'{"type":"hello"}\n')
        lines.readline()

        def control() -> None:
            send = {"type": "send", "text": "x", "agent": "chaos", "stream": False}
            stream.sendall(json.dumps(send).encode() + b"\n")
            while json.loads(lines.readline())["type"] != "message_end":
                pass

        def ours() -> None:
            harness.run_session("x", agent="chaos")

        for _ in range(20):
            control()
            ours()
        pairs = [(took(control), took(ours)) for _ in range(PAIRS)]
    added = statistics.median(mine - bare for bare, mine in pairs)
    bare, mine = (statistics.median(side) for side in zip(*pairs, strict=True))
    quarter = statistics.quantiles([mine for _, mine in pairs], n=10)
    return told(
        "`run_session` on a warm worker",
        f"{bare:.2f} ms, the turn over an open connection",
        f"{mine:.2f} [{quarter[0]:.2f}–{quarter[-1]:.2f}] ms",
        f"+ {added:.2f} ms",
        f"+ {ADDED_MS:g} ms",
        holds=added <= ADDED_MS,
    )


def dispatch_figure(worker: str) -> bool:
    """100 dispatches on 8 workers beside 8 workers that are driven by hand."""
    harness = Harness(fallback=False)
    prompt = f"chaos:sleep-ms {TURN_MS}"
    # As many sessions as workers, each with a worker of its own: all wait at once for a gate.
    gate = Path(os.environ["HOME"], "gate")
    waits = {"prompt": f"chaos:wait-file {gate}", "agent": "chaos"}
    waiting = harness.dispatch_parallel({**waits, "session": f"s{n}"} for n in range(WORKERS))
    while len(harness.request("jobs", state="running")["jobs"]) < WORKERS:
        time.sleep(0.01)
    gate.touch()
    harness.collect(waiting)
    sends: list[Send] = [
        {"prompt": prompt, "agent": "chaos", "session": f"s{n % WORKERS}", "include": []}
        for n in range(TURNS)
    ]

    def dispatched() -> None:
        results = harness.collect(harness.dispatch_parallel(sends))
        assert all(result.ok for result in results)

    hands = [Hand(worker) for _ in range(WORKERS)]
    try:
        pairs = [
            (took(lambda: by_hand(hands, prompt)), took(dispatched)) for _ in range(REPETITIONS)
        ]
    finally:
        for hand in hands:
            hand.close()
    ratios = [mine / bare for bare, mine in pairs]
    bare, mine = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(ratios)
    return told(
        f"{TURNS} dispatches of {TURN_MS} ms on {WORKERS} workers",
        f"{bare:.0f} ms, {WORKERS} workers by pipe",
        f"{mine:.0f} [{min(m for _, m in pairs):.0f}–{max(m for _, m in pairs):.0f}] ms",
        f"× {ratio:.3f}",
        f"× {OVER:g}",
        holds=ratio <= OVER,
    )


class Hand:
    """A worker that is driven by its pipes."""

    def __init__(self, worker: str) -> None:
        self._process = subprocess.Popen(
            [worker], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin: IO[bytes] = self._process.stdin
        self._stdout: IO[bytes] = self._process.stdout

    def turn(self, prompt: str) -> None:
        """One turn, to its final line."""
        send = {"type": "send", "id": 1, "text": prompt, "session": "s", "job": "j1"}
        self._stdin.write(json.dumps(send).encode() + b"\n")
        self._stdin.flush()
        while json.loads(self._stdout.readline())["type"] != "message_end":
            pass

    def close(self) -> None:
        """Ends it."""
        self._stdin.close()
        self._process.wait()
        self._stdout.close()


def by_hand(hands: list[Hand], prompt: str) -> None:
    """All turns, each to a hand that is free."""
    left = iter(range(TURNS))
    lock = threading.Lock()

    def work(hand: Hand) -> None:
        while True:
            with lock:
                if next(left, None) is None:
                    return
            hand.turn(prompt)

    threads = [threading.Thread(target=work, args=(hand,)) for hand in hands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def took(work: Callable[[], None]) -> float:
    """Milliseconds."""
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


if __name__ == "__main__":
    sys.exit(main())

"""The examples, run as they are."""

from __future__ import annotations

import subprocess
import sys
import unittest
from pathlib import Path

from .support import DEADLINE, WithDaemon

EXAMPLES = Path(__file__).parents[1] / "examples"


class Examples(WithDaemon):
    def run_example(self, *words: str) -> str:
        command = [sys.executable, *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_planner_reaches_its_goal(self) -> None:
        said = self.run_example(str(EXAMPLES / "goap.py"))
        self.assertIn("round 3: review by timmy", said)
        self.assertIn("the goal holds: ", said)

    def test_the_planner_plans_again_what_an_agent_failed_to_do(self) -> None:
        # An agent that dies at every turn, between two that work.
        with open(self.dir / "config.toml", "a") as file:
            file.write('[agents.broken]\nkind = "exec"\ncommand = ["false"]\n')
        self.kill(self.daemon)
        self.start()
        said = self.run_example(str(EXAMPLES / "goap.py"), "chaos", "broken", "timmy")
        self.assertIn("by broken: failed (agent-failed), planned again", said)
        self.assertIn("the goal holds: ", said)


if __name__ == "__main__":
    unittest.main()

"""The examples, run as they are."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path

import agentd

from .support import DEADLINE, Models, WithDaemon

EXAMPLES = Path(__file__).parents[1] / "examples"


class Shapes(WithDaemon):
    """Calls as programs write them that were made for other harnesses."""

    def setUp(self) -> None:
        self.models = Models(broken=("kimi-for-coding",))
        self.addCleanup(self.models.close)
        super().setUp()

    def start(self) -> None:
        with open(self.dir / "config.toml", "a") as file:
            file.write(f'[providers.kimi-coding]\nbase_url = "{self.models.url}"\n')
            for name in ("ollama", "lmstudio", "llamacpp"):
                file.write(f'[providers.{name}]\nbase_url = "http://127.0.0.1:9/v1"\n')
            file.write('[agents.ezra]\nkind = "exec"\ncommand = ["cat"]\n')
            file.write('[agents.bezalel]\nkind = "exec"\ncommand = ["rev"]\n')
        os.environ["KIMI_API_KEY"] = "sk-kimi-test"
        super().start()

    def test_a_dispatch_with_names_of_elsewhere_runs_as_it_stands(self) -> None:
        harness = self.harness
        result = harness.dispatch({
            'agent': 'timmy',
            'provider': 'kimi-coding',
            'prompt': 'Analyze this git diff',
            'tools': ['git_tools', 'file_tools'],
            'timeout': 30,
            'fallback_chain': ['kimi-k2.5', 'local-llm']
        })  # fmt: skip
        self.assertEqual((result.final_response, result.model), ("kimi-k2.5", "kimi-k2.5"))
        assert result.api_calls is not None
        asked = [call["model"] for call in result.api_calls]
        self.assertEqual(list(dict.fromkeys(asked)), ["kimi-for-coding", "kimi-k2.5"])
        tools = {tool["function"]["name"] for tool in self.models.asked[-1]["tools"]}
        self.assertIn("read", tools)
        self.assertNotIn("bash", tools)
        assert result.job is not None
        notes = []
        for event in harness.events(after=0):
            if event["type"] == "note":
                notes.append(event["text"])
            if event["type"] == "live":
                break
        for left_out in ("`git_tools`", "`local-llm`"):
            self.assertTrue(any(left_out in note for note in notes), notes)

    def test_a_session_and_parallel_dispatches_too(self) -> None:
        result = agentd.run_session(
            provider="kimi-coding",
            model="kimi-k2.5",
            prompt="Work on issue #98...",
            toolsets=["terminal", "file"],
            timeout=300,
        )
        self.assertEqual(result.final_response, "kimi-k2.5")
        assert result.api_calls is not None
        self.assertEqual((len(result.api_calls), result.tool_trace), (1, []))
        harness = self.harness
        job_ids = harness.dispatch_parallel([
            {'agent': 'timmy', 'prompt': 'Task 1...'},
            {'agent': 'ezra', 'prompt': 'Task 2...'},
            {'agent': 'bezalel', 'prompt': 'Task 3...'}
        ])  # fmt: skip
        results = harness.collect(job_ids)
        said = [result.final_response for result in results]
        self.assertEqual(said, ["Task 1...", "Task 2...", "...3 ksaT"])


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

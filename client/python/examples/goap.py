"""A planner's loop: decompose a goal, dispatch its tasks over agents, collect, plan again.

    python goap.py                              three times the scripted agent, no model needed
    python goap.py pi claude gemini             three agents of this machine

A world is a set of facts. An action needs some facts and makes others; the planner takes those
that are open, hands them to the agents in parallel, and believes a fact only when its turn ended
well. What failed is planned again, for another agent.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, islice

from agentd import Harness, Result, Send

ROUNDS = 8
"""A plan that needs more doesn't converge."""
MINUTES = 10


@dataclass(frozen=True)
class Action:
    """Something an agent can do once ``needs`` hold; then ``makes`` holds."""

    makes: str
    prompt: str
    needs: frozenset[str] = frozenset()


ACTIONS = (
    Action("facts", "List three facts about lighthouses."),
    Action("title", "Find a title for a page about lighthouses."),
    Action("draft", "Write the page.", frozenset({"facts", "title"})),
    Action("review", "Review the page.", frozenset({"draft"})),
)


def plan(goal: str, known: Mapping[str, str]) -> list[Action]:
    """What can be done now and is still needed for the goal."""
    by_fact = {action.makes: action for action in ACTIONS}
    open_actions: list[Action] = []
    looked_at: set[str] = set()
    wanted = [goal]
    while wanted:
        fact = wanted.pop()
        if fact in known or fact in looked_at:
            continue
        looked_at.add(fact)
        action = by_fact[fact]
        missing = action.needs - known.keys()
        if missing:
            wanted.extend(sorted(missing))
        else:
            open_actions.append(action)
    return open_actions


def prompt(action: Action, known: Mapping[str, str]) -> str:
    """An action's words, with the facts that it needs."""
    return "\n".join([action.prompt, *(f"{fact}: {known[fact]}" for fact in sorted(action.needs))])


def achieve(harness: Harness, goal: str, team: list[Send]) -> dict[str, str]:
    """Runs the loop until the goal holds, and gives all facts."""
    known: dict[str, str] = {}
    turns = cycle(team)
    for number in range(1, ROUNDS + 1):
        actions = plan(goal, known)
        if not actions:
            return known
        members = list(islice(turns, len(actions)))
        sends = [
            {**member, "prompt": prompt(action, known), "labels": {"goal": goal}}
            for action, member in zip(actions, members, strict=True)
        ]
        jobs = harness.dispatch_parallel(sends)
        results = harness.collect(jobs, timeout=60 * MINUTES)
        for action, result in zip(actions, results, strict=True):
            print(f"round {number}: {action.makes} by {result.agent}: {told(result)}")
            if result.ok:
                known[action.makes] = result.final_response
    raise SystemExit(f"`{goal}` isn't reached after {ROUNDS} rounds")


def told(result: Result) -> str:
    """A result in a few words."""
    if result.error is not None:
        return f"failed ({result.error.code}), planned again"
    return f"done in {result.duration_ms} ms"


def main() -> None:
    """Reaches the goal `review`."""
    echo: Send = {"agent": "timmy", "provider": "echo"}
    team: list[Send] = [{"agent": name} for name in sys.argv[1:]] or [echo, echo, echo]
    known = achieve(Harness(name="goap"), "review", team)
    print(f"the goal holds: {', '.join(known)}")


if __name__ == "__main__":
    main()

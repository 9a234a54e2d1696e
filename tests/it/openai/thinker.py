"""An agent that thinks, calls a tool in vain, and says something: PROTOCOL.md part 8."""

import json
import sys

TOLD = [
    {"type": "message_start", "message": 0, "role": "assistant"},
    {"type": "thinking_delta", "message": 0, "offset": 0, "text": "hm"},
    {"type": "tool_start", "tool_call_id": "c1", "name": "bash", "input": {"a": 1}, "read_only": False},
    {"type": "tool_end", "tool_call_id": "c1", "ok": False, "output": "no such thing"},
    {"type": "message_delta", "message": 0, "offset": 0, "text": "said"},
    {"type": "message_end", "stop": "end_turn", "text": "said", "usage": {"input_tokens": 3, "output_tokens": 2}},
]

for line in sys.stdin:
    asked = json.loads(line)
    lines = TOLD if asked["type"] == "send" else [{"type": "status", "ok": True}]
    for told in lines:
        print(json.dumps({**told, "id": asked["id"]}), flush=True)

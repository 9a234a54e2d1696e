# An agent in 15 lines of Python: it starts with the first send, and stays
#: printf '[agents.mine]\nkind = "jsonl"\ncommand = ["%s", "%s/tests/fixtures/worker.py"]\n' "$(command -v python3)" "$ROOT" >"$AGENTD_CONFIG"
#: agentd() { command agentd 2>>log; }
#: agentd & until agentctl status >log 2>&1; do sleep 0.05; done
agentctl send --agent mine --session main "hello"
agentctl send --session main "and again"
agentctl send --session main "and once more"
#: agentctl stop

# One queue for several agents, here timmy, tr and wc
#: printf '[agents.timmy]\nprovider = "echo"\n[agents.upper]\nkind = "exec"\ncommand = ["tr", "a-z", "A-Z"]\n[agents.count]\nkind = "exec"\ncommand = ["wc", "-w"]\n' >"$AGENTD_CONFIG"
#: agentd() { command agentd 2>>log; }
#: agentd & until agentctl status >log 2>&1; do sleep 0.05; done
agentctl dispatch --agent timmy --label run=7 "say it back" > jobs
agentctl dispatch --agent upper --label run=7 "in capitals" >> jobs
agentctl dispatch --agent count --label run=7 "how many words are these" >> jobs
#: agentctl collect --json $(cat jobs) >log
agentctl collect $(cat jobs)
agentctl jobs --label run=7
#: agentctl stop

# kill -9 in the middle of the work: the next daemon goes on with it
#: printf 'default_agent = "timmy"\n[agents.timmy]\nprovider = "echo"\n' >"$AGENTD_CONFIG"
#: agentd() { exec agentd 2>>log; }
#: agentd & DAEMON=$!; disown; until agentctl status >log 2>&1; do sleep 0.05; done
agentctl dispatch --session s --retry auto "one" "[[sleep 400]] two" "three" > jobs
kill -9 $DAEMON
agentd &
#: until agentctl status >log 2>&1; do sleep 0.05; done
agentctl collect $(cat jobs)
#: agentctl stop

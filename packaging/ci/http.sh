#!/bin/bash
# HTTP as other programs know it: its document is valid, what it says of the server is true of a
# real one, and a client made of nothing but the document works.
#
#   bash packaging/ci/http.sh DIRECTORY [CASES]      where the tools are kept between runs, and how many
#                                                    cases of each kind are made up for each operation
set -euo pipefail
cd "$(dirname "$0")/../.."

mkdir -p "$1"
tools=$(cd "$1" && pwd)
programs=$(pwd)/target/debug
# A socket's path is short.
place=$(mktemp -d /tmp/agentd-http-XXXXXX)
daemon='' server=''
# shellcheck disable=SC2329
leave() {
    for pid in $server $daemon; do
        kill "$pid" 2>/dev/null || :
        wait "$pid" 2>/dev/null || :
    done
    rm -rf "$place"
}
trap leave EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PYTHONDONTWRITEBYTECODE=1

versions="openapi-spec-validator==0.9.0 schemathesis==4.32.5 openapi-python-client==0.29.1 mypy==2.4.1"
if [ "$(cat "$tools/versions" 2>/dev/null)" != "$versions" ]; then
    rm -rf "$tools"
    python3 -m venv "$tools"
    # shellcheck disable=SC2086
    "$tools/bin/pip" install --quiet $versions
    echo "$versions" >"$tools/versions"
fi

mkdir "$place/home" "$place/run"
printf 'default_agent = "timmy"\n[agents.timmy]\nprovider = "echo"\n' >"$place/config.toml"
export HOME=$place/home AGENTD_SOCKET=$place/agentd.sock AGENTD_STATE_DIR=$place/state \
    AGENTD_CONFIG=$place/config.toml AGENTD_ALIAS=$place/timmy.sock
"$programs/agentd" 2>"$place/agentd.log" &
daemon=$!
"$programs/agentctl" serve http --listen 127.0.0.1:0 >"$place/said" 2>"$place/http.log" &
server=$!
until [ -s "$place/said" ] && "$programs/agentctl" status >/dev/null 2>&1; do
    if ! kill -0 "$server" || ! kill -0 "$daemon"; then cat "$place"/*.log; exit 1; fi
    [ $SECONDS -lt 120 ] || { echo "not up after 120 s"; exit 1; }
done
url=$(sed 's/ .*//' "$place/said")
token=$("$programs/agentctl" token)

printf 'header = "Authorization: Bearer %s"\n' "$token" >"$place/curl"
curl -sS --fail -K "$place/curl" "$url/openapi.json" >"$place/openapi.json"
"$tools/bin/openapi-spec-validator" "$place/openapi.json"

# A second client, and what its user would write.
PATH=$tools/bin:$PATH openapi-python-client generate --path "$place/openapi.json" \
    --output-path "$place/client" --meta none --fail-on-warning
mv "$place/client" "$place/agentd_http"
cat >"$place/user.py" <<'PYTHON'
import os

from agentd_http import AuthenticatedClient
from agentd_http.api.default import dispatch, get_job, list_agents
from agentd_http.models import Dispatched, Job, One, Problem

client = AuthenticatedClient(base_url=os.environ["URL"], token=os.environ["TOKEN"])
done = dispatch.sync(client=client, body=Job(prompt="hello"), wait=20, idempotency_key="once")
assert isinstance(done, Dispatched), done
assert done.results[0].text == "hello", done
job = get_job.sync(done.jobs[0].job, client=client)
assert isinstance(job, One) and job.state == "completed", job
again = dispatch.sync(client=client, body=Job(prompt="hello"), idempotency_key="once")
assert isinstance(again, Dispatched) and again.jobs[0].replayed, again
refused = dispatch.sync(client=client, body=Job(prompt="hello", agent="nobody"))
assert isinstance(refused, Problem) and refused.code == "unknown-agent", refused
assert list_agents.sync(client=client) is not None
print("the client made of the document works")
PYTHON
(cd "$place" && "$tools/bin/mypy" --cache-dir "$place/mypy" --strict --follow-imports=silent user.py)
(cd "$place" && URL=$url TOKEN=$token "$tools/bin/python" user.py)

# What the document allows, and much that it doesn't, against the server itself.
(cd "$place/run" && URL=$url TOKEN=$token \
    "$tools/bin/st" --config-file "$OLDPWD/packaging/ci/schemathesis.toml" run \
    --max-examples "${2:-10}" "$place/openapi.json")
kill -0 "$server" && kill -0 "$daemon"
"$programs/agentctl" status >/dev/null
if grep -E 'panicked| 500 [0-9]+ ms' "$place"/*.log; then exit 1; fi

#!/bin/bash
# The Python package as a newcomer gets it: a wheel, in a fresh environment, against the daemon of
# target/debug; and its types and style.
#
#   bash packaging/ci/python.sh DIRECTORY [all]      where mypy and ruff are kept between runs: empty, or
#                                                    not there, or made by this; `all` tries every other
#                                                    Python that is here, too
set -euo pipefail
cd "$(dirname "$0")/../.."

mkdir -p "$1"
tools=$(cd "$1" && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PYTHONDONTWRITEBYTECODE=1

versions="mypy==2.4.1 ruff==0.17.6 setuptools==84.2.1 standardwebhooks==1.1.0"
if [ "$(cat "$tools/versions" 2>/dev/null)" != "$versions" ]; then
    if [ ! -e "$tools/pyvenv.cfg" ] && [ -n "$(ls -A "$tools")" ]; then
        echo "python.sh: \`$tools\` has files and is no Python environment: name a directory that is empty, or isn't there" >&2
        exit 2
    fi
    rm -rf "$tools"
    python3 -m venv "$tools"
    # shellcheck disable=SC2086
    "$tools/bin/pip" install --quiet $versions
    echo "$versions" >"$tools/versions"
fi

# Built from a copy: building leaves files beside the sources.
cp -r client/python "$place/package"
"$tools/bin/pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$place" "$place/package"
python3 -m venv "$place/fresh"
"$place/fresh/bin/pip" install --quiet --no-index "$place"/agentd-*.whl
rm -rf "$place/package/src"

(cd client/python && "$tools/bin/ruff" check --no-cache . && "$tools/bin/ruff" format --no-cache --check .)
(cd client/python && "$tools/bin/mypy" --cache-dir "$place/mypy")
# The types of the installed package, as its users see them.
cat >"$place/user.py" <<'USER'
import agentd
reveal_type(agentd.run_session("x", timeout=5).cost.usd)
reveal_type(agentd.Harness().jobs(state="running"))
agentd.Harness().run_session("x", timeot=5)
USER
"$tools/bin/mypy" --strict --cache-dir "$place/mypy" --python-executable "$place/fresh/bin/python" \
    "$place/user.py" >"$place/said" || true
for fact in 'float | None' 'list[agentd.rows.Job]' 'did you mean "timeout"' 'Found 1 error'; do
    grep -F "$fact" "$place/said" || { cat "$place/said" >&2; exit 1; }
done

repository=$PWD
cd "$place/package"
env -u PYTHONPATH AGENTD_REPOSITORY="$repository" AGENTD_STANDARD_WEBHOOKS="$tools/bin/python" \
    "$place/fresh/bin/python" -m unittest
[ "${2:-}" = all ] || exit 0
# asyncio isn't the same in all of them.
ours=$("$place/fresh/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$place/fresh/bin/pip" install --quiet --no-index --target "$place/wheel" "$place"/agentd-*.whl
for version in 3.10 3.11 3.12 3.13 3.14; do
    [ "$version" != "$ours" ] && "python$version" -c '' 2>/dev/null || continue
    echo "with Python $version"
    PYTHONPATH="$place/wheel" AGENTD_REPOSITORY="$repository" AGENTD_STANDARD_WEBHOOKS="$tools/bin/python" \
        "python$version" -m unittest
done

#!/bin/sh
# Installs OpenAI's own clients for the integration tests: a Python with `openai`, and the npm package
# with a node that runs it. What is there already stays.
#
#   packaging/ci/install-openai.sh [DIR]     DIR: target/ci/openai, where the tests look by default
set -eu

PYTHON=3.54.0
NPM=7.57.0

. "$(dirname "$0")/npm.sh"
place "${1:-target/ci/openai}"

if [ "$(cat "$dir/versions" 2>/dev/null)" != "$PYTHON $NPM" ]; then
    rm -rf "$dir/python" "$dir/node_modules" "$dir/bin"
    quietly python3 -m venv "$dir/python"
    quietly "$dir/python/bin/pip" install --quiet --disable-pip-version-check "openai==$PYTHON"
    install "$dir" "openai@$NPM"
    find_node
    mkdir -p "$dir/bin"
    ln -s "$node" "$dir/bin/node"
    # It comes last: its presence means that everything before it went well.
    echo "$PYTHON $NPM" >"$dir/versions"
fi

rm -f "$dir/log"
echo "openai $PYTHON for Python and $NPM for node are in $dir"

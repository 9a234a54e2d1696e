#!/bin/sh
# Installs two MCP servers of the protocol's own project for the integration tests, with a node that
# runs them: target/ci/mcp/NAME/bin/NAME. What is there already stays.
#
#   packaging/ci/install-mcp.sh
#
# The node is the one that install-pi.sh puts into target/ci/pi, where that was run before.
set -eu

EVERYTHING=2026.8.31
FILESYSTEM=2026.8.31
NODE=22

cd "$(dirname "$0")/../.."
mkdir -p target/ci/mcp
dir=$(cd target/ci/mcp && pwd)

quietly() {
    "$@" >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
}

install() {
    prefix=$1
    shift
    mkdir -p "$prefix"
    quietly npm install --prefix "$prefix" --no-audit --no-fund --no-save "$@"
}

node=$(dirname "$dir")/pi/node-$NODE/node_modules/node/bin/node
if ! "$node" --version >/dev/null 2>&1; then
    node=$dir/node-$NODE/node_modules/node/bin/node
    if ! "$node" --version >/dev/null 2>&1; then
        rm -rf "$dir/node-$NODE"
        install "$dir/node-$NODE" "node@$NODE"
        quietly "$node" --version
    fi
fi

# server NAME VERSION: a program of this name. It comes last: its presence means that everything
# before it went well.
server() {
    name=$1
    if ! [ -x "$dir/$name/bin/$name" ]; then
        install "$dir/$name" "@modelcontextprotocol/server-$name@$2"
        mkdir -p "$dir/$name/bin"
        main=$dir/$name/node_modules/@modelcontextprotocol/server-$name/dist/index.js
        [ -f "$main" ] || { echo "no $main" >&2; exit 1; }
        printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$node" "$main" >"$dir/$name/bin/$name.new"
        chmod +x "$dir/$name/bin/$name.new"
        mv "$dir/$name/bin/$name.new" "$dir/$name/bin/$name"
    fi
    echo "$name in $dir/$name"
}

server everything "$EVERYTHING"
server filesystem "$FILESYSTEM"

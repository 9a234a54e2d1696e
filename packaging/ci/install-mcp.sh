#!/bin/sh
# Installs two MCP servers of the protocol's own project for the integration tests, with a node that
# runs them: target/ci/mcp/NAME/bin/NAME. What is there already stays.
#
#   packaging/ci/install-mcp.sh
set -eu

EVERYTHING=2026.8.31
FILESYSTEM=2026.8.31

. "$(dirname "$0")/npm.sh"
place target/ci/mcp

find_node

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

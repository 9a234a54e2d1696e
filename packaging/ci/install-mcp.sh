#!/bin/sh
# Installs two MCP servers of the protocol's own project and its inspector, a client, for the integration
# tests, with a node that runs them: target/ci/mcp/NAME/bin/NAME. What is there already stays.
#
#   packaging/ci/install-mcp.sh
set -eu

EVERYTHING=2026.8.31
FILESYSTEM=2026.8.31
INSPECTOR=2.12.0

. "$(dirname "$0")/npm.sh"
place target/ci/mcp

find_node

# program NAME PACKAGE VERSION MAIN: a program of this name. It comes last: its presence means that
# everything before it went well.
program() {
    name=$1
    if ! [ -x "$dir/$name/bin/$name" ]; then
        install "$dir/$name" "@modelcontextprotocol/$2@$3"
        mkdir -p "$dir/$name/bin"
        main=$dir/$name/node_modules/@modelcontextprotocol/$2/$4
        [ -f "$main" ] || { echo "no $main" >&2; exit 1; }
        printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$node" "$main" >"$dir/$name/bin/$name.new"
        chmod +x "$dir/$name/bin/$name.new"
        mv "$dir/$name/bin/$name.new" "$dir/$name/bin/$name"
    fi
    echo "$name in $dir/$name"
}

program everything server-everything "$EVERYTHING" dist/index.js
program filesystem server-filesystem "$FILESYSTEM" dist/index.js
program inspector inspector "$INSPECTOR" clients/launcher/build/index.js

#!/bin/sh
# Installs clients of the Agent Client Protocol for the integration tests of `agentctl serve acp`:
# target/ci/acp-clients/bin/acpx, and the TypeScript SDK with a node that runs it. What is there
# already stays.
#
#   packaging/ci/install-acp-clients.sh
set -eu

ACPX=0.19.1
SDK=2.4.0

. "$(dirname "$0")/npm.sh"
place target/ci/acp-clients

find_node

if [ "$(cat "$dir/version" 2>/dev/null)" != "$ACPX $SDK" ]; then
    rm -rf "${dir:?}/node_modules" "$dir/bin" "$dir/version"
    install "$dir" "acpx@$ACPX" "@agentclientprotocol/sdk@$SDK"
    mkdir -p "$dir/bin"
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$node" >"$dir/bin/node"
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$node" "$dir/node_modules/acpx/dist/cli.js" >"$dir/bin/acpx"
    chmod +x "$dir/bin/node" "$dir/bin/acpx"
    quietly "$dir/bin/acpx" --version </dev/null
    echo "$ACPX $SDK" >"$dir/version"
fi

rm -f "$dir/log"
echo "acpx $ACPX and the SDK $SDK are in $dir"

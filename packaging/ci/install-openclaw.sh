#!/bin/sh
# Installs OpenClaw for the integration tests, with a node that is new enough for it:
# DIR/bin/openclaw. What is there already stays.
#
#   packaging/ci/install-openclaw.sh [DIR]  DIR: target/ci/openclaw, where the tests look by default
set -eu

VERSION=2026.9.6
# It refuses anything older.
NODE=24.21.0

. "$(dirname "$0")/npm.sh"
place "${1:-target/ci/openclaw}"

if ! [ -x "$dir/bin/openclaw" ] || [ "$(cat "$dir/version")" != "$VERSION" ]; then
    rm -rf "$dir/bin" "$dir/openclaw" "$dir/node" "$dir/home"
    echo "$VERSION" >"$dir/version"
    install "$dir/node" "node@$NODE"
    node=$dir/node/node_modules/node/bin/node
    quietly "$node" --version
    # Its install scripts are run by the same node as it is.
    PATH=$(dirname "$node"):$PATH install "$dir/openclaw" "openclaw@$VERSION"
    # The program comes last: its presence means that everything before it went well.
    mkdir -p "$dir/bin" "$dir/home"
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$node" \
        "$dir/openclaw/node_modules/openclaw/openclaw.mjs" >"$dir/bin/openclaw.new"
    chmod +x "$dir/bin/openclaw.new"
    quietly env HOME="$dir/home" "$dir/bin/openclaw.new" --version </dev/null
    mv "$dir/bin/openclaw.new" "$dir/bin/openclaw"
fi

rm -f "$dir/log"
echo "openclaw $VERSION is in $dir"

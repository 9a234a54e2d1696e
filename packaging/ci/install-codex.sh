#!/bin/sh
# Installs OpenAI Codex for the integration tests: DIR/bin/codex. What is there already stays.
#
#   packaging/ci/install-codex.sh [DIR]     DIR: target/ci/codex, where the tests look by default
#
# The package is a launcher and one native program: the link goes to the native one, so that no node
# runs beside every process.
set -eu

VERSION=0.169.0

. "$(dirname "$0")/npm.sh"
place "${1:-target/ci/codex}"

if [ "$("$dir/bin/codex" --version 2>/dev/null)" != "codex-cli $VERSION" ]; then
    rm -rf "$dir/node_modules" "$dir/bin"
    install "$dir" "@openai/codex@$VERSION"
    native=$(find "$dir/node_modules/@openai" -type f -name codex -perm -100 | head -n 1)
    [ -n "$native" ] || { echo "the package has no native program" >&2; exit 1; }
    # The link comes last: its presence means that everything before it went well.
    quietly "$native" --version
    mkdir -p "$dir/bin"
    ln -s "$native" "$dir/bin/codex"
fi

rm -f "$dir/log"
echo "codex $VERSION is in $dir"

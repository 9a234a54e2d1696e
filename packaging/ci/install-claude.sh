#!/bin/sh
# Installs Claude Code for the integration tests: DIR/claude-VERSION/bin/claude. What is there already
# stays.
#
#   packaging/ci/install-claude.sh [DIR]    DIR: target/ci/claude, where the tests look by default
#
# The package brings a program for each platform as a package of its own, which needs no node.
set -eu

VERSION=2.1.329

. "$(dirname "$0")/npm.sh"
place "${1:-target/ci/claude}"

prefix=$dir/claude-$VERSION
if ! [ -x "$prefix/bin/claude" ]; then
    rm -rf "$prefix"
    mkdir -p "$prefix/bin"
    install "$prefix" "@anthropic-ai/claude-code@$VERSION"
    program=
    for found in "$prefix"/node_modules/@anthropic-ai/claude-code-*/claude; do
        # One of several, where there are some for more than one C library.
        if "$found" --version </dev/null >"$dir/log" 2>&1; then
            program=$found
        fi
    done
    [ -n "$program" ] || { cat "$dir/log" >&2; exit 1; }
    # The link comes last: its presence means that everything before it went well.
    ln -s "$program" "$prefix/bin/claude.new"
    mv "$prefix/bin/claude.new" "$prefix/bin/claude"
fi

rm -f "$dir/log"
echo "Claude Code $VERSION is in $dir"

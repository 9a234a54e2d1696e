#!/bin/sh
# Installs agents that speak the Agent Client Protocol for the integration tests, with a node that
# runs them: target/ci/acp/NAME/bin/NAME for each. What is there already stays.
#
#   packaging/ci/install-acp.sh [NAME…]     NAME: gemini, opencode, hermes,
#                                           claude-agent-acp, codex-acp; gemini by itself
set -eu

GEMINI=0.61.0
OPENCODE=1.18.33
HERMES=0.19.0
# Its API server needs it.
AIOHTTP=3.14.1
CLAUDE=0.100.0
CODEX=2.6.0

. "$(dirname "$0")/npm.sh"
place target/ci/acp

find_node

# wrap NAME COMMAND…: a program of this name. It comes last: its presence means that everything before
# it went well.
wrap() {
    name=$1
    shift
    mkdir -p "$dir/$name/bin"
    {
        printf '#!/bin/sh\nexec'
        printf ' "%s"' "$@"
        printf ' "$@"\n'
    } >"$dir/$name/bin/$name.new"
    chmod +x "$dir/$name/bin/$name.new"
    mkdir -p "$dir/home"
    quietly env HOME="$dir/home" "$dir/$name/bin/$name.new" --version </dev/null
    mv "$dir/$name/bin/$name.new" "$dir/$name/bin/$name"
}

[ $# -gt 0 ] || set -- gemini
for agent; do
    case $agent in
        gemini) version=$GEMINI ;;
        opencode) version=$OPENCODE ;;
        hermes) version="$HERMES with mcp" ;;
        claude-agent-acp) version=$CLAUDE ;;
        codex-acp) version=$CODEX ;;
        *) echo "usage: packaging/ci/install-acp.sh [gemini|opencode|hermes|claude-agent-acp|codex-acp]…" >&2; exit 2 ;;
    esac
    if [ -x "$dir/$agent/bin/$agent" ] && [ "$(cat "$dir/$agent/version")" = "$version" ]; then
        continue
    fi
    rm -rf "${dir:?}/$agent"
    mkdir -p "$dir/$agent"
    echo "$version" >"$dir/$agent/version"
    case $agent in
        gemini)
            install "$dir/$agent" "@google/gemini-cli@$version"
            wrap gemini "$node" "$dir/$agent/node_modules/@google/gemini-cli/bundle/gemini.js"
            ;;
        opencode)
            # Its launcher is replaced by the platform's own program, where npm runs scripts or not.
            install "$dir/$agent" "opencode-ai@$version"
            program=$(find "$dir/$agent/node_modules" -path '*/opencode-linux-*/bin/opencode' -not -path '*baseline*' | head -n 1)
            wrap opencode "${program:?the package has no program for this machine}"
            ;;
        hermes)
            quietly python3 -m venv "$dir/$agent/venv"
            quietly "$dir/$agent/venv/bin/pip" install --quiet "hermes-agent[acp,mcp]==$HERMES" "aiohttp==$AIOHTTP"
            wrap hermes "$dir/$agent/venv/bin/hermes"
            ;;
        claude-agent-acp)
            # It brings a Claude Code of its own.
            install "$dir/$agent" "@agentclientprotocol/claude-agent-acp@$version"
            wrap claude-agent-acp "$node" \
                "$dir/$agent/node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js"
            ;;
        codex-acp)
            # It brings a Codex of its own.
            install "$dir/$agent" "@agentclientprotocol/codex-acp@$version"
            wrap codex-acp "$node" "$dir/$agent/node_modules/@agentclientprotocol/codex-acp/dist/index.js"
            ;;
    esac
done

rm -f "$dir/log"
echo "$* in $dir"

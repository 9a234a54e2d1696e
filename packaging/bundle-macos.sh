#!/bin/bash
# Builds AgentHelper.app, with the daemon, its command line and its launch agent inside, signed ad hoc.
#
#   bash packaging/bundle-macos.sh [DIR]             on a Mac: DIR/AgentHelper.app, target/macos by default
#   bash packaging/bundle-macos.sh --layout DIR BIN  the bundle around programs that are in BIN, unsigned, anywhere
#
# Not run on a Mac yet. The layout is checked on Linux by `macos/test-on-debian.sh bundle`.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "packaging/bundle-macos.sh: $*" >&2
    exit 1
}

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
[ -n "$version" ] || fail "Cargo.toml names no version"

# property NAME TYPE VALUE
property() { printf '\t<key>%s</key>\n\t<%s>%s</%s>\n' "$1" "$2" "$3" "$2"; }

plist() {
    printf '%s\n' '<?xml version="1.0" encoding="UTF-8"?>' \
        '<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">' \
        '<plist version="1.0">' '<dict>'
    cat
    printf '</dict>\n</plist>\n'
}

# layout APP BIN
layout() {
    local app=$1 bin=$2 program
    rm -rf "$app"
    mkdir -p "$app/Contents/MacOS" "$app/Contents/Library/LaunchAgents"
    for program in agentd agentctl timmy AgentHelper; do
        [ -x "$bin/$program" ] || fail "no $program in $bin"
        install -m 755 "$bin/$program" "$app/Contents/MacOS/$program"
    done
    {
        property CFBundleIdentifier string local.agentd.helper
        property CFBundleName string AgentHelper
        property CFBundleExecutable string AgentHelper
        property CFBundlePackageType string APPL
        property CFBundleShortVersionString string "$version"
        property CFBundleVersion string "$version"
        property LSMinimumSystemVersion string 14.0
        printf '\t<key>LSUIElement</key>\n\t<true/>\n'
    } | plist >"$app/Contents/Info.plist"
    # Of packaging/launchd/agentd.plist what a bundle can have: its program moves with it, and no path
    # or variable of a user is known here. So launchd holds no socket, and the log is the daemon's own.
    {
        property Label string local.agentd
        property BundleProgram string Contents/MacOS/agentd
        printf '\t<key>RunAtLoad</key>\n\t<true/>\n'
        printf '\t<key>KeepAlive</key>\n\t<dict>\n\t\t<key>SuccessfulExit</key>\n\t\t<false/>\n\t</dict>\n'
        property ThrottleInterval integer 10
        property ExitTimeOut integer 25
        property ProcessType string Background
        printf '\t<key>AssociatedBundleIdentifiers</key>\n\t<array>\n\t\t<string>local.agentd.helper</string>\n\t</array>\n'
    } | plist >"$app/Contents/Library/LaunchAgents/local.agentd.plist"
    # Launchd makes the Mach service of whoever it starts: the helper's own agent, which the app
    # registers (Sources/AgentViews/StartAtLogin.swift).
    {
        property Label string local.agentd.helper
        property BundleProgram string Contents/MacOS/AgentHelper
        printf '\t<key>MachServices</key>\n\t<dict>\n\t\t<key>local.agentd.helper.xpc</key>\n\t\t<true/>\n\t</dict>\n'
        printf '\t<key>RunAtLoad</key>\n\t<true/>\n'
        property ProcessType string Interactive
    } | plist >"$app/Contents/Library/LaunchAgents/local.agentd.helper.plist"
}

if [ "${1:-}" = --layout ]; then
    [ $# = 3 ] || fail "--layout wants a directory, and one with the programs"
    layout "$2/AgentHelper.app" "$3"
    exit
fi

[ "$(uname)" = Darwin ] || fail "needs macOS; \`--layout DIR BIN\` makes an unsigned one anywhere"
dir=${1:-target/macos}
cargo build --release --bins
swift build --package-path macos -c release --product AgentHelper
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
for program in agentd agentctl timmy; do cp "target/release/$program" "$bin/"; done
cp "$(swift build --package-path macos -c release --show-bin-path)/AgentHelper" "$bin/"
layout "$dir/AgentHelper.app" "$bin"
plutil -lint "$dir/AgentHelper.app/Contents/Info.plist" "$dir"/AgentHelper.app/Contents/Library/LaunchAgents/*.plist
for program in agentd agentctl timmy; do
    codesign --force --sign - --options runtime "$dir/AgentHelper.app/Contents/MacOS/$program"
done
codesign --force --sign - --options runtime "$dir/AgentHelper.app"
codesign --verify --strict --deep "$dir/AgentHelper.app"
echo "$dir/AgentHelper.app"

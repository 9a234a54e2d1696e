#!/bin/bash
# Builds, tests and lints the Swift package on Linux, with a real Swift toolchain and a real agentd.
#
#   bash macos/test-on-debian.sh setup              fetches the toolchain when it is missing (575 MB, 2.8 GB on disk)
#   bash macos/test-on-debian.sh test [BIN] [ARG…]  builds and tests; BIN has agentd and agentctl (default target/debug)
#   bash macos/test-on-debian.sh lint               swift-format in its default style; `format` makes it so
#   bash macos/test-on-debian.sh bundle [BIN]       the app's bundle, laid out but not signed, and its plists checked
#   bash macos/test-on-debian.sh figures [BIN]      the figures, from an optimised build
#   bash macos/test-on-debian.sh run COMMAND…       anything else, with the repository as /src
#
# The toolchain is Debian 13's `swiftlang` with what it needs, unpacked into a directory: SWIFT_ROOT, or target/ci/swift
# of this repository. Nothing is installed on this machine. It runs in namespaces of its own (root, or a user who may
# make user namespaces), so that no mount is seen outside and no process outlives it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
repo=$(dirname "$here")
mkdir -p "$repo/target/ci"
root=$(realpath -m "${SWIFT_ROOT:-$repo/target/ci/swift}")
# Changed whenever the list of packages is: an older directory is then made anew.
recipe=1
packages=(swiftlang libc6-dev linux-libc-dev libstdc++-14-dev libncurses-dev zlib1g-dev
    dash coreutils base-files bash sed grep gawk findutils procps git openssh-client openssh-server)

fail() {
    echo "macos/test-on-debian.sh: $*" >&2
    exit 1
}

# A state of apt's own, for Debian 13 from the mirror that this machine already uses.
apt_options() {
    local state=$1 arch mirror
    arch=$(dpkg --print-architecture)
    mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | head -n 1)
    [ -n "$mirror" ] || fail "apt names no mirror: expected one in /etc/apt; \`apt-get indextargets\` shows them"
    mkdir -p "$state"/{lists/partial,cache/archives/partial,sources}
    : >"$state/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror%/} trixie main" >"$state/sources/trixie.list"
    printf '%s\n' -o "Dir::Etc::sourcelist=$state/sources/trixie.list" -o Dir::Etc::sourceparts=- \
        -o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state/cache" -o "Dir::State::status=$state/status" \
        -o "APT::Architecture=$arch" -o "APT::Architectures=$arch" -o APT::Sandbox::User=root \
        -o Acquire::Languages=none -o APT::Get::List-Cleanup=0
}

# The directory is whole or not there: it is filled under another name.
setup() {
    [ "$(cat "$root/.recipe" 2>/dev/null)" = "$recipe" ] && return
    for program in apt-get dpkg-deb flock unshare; do
        command -v "$program" >/dev/null || fail "needs $program: this recipe is for Debian and its like"
    done
    mkdir -p "$(dirname "$root")"
    exec 9>"$root.lock"
    flock 9
    [ "$(cat "$root/.recipe" 2>/dev/null)" = "$recipe" ] && return
    local state=$root.apt partial=$root.partial options deb dir
    rm -rf "$partial"
    mapfile -t options < <(apt_options "$state")
    [ ${#options[@]} -gt 0 ] || fail "apt can't be asked"
    echo "fetching Swift into $root"
    apt-get "${options[@]}" update -qq || fail "Debian 13's lists can't be fetched"
    apt-get "${options[@]}" install --no-install-recommends -y --download-only -qq "${packages[@]}" >/dev/null ||
        fail "Swift can't be fetched from the mirror"
    mkdir -p "$partial"/usr/{bin,lib,lib64,sbin}
    for dir in bin lib lib64 sbin; do ln -sfn "usr/$dir" "$partial/$dir"; done
    for deb in "$state"/cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$partial" --keep-directory-symlink --no-same-owner -f - ||
            fail "$deb can't be unpacked"
    done
    ln -sf bash "$partial/usr/bin/sh"
    mkdir -p "$partial"/{proc,dev,tmp,src,bin-agentd,root,etc,run/sshd,var/empty}
    chmod 755 "$partial/run/sshd"
    printf 'root:x:0:0::/root:/bin/bash\nsshd:x:106:65534::/run/sshd:/usr/sbin/nologin\n' >"$partial/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$partial/etc/group"
    echo '127.0.0.1 localhost' >"$partial/etc/hosts"
    echo "$recipe" >"$partial/.recipe"
    rm -rf "$root"
    mv "$partial" "$root"
    rm -rf "$state"
    exec 9>&-
}

# inside BIN COMMAND…
inside() {
    local bin=$1 user=()
    shift
    [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
    unshare "${user[@]}" --mount --pid --fork --kill-child --propagation private -- bash -c '
        set -e
        root=$1 repo=$2 bin=$3; shift 3
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs tmpfs "$root/tmp"
        mount -t tmpfs -o mode=700 tmpfs "$root/root"
        mount --bind "$repo" "$root/src"
        [ -z "$bin" ] || mount --bind "$bin" "$root/bin-agentd"
        exec chroot "$root" /usr/bin/env -i HOME=/root USER=root LANG=C.UTF-8 TERM=dumb SHELL=/bin/bash CC=clang \
            PATH=/usr/libexec/swift/bin:/usr/bin:/bin:/usr/sbin ${bin:+AGENTD_BIN=/bin-agentd} \
            bash -c "cd /src && exec \"\$@\"" sh "$@"
    ' sh "$root" "$repo" "$bin" "$@"
}

# What has agentd and agentctl: tests with a daemon need both.
binaries() {
    local bin
    bin=$(realpath -m "${1:-$repo/target/debug}")
    for program in agentd agentctl timmy; do
        [ -x "$bin/$program" ] || fail "no $program in $bin: \`cargo build --bins\` first, or name the directory"
    done
    echo "$bin"
}

# Swift 6.0's libswiftObservation.so wants a function for its last words that no library has.
package=(--package-path macos --scratch-path target/swift -j 2 -Xlinker --allow-shlib-undefined)

command=${1:-test}
[ $# -eq 0 ] || shift
case $command in
    setup) setup ;;
    test)
        bin=$(binaries "${1:-}")
        [ $# -eq 0 ] || shift
        setup
        inside "$bin" swift build "${package[@]}" --build-tests -Xswiftc -warnings-as-errors
        inside "$bin" swift test "${package[@]}" --no-parallel --skip-build "$@"
        ;;
    format)
        setup
        inside "" swift-format format --in-place --recursive macos/Package.swift macos/Sources macos/Tests
        ;;
    lint)
        setup
        inside "" swift-format lint --strict --recursive macos/Package.swift macos/Sources macos/Tests
        ;;
    bundle)
        bin=$(binaries "${1:-}")
        setup
        inside "$bin" swift build "${package[@]}" --product AgentHelper
        mkdir -p "$repo/target/swift/programs"
        for program in "$bin"/{agentd,agentctl,timmy} "$repo/target/swift/debug/AgentHelper"; do
            ln -sf "$program" "$repo/target/swift/programs/"
        done
        bash "$repo/packaging/bundle-macos.sh" --layout "$repo/target/swift/bundle" "$repo/target/swift/programs"
        python3 -c 'import plistlib, sys
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        print(name, len(plistlib.load(file)), "keys")' "$repo"/target/swift/bundle/AgentHelper.app/Contents/{,Library/LaunchAgents/}*.plist
        ;;
    figures)
        bin=$(binaries "${1:-}")
        [ -x "$bin/examples/sends" ] || fail "no examples/sends in $bin: \`cargo build --examples\` first"
        setup
        inside "$bin" swift build "${package[@]}" -c release --product agentkit-figures
        inside "$bin" target/swift/release/agentkit-figures
        ;;
    run)
        setup
        inside "$([ -x "$repo/target/debug/agentd" ] && realpath "$repo/target/debug")" "$@"
        ;;
    *) fail "there is no \`$command\`: expected setup, test, lint, format, bundle, figures or run" ;;
esac

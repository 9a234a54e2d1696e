#!/bin/sh
# Installs a release of agentd for one user, without root.
#
#   sh install.sh [--prefix DIR] [--sha256 SUM] TARBALL
#   sh install.sh --uninstall [--prefix DIR]
#
# TARBALL is a file or a URL. It is unpacked only when its SHA-256 is SUM, or without --sha256 what
# the file SHA256SUMS beside it says. DIR is ~/.local when not given.
#
# Every file is put in its place whole. Cut off at any point, the programs that are there work, and
# the same command goes on; it may be run again at any time.
set -eu
umask 022

fail() {
    echo "error: $1" >&2
    [ $# -lt 2 ] || echo "hint: $2" >&2
    exit 1
}

usage() {
    sed -n '2,9s/^# \{0,1\}//p' "$0"
}

has() { command -v "$1" >/dev/null 2>&1; }

fetch() {
    proto='=http,https'
    case $1 in
        # Nor may it be led to where it isn't.
        https://*) proto='=https' ;;
        # Whoever could change the one on the way could change the other.
        http://*) [ -n "$sum" ] || fail "$1 is not encrypted" "use https://, or give --sha256" ;;
    esac
    if has curl; then
        curl --fail --silent --show-error --location --proto "$proto" --output "$2" -- "$1" || fail "can't fetch $1"
    elif has wget; then
        wget --quiet --output-document="$2" -- "$1" || fail "can't fetch $1"
    else
        fail "neither curl nor wget is there" "fetch $1 in another way, and give the file"
    fi
}

sha256_of() {
    if has sha256sum; then
        sha256sum <"$1"
    elif has shasum; then
        shasum -a 256 <"$1"
    else
        fail "neither sha256sum nor shasum is there" "install one of them"
    fi | sed 's/ .*//'
}

# The file SHA256SUMS has one line for each file: its sum, and its name.
expected_sum() {
    while read -r found name; do
        case $name in
            "$1" | "*$1")
                echo "$found"
                return
                ;;
        esac
    done
}

# What a run left that was cut off. The number in its name is that of its process.
remove_leftovers() {
    for left in "$prefix"/.agentd-install.*; do
        [ -d "$left" ] || continue
        kill -0 "${left##*.}" 2>/dev/null || rm -rf "$left"
    done
}

# Runs "$@" FILE for each line of standard input.
each() {
    while IFS= read -r file; do
        case "/$file/" in
            // | */../* | //*) fail "\`$file\` is no file of a release" ;;
        esac
        "$@" "$file"
    done
}

is_free() {
    [ ! -d "$prefix/$1" ] || fail "\`$prefix/$1\` is a directory" "move it away"
    [ -e "$prefix/$1" ] || [ -L "$prefix/$1" ] || return 0
    grep -qxF -- "$1" "$installed" 2>/dev/null ||
        fail "\`$prefix/$1\` is there and is not of a release" "move it away, or give another --prefix"
}

put() {
    mkdir -p "$(dirname "$prefix/$1")"
    mv -f "$new/$1" "$prefix/$1"
}

remove() {
    rm -f "$prefix/$1"
    dir=$(dirname "$1")
    while [ "$dir" != . ] && rmdir "$prefix/$dir" 2>/dev/null; do
        dir=$(dirname "$dir")
    done
}

remove_unless_new() {
    grep -qxF -- "$1" "$stage/files" || remove "$1"
}

install() {
    mkdir -p "$prefix"
    remove_leftovers
    stage=$prefix/.agentd-install.$$
    trap 'rm -rf "$stage"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    mkdir "$stage"
    name=$(basename "$tarball")
    case $tarball in
        https://* | http://*)
            fetch "$tarball" "$stage/tarball"
            [ -n "$sum" ] || fetch "${tarball%/*}/SHA256SUMS" "$stage/SHA256SUMS"
            ;;
        *)
            [ -f "$tarball" ] || fail "\`$tarball\` is not there"
            # What is unpacked is what was looked at.
            cp "$tarball" "$stage/tarball"
            sums=$(dirname "$tarball")/SHA256SUMS
            [ -n "$sum" ] || [ ! -f "$sums" ] || cp "$sums" "$stage/SHA256SUMS"
            ;;
    esac
    if [ -z "$sum" ]; then
        [ -f "$stage/SHA256SUMS" ] ||
            fail "there is no SHA256SUMS beside \`$tarball\`" "put it there, or give --sha256"
        sum=$(expected_sum "$name" <"$stage/SHA256SUMS")
        [ -n "$sum" ] || fail "SHA256SUMS does not name \`$name\`" "is it of the same release?"
    fi
    found=$(sha256_of "$stage/tarball")
    [ "$found" = "$sum" ] ||
        fail "\`$tarball\` is not what was released: its SHA-256 is $found, expected $sum" "fetch it anew"

    mkdir "$stage/unpacked"
    tar -xzf "$stage/tarball" -C "$stage/unpacked" || fail "\`$tarball\` can't be unpacked"
    new=''
    for dir in "$stage"/unpacked/*/; do new=${dir%/}; done
    [ -f "$new/bin/agentctl" ] || fail "\`$tarball\` is no release of agentd"
    for program in agentctl timmy agentd; do
        version=$("$new/bin/$program" --version 2>&1) ||
            fail "this release does not run here: $version" "build it: cargo install --path ."
    done
    (cd "$new" && find bin share -type f) | sort -r >"$stage/files"
    each is_free <"$stage/files"

    before=''
    [ ! -e "$prefix/bin/agentctl" ] || before=$("$prefix/bin/agentctl" --version 2>/dev/null) || :
    # From here on everything that may be there is noted down first.
    mkdir -p "$(dirname "$installed")"
    { cat "$stage/files"; [ ! -f "$installed" ] || cat "$installed"; } | sort -ru >"$stage/noted"
    cp "$stage/noted" "$stage/all"
    mv -f "$stage/noted" "$installed"
    # The programs come last.
    each put <"$stage/files"
    each remove_unless_new <"$stage/all"
    cp "$stage/files" "$stage/noted"
    mv -f "$stage/noted" "$installed"
    rm -rf "$stage"

    echo "installed $version in $prefix"
    case ":${PATH:-}:" in
        *":$prefix/bin:"*) ;;
        *) echo "note: $prefix/bin is not on your PATH" ;;
    esac
    if [ -n "$before" ]; then
        echo "next: agentctl service restart, if it is a service"
    else
        echo "next: agentctl service install"
    fi
}

uninstall() {
    if ! [ -f "$installed" ]; then
        echo "nothing of agentd is installed in $prefix"
        return
    fi
    for unit in "${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user/agentd.service" \
        "$HOME/Library/LaunchAgents/local.agentd.plist"; do
        if grep -qF -- "$prefix/bin/agentd" "$unit" 2>/dev/null; then
            fail "the service runs $prefix/bin/agentd" "first: agentctl service uninstall"
        fi
    done
    list=$(cat "$installed")
    echo "$list" | each remove
    # A list that is gone is the end of it.
    remove "${installed#"$prefix"/}"
    remove_leftovers
    echo "removed agentd from $prefix; what was stored and configured is still there"
}

main() {
    prefix='' sum='' tarball='' what=install
    while [ $# -gt 0 ]; do
        case $1 in
            --prefix) [ $# -gt 1 ] || fail "--prefix needs a directory"; prefix=$2; shift ;;
            --prefix=*) prefix=${1#*=} ;;
            --sha256) [ $# -gt 1 ] || fail "--sha256 needs a sum"; sum=$2; shift ;;
            --sha256=*) sum=${1#*=} ;;
            --uninstall) what=uninstall ;;
            -h | --help) usage; exit 0 ;;
            -*) usage >&2; exit 2 ;;
            *) [ -z "$tarball" ] || { usage >&2; exit 2; }; tarball=$1 ;;
        esac
        shift
    done
    [ -n "${HOME:-}" ] || fail "HOME is not set"
    prefix=${prefix:-$HOME/.local}
    case $prefix in
        /*) ;;
        *) prefix=$(pwd)/$prefix ;;
    esac
    prefix=${prefix%/}
    sum=$(printf %s "$sum" | tr A-F a-f)
    installed=$prefix/share/agentd/installed
    if [ $what = uninstall ]; then
        [ -z "$tarball" ] || { usage >&2; exit 2; }
        uninstall
    else
        [ -n "$tarball" ] || { usage >&2; exit 2; }
        install
    fi
}

# The last line: of a script that came over a network in half, nothing is run.
main "$@"

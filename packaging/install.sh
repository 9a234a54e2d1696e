#!/bin/sh
# Installs a release of agentd for one user, without root; --help says how.
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
    cat <<'END'
Installs a release of agentd for one user, without root.

  sh install.sh [--prefix DIR] [--sha256 SUM] TARBALL
  sh install.sh --uninstall [--prefix DIR]

TARBALL is a file or a URL. It is unpacked only when its SHA-256 is SUM, or without --sha256 what
the file SHA256SUMS beside it says. DIR is ~/.local when not given.
END
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
    else
        wget -q -O "$2" -- "$1" || fail "can't fetch $1"
    fi
}

# What is needed later is asked for before anything is done.
check_tools() {
    has sha256sum || has shasum || fail "neither sha256sum nor shasum is there" "install one of them"
    case $tarball in
        https://* | http://*)
            has curl && return
            has wget || fail "neither curl nor wget is there" "fetch $tarball in another way, and give the file"
            # It can't be kept from a redirection to where nothing is encrypted.
            [ -n "$sum" ] || fail "curl is not there" "install curl, or give --sha256"
            ;;
    esac
}

sha256_of() {
    if has sha256sum; then
        sha256sum <"$1"
    else
        shasum -a 256 <"$1"
    fi | sed 's/ .*//'
}

# The file SHA256SUMS has one line for each file: its sum, and its name.
expected_sum() {
    while read -r found name || [ -n "$found" ]; do
        case $name in
            "$1" | "*$1")
                echo "$found" | tr A-F a-f
                return
                ;;
        esac
    done
}

# What runs left that were cut off. The number in its name is that of the process: ours made none yet.
remove_leftovers() {
    for left in "$1".*; do
        [ -e "$left" ] || continue
        [ "${left##*.}" = $$ ] || ! kill -0 "${left##*.}" 2>/dev/null || continue
        rm -rf "$left"
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

# The list of what is there has one line for each file, with its sum, and one for each directory
# that was not there before.
listed_files() { sed -e '/^directory  /d' -e 's/^[^ ]*  //' "$1" | sort -ru; }
listed_dirs() { sed -n 's/^directory  //p' "$1" | sort -ru; }

# As a release put it there?
is_ours() {
    [ -f "$prefix/$1" ] && ! [ -L "$prefix/$1" ] &&
        grep -qxF -- "$(sha256_of "$prefix/$1")  $1" "$installed" 2>/dev/null
}

is_free() {
    [ ! -d "$prefix/$1" ] || fail "\`$prefix/$1\` is a directory" "move it away, or --uninstall first"
    dir=$(dirname "$1")
    while [ "$dir" != . ]; do
        [ -d "$prefix/$dir" ] || ! { [ -e "$prefix/$dir" ] || [ -L "$prefix/$dir" ]; } ||
            fail "\`$prefix/$dir\` is no directory" "move it away, or --uninstall first"
        dir=$(dirname "$dir")
    done
    [ -e "$prefix/$1" ] || [ -L "$prefix/$1" ] || return 0
    is_ours "$1" || fail "\`$prefix/$1\` is there and is not of a release, or was changed since" \
        "move it away, or give another --prefix"
}

list_new() {
    echo "$(sha256_of "$new/$1")  $1"
    list_missing "$1"
}

list_missing() {
    dir=$(dirname "$1")
    while [ "$dir" != . ] && [ ! -d "$prefix/$dir" ]; do
        echo "directory  $dir"
        dir=$(dirname "$dir")
    done
}

# Whole, even where the directory is on another file system.
put() {
    dir=$prefix/$(dirname "$1")
    mkdir -p "$dir"
    remove_leftovers "$dir/.agentd-new"
    cp "$new/$1" "$dir/.agentd-new.$$" || {
        # A disk that is full needs its room back.
        rm -f "$dir/.agentd-new.$$"
        exit 1
    }
    mv -f "$dir/.agentd-new.$$" "$prefix/$1"
}

remove() {
    remove_leftovers "$prefix/$(dirname "$1")/.agentd-new"
    [ -e "$prefix/$1" ] || [ -L "$prefix/$1" ] || return 0
    if is_ours "$1"; then
        rm -f "$prefix/$1"
    else
        echo "note: \`$prefix/$1\` was changed since it was installed, and stays"
    fi
}

remove_unless_new() {
    grep -qxF -- "$1" "$stage/files" || remove "$1"
}

# Somebody may keep something there.
remove_dir() { rmdir "$prefix/$1" 2>/dev/null || :; }

list_kept() { [ ! -d "$prefix/$1" ] || echo "directory  $1"; }

install() {
    check_tools
    mkdir -p "$prefix"
    remove_leftovers "$prefix/.agentd-install"
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
            fail "this release does not run here: $version" "build it: cargo install --locked --path ."
    done
    (cd "$new" && find bin share -type f) | sort -r >"$stage/files"
    each is_free <"$stage/files"

    before=''
    [ ! -e "$prefix/bin/agentctl" ] || before=$("$prefix/bin/agentctl" --version 2>/dev/null) || :
    { each list_new <"$stage/files"; list_missing "${installed#"$prefix"/}"; } >"$stage/list"
    # From here on everything that may be there is noted down first.
    { cat "$stage/list"; [ ! -f "$installed" ] || cat "$installed"; } | sort -u >"$stage/all"
    mkdir -p "$(dirname "$installed")"
    cp "$stage/all" "$stage/noted"
    mv -f "$stage/noted" "$installed"
    # The programs come last.
    each put <"$stage/files"
    listed_files "$stage/all" | each remove_unless_new
    listed_dirs "$stage/all" | each remove_dir
    { sed '/^directory  /d' "$stage/list"; listed_dirs "$stage/all" | each list_kept; } | sort >"$stage/noted"
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
        echo "next: agentctl service install, or agentctl start where there is no service manager"
    fi
}

# Whatever links lead there.
same_dir() {
    found=$(cd "$1" 2>/dev/null && pwd -P) && [ "$found" = "$(cd "$2" 2>/dev/null && pwd -P)" ]
}

# Does a unit or a launch agent start the daemon of this prefix?
runs_ours() {
    [ -f "$1" ] || return 1
    sed -n -e 's/%%/%/g' -e 's|^ExecStart="\{0,1\}\(/.*\)/agentd"\{0,1\}$|\1|p' \
        -e 's|.*<string>\(/.*\)/agentd</string>.*|\1|p' "$1" |
        { while IFS= read -r dir; do same_dir "$dir" "$prefix/bin" && exit 0; done; exit 1; }
}

uninstall() {
    if ! [ -f "$installed" ]; then
        echo "nothing of agentd is installed in $prefix"
        return
    fi
    units=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user
    for unit in "$units/agentd.service" "$HOME/Library/LaunchAgents/local.agentd.plist"; do
        if runs_ours "$unit"; then
            fail "the service runs $prefix/bin/agentd" "first: agentctl service uninstall"
        fi
    done
    for unit in timers.target.wants/agentd-voice-flush.timer default.target.wants/agentd-http.service; do
        link=$(readlink "$units/$unit") || :
        unit=${unit##*/}
        if [ -n "$link" ] && same_dir "$(dirname "$link")" "$prefix/share/systemd/user"; then
            fail "the unit $unit is enabled" "first: systemctl --user disable --now $unit"
        fi
    done
    list=$(cat "$installed")
    listed_files "$installed" | each remove
    # A list that is gone is the end of it.
    rm -f "$installed"
    echo "$list" | sed -n 's/^directory  //p' | sort -r | each remove_dir
    remove_leftovers "$prefix/.agentd-install"
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

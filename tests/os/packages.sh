#!/bin/bash
# Takes the files of `cargo xtask dist` as a new user would: checks the sums, reads the Debian
# package with lintian, installs it for real, uses it as a user of a real service manager, and
# removes it; the same with the tarball and its script.
#
#   tests/os/packages.sh DIR
#
# The package is installed over this machine's own files in a mount namespace: nothing outside of
# it is seen or changed. Needs root, dpkg, lintian, nc and overlayfs, and what user-manager.sh needs.
# Ends with 77, and why, where this can't be.
set -euo pipefail
me=$(readlink -f "$0")
here=$(dirname "$me")

cannot() { echo "$*" >&2; exit 77; }
fail() { echo "FAILED: $*" >&2; exit 1; }

# The unit that nobody enables but the user, on a port that nobody else has.
over_http() {
    local added=~/.config/systemd/user/agentd-http.service.d url=
    mkdir -p "$added"
    printf '[Service]\nExecStart=\nExecStart=/usr/bin/env agentctl serve http --listen 127.0.0.1:0\n' >"$added/port.conf"
    systemctl --user daemon-reload
    [ "$(systemctl --user is-enabled agentd-http.service)" = disabled ]
    systemctl --user enable --now agentd-http.service
    for _ in $(seq 100); do
        url=$(journalctl --user --unit=agentd-http.service --output=cat | sed -n 's/^\(http:[^ ]*\) until.*/\1/p')
        [ -z "$url" ] || break
        systemctl --user is-active agentd-http.service
        sleep 0.1
    done
    printf 'header = "Authorization: Bearer %s"\n' "$(agentctl token)" >curlrc
    curl -sS -K curlrc -H 'Content-Type: application/json' -d '{"prompt":"over http","agent":"timmy","provider":"echo"}' \
        "$url/v1/dispatch?wait=20" | grep '"text":"over http"'
    rm -r curlrc "$added"
}

# ------------------------------------------------ as a user with a service manager of his own
as_a_user() {
    set -x
    [ "$(agentctl service status 2>&1 >/dev/null | head -1)" = "error: the service is not installed" ]
    agentctl service install
    agentctl service status
    [ "$(systemctl --user show agentd.service --property=FragmentPath --value)" = \
        /usr/lib/systemd/user/agentd.service ]
    echo '{"agent":"timmy","provider":"echo","prompt":"hello"}' | nc -U /tmp/timmy.sock | tee answer
    grep -q message_end answer
    systemctl --user kill --signal=KILL agentd.service
    agentctl send --no-fallback --agent timmy --provider echo again | grep again
    # The link would be followed by a manager that has no `man`.
    zcat /usr/share/man/man1/agentctl-send.1.gz | grep 'SEE ALSO' >/dev/null
    for name in agentctl agentd timmy; do
        for script in bash-completion/completions/$name zsh/vendor-completions/_$name fish/vendor_completions.d/$name.fish; do
            grep -q "$name" "/usr/share/$script"
        done
    done
    systemctl --user is-active agentd-voice-flush.timer
    [ "$(systemctl --user show agentd-voice-flush.service --property=FragmentPath --value)" = \
        /usr/lib/systemd/user/agentd-voice-flush.service ]
    systemctl --user start agentd-voice-flush.service
    over_http
    agentctl service uninstall
    [ "$(systemctl --user is-enabled agentd-http.service)" = disabled ]
    [ -z "$(systemctl --user list-units --all --no-legend 'agentd*.s*')" ]
    [ -z "$(find ~/.config/systemd -name '*agentd*')" ]
}

if [ "${1:-}" = --as-a-user ]; then
    as_a_user
    exit
fi

# ------------------------------------------------ in the mount namespace
if [ "${1:-}" = --inside ]; then
    deb=$2 place=$3
    mount -t tmpfs -o mode=755 tmpfs "$place"
    for dir in usr etc var; do
        mkdir -p "$place/$dir/new" "$place/$dir/work"
        mount -t overlay overlay -o "lowerdir=/$dir,upperdir=$place/$dir/new,workdir=$place/$dir/work" "/$dir" ||
            cannot "overlayfs"
    done
    # Somebody's agentd of this machine is not the package's.
    rm -f /usr/local/bin/agentd /usr/local/bin/agentctl /usr/local/bin/timmy
    # Images of containers leave them out.
    dpkg --path-include='/usr/share/man/*' --path-include='/usr/share/doc/*' --install "$deb"
    zcat /usr/share/doc/agentd/THIRD-PARTY.gz | grep '^tokio ' >/dev/null || fail "the package has no licence of tokio's"
    [ -z "$(dpkg --verify agentd)" ] || fail "dpkg finds files changed"
    XDG_RUNTIME_DIR=$place systemd-analyze --user verify /usr/lib/systemd/user/agentd*.{service,socket,timer}
    "$here/user-manager.sh" --bin "$me" -- packages.sh --as-a-user
    # Without files of its own in /etc that is all of a purge, too.
    dpkg --purge agentd
    left=$(cd "$place" && find usr/new etc/new var/new ! -type c \( -name '*agentd*' -o -name 'agentctl*' -o -name 'timmy*' \))
    [ -z "$left" ] || fail "left behind: $left"
    exit
fi

dir=$(readlink -f "${1:?usage: packages.sh DIR}")
[ "$(id -u)" = 0 ] || cannot "root"
for program in dpkg lintian nc unshare systemd-analyze; do
    command -v $program >/dev/null || cannot "$program"
done
work=$(mktemp -d /tmp/agentd-packages-XXXXXX)
trap 'rm -rf "$work"' EXIT

(cd "$dir" && sha256sum --check --strict SHA256SUMS)
if [ -e "$dir/agentd.rb" ]; then
    sum=$(sha256sum <"$(echo "$dir"/agentd-[0-9]*[0-9].tar.gz)" | cut -d' ' -f1)
    grep -qxF "  sha256 \"${sum:?}\"" "$dir/agentd.rb" || fail "the formula has another sum than the sources"
fi
bill=$(echo "$dir"/*.cdx.json)
for crate in agentd-daemon rusqlite tokio; do
    grep -q "\"name\": \"$crate\"" "$bill" || fail "the bill of materials does not name $crate"
done
if grep 'file:///' "$bill" | grep -v 'file:///agentd'; then fail "the bill names a directory of this machine"; fi
deb=$(echo "$dir"/agentd_*.deb)
lintian --allow-root --fail-on error "$deb"

# The tarball, into a home of its own.
tarball=$(echo "$dir"/agentd-*-*.tar.gz)
tar -xzf "$tarball" -C "$work" --strip-components=1 --wildcards '*/install.sh'
cmp "$work/install.sh" "$dir/install.sh"
mkdir "$work/home"
export HOME=$work/home
env=(env -i "HOME=$HOME" "PATH=$HOME/.local/bin:/usr/bin:/bin" AGENTD_SOCKET="$work/s")
for _ in 1 2; do "${env[@]}" sh "$work/install.sh" "$tarball"; done
"${env[@]}" agentctl send --agent timmy --provider echo hello | grep -x 'hello'
"${env[@]}" man -w agentctl-send >/dev/null || fail "man doesn't find agentctl-send(1)"
zcat "$HOME/.local/share/doc/agentd/THIRD-PARTY.gz" | grep '^tokio ' >/dev/null || fail "the tarball has no licence of tokio's"
"${env[@]}" sh "$work/install.sh" --uninstall
for left in bin share; do
    [ ! -e "$HOME/.local/$left" ] || fail "left: $(find "$HOME/.local/$left")"
done

mkdir "$work/place"
unshare --mount --propagation private -- "$me" --inside "$deb" "$work/place"

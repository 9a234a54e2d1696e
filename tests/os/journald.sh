#!/bin/bash
# Runs a command with a real systemd-journald of its own.
#
#   tests/os/journald.sh COMMAND ARGUMENT…
#
# The journal is in private namespaces, with nothing in it but what COMMAND writes there; all of it
# is gone when COMMAND ends. Works as root, and as an ordinary user where user namespaces may be
# made. COMMAND reads entries while it runs: `journalctl --sync`, then `journalctl -o json …`.
# Ends with COMMAND's code; with 77 when this machine can't do it, and says what is missing.
set -euo pipefail

journald=/lib/systemd/systemd-journald

missing() {
    echo "missing: $*" >&2
    exit 77
}

if [ "${1:-}" != --inside ]; then
    command -v unshare >/dev/null || missing "unshare"
    command -v journalctl >/dev/null || missing "journalctl"
    [ -x "$journald" ] || missing "systemd-journald"
    if [ "$(id -u)" = 0 ]; then
        user=()
        export JOURNALD_SH_ROOT=1
    else
        user=(--user --map-root-user)
    fi
    namespaces=("${user[@]}" --mount --pid --fork --kill-child --propagation private --mount-proc)
    unshare "${namespaces[@]}" true 2>/dev/null || missing "namespaces of its own"
    exec unshare "${namespaces[@]}" -- "$0" --inside "$@"
fi
shift

# A small /dev of its own: journald leaves a link there, which would be every process's.
private_dev() {
    local host=/run/.dev name
    mkdir -p "$host"
    mount --rbind /dev "$host"
    mount -t tmpfs -o mode=755,nosuid tmpfs /dev
    for name in null zero full random urandom tty; do
        : >"/dev/$name"
        mount --bind "$host/$name" "/dev/$name"
    done
    mkdir /dev/shm /dev/pts
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    mount --bind "$host/pts" /dev/pts
    ln -s pts/ptmx /dev/ptmx
    ln -s /proc/self/fd /dev/fd
    ln -s fd/0 /dev/stdin
    ln -s fd/1 /dev/stdout
    ln -s fd/2 /dev/stderr
    umount -l "$host"
}

mount -t tmpfs -o mode=755 tmpfs /run
# In a user namespace the machine's /dev can't be written anyway.
if [ -n "${JOURNALD_SH_ROOT:-}" ]; then private_dev; fi
mkdir -p /run/systemd/journal /run/systemd/journald.conf.d
printf '%s\n' '[Journal]' Storage=volatile ReadKMsg=no Audit=no ForwardToSyslog=no \
    ForwardToWall=no RateLimitIntervalSec=0 RuntimeMaxUse=64M >/run/systemd/journald.conf.d/own.conf
"$journald" 2>/run/journald.err &
pid=$!
until [ -S /run/systemd/journal/socket ] && [ -S /run/systemd/journal/stdout ]; do
    kill -0 "$pid" 2>/dev/null || {
        cat /run/journald.err >&2
        missing "a systemd-journald that starts here"
    }
    sleep 0.01
done
unset JOURNALD_SH_ROOT
code=0
"$@" || code=$?
kill "$pid" 2>/dev/null || :
exit "$code"

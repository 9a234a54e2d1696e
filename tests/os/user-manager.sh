#!/bin/bash
# Runs a command as an unprivileged user of a real, throw-away `systemd --user` with a journal of
# its own. Nothing outside of its namespaces is seen or changed: a service manager in the machine's
# own would move every process into its scopes.
#
#   user-manager.sh [--other] [--bin FILE]… [--units DIR] -- COMMAND [ARGUMENT]…
#
# The files are in the command's PATH; the units are there for every user, as a package has them. The
# command is in a session of the user: it may end the service manager and start another one, as
# logging out and in does. With --other there is another account `other` on this machine, and `ssh
# other` gets there: a real sshd, over a Unix socket.
# Needs root (or sudo without a password), systemd, util-linux and a unified cgroup hierarchy; for
# --other sshd and nc. Ends with the command's status; 77, and why, where this can't be.
set -euo pipefail
me=$(readlink -f "$0")
user=agent uid=4242 within=${AGENTD_OS_WITHIN:-120}
# Whoever has a number here has a home of their own.
while getent passwd "$uid" >/dev/null || getent passwd $((uid + 1)) >/dev/null; do uid=$((uid + 2)); done

cannot() { echo "$*" >&2; exit 77; }

if [ "${1:-}" != --inner ]; then
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null || cannot "root, or sudo without a password"
        exec sudo -n --preserve-env=AGENTD_OS_WITHIN,AGENTD_TEST_INSIDE,AGENTD_TEST_NEEDS "$me" "$@"
    fi
    [ -x /lib/systemd/systemd ] && [ -x /lib/systemd/systemd-journald ] || cannot "systemd"
    for program in unshare setpriv journalctl systemctl; do
        command -v $program >/dev/null || cannot "$program"
    done
    if [ "${1:-}" = --other ]; then
        [ -x /usr/sbin/sshd ] || cannot "sshd"
        for program in ssh ssh-keygen nc systemd-socket-activate; do
            command -v $program >/dev/null || cannot "$program"
        done
    fi
    groups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    [ -n "$groups" ] || cannot "cgroup2"
    below=$(sed -n 's/^0:://p' /proc/self/cgroup)
    leaf=$groups${below%/}/agentd-os-$$
    mkdir "$leaf" 2>/dev/null || cannot "a control group of its own below $groups"
    place=$(mktemp -d /tmp/agentd-os-XXXXXX)
    chmod 755 "$place"
    cleanup() {
        # The namespaces are dead by now: only empty directories are left, and some die slowly.
        for _ in $(seq 50); do
            find "$leaf" -depth -type d -exec rmdir {} + 2>/dev/null && break
            sleep 0.02
        done
        rm -rf "$place"
    }
    trap cleanup EXIT
    status=0
    (
        echo $BASHPID >"$leaf/cgroup.procs"
        exec unshare --cgroup --mount --pid --ipc --uts --fork --kill-child --propagation private \
            --mount-proc -- "$me" --inner "$place" "$@"
    ) || status=$?
    exit $status
fi

# ------------------------------------------------ process 1 of the namespaces
place=$2
shift 2
other=
if [ "${1:-}" = --other ]; then
    other=other
    shift
fi
mount -t tmpfs -o mode=755 tmpfs /run
programs=/run/agentd-programs
mkdir "$programs"
while [ "${1:-}" = --bin ]; do
    : >"$programs/$(basename "$2")"
    mount --bind "$2" "$programs/$(basename "$2")"
    shift 2
done
if [ "${1:-}" = --units ]; then
    cp -r /usr/lib/systemd/user "$place/units"
    cp "$2"/* "$place/units"
    mount --bind "$place/units" /usr/lib/systemd/user
    shift 2
fi
[ "${1:-}" = -- ] && shift

# The journal leaves a link in /dev, which all namespaces share: a small one of our own.
host=/run/host-dev
mkdir $host
mount --rbind /dev $host
mount -t tmpfs -o mode=755,nosuid tmpfs /dev
for node in null zero full random urandom tty; do
    [ -e $host/$node ] || continue
    : >/dev/$node
    mount --bind $host/$node /dev/$node
done
mkdir /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ln -s /proc/self/fd /dev/fd
umount -l $host

# The leaf is the whole tree here, so systemd takes it for its own.
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /run/systemd/{system,journal,journald.conf.d,unit-root,incoming,propagate} /run/lock
mkdir -p /var/log/journal
mount -t tmpfs -o mode=2755 tmpfs /var/log/journal
tr -d - </proc/sys/kernel/random/uuid >"$place/machine-id"
[ -e /etc/machine-id ] || : >/etc/machine-id
mount --bind "$place/machine-id" /etc/machine-id
{
    cat /etc/passwd
    echo "$user:x:$uid:$uid::/home/$user:/bin/bash"
    echo "other:x:$((uid + 1)):$((uid + 1))::/home/other:/bin/bash"
} >"$place/passwd"
{ cat /etc/group; echo "$user:x:$uid:"; echo "other:x:$((uid + 1)):"; } >"$place/group"
mount --bind "$place/passwd" /etc/passwd
mount --bind "$place/group" /etc/group
# The home is on the disk that the place is on; /tmp hides it from here on.
mkdir -p /home "$place/home/$user/.config/systemd/user"
chmod 755 "$place/home"
chown -R $uid:$uid "$place/home/$user"
mkdir -m 700 "$place/home/other"
chown $((uid + 1)):$((uid + 1)) "$place/home/other"
mount --bind "$place/home" /home
mkdir "$place/tmp"
chmod 1777 "$place/tmp"
log=/run/log-of-managers
mkdir -p $log /run/user/$uid
chown $uid:$uid /run/user/$uid
chmod 700 /run/user/$uid
mount --bind "$place/tmp" /tmp
cd /

printf '[Journal]\nStorage=persistent\nSplitMode=uid\nReadKMsg=no\nAudit=no\nForwardToSyslog=no\nRateLimitIntervalSec=0\nSystemMaxUse=64M\n' \
    >/run/systemd/journald.conf.d/test.conf
# Without it the journal stays in /run, not split by user.
: >/run/systemd/journal/flushed
service=/sys/fs/cgroup/user.slice/user-$uid.slice/user@$uid.service
mkdir -p /sys/fs/cgroup/init.scope /sys/fs/cgroup/system.slice/systemd-journald.service "$service"
echo 1 >/sys/fs/cgroup/init.scope/cgroup.procs
(
    echo $BASHPID >/sys/fs/cgroup/system.slice/systemd-journald.service/cgroup.procs
    exec /lib/systemd/systemd-journald
) >$log/journald 2>&1 &
for _ in $(seq 200); do
    [ -S /run/systemd/journal/stdout ] && break
    sleep 0.02
done
[ -S /run/systemd/journal/stdout ] || { cat $log/journald >&2; exit 70; }

chown $uid:$uid "$service" "$service"/cgroup.{procs,threads,subtree_control}
# Between a session and the manager the user may go by himself.
session=$(dirname "$service")/session-1.scope
mkdir "$session"
chown $uid:$uid "$(dirname "$service")/cgroup.procs" "$session"/cgroup.{procs,threads}
environment=(env -i "HOME=/home/$user" USER=$user LOGNAME=$user SHELL=/bin/bash LANG=C.UTF-8
    PATH=$programs:/usr/local/bin:/usr/bin:/bin XDG_RUNTIME_DIR=/run/user/$uid)
as_user=(setpriv --reuid $uid --regid $uid --clear-groups)
(
    echo $BASHPID >"$service/cgroup.procs"
    exec "${as_user[@]}" "${environment[@]}" /lib/systemd/systemd --user --log-target=journal
) >$log/manager 2>&1 &
manager=$!
is_up() { "${as_user[@]}" "${environment[@]}" systemctl --user is-system-running >/dev/null 2>&1; }
for _ in $(seq 500); do
    is_up && break
    kill -0 $manager 2>/dev/null || { cat $log/manager >&2; exit 70; }
    sleep 0.02
done
is_up || { echo "the user manager did not come up" >&2; cat $log/manager >&2; exit 70; }

# The other account, and the way there. No port: nothing of the machine's network is used.
if [ -n "$other" ]; then
    at=/run/sshd-of-other
    mkdir -p /run/sshd $at
    install -d -m 700 -o $uid -g $uid /home/$user/.ssh
    install -d -m 700 -o $((uid + 1)) -g $((uid + 1)) /home/other/.ssh
    ssh-keygen -q -t ed25519 -N '' -f $at/host
    ssh-keygen -q -t ed25519 -N '' -f /home/$user/.ssh/id_ed25519
    install -m 600 -o $((uid + 1)) -g $((uid + 1)) /home/$user/.ssh/id_ed25519.pub \
        /home/other/.ssh/authorized_keys
    echo "other $(cut -d' ' -f1,2 $at/host.pub)" >/home/$user/.ssh/known_hosts
    printf '%s\n' 'Host other' '  User other' "  ProxyCommand nc -U $at/socket" \
        >/home/$user/.ssh/config
    chown -R $uid:$uid /home/$user/.ssh
    printf '%s\n' "HostKey $at/host" 'PidFile none' 'UsePAM no' 'PasswordAuthentication no' \
        'KbdInteractiveAuthentication no' 'UseDNS no' \
        "SetEnv PATH=$programs:/usr/local/bin:/usr/bin:/bin" >$at/config
    systemd-socket-activate --accept --inetd --listen=$at/socket \
        /usr/sbin/sshd -i -e -f $at/config >$log/sshd 2>&1 &
    for _ in $(seq 200); do
        [ -S $at/socket ] && break
        sleep 0.02
    done
    chmod 666 $at/socket || { cat $log/sshd >&2; exit 70; }
fi

# With this process all others of the namespace end.
cd /home/$user
status=0
for name in AGENTD_TEST_INSIDE AGENTD_TEST_NEEDS; do
    [ -z "${!name:-}" ] || environment+=("$name=${!name}")
done
(
    echo $BASHPID >"$session/cgroup.procs"
    exec timeout --kill-after=5 "$within" "${as_user[@]}" --bounding-set -all "${environment[@]}" "$@"
) || status=$?
if [ $status != 0 ]; then
    [ -z "$other" ] || cat $log/sshd >&2
    echo "--- the journal of the service" >&2
    journalctl --sync 2>/dev/null || true
    journalctl --no-pager --lines=60 _UID=$uid >&2 || true
fi
exit $status

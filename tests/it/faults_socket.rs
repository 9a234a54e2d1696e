//! Sockets, directories, links and users: rows C1 to C16 of the fault catalogue, as the paths and
//! the fallback rule of the architecture want them.
//!
//! Not here: C10 to C13, the state's file system, are `faults_disk.rs`. C14 is `descriptors.rs`.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{
    AGENTD, Client, Daemon, Finished, Place, Reaped, finish, needs, skipped, wait_for,
};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn place() -> Place {
    Place::new(&Daemon::config(""))
}

/// A daemon that is expected to refuse to come up.
fn refused(place: &Place, change: impl FnOnce(&mut Command)) -> Finished {
    let mut command = place.command(AGENTD);
    change(&mut command);
    finish(command, b"")
}

fn serves(daemon: &Daemon) {
    let lines = daemon.ask(r#"{"prompt":"I am here"}"#);
    assert_eq!(lines.last().unwrap()["text"], "I am here", "{lines:?}");
}

/// Runs a shell line that ends in `exec "$0"`, so that the child is the daemon itself.
fn shell(place: &Place, line: &str) -> Command {
    let mut command = place.command("sh");
    command.args(["-c", line, AGENTD]);
    command
}

#[test]
fn c1_runtime_directory_is_repaired_or_refused() {
    let socket = |place: &Place| place.path("run/agentd/agentd.sock");
    let in_runtime = |place: &Place, command: &mut Command| {
        command
            .env_remove("AGENTD_SOCKET")
            .env("XDG_RUNTIME_DIR", place.path("run"));
    };
    for before in [None, Some(0o700), Some(0o755), Some(0o775), Some(0o777)] {
        let place = place();
        let dir = place.path("run/agentd");
        if let Some(before) = before {
            fs::create_dir_all(&dir).unwrap();
            set_mode(&dir, before);
        } else {
            fs::create_dir(place.path("run")).unwrap();
            set_mode(&place.path("run"), 0o755);
        }
        let parent = mode(&place.path("run"));
        let mut command = place.command(AGENTD);
        in_runtime(&place, &mut command);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let _daemon = Reaped(command.spawn().unwrap());
        wait_for("it answers", || {
            std::os::unix::net::UnixStream::connect(socket(&place)).ok()
        });
        assert_eq!(mode(&dir), 0o700, "{before:?}");
        assert_eq!(mode(&socket(&place)), 0o600, "{before:?}");
        assert_eq!(mode(&place.path("run")), parent, "not ours to change");
    }
    type Make = fn(&Place);
    let doubtful: [(&str, Make); 3] = [
        ("a symbolic link", |place| {
            fs::create_dir(place.path("elsewhere")).unwrap();
            symlink(place.path("elsewhere"), place.path("run/agentd")).unwrap();
        }),
        ("a file", |place| {
            fs::write(place.path("run/agentd"), "").unwrap()
        }),
        ("open to other users", |place| {
            fs::create_dir(place.path("run/agentd")).unwrap();
            set_mode(&place.path("run/agentd"), 0o1777);
        }),
    ];
    for (says, make) in doubtful {
        let place = place();
        fs::create_dir(place.path("run")).unwrap();
        make(&place);
        let before = mode(&place.path("run/agentd"));
        let left = refused(&place, |command| in_runtime(&place, command));
        assert_eq!(left.code, Some(78), "{left:?}");
        assert!(
            left.stderr.contains(says) && left.stderr.contains("hint"),
            "{left:?}"
        );
        assert_eq!(left.stderr.matches(says).count(), 1, "said twice: {left:?}");
        assert_eq!(mode(&place.path("run/agentd")), before);
        assert!(!socket(&place).exists());
    }
}

#[test]
fn c1_runtime_directory_of_another_user_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        return crate::support::skips::say("root");
    }
    let place = place();
    fs::create_dir_all(place.path("run/agentd")).unwrap();
    std::os::unix::fs::chown(place.path("run/agentd"), Some(65534), None).unwrap();
    let left = refused(&place, |command| {
        command
            .env_remove("AGENTD_SOCKET")
            .env("XDG_RUNTIME_DIR", place.path("run"));
    });
    assert_eq!(left.code, Some(78), "{left:?}");
    assert!(left.stderr.contains("uid 65534"), "{left:?}");
}

#[test]
fn c2_c4_alias_comes_and_goes_alone() {
    for (stale, parent) in [
        (None, 0o1777),
        (Some("/no/such.sock"), 0o755),
        (Some("dead.sock"), 0o777),
    ] {
        let place = place();
        let (shared, alias) = (place.path("shared"), place.path("shared/timmy.sock"));
        fs::create_dir(&shared).unwrap();
        set_mode(&shared, parent);
        drop(UnixListener::bind(place.path("shared/dead.sock")).unwrap());
        if let Some(stale) = stale {
            symlink(stale, &alias).unwrap();
        }
        let mut command = place.command(AGENTD);
        command.env("AGENTD_ALIAS", &alias);
        let socket = place.socket();
        let daemon = place.start_as(command);
        wait_for("the alias leads to the socket", || {
            (fs::read_link(&alias).ok()? == socket).then_some(())
        });
        let lines = {
            let mut client = Client::connect(&alias);
            client.send(r#"{"prompt":"by another name"}"#);
            client.rest()
        };
        assert_eq!(lines.last().unwrap()["text"], "by another name");
        assert_eq!(mode(&shared), parent);
        daemon.agentctl(&["stop"]);
        let (_place, status) = daemon.left();
        assert!(status.success(), "{status}");
        assert!(fs::symlink_metadata(&alias).is_err(), "the alias stayed");
        assert!(!socket.exists(), "the socket stayed");
        assert_eq!(mode(&shared), parent);
        assert_eq!(
            fs::read_dir(&shared).unwrap().count(),
            1,
            "something was left over"
        );
    }
}

#[test]
fn c3_alias_of_somebody_else_is_left_alone() {
    type Make = fn(&Path);
    let squats: [(&str, Make); 4] = [
        ("a file", |path| fs::write(path, "mine").unwrap()),
        ("a directory", |path| fs::create_dir(path).unwrap()),
        ("a socket", |path| drop(UnixListener::bind(path).unwrap())),
        ("of user 65534", |path| {
            symlink("/no/such.sock", path).unwrap();
            if nix::unistd::geteuid().is_root() {
                std::os::unix::fs::lchown(path, Some(65534), None).unwrap();
            }
        }),
    ];
    for (says, make) in squats {
        if says.contains("user") && !nix::unistd::geteuid().is_root() {
            continue;
        }
        let place = place();
        let alias = place.path("timmy.sock");
        make(&alias);
        let inode = fs::symlink_metadata(&alias).unwrap().ino();
        let daemon = place.start();
        serves(&daemon);
        wait_for("it warns", || {
            let log = daemon.log();
            (log.contains("left alone") && log.contains(says)).then_some(())
        });
        daemon.agentctl(&["stop"]);
        let (_place, status) = daemon.left();
        assert!(status.success());
        assert_eq!(fs::symlink_metadata(&alias).unwrap().ino(), inode, "{says}");
    }
}

#[test]
fn c3_another_user_is_not_talked_to() {
    let (Some(setpriv), Some(nc)) = (needs("setpriv"), needs("nc")) else {
        return;
    };
    if !nix::unistd::geteuid().is_root() {
        // Also where nothing may be missing: CI need not be root.
        return crate::support::skips::say("root");
    }
    let nobody = |place: &Place| {
        let mut command = place.command(&setpriv);
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&nc);
        command.current_dir("/");
        command
    };
    // They connect to us: the check is forced by opening what keeps them out.
    let daemon = Daemon::start();
    set_mode(daemon.place.dir.path(), 0o755);
    set_mode(&daemon.place.socket(), 0o666);
    let mut command = nobody(&daemon.place);
    command.arg("-U").arg(daemon.place.socket());
    let heard = finish(command, b"{\"prompt\":\"let me in\"}\n");
    assert_eq!(heard.stdout, "", "{heard:?}");
    assert!(
        !heard.stderr.contains("denied"),
        "it never came as far as the check: {heard:?}"
    );
    assert_eq!(daemon.status()["rpc"]["sends"], 0);
    serves(&daemon);

    // We connect to them.
    let place = place();
    let open = place.path("open");
    fs::create_dir(&open).unwrap();
    set_mode(place.dir.path(), 0o755);
    set_mode(&open, 0o777);
    let trap = open.join("trap.sock");
    let got = fs::File::create(place.path("got")).unwrap();
    let mut command = nobody(&place);
    command
        .arg("-lU")
        .arg(&trap)
        .stdin(Stdio::null())
        .stdout(got);
    let _thief = Reaped(command.spawn().unwrap());
    // The file is there a moment before anybody listens on it: the kernel says which is which.
    let listens = "00010000 0001 01";
    let path = trap.to_str().unwrap();
    wait_for("the trap is set", || {
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        let mut ours = sockets.lines().filter(|line| line.ends_with(path));
        ours.any(|line| line.contains(listens)).then_some(())
    });
    let sent = place.agentctl(&["--socket", trap.to_str().unwrap(), "send", "a secret"]);
    assert_eq!(sent.code, Some(69), "{sent:?}");
    assert!(sent.stderr.contains("uid 65534"), "{sent:?}");
    assert_eq!(fs::read_to_string(place.path("got")).unwrap(), "");
}

#[test]
fn c5_socket_path_too_long_names_the_limit() {
    let place = place();
    let long = place.path(&"x".repeat(100));
    let left = refused(&place, |command| {
        command.env("AGENTD_SOCKET", &long);
    });
    assert_eq!(left.code, Some(78), "{left:?}");
    assert!(
        left.stderr.contains("107") && left.stderr.contains("AGENTD_SOCKET"),
        "{left:?}"
    );
    let sent = place.agentctl(&["--socket", long.to_str().unwrap(), "send", "hi"]);
    assert_eq!(sent.code, Some(69), "{sent:?}");
    assert!(sent.stderr.contains("107"), "{sent:?}");
}

#[test]
fn c6_umask_opens_nothing_to_others() {
    for umask in ["0", "777", "022"] {
        let place = place();
        let command = shell(&place, &format!("umask {umask}; exec \"$0\""));
        let daemon = place.start_as(command);
        serves(&daemon);
        assert_eq!(mode(&daemon.place.socket()), 0o600, "umask {umask}");
        for path in [
            "state",
            "state/instances",
            "state/agentd.db",
            "state/daemon.lock",
        ] {
            let others = mode(&daemon.path(path)) & 0o077;
            // What is in the closed directory can't be reached.
            assert!(
                others == 0 || path != "state",
                "umask {umask}: {path} {others:o}"
            );
        }
        assert_eq!(mode(&daemon.path("state")), 0o700, "umask {umask}");
    }
}

#[test]
fn c9_second_daemon_leaves_the_first_alone() {
    let daemon = Daemon::start();
    let gate = daemon.path("gate");
    let mut client = daemon.connect();
    client.send(&format!(
        r#"{{"type":"send","agent":"chaos","text":"chaos: wait-file {}; say done"}}"#,
        gate.display()
    ));
    client.until("running");
    let inode = fs::symlink_metadata(daemon.place.socket()).unwrap().ino();
    let pid = daemon.pid().to_string();
    for change in ["", "another socket", "another state"] {
        let left = refused(&daemon.place, |command| {
            if change == "another socket" {
                command.env("AGENTD_SOCKET", daemon.path("other.sock"));
            } else if change == "another state" {
                command.env("AGENTD_STATE_DIR", daemon.path("other"));
            }
        });
        assert_eq!(left.code, Some(3), "{change}: {left:?}");
        assert!(left.stderr.contains(&pid), "{change}: {left:?}");
    }
    assert_eq!(
        fs::symlink_metadata(daemon.place.socket()).unwrap().ino(),
        inode
    );
    fs::write(&gate, "").unwrap();
    assert_eq!(client.until("message_end").last().unwrap()["text"], "done");
}

/// A daemon that looks after its files all the time, not every 60 s.
fn watchful(place: &Place) -> Option<Command> {
    if !cfg!(debug_assertions) {
        skipped("a debug build, which can be told to check its socket more often");
        return None;
    }
    let mut command = place.command(AGENTD);
    command.env("AGENTD_TEST_CHECK_MS", "20");
    Some(command)
}

#[test]
fn c7_socket_and_alias_taken_away_come_back() {
    let place = place();
    let Some(command) = watchful(&place) else {
        return;
    };
    let (socket, alias) = (place.socket(), place.path("timmy.sock"));
    let daemon = place.start_as(command);
    let leads_here = || (fs::read_link(&alias).ok()? == socket).then_some(());
    wait_for("the alias is there", leads_here);
    let gate = daemon.path("gate");
    let mut before = daemon.connect();
    before.send(&format!(
        r#"{{"type":"send","agent":"chaos","text":"chaos: wait-file {}; say still here"}}"#,
        gate.display()
    ));
    before.until("running");
    for gone in [vec![&alias], vec![&socket], vec![&socket, &alias]] {
        let inode = fs::symlink_metadata(&socket).unwrap().ino();
        for file in &gone {
            fs::remove_file(file).unwrap();
        }
        wait_for("both are there again", || {
            leads_here()?;
            Client::try_connect(&alias)
        });
        assert_eq!(mode(&socket), 0o600, "{gone:?}");
        let now = fs::symlink_metadata(&socket).unwrap().ino();
        assert_eq!(now == inode, !gone.contains(&&socket), "{gone:?}");
        serves(&daemon);
    }
    fs::write(&gate, "").unwrap();
    let lines = before.until("message_end");
    assert_eq!(lines.last().unwrap()["text"], "still here");

    // What somebody put into their place is not removed.
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "mine").unwrap();
    wait_for("it says so", || {
        daemon.log().contains("is not our socket").then_some(())
    });
    assert_eq!(fs::read_to_string(&socket).unwrap(), "mine");
    fs::remove_file(&socket).unwrap();
    wait_for("it is there again", || Client::try_connect(&socket));
    serves(&daemon);
}

#[test]
fn c8_runtime_directory_taken_away_comes_back_locked() {
    let place = place();
    let Some(mut command) = watchful(&place) else {
        return;
    };
    let run = place.path("run");
    let socket = run.join("agentd/agentd.sock");
    fs::create_dir(&run).unwrap();
    let in_runtime = |command: &mut Command| {
        command
            .env_remove("AGENTD_SOCKET")
            .env("XDG_RUNTIME_DIR", &run);
    };
    in_runtime(&mut command);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let daemon = Reaped(command.spawn().unwrap());
    let ask = |line: &str| Some(Client::new(Client::try_connect(&socket)?).request(line));
    let send = r#"{"prompt":"kept","session":"main","idempotency_key":"k"}"#;
    let first = wait_for("it answers", || ask(send));
    for _ in 0..3 {
        fs::remove_dir_all(run.join("agentd")).unwrap();
        let again = wait_for("it answers again", || ask(send));
        assert_eq!(again["job"], first["job"], "the state is elsewhere");
        assert_eq!(mode(&run.join("agentd")), 0o700);
        assert_eq!(mode(&socket), 0o600);
    }
    // Nobody else gets the socket, whatever their state is.
    let left = refused(&place, |command| {
        in_runtime(command);
        command.env("AGENTD_STATE_DIR", place.path("other"));
    });
    assert_eq!(left.code, Some(3), "{left:?}");
    let pid = daemon.0.id().to_string();
    assert!(left.stderr.contains(&pid), "{left:?}");
    assert_eq!(ask(send).unwrap()["job"], first["job"]);
}

#[test]
fn c9_of_fifty_daemons_at_once_one_survives() {
    let place = place();
    let mut all: Vec<Reaped> = (0..50)
        .map(|_| {
            let mut command = place.command(AGENTD);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            Reaped(command.spawn().unwrap())
        })
        .collect();
    let mut codes = Vec::new();
    wait_for("all but one have left", || {
        all.retain_mut(|one| match one.0.try_wait().unwrap() {
            Some(status) => {
                codes.push(status.code());
                false
            }
            None => true,
        });
        (all.len() <= 1).then_some(())
    });
    assert_eq!(codes, vec![Some(3); 49]);
    let survivor = all[0].0.id();
    let mut client = Client::connect(&place.socket());
    let status = client.request(r#"{"type":"status"}"#);
    assert_eq!(status["daemon"]["pid"], survivor);
}

#[test]
fn c9_foreign_file_for_a_socket_is_kept() {
    let place = place();
    fs::write(place.socket(), "mine").unwrap();
    let left = refused(&place, |_| {});
    assert_eq!(left.code, Some(1), "{left:?}");
    assert!(left.stderr.contains("is not our socket"), "{left:?}");
    assert_eq!(fs::read_to_string(place.socket()).unwrap(), "mine");
}

#[test]
fn c15_descriptor_that_is_no_socket_is_refused() {
    let place = place();
    for (redirect, says) in [
        ("3</dev/null", "handed over is not a Unix socket"),
        ("3<&-", "socket"),
    ] {
        let command = shell(
            &place,
            &format!("LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" {redirect}"),
        );
        let left = finish(command, b"");
        assert_eq!(left.code, Some(78), "{left:?}");
        assert!(left.stderr.contains(says), "{left:?}");
    }
}

/// Listens in a process that is gone, and becomes the daemon with the socket as descriptor 3.
#[cfg(target_os = "linux")]
const LISTENED_ON_BY_ANOTHER: &str = "
import os, socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(os.environ['AGENTD_SOCKET'])
other = os.fork()
if other == 0:
    listener.listen()
    os._exit(0)
os.waitpid(other, 0)
if listener.fileno() != 3:
    os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
environment = dict(os.environ, LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))
os.execve(sys.argv[1], sys.argv[1:], environment)
";

/// Clients look at who is behind the socket before they say a word. Under launchd that was root.
#[cfg(target_os = "linux")]
#[test]
fn c15_socket_handed_in_serves_as_our_own() {
    let Some(python) = needs("python3") else {
        return;
    };
    let place = place();
    let mut command = place.command(&python);
    command.args(["-c", LISTENED_ON_BY_ANOTHER, AGENTD]);
    let daemon = place.start_as(command);
    // Until it is up its predecessor's `listen` counts.
    serves(&daemon);
    let stream = std::os::unix::net::UnixStream::connect(daemon.place.socket()).unwrap();
    let peer =
        nix::sys::socket::getsockopt(&stream, nix::sys::socket::sockopt::PeerCredentials).unwrap();
    assert_eq!(u32::try_from(peer.pid()), Ok(daemon.pid()));
}

#[test]
fn c16_log_that_cannot_be_written_stops_nothing() {
    let place = place();
    let command = shell(&place, "exec \"$0\" 2>/dev/full");
    let daemon = place.start_as(command);
    serves(&daemon);
    daemon.ask(r#"{"agent":"chaos","prompt":"chaos: exit 1"}"#);
    serves(&daemon);
}

#[test]
fn configuration_key_that_is_unknown_names_the_nearest() {
    for (config, says) in [
        (
            "\n\ndefault_agnet = \"x\"\n",
            ["config.toml:3", "default_agnet", "`default_agent`"],
        ),
        (
            "[agents.a]\nkind = \"exec\"\ncomand = [\"cat\"]\n",
            ["config.toml:3", "comand", "`command`"],
        ),
        ("alias = 5\n", ["config.toml:1", "alias", "expected"]),
    ] {
        let place = Place::new(config);
        for left in [refused(&place, |_| {}), place.agentctl(&["config", "show"])] {
            assert_eq!(left.code, Some(78), "{left:?}");
            for part in says {
                assert!(left.stderr.contains(part), "{part}: {left:?}");
            }
        }
        assert!(!place.socket().exists());
    }
}

//! What is closed to a command wherever it is, and what no path leads to.

use super::*;

#[tokio::test]
async fn closed_are_homes_and_agentds_files_everywhere() {
    if !has_sandbox() {
        return;
    }
    let mut terminal = Terminal::new();
    terminal.rules.private.push("/etc/passwd".into());
    terminal.rules.home = Some("/usr/share".into());
    let look = "cat /etc/group > /dev/null && ls /usr/lib > /dev/null && echo fine; \
        cat /etc/passwd; ls /usr/share/.";
    let done = terminal.bash(look).await;
    assert!(done.output.starts_with("fine\n"), "{}", done.output);
    let denied = done.output.matches("Permission denied").count();
    assert!(
        denied == 2 && !done.output.contains("root:"),
        "{}",
        done.output
    );
}

#[tokio::test]
async fn closed_is_what_others_have_besides_files() {
    if !has_sandbox() {
        return;
    }
    let terminal = Terminal::new();
    terminal.place.write("outside/file", "");
    let probe = "import resource\n\
         core = resource.RLIMIT_CORE\n\
         own = resource.getrlimit(core)\n\
         t('own limit', lambda: resource.setrlimit(core, own))\n\
         t('limit', lambda: resource.prlimit(os.getppid(), core, own))\n\
         t('own priority', lambda: os.setpriority(os.PRIO_PROCESS, 0, 19))\n\
         t('priority', lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19))\n\
         t('attribute', lambda: os.setxattr('../outside/file', 'user.x', b'x'))\n\
         t('no attribute', lambda: os.removexattr('../outside/file', 'user.x'))\n\
         t('read', lambda: os.getxattr('../outside/file', 'user.x'))\n\
         t('names', lambda: os.listxattr('../outside/file'))\n\
         t('memory', lambda: call('shmget', 0, 4096, 0o1600))\n\
         t('words', lambda: call('msgget', 0, 0o1600))\n\
         t('flags', lambda: call('semget', 0, 1, 0o1600))\n\
         t('queue', lambda: call('mq_open', b'/timmy-test', os.O_RDWR))\n";
    let Some(done) = probed(&terminal, probe).await else {
        return;
    };
    assert_eq!(
        said(&done),
        "own limit yes\nlimit EPERM\nown priority yes\npriority EPERM\n\
         attribute ENOTSUP\nno attribute ENOTSUP\nread ENOTSUP\nnames ENOTSUP\n\
         memory EPERM\nwords EPERM\n\
         flags EPERM\nqueue EPERM\n",
        "{}",
        done.output
    );
}

#[tokio::test]
async fn commands_stay_where_the_session_began() {
    if !has_sandbox() {
        return;
    }
    let swap = |terminal: &Terminal, name: &str| {
        let old = format!("{name}.old");
        std::fs::rename(terminal.place.path(name), terminal.place.path(&old)).unwrap();
        std::os::unix::fs::symlink(terminal.place.path("user"), terminal.place.path(name)).unwrap();
    };
    let mut terminal = Terminal::asking(Says::yes());
    terminal.place.write("user/key", "S3CRET\n");
    terminal.place.write("out/key", "mine\n");
    terminal.rules.writable = vec![terminal.place.path("out")];
    let before = terminal.bash("cat ../out/key").await;
    assert_eq!(said(&before), "mine\n", "{}", before.output);
    // A directory beside the workspace: it is granted no longer, and neither is what it leads to.
    swap(&terminal, "out");
    let closed = terminal
        .bash("cat ../out/key; echo x >> ../out/key; pwd")
        .await;
    assert!(
        closed.ok && !closed.output.contains("S3CRET"),
        "{}",
        closed.output
    );
    swap(&terminal, "ws");
    for outside in [false, true] {
        let command = json!({ "command": "cat key; echo x >> key", "outside": outside,
            "reason": "a test" });
        let refused = terminal.run(command).await;
        assert!(
            !refused.ok && refused.output.contains("when this session began"),
            "{}",
            refused.output
        );
    }
    assert_eq!(terminal.place.read("user/key"), "S3CRET\n");
}

#[tokio::test]
async fn a_command_enters_no_other_workspace() {
    // The name is swapped between the look and the step.
    let place = AllowedPath::new(Says::no());
    place.write("user/key", "S3CRET\n");
    let anchor = place.around.anchors.find(&place.around.cwd).unwrap();
    let rules = place.rules();
    let cat = [OsString::from("/bin/cat"), "key".into()];
    let run = |grants: Option<&Grants>| {
        let mut command = std::process::Command::new(&rules.program);
        let command = command.args(sandbox::arguments(grants, &anchor, &cat));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{said}"
        );
        said
    };
    let grants = has_sandbox().then(|| Grants::of(&rules, &place.around, false).unwrap());
    assert!(run(None).contains("No such file"));
    let ws = place.path("ws");
    std::fs::rename(&ws, place.path("ws.old")).unwrap();
    for is_link in [true, false] {
        if is_link {
            std::os::unix::fs::symlink(place.path("user"), &ws).unwrap();
        } else {
            std::fs::remove_file(&ws).unwrap();
            std::fs::rename(place.path("user"), &ws).unwrap();
        }
        for grants in [None, grants.as_ref()] {
            let said = run(grants);
            assert!(said.contains("the command was not run"), "{said}");
        }
    }
}

#[tokio::test]
async fn a_planted_toolchain_grants_nothing() {
    if !has_sandbox() {
        return;
    }
    let mut terminal = Terminal::new();
    terminal.place.write("user/.ssh/id", "S3CRET\n");
    terminal.place.write("user/go/mod", "");
    terminal.place.around.cwd = terminal.place.path("user");
    let planted = terminal.bash("ln -s ../.ssh go/bin").await;
    assert!(planted.ok, "{}", planted.output);
    let refused = terminal.bash("cat go/bin/id .ssh/id").await;
    assert!(!refused.output.contains("S3CRET"), "{}", refused.output);
}

/// Runs a probe in Python, with the system's own: one in a home may be a script that needs more.
async fn probed(terminal: &Terminal, probe: &str) -> Option<ToolOutcome> {
    let rules = Rules {
        environment: [].into(),
        ..terminal.rules.clone()
    };
    let Some(python) = sandbox::found("python3", &rules) else {
        crate::skips::say("python3");
        return None;
    };
    let common = "import ctypes, errno, os, socket\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         def call(name, *arguments):\n\
         \x20if getattr(libc, name)(*arguments) == -1: raise OSError(ctypes.get_errno(), '')\n\
         def t(name, f):\n\
         \x20try: f(); print(name, 'yes')\n\
         \x20except OSError as e: print(name, errno.errorcode[e.errno])\n";
    terminal
        .place
        .write("ws/probe.py", format!("{common}{probe}"));
    let command = format!("{} probe.py", python.display());
    Some(terminal.bash(&command).await)
}

#[tokio::test]
async fn sandbox_refuses_datagram_pairs() {
    use std::os::fd::AsRawFd as _;

    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
    };

    if !has_sandbox() {
        return;
    }
    let terminal = Terminal::new();
    let at = |name: &str| terminal.place.path(&format!("ws/{name}"));
    let letters = std::os::unix::net::UnixDatagram::bind(at("letters")).unwrap();
    let calls = std::os::unix::net::UnixListener::bind(at("calls")).unwrap();
    let packets = socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::empty(),
        None,
    );
    let packets = packets.unwrap();
    bind(packets.as_raw_fd(), &UnixAddr::new(&at("packets")).unwrap()).unwrap();
    listen(&packets, Backlog::new(1).unwrap()).unwrap();
    letters.set_nonblocking(true).unwrap();
    calls.set_nonblocking(true).unwrap();
    // Python asks for SOCK_CLOEXEC by itself; the library doesn't.
    let probe = "two = (ctypes.c_int * 2)()\n\
         for name, kind in [('stream', 1), ('packets', 5), ('datagram', 2), ('raw', 3)]:\n\
         \x20t(name, lambda: socket.socketpair(socket.AF_UNIX, kind))\n\
         \x20t(name, lambda: call('socketpair', 1, kind, 0, two))\n\
         \x20t(name, lambda: call('socketpair', 1, kind | socket.SOCK_NONBLOCK, 0, two))\n\
         for kind, there in [(1, 'calls'), (5, 'packets')]:\n\
         \x20a, b = socket.socketpair(socket.AF_UNIX, kind)\n\
         \x20for name in ['letters', there]:\n\
         \x20\x20try: a.sendto(b'x', name)\n\
         \x20\x20except OSError: pass\n\
         \x20t('connect', lambda: a.connect(there))\n\
         \x20b.close()\n\
         \x20t('later', lambda: a.connect(there))\n\
         t('other', lambda: call('socketpair', 30, 1, 0, two))\n";
    let Some(done) = probed(&terminal, probe).await else {
        return;
    };
    let yes = |name: &str| format!("{name} yes\n").repeat(3);
    let no = |name: &str| format!("{name} EPERM\n").repeat(3);
    let expected = [
        yes("stream"),
        yes("packets"),
        no("datagram"),
        no("raw"),
        "connect EISCONN\nlater EISCONN\n".repeat(2),
        "other EPERM\n".to_owned(),
    ];
    assert_eq!(said(&done), expected.concat(), "{}", done.output);
    let nothing = io::ErrorKind::WouldBlock;
    assert_eq!(letters.recv(&mut [0]).unwrap_err().kind(), nothing);
    assert_eq!(calls.accept().unwrap_err().kind(), nothing);
}

#[tokio::test]
async fn sandbox_refuses_to_schedule_other_processes() {
    if !has_sandbox() {
        return;
    }
    let terminal = Terminal::new();
    // Each changes nothing where it is allowed.
    let probe = "other = os.getppid()\n\
         cpus = os.sched_getaffinity(other)\n\
         none = os.sched_param(0)\n\
         sizes = ctypes.create_string_buffer(48)\n\
         sizes[0] = 48\n\
         setattr_call = {'x86_64': 314, 'aarch64': 274}[os.uname().machine]\n\
         for name, pid in [('own', 0), ('other', other)]:\n\
         \x20t(name, lambda: os.sched_setaffinity(pid, cpus))\n\
         \x20t(name, lambda: os.sched_setscheduler(pid, os.SCHED_OTHER, none))\n\
         \x20t(name, lambda: os.sched_setparam(pid, none))\n\
         \x20t(name, lambda: call('syscall', setattr_call, pid, sizes, 0))\n\
         ioprio_call = {'x86_64': 251, 'aarch64': 30}[os.uname().machine]\n\
         t('all for the disk', lambda: call('syscall', ioprio_call, 3, 0, 7 << 13))\n\
         t('all', lambda: os.setpriority(os.PRIO_USER, 0, 0))\n";
    let Some(done) = probed(&terminal, probe).await else {
        return;
    };
    let expected = format!(
        "{}{}all for the disk EPERM\nall EPERM\n",
        "own yes\n".repeat(4),
        "other EPERM\n".repeat(4)
    );
    assert_eq!(said(&done), expected, "{}", done.output);
}

/// The same home for programs as for the rules.
fn at_home(terminal: &mut Terminal) {
    let home = terminal.place.path("user");
    let others = terminal.rules.environment.iter();
    let others = others.filter(|(name, _)| {
        !["HOME", "CARGO_HOME", "XDG_CONFIG_HOME"]
            .iter()
            .any(|it| name == it)
    });
    let environment = others.cloned().chain([("HOME".into(), home.into())]);
    terminal.rules.environment = environment.collect();
    // What is private in Cargo's configuration is found by its content.
    terminal.rules.secret = terminal.place.rules().secret;
}

#[tokio::test]
async fn secret_places_are_closed_and_git_works() {
    if !has_sandbox() {
        return;
    }
    let mut terminal = Terminal::new();
    terminal.place.write(
        "user/.gitconfig",
        "[user]\n\tname = Some \\\"One\\\" User\n\temail = one@example.com\n[init]\n\tdefaultBranch = trunk\n\
         [http]\n\textraHeader = \"Authorization: S3CRET\"\n\
         [url \"https://u:S3CRET@example.com/\"]\n\tinsteadOf = https://example.com/\n",
    );
    at_home(&mut terminal);
    if sandbox::found("git", &terminal.rules).is_none() {
        return crate::skips::say("git");
    }
    let work = "git init -q && echo x > a && git add a && git commit -qm one && \
        git log --format='%an <%ae> %D' && git config --list; cat ~/.gitconfig";
    let done = terminal.bash(work).await;
    assert!(
        done.output
            .starts_with("Some \"One\" User <one@example.com> HEAD -> trunk\n"),
        "{}",
        done.output
    );
    assert!(!done.output.contains("S3CRET"), "{}", done.output);
    assert!(
        done.output.contains(".gitconfig: Permission denied"),
        "{}",
        done.output
    );
}

/// `dir` comes first on `PATH`.
fn first_on_path(terminal: &mut Terminal, dir: &str) {
    let dir = terminal.place.path(dir);
    let mut environment = terminal.rules.environment.to_vec();
    let path = environment.iter_mut().find(|(name, _)| name == "PATH");
    let (_, path) = path.unwrap();
    let dirs = std::iter::once(dir.clone()).chain(std::env::split_paths(path));
    *path = std::env::join_paths(dirs).unwrap();
    terminal.rules.environment = environment.into();
    terminal.rules.programs = vec![dir];
}

fn plant(terminal: &Terminal, name: &str, script: &str) {
    terminal.place.program(name, script);
}

#[tokio::test]
async fn programs_on_the_path_are_run_not_replaced() {
    if !has_sandbox() {
        return;
    }
    let mut terminal = Terminal::new();
    plant(&terminal, "ws/env/bin/tool", "#!/bin/sh\necho ran\n");
    terminal.place.write("ws/env/a", "");
    first_on_path(&mut terminal, "ws/env/bin");
    let done = terminal.bash("tool && echo x > env/a").await;
    assert!(done.output.starts_with("ran\n"), "{}", done.output);
    assert!(done.ok, "{}", done.output);
    for wrong in [
        "echo x > env/bin/tool",
        "touch env/bin/git",
        "rm env/bin/tool",
        "mv env/bin env/old",
        "mv env old",
        "ln -s /bin/true env/bin/git",
        "chmod u+w env/bin/tool; cp /bin/true env/bin/tool",
    ] {
        let done = terminal.bash(wrong).await;
        assert!(!done.ok, "{wrong}: {}", done.output);
    }
    let bin = terminal.place.path("ws/env/bin");
    let names: Vec<_> = std::fs::read_dir(bin).unwrap().flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(terminal.place.read("ws/env/bin/tool").contains("echo ran"));
}

#[tokio::test]
async fn git_of_a_workspace_is_never_asked() {
    if !has_sandbox() {
        return;
    }
    let mut terminal = Terminal::new();
    let marker = terminal.place.path("user/asked");
    let script = format!("#!/bin/sh\necho x > {}\n", marker.display());
    plant(&terminal, "user/bin/git", &script);
    at_home(&mut terminal);
    first_on_path(&mut terminal, "user/bin");
    let done = terminal.bash("echo done").await;
    assert!(done.ok, "{}", done.output);
    assert!(!marker.exists(), "it was run without a sandbox");
}

#[tokio::test]
async fn secret_places_in_a_workspace_stay_closed() {
    if !has_sandbox() {
        return;
    }
    let mut terminal = Terminal::new();
    terminal
        .place
        .write("user/apps/.docker/config.json", "S3CRET");
    terminal.place.write("user/apps/work/a", "mine\n");
    terminal.place.write("user/diary/today", "S3CRET");
    terminal.place.around.cwd = terminal.place.path("user/apps");
    terminal.rules.writable = vec![terminal.place.path("user/diary")];
    terminal.rules.secret = vec![
        terminal.place.path("user/apps/.docker/config.json"),
        terminal.place.path("user/diary"),
        terminal.place.path("user/apps/work/not-there"),
    ]
    .into();
    let look = "cat work/a && echo x > work/b && ls .docker; \
        cat .docker/config.json ../diary/today; echo x > ../diary/today; echo x > .docker/new";
    let done = terminal.bash(look).await;
    assert!(
        done.output.starts_with("mine\nconfig.json\n"),
        "{}",
        done.output
    );
    assert!(!done.output.contains("S3CRET"), "{}", done.output);
    assert_eq!(
        done.output.matches("Permission denied").count(),
        4,
        "{}",
        done.output
    );
    let tools = crate::tool::file::tools(&Arc::new(terminal.rules.clone()));
    for path in [".docker/config.json", "../diary/today"] {
        let read = terminal
            .place
            .run(&tools, "read", json!({ "path": path }))
            .await;
        assert!(
            !read.ok && read.output.contains("keep tokens there"),
            "{}",
            read.output
        );
    }
}

#[tokio::test]
async fn cargo_works_unless_its_configuration_has_tokens() {
    if !has_sandbox() {
        return;
    }
    let mut terminal = Terminal::new();
    terminal.place.write(
        "ws/Cargo.toml",
        "[package]\nname = \"a\"\nedition = \"2021\"\n",
    );
    terminal.place.write("ws/src/lib.rs", "");
    let look = "cargo metadata --offline --no-deps --format-version 1 > out && echo fine; cat ~/.cargo/config.toml";
    for (config, works) in [
        ("[term]\nquiet = true\n", true),
        ("[registries.own]\ntoken = \"S3CRET\"\n", false),
    ] {
        terminal.place.write("user/.cargo/config.toml", config);
        at_home(&mut terminal);
        if sandbox::found("cargo", &terminal.rules).is_none() {
            return crate::skips::say("cargo");
        }
        // Its toolchain is the one that builds this.
        let toolchain = std::env::var_os("RUSTUP_HOME").or_else(|| {
            let home = std::env::var_os("HOME")?;
            Some(Path::new(&home).join(".rustup").into())
        });
        let rustup = toolchain.map(|dir| ("RUSTUP_HOME".into(), dir));
        let environment = terminal.rules.environment.iter().cloned().chain(rustup);
        terminal.rules.environment = environment.collect();
        let done = terminal.bash(look).await;
        assert_eq!(done.output.contains("fine\n"), works, "{}", done.output);
        assert_eq!(
            done.output.contains("quiet = true"),
            works,
            "{}",
            done.output
        );
        assert_eq!(
            done.output.contains("Permission denied"),
            !works,
            "{}",
            done.output
        );
        assert!(!done.output.contains("S3CRET"), "{}", done.output);
    }
}

#[tokio::test]
async fn secret_of_the_system_is_closed_to_commands() {
    if !has_sandbox() {
        return;
    }
    let mut terminal = Terminal::new();
    let own = terminal.rules.secret.to_vec();
    let system = crate::tool::secret::system::places();
    terminal.rules.secret = [own, system].concat().into();
    // As root these are one's own.
    let done = terminal
        .bash(
            "exec 2>/dev/null; cat /etc/shadow || echo closed; ls /etc/ssl/private || echo closed; \
             cat /etc/passwd >/dev/null && echo open; cd /etc && echo open",
        )
        .await;
    assert_eq!(
        said(&done),
        "closed\nclosed\nopen\nopen\n",
        "{}",
        done.output
    );
}

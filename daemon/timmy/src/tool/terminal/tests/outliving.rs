//! Commands that do what they can to outlive their turn, and end with it all the same.

use super::*;

/// The kinds of keepers: in a namespace where one may be made, beside everybody's processes, and as
/// before landlock could tell whose a process is.
const KERNELS: [u8; 3] = [9, 8, 5];

/// Says by a pipe who is ready, and hears no request to end.
const COMMON: &str = "import ctypes, os, signal, sys, threading\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)\n\
    def ready(what):\n\
    \x20with open('ready', 'w') as pipe: pipe.write(what + '\\n')\n";

/// What stays as it is until it is killed.
const STAY: &str = "while True: signal.pause()\n";

/// A terminal with a script in Python, and the command that runs it; the system's own Python, as one
/// in a home may be a script that needs more.
fn scripted(version: u8, script: &str) -> Option<(Terminal, String)> {
    if !has_sandbox() {
        return None;
    }
    let mut terminal = Terminal::new();
    terminal.rules.landlock = sandbox::Landlock(version);
    let rules = Rules {
        environment: [].into(),
        ..terminal.rules.clone()
    };
    let Some(python) = sandbox::found("python3", &rules) else {
        crate::skips::say("python3");
        return None;
    };
    terminal
        .place
        .write("ws/probe.py", format!("{COMMON}{script}"));
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::unistd::mkfifo(&terminal.place.path("ws/ready"), mode).unwrap();
    Some((terminal, format!("{} probe.py", python.display())))
}

/// The processes that work in its workspace. Of one whose first thread has ended, others tell.
pub(super) fn in_workspace(terminal: &Terminal) -> Vec<PathBuf> {
    let work = terminal.place.path("ws");
    let listed = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let here = |task: &Path| std::fs::read_link(task.join("cwd")).is_ok_and(|cwd| cwd == work);
    let processes = listed(Path::new("/proc")).map(|entry| entry.path());
    processes
        .filter(|pid| listed(&pid.join("task")).any(|task| here(&task.path())))
        .collect()
}

/// Reads what the script says when it is ready.
async fn is_ready(terminal: &Terminal) -> String {
    let pipe = terminal.place.path("ws/ready");
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(pipe).unwrap());
    tokio::time::timeout(DEADLINE, read).await.unwrap().unwrap()
}

async fn nothing_is_left(terminal: &Terminal) {
    let until = Instant::now() + DEADLINE;
    while !in_workspace(terminal).is_empty() {
        assert!(Instant::now() < until, "{:?}", in_workspace(terminal));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Joins the group of what keeps it, where no signal to its own finds it.
const JOINS: &str = "try:\n\
    \x20os.setpgid(0, os.getppid())\n\
    \x20said = 'joined'\n\
    except OSError as error: said = error.strerror\n\
    ready(said)\n";

#[tokio::test]
async fn outliving_in_the_keepers_group_is_ended() {
    for version in KERNELS {
        let Some((terminal, command)) = scripted(version, &format!("{JOINS}{STAY}")) else {
            return;
        };
        let arguments = json!({ "command": format!("exec {command}"), "timeout": 2 });
        let (done, said) = tokio::join!(terminal.run(arguments), is_ready(&terminal));
        assert_eq!(said, "Operation not permitted\n", "{version}");
        assert!(
            done.output.starts_with("[killed: it took longer than 2 s"),
            "{version}: {}",
            done.output
        );
        assert_eq!(in_workspace(&terminal), Vec::<PathBuf>::new(), "{version}");
    }
}

#[tokio::test]
async fn outliving_timmy_in_the_keepers_group_fails() {
    for version in KERNELS {
        let Some((terminal, command)) = scripted(version, &format!("{JOINS}{STAY}")) else {
            return;
        };
        // As when timmy itself is killed: nobody has the other end any more.
        let command = format!("exec {command}");
        tokio::select! {
            done = terminal.bash(&command) => panic!("{}", done.output),
            _ = is_ready(&terminal) => {}
        }
        nothing_is_left(&terminal).await;
    }
}

#[tokio::test]
async fn outliving_by_killing_the_keepers_group_fails() {
    let kill = "os.kill(0, signal.SIGKILL)\n";
    for version in KERNELS {
        let Some((terminal, command)) = scripted(version, &format!("{JOINS}{kill}")) else {
            return;
        };
        let command = format!("exec {command}");
        let (done, _) = tokio::join!(terminal.bash(&command), is_ready(&terminal));
        assert!(
            done.output.starts_with("[killed by signal 9; "),
            "{version}: {}",
            done.output
        );
    }
}

#[tokio::test]
async fn outliving_by_a_dead_first_thread_fails() {
    // The thread says so when the first one is gone.
    let alone = "if os.fork(): sys.exit()\n\
        os.setsid()\n\
        def stay():\n\
        \x20while ') Z ' not in open(f'/proc/{os.getpid()}/stat').read(): pass\n\
        \x20ready('alone')\n\
        \x20null = os.open('/dev/null', os.O_RDWR)\n\
        \x20for number in (0, 1, 2): os.dup2(null, number)\n\
        \x20threading.Event().wait()\n\
        threading.Thread(target=stay).start()\n\
        libc.syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)\n";
    for version in KERNELS {
        let Some((terminal, command)) = scripted(version, alone) else {
            return;
        };
        let done = terminal.bash(&format!("{command}; cat ready")).await;
        assert!(
            done.ok && done.output.starts_with("alone\n[exit code 0; "),
            "{version}: {}",
            done.output
        );
        assert!(
            done.output.contains("one process that it left behind"),
            "{version}: {}",
            done.output
        );
        assert_eq!(in_workspace(&terminal), Vec::<PathBuf>::new(), "{version}");
    }
}

/// However it got out of it.
#[tokio::test]
async fn outliving_outside_its_own_group_fails() {
    use std::os::unix::process::ExitStatusExt as _;

    // As this test leads no group, neither does what it starts.
    let mut command = Command::new("/bin/sh");
    let stubborn = "trap '' TERM; echo ready; exec sleep 1000";
    let command = command.args(["-c", stubborn]).stdout(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let mut said = [0; 6];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut said).await.unwrap();
    let (timmy, alive) = tokio::net::unix::pipe::pipe().unwrap();
    drop(timmy);
    let ended = tokio::time::timeout(DEADLINE, keeper::until_end(child, &alive));
    let status = ended.await.unwrap().unwrap().unwrap();
    assert_eq!(status.signal(), Some(9));
}

/// What is traced by another process than its parent is over for its parent only when the other one
/// lets it be.
#[tokio::test]
#[ignore = "heavy"]
async fn outliving_by_tracing_the_command_fails() {
    let traces = "libc.prctl(0x59616d61, -1, 0, 0, 0)\n\
        traced, to = os.pipe()\n\
        if not os.fork():\n\
        \x20os.setsid()\n\
        \x20said = 'traces' if not libc.ptrace(0x4206, os.getppid(), None, None) else 'no'\n\
        \x20os.write(to, said.encode())\n\
        \x20while True: signal.pause()\n\
        said = os.read(traced, 9).decode()\n\
        ready(said)\n\
        if said == 'traces': os.kill(os.getpid(), signal.SIGKILL)\n";
    for version in KERNELS {
        let Some((terminal, command)) = scripted(version, traces) else {
            return;
        };
        let arguments = json!({ "command": format!("exec {command}"), "timeout": 5 });
        let (done, said) = tokio::join!(terminal.run(arguments), is_ready(&terminal));
        if said != "traces\n" {
            crate::skips::say("leave to trace processes");
        }
        assert!(!done.ok || said == "no\n", "{version}: {}", done.output);
        assert_eq!(in_workspace(&terminal), Vec::<PathBuf>::new(), "{version}");
    }
}

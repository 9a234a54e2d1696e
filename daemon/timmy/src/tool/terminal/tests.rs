//! Real commands: what they may do, what they can't, and that nothing is left of them.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::*;
use crate::tool::tests::{AllowedPath, Says, exists, has_sandbox};

mod closed;
mod kernels;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
mod outliving;

/// No test's command takes longer, whatever the load.
const DEADLINE: Duration = Duration::from_secs(60);

struct Terminal {
    place: AllowedPath,
    rules: Rules,
}

impl Terminal {
    fn new() -> Self {
        Self::asking(Says::no())
    }

    fn asking(asker: Arc<Says>) -> Self {
        let place = AllowedPath::new(asker);
        let rules = place.rules();
        Self { place, rules }
    }

    /// Without a sandbox, for what has nothing to do with it.
    fn bare() -> Self {
        let mut terminal = Self::asking(Says::yes());
        terminal.rules.unsandboxed = Unsandboxed::Allow;
        terminal
    }

    async fn run(&self, arguments: Value) -> ToolOutcome {
        let tools = tools(&Arc::new(self.rules.clone()));
        let run = self.place.run(&tools, "bash", arguments);
        tokio::time::timeout(DEADLINE, run).await.unwrap()
    }

    async fn bash(&self, command: &str) -> ToolOutcome {
        let mut arguments = json!({ "command": command });
        if self.rules.unsandboxed == Unsandboxed::Allow {
            arguments["outside"] = true.into();
            arguments["reason"] = "a test".into();
        }
        self.run(arguments).await
    }
}

fn said(outcome: &ToolOutcome) -> &str {
    outcome.output.rsplit_once('[').map_or("", |(said, _)| said)
}

fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.is_ok_and(|stat| {
        !stat
            .rsplit_once(')')
            .is_some_and(|(_, rest)| rest.starts_with(" Z"))
    })
}

#[tokio::test]
async fn command_gives_its_output_and_its_end() {
    let terminal = Terminal::bare();
    let done = terminal
        .bash("echo out; echo err >&2; pwd; read x; echo \"got $x.\"")
        .await;
    assert!(done.ok, "{}", done.output);
    let work = terminal.place.path("ws");
    assert_eq!(
        said(&done),
        format!("out\nerr\n{}\ngot .\n", work.display())
    );
    let failed = terminal.bash("printf no; exit 7").await;
    assert!(
        !failed.ok && failed.output.starts_with("no\n[exit code 7; "),
        "{}",
        failed.output
    );
    let killed = terminal.bash("kill -9 $$").await;
    assert!(
        killed.output.starts_with("[killed by signal 9; "),
        "{}",
        killed.output
    );
    let missing = terminal.bash("no-such-program").await;
    assert!(
        missing.output.contains("[exit code 127; "),
        "{}",
        missing.output
    );
}

#[tokio::test]
async fn arguments_that_make_no_sense_run_nothing() {
    let terminal = Terminal::asking(Says::yes());
    let long = "x".repeat(MOST_COMMAND + 1);
    for (arguments, error) in [
        (json!({}), "`command` is missing"),
        (json!({ "command": " " }), "blank"),
        (json!({ "command": "a\0b" }), "zero byte"),
        (json!({ "command": long }), "expected 100000 at most"),
        (
            json!({ "command": "touch x", "timeout": 601 }),
            "expected 1 to 600 seconds, found 601",
        ),
        (
            json!({ "command": "touch x", "timeout": 0 }),
            "expected a whole number from 1",
        ),
        (
            json!({ "command": "touch x", "cwd": "/" }),
            "there is no argument `cwd`",
        ),
        (
            json!({ "command": "touch x", "outside": true }),
            "`reason` is missing",
        ),
        (
            json!({ "command": "touch x", "outside": "true" }),
            "expected true or false",
        ),
    ] {
        let refused = terminal.run(arguments).await;
        assert!(
            !refused.ok && refused.output.contains(error),
            "{}",
            refused.output
        );
    }
    assert!(!exists(&terminal.place.path("ws/x")));
    assert!(terminal.place.asker.asked().is_empty());
}

#[tokio::test]
async fn output_is_heard_while_it_comes() {
    let mut terminal = Terminal::bare();
    nix::unistd::mkfifo(&terminal.place.path("ws/go"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let arguments =
        json!({ "command": "echo fir\u{e4}st; cat go", "outside": true, "reason": "test" });
    let tools = tools(&Arc::new(terminal.rules.clone()));
    let none = tokio::sync::mpsc::channel(1).1;
    let mut heard = std::mem::replace(&mut terminal.place.progress, none);
    let run = terminal.place.run(&tools, "bash", arguments);
    let listen = async {
        let first = tokio::time::timeout(DEADLINE, heard.recv()).await.unwrap();
        // Only now may it end.
        std::fs::write(terminal.place.path("ws/go"), "second\n").unwrap();
        first.unwrap()
    };
    let (done, first) = tokio::join!(run, listen);
    assert_eq!(first, "fir\u{e4}st\n");
    assert_eq!(said(&done), "fir\u{e4}st\nsecond\n");
}

#[tokio::test]
#[ignore = "heavy"]
async fn command_printing_a_gigabyte_takes_little_memory() {
    let most = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            / 1024
    };
    let terminal = Terminal::bare();
    let before = most();
    let done = terminal
        .bash("yes 0123456789abcde | head -c 1073741824; echo end")
        .await;
    let grown = most() - before;
    assert!(done.ok && done.truncated, "{}", done.output);
    assert!(done.output.len() < 51_000, "{}", done.output.len());
    assert!(done.output.contains("of 1073741828 bytes") && done.output.contains("\nend\n["));
    // Other tests run in this process as well.
    assert!(grown < 100, "{grown} MiB");
}

#[tokio::test]
async fn a_command_that_will_not_end_is_ended() {
    let terminal = Terminal::bare();
    let stubborn = "trap '' TERM INT HUP; echo $$ > pid; while :; do sleep 1; done";
    let late = terminal
        .run(json!({ "command": stubborn, "timeout": 1, "outside": true, "reason": "test" }))
        .await;
    assert!(
        !late.ok && late.output.contains("[killed: it took longer than 1 s"),
        "{}",
        late.output
    );
    assert!(!lives(&terminal.place.read("ws/pid")));
}

#[tokio::test]
async fn command_asked_to_end_may_tidy_up() {
    let terminal = Terminal::bare();
    let tidy = "trap 'echo tidy; exit' TERM; echo ready; while :; do sleep 0.1; done";
    let late = terminal
        .run(json!({ "command": tidy, "timeout": 1, "outside": true, "reason": "test" }))
        .await;
    assert!(said(&late).ends_with("tidy\n"), "{}", late.output);
}

#[tokio::test]
async fn whatever_forks_away_ends_with_its_command() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let terminal = Terminal::bare();
    // Holding the output, or not; in the background, in a session of its own, without a parent or
    // without its environment.
    let away = "(echo $BASHPID >> pids; exec sleep 1000) &
        setsid bash -c 'echo $$ >> pids; exec sleep 1000' > /dev/null 2>&1 < /dev/null &
        (setsid bash -c '(echo $BASHPID >> pids; exec sleep 1000) & exec setsid sleep 1000' &)
        env -i setsid -f bash -c 'trap \"\" TERM HUP; echo $$ >> pids; exec -a other sleep 1000'
        while [ \"$(wc -l < pids)\" -lt 4 ]; do sleep 0.05; done; echo done";
    let began = Instant::now();
    let done = terminal.bash(away).await;
    assert!(done.ok && said(&done) == "done\n", "{}", done.output);
    assert!(
        done.output.contains("that it left behind were killed]"),
        "{}",
        done.output
    );
    assert!(began.elapsed() < DEADLINE / 2);
    let pids = terminal.place.read("ws/pids");
    assert_eq!(pids.lines().count(), 4, "{pids}");
    for pid in pids.lines() {
        assert!(!lives(pid), "{pid}");
    }
}

#[tokio::test]
async fn what_forks_for_ever_is_ended_as_well() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let terminal = Terminal::bare();
    // Each makes the next one and leaves: none is there for long.
    let chain = "echo 'sleep 0.01; setsid bash hop & exit' > hop; setsid bash hop & sleep 0.3";
    let done = terminal.bash(chain).await;
    assert!(done.ok, "{}", done.output);
    let work = terminal.place.path("ws");
    let here = |pid: &Path| std::fs::read_link(pid.join("cwd")).is_ok_and(|cwd| cwd == work);
    let left: Vec<_> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|pid| here(pid))
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}

#[tokio::test]
async fn cancelling_kills_the_whole_tree() {
    let terminal = Terminal::bare();
    let tree = "setsid bash -c 'echo $$ > deep; sleep 1000' & echo $$ > top; wait";
    let cancel = async {
        let until = Instant::now() + DEADLINE;
        let there = |name: &str| {
            let text = std::fs::read_to_string(terminal.place.path(name)).unwrap_or_default();
            text.ends_with('\n')
        };
        while !(there("ws/top") && there("ws/deep")) {
            assert!(Instant::now() < until, "it never started");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        terminal.place.cancel.cancel();
    };
    let (done, ()) = tokio::join!(terminal.bash(tree), cancel);
    assert!(
        !done.ok && done.output.starts_with("[cancelled; "),
        "{}",
        done.output
    );
    assert!(!lives(&terminal.place.read("ws/top")));
    assert!(!lives(&terminal.place.read("ws/deep")));
}

#[tokio::test]
async fn a_dropped_call_kills_the_whole_tree() {
    let terminal = Terminal::bare();
    let tree = "setsid bash -c 'echo $$ > deep; sleep 1000' & wait";
    let deep = terminal.place.path("ws/deep");
    let until = Instant::now() + DEADLINE;
    tokio::select! {
        done = terminal.bash(tree) => panic!("{}", done.output),
        () = async {
            while !std::fs::read_to_string(&deep).unwrap_or_default().ends_with('\n') {
                assert!(Instant::now() < until, "it never started");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        } => {}
    }
    // As when timmy itself is killed: nobody has the other end any more.
    while lives(&terminal.place.read("ws/deep")) {
        assert!(Instant::now() < until, "it still lives");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn command_outside_the_sandbox_has_leave_by_name() {
    let terminal = Terminal::asking(Says::no());
    let wanted = json!({ "command": "touch ../outside/x", "outside": true, "reason": "to see" });
    let refused = terminal.run(wanted.clone()).await;
    assert_eq!(
        refused.output,
        "not allowed to run a command outside of the sandbox: nobody is there"
    );
    assert!(!exists(&terminal.place.path("outside/x")));
    let terminal = Terminal::asking(Says::yes());
    let done = terminal.run(wanted).await;
    assert!(
        done.output
            .contains("not sandboxed: it was allowed to run outside"),
        "{}",
        done.output
    );
    assert!(exists(&terminal.place.path("outside/x")));
    let asked = terminal.place.asker.asked();
    let work = terminal.place.path("ws");
    let facts = format!("in {}\nbecause: to see", work.display());
    let detail = format!("{facts}\nthe command, 1 line, each behind `|`:\n| touch ../outside/x");
    assert_eq!(
        asked,
        [("run a command outside of the sandbox".to_owned(), detail)]
    );
}

#[tokio::test]
async fn command_without_a_sandbox_always_needs_leave() {
    if sandbox::available(sandbox::Landlock::ALL).is_ok() {
        return;
    }
    let refused = Terminal::asking(Says::no())
        .run(json!({ "command": "true" }))
        .await;
    assert!(
        !refused.ok && refused.output.contains("without a sandbox"),
        "{}",
        refused.output
    );
    let mut terminal = Terminal::asking(Says::yes());
    let done = terminal.run(json!({ "command": "true" })).await;
    assert!(
        done.ok && done.output.contains("not sandboxed"),
        "{}",
        done.output
    );
    assert_eq!(terminal.place.asker.asked().len(), 1);
    terminal.rules.unsandboxed = Unsandboxed::Allow;
    assert!(terminal.run(json!({ "command": "true" })).await.ok);
    assert_eq!(terminal.place.asker.asked().len(), 1);
}

#[tokio::test]
async fn command_in_the_sandbox_changes_the_workspace_only() {
    if !has_sandbox() {
        return;
    }
    let terminal = Terminal::new();
    let place = &terminal.place;
    place.write("outside/secret", "S3CRET\n");
    place.write("user/.ssh/id", "S3CRET\n");
    place.write("state/env", "OPENAI_API_KEY=S3CRET\n");
    place.write("ws/a", "mine\n");
    let works = "cat a && echo x > b && mkdir d && mv b d/b && ln -s a l && cat l && rm l && \
        cp /bin/true t && ./t && echo > /dev/null && echo t > $TMPDIR/t && cat $TMPDIR/t && \
        cp -a a c && cp -p a e && chmod 600 e && tar cf f.tar c e && tar xf f.tar && nice true && \
        test \"$(ls / | wc -l)\" -eq 0; ls /usr > /dev/null && cat /proc/self/comm && echo ok";
    let done = terminal.bash(works).await;
    assert!(
        done.ok
            && done
                .output
                .contains("ok\n[exit code 0; sandboxed, no network"),
        "{}",
        done.output
    );
    assert!(
        done.output.starts_with("mine\nmine\nt\n"),
        "{}",
        done.output
    );
    for refused in [
        "cat ../outside/secret",
        "cat ../user/.ssh/id",
        "cat ../state/env",
        "ls ../user",
        "ls ..",
        "ln -s ../outside/secret s; cat s",
        "ln ../outside/secret h; cat h",
        "echo x > ../outside/new",
        "truncate -s 0 ../outside/secret",
        "rm ../outside/secret",
        "mv ../outside/secret .",
        "mv a ../outside/",
        "chroot . true",
        "cat /proc/1/environ",
        "kill -0 1",
        "echo x > /tmp/timmy-test-new",
        "cat /dev/mem",
        "mknod dev b 8 0",
        "bash -c 'exec 3<> /dev/tcp/127.0.0.1/9'",
    ] {
        let done = terminal.bash(refused).await;
        assert!(!done.ok, "{refused}: {}", done.output);
        assert!(
            !done.output.contains("S3CRET"),
            "{refused}: {}",
            done.output
        );
    }
    assert_eq!(place.read("outside/secret"), "S3CRET\n");
    assert!(!exists(&place.path("outside/new")) && !exists(&place.path("outside/a")));
    assert!(place.asker.asked().is_empty());
}

#[tokio::test]
async fn no_command_finds_a_key() {
    if !has_sandbox() {
        return;
    }
    let mut terminal = Terminal::new();
    // As the one that runs the tests, so does timmy have its keys in its own environment.
    let environment = terminal.rules.environment.iter().cloned().chain([
        ("OPENAI_API_KEY".into(), "S3CRET".into()),
        ("AGENTD_SOCKET".into(), "S3CRET".into()),
        ("HTTPS_PROXY".into(), "http://user:S3CRET@proxy".into()),
        ("BASH_ENV".into(), "S3CRET".into()),
        ("LD_PRELOAD".into(), "S3CRET".into()),
    ]);
    terminal.rules.environment = environment.collect();
    terminal.place.write("state/env", "OPENAI_API_KEY=S3CRET\n");
    // The test's own process plays timmy: something of its environment that a command must not see.
    let own = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let timmy = std::process::id();
    let look = format!(
        "env; export; cat ../state/env; grep -r S3CRET ../state ../user; pid=$PPID; \
         for i in 1 2 3 4; do tr '\\0' '\\n' < /proc/$pid/environ; cat /proc/$pid/mem; \
         ls -l /proc/$pid/fd /proc/$pid/cwd; pid=$(cut -d' ' -f4 /proc/$pid/stat); done; \
         cat /proc/{timmy}/environ; cat /proc/*/environ; cat /proc/{timmy}/cwd/Cargo.toml"
    );
    // Where it sees other processes, and where it sees its own only.
    for (network, version) in [(false, 8), (true, 8), (false, 9), (true, 9)] {
        terminal.rules.network = network;
        terminal.rules.landlock = sandbox::Landlock(version);
        let done = terminal.bash(&look).await;
        assert!(done.output.contains("TERM=dumb"), "{}", done.output);
        for never in ["S3CRET", "API_KEY=", "AGENTD_", &own, "[package]"] {
            assert!(!done.output.contains(never), "{never}: {}", done.output);
        }
        let why = match done.sandbox.unwrap().processes {
            Reach::Own => "No such file or directory",
            _ => "Permission denied",
        };
        let denied = format!("/proc/{timmy}/environ: {why}");
        assert!(done.output.contains(&denied), "{}", done.output);
    }
}

#[tokio::test]
async fn command_has_no_sockets_without_leave() {
    if !has_sandbox() {
        return;
    }
    let terminal = Terminal::asking(Says::yes());
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let path = terminal.place.path("ws/socket");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let probe = format!(
        "import socket\n\
         def t(name, f):\n\
         \x20try: f(); print(name, 'yes')\n\
         \x20except OSError as e: print(name, 'no')\n\
         t('tcp', lambda: socket.create_connection(('127.0.0.1', {port})))\n\
         t('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9)))\n\
         t('unix', lambda: socket.socket(socket.AF_UNIX).connect('socket'))\n\
         t('pair', lambda: socket.socketpair())\n\
         t('port', lambda: socket.create_server(('127.0.0.1', 0)))\n\
         t('name', lambda: socket.socketpair()[0].bind('\\0timmy-{port}'))\n"
    );
    terminal.place.write("ws/probe.py", probe);
    let Some(python) = sandbox::found(
        "python3",
        &Rules {
            environment: [].into(),
            ..terminal.rules.clone()
        },
    ) else {
        return crate::skips::say("python3");
    };
    let command = format!("{} probe.py", python.display());
    let without = terminal.run(json!({ "command": command })).await;
    assert_eq!(
        said(&without),
        "tcp no\nudp no\nunix no\npair yes\nport no\nname no\n",
        "{}",
        without.output
    );
    let with = json!({ "command": command, "network": true, "reason": "to fetch" });
    let with = terminal.run(with).await;
    assert_eq!(
        said(&with),
        "tcp yes\nudp yes\nunix no\npair yes\nport yes\nname yes\n",
        "{}",
        with.output
    );
    assert!(with.output.contains("sandboxed, with the network"));
    assert_eq!(
        terminal.place.asker.asked()[0].0,
        "run a command with the network"
    );
}

#[tokio::test]
async fn a_command_can_not_end_its_keeper() {
    if !has_sandbox() {
        return;
    }
    let terminal = Terminal::new();
    let done = terminal
        .bash("kill -9 $PPID; kill -STOP $PPID; echo still")
        .await;
    assert!(
        done.ok && done.output.contains("still\n[exit code 0; "),
        "{}",
        done.output
    );
    // Where it can, the output says what is unknown, and nothing hangs.
    let terminal = Terminal::bare();
    let done = terminal.bash("kill -9 $PPID; sleep 1000").await;
    assert!(
        !done.ok && done.output.contains("what kept it was killed"),
        "{}",
        done.output
    );
}

#[tokio::test]
#[ignore = "heavy"]
async fn a_small_crate_is_tested_without_a_network() {
    if !has_sandbox() {
        return;
    }
    let mut terminal = Terminal::new();
    terminal.rules.home = std::env::var_os("HOME").map(PathBuf::from);
    let manifest = "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
        [dependencies]\nlibc = \"0.2\"\n[workspace]\n";
    terminal.place.write("ws/Cargo.toml", manifest);
    let source = "#[test]\nfn adds() { assert_eq!(1 + 1, 2); assert!(libc::EOF < 0); }\n";
    terminal.place.write("ws/src/lib.rs", source);
    let done = terminal.bash("cargo test --offline 2>&1").await;
    assert!(
        done.ok && done.output.contains("test adds ... ok"),
        "{}",
        done.output
    );
    assert!(exists(&terminal.place.path("ws/target")));
}

#[test]
fn characters_are_told_whole() {
    let mut bytes = "aä".as_bytes()[..2].to_vec();
    assert_eq!(whole_characters(&mut bytes), "a");
    bytes.extend_from_slice(&"ä".as_bytes()[1..]);
    assert_eq!(whole_characters(&mut bytes), "ä");
    bytes.extend_from_slice(b"\xff\xc3");
    assert_eq!(whole_characters(&mut bytes), "\u{FFFD}\u{FFFD}");
    assert!(bytes.is_empty());
}

//! Real processes: what they print, how they end, and what they leave behind.

#[cfg(target_os = "linux")]
mod ends;
mod pauses;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agentd_core::effect::{Spawn, StopStage};
use agentd_core::event::{Event, Fault};
use agentd_core::ids::{Generation, TurnId, WorkerId};
use agentd_core::worker::{Exit, Reply, WorkerCommand, WorkerEvent};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::spawn::Plan;
use super::tail::TAIL;
use super::{FileLimit, ProcessCommand, SpawnRecord, Spawner, adopt_orphans, environment};
use crate::adapter::{Adapter, Framing, Kind, Launch};
use crate::config::AgentConfig;

/// Every line is text, except those in brackets, which are log; a cancel writes `x` and a newline.
struct Echo(Framing);

impl Adapter for Echo {
    fn framing(&self) -> Framing {
        self.0
    }

    fn decode(&mut self, bytes: &[u8], events: &mut Vec<WorkerEvent>, _write: &mut Vec<u8>) {
        let line = String::from_utf8_lossy(bytes).into_owned();
        events.push(if line.starts_with('[') {
            WorkerEvent::Logged { line }
        } else {
            WorkerEvent::Text {
                turn: TurnId(1),
                text: line,
                native: true,
            }
        });
    }

    fn instead_of(&self, beginning: &[u8]) -> Option<serde_json::Value> {
        assert!(beginning.len() < 1024, "only the beginning");
        beginning.starts_with(b"end x").then(|| "instead".into())
    }

    fn encode(
        &mut self,
        command: &WorkerCommand,
        _events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    ) {
        match command {
            WorkerCommand::Cancel { .. } => write.extend_from_slice(b"x\n"),
            WorkerCommand::Answer { question, .. } => write.extend_from_slice(question.as_bytes()),
            _ => {}
        }
    }
}

struct Running {
    commands: mpsc::Sender<ProcessCommand>,
    inbox: mpsc::Receiver<Event>,
    records: Arc<Mutex<Vec<SpawnRecord>>>,
    tracker: TaskTracker,
}

#[derive(Debug)]
struct End {
    text: String,
    exit: Exit,
    tail: String,
}

fn spawner(instance: &str, inbox: mpsc::Sender<Event>) -> (Spawner, Arc<Mutex<Vec<SpawnRecord>>>) {
    thread_local! {
        // A test has a thread and a runtime of its own, and a process hears once.
        static HEARS: std::cell::OnceCell<()> = const { std::cell::OnceCell::new() };
    }
    HEARS.with(|hears| *hears.get_or_init(|| adopt_orphans().unwrap()));
    let records = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&records);
    let environment = [
        ("PATH", "/usr/bin:/bin"),
        ("LC_ALL", "C"),
        ("SSH_AUTH_SOCK", "/planted"),
        ("PLANTED", "yes"),
        ("WANTED", "own"),
        ("KEY", "own"),
    ]
    .map(|(name, value)| (name.into(), value.into()));
    let secrets = Arc::new(BTreeMap::from([("KEY".to_owned(), "secret".to_owned())]));
    let spawner = Spawner {
        inbox,
        tracker: TaskTracker::new(),
        instance: instance.to_owned(),
        socket: Some(PathBuf::from("/run/x.sock")),
        agents: super::Roster::new(Arc::new(|_| super::HostSnapshot::default()), secrets).0,
        built_in: Arc::default(),
        environment: Arc::new(environment.into_iter().collect()),
        around: 0,
        file_limit: None,
        groups: None,
        record: Arc::new(move |record| to.lock().unwrap().push(record)),
        attach: Arc::new(|_| Err("there is no store".to_owned())),
        versions: None,
    };
    (spawner, records)
}

fn spawn_words() -> Spawn {
    Spawn {
        agent: "echo".to_owned(),
        cwd: "/".to_owned(),
        provider: None,
        model: None,
        thinking: None,
        mode: None,
        toolsets: None,
        system: None,
        mcp_servers: agentd_core::mcp::McpServers::default(),
        session: Some("main".to_owned()),
        resume: None,
        forks: false,
        prompt: None,
    }
}

struct Setup {
    argv: Vec<String>,
    stdin: Option<Vec<u8>>,
    cwd: PathBuf,
    room: usize,
    framing: Framing,
    file_limit: Option<FileLimit>,
}

impl Setup {
    fn sh(script: &str) -> Self {
        Self::argv(&["/bin/sh", "-c", script])
    }

    fn argv(argv: &[&str]) -> Self {
        Self {
            argv: argv.iter().map(|arg| (*arg).to_owned()).collect(),
            stdin: None,
            cwd: PathBuf::from("/"),
            room: 64,
            framing: Framing::Lines,
            file_limit: None,
        }
    }

    fn start(self) -> Running {
        static INSTANCES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = INSTANCES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (sender, inbox) = mpsc::channel(self.room);
        let instance = format!("test-{}-{number}", std::process::id());
        let (spawner, records) = spawner(&instance, sender);
        let (worker, generation) = (WorkerId(3), Generation(2));
        let agent = AgentConfig {
            env: BTreeMap::from([("OF_AGENT".to_owned(), "1".to_owned())]),
            pass_env: vec!["WANTED".to_owned(), "KEY".to_owned(), "ABSENT".to_owned()],
            ..AgentConfig::new(Kind::Jsonl, self.argv.clone())
        };
        let launch = Launch {
            argv: self.argv,
            env: vec![("OF_ADAPTER".to_owned(), "2".to_owned())],
            stdin: self.stdin,
        };
        let mark = spawner.mark(worker, generation);
        let env = environment::of_worker(&spawner, &agent, &launch, &mark, &spawn_words());
        let plan = Plan {
            worker,
            generation,
            launch,
            env,
            cwd: self.cwd,
            session: Some("main".to_owned()),
            mark,
            file_limit: self.file_limit,
            groups: None,
        };
        let commands = spawner.start(plan, Box::new(Echo(self.framing)), None);
        spawner.tracker.close();
        Running {
            commands,
            inbox,
            records,
            tracker: spawner.tracker,
        }
    }
}

impl Running {
    async fn next(&mut self) -> Event {
        let wait = Duration::from_secs(20);
        tokio::time::timeout(wait, self.inbox.recv())
            .await
            .expect("an event within 20 s")
            .expect("the task posts Exited last")
    }

    /// Waits until everything printed so far contains `word`.
    async fn says(&mut self, word: &str) -> String {
        let mut text = String::new();
        while !text.contains(word) {
            if let Event::Worker {
                event: WorkerEvent::Text { text: more, .. },
                ..
            } = self.next().await
            {
                text.push_str(&more);
            }
        }
        text
    }

    async fn end(&mut self) -> End {
        let mut text = String::new();
        loop {
            match self.next().await {
                Event::Worker {
                    event: WorkerEvent::Text { text: more, .. },
                    ..
                } => text.push_str(&more),
                Event::Exited { exit, tail, .. } => {
                    self.tracker.wait().await;
                    return End { text, exit, tail };
                }
                _ => {}
            }
        }
    }

    fn command(&self, command: ProcessCommand) {
        self.commands.try_send(command).unwrap();
    }
}

async fn refused(setup: Setup) -> (String, Fault) {
    let argv = format!("{:.80?}", setup.argv);
    let mut running = setup.start();
    match running.next().await {
        Event::SpawnFailed { error, fault, .. } => (error, fault),
        other => panic!("{argv}: {other:?}"),
    }
}

fn lives(pid: &str) -> bool {
    Path::new(&format!("/proc/{}", pid.trim())).exists()
}

#[tokio::test]
async fn output_comes_before_exit_and_commands_reach_input() {
    let mut running = Setup::sh("echo hello; read a; echo got $a; exit 7").start();
    assert!(matches!(running.next().await, Event::Spawned { .. }));
    running.command(ProcessCommand::Tell(WorkerCommand::Cancel {
        turn: TurnId(1),
    }));
    let end = running.end().await;
    assert_eq!((end.text.as_str(), end.exit), ("hellogot x", Exit::Code(7)));
    let records = running.records.lock().unwrap();
    assert_eq!(records.len(), 1);
    assert!(records[0].started.is_some(), "{records:?}");
    assert_eq!(records[0].session.as_deref(), Some("main"));
}

#[tokio::test]
async fn grandchild_that_holds_output_dies_with_its_leader() {
    let begun = Instant::now();
    let mut running = Setup::sh("sleep 300 & echo $!; exit 0").start();
    let end = running.end().await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{end:?}");
    assert_eq!(end.exit, Exit::Code(0));
    assert!(!lives(&end.text), "neither running nor a zombie");
}

#[tokio::test]
async fn process_outside_its_group_has_its_mark() {
    for script in [
        "setsid sh -c 'echo $$ .; exec sleep 300' & read never",
        "setsid sh -c 'sleep 300 & echo $! .; exit' & read never",
        "env -i setsid sh -c 'echo $$ .; exec sleep 300' & read never",
        "env -i setsid sh -c 'sleep 300 & echo $! .; exit' & read never",
    ] {
        let mut running = Setup::sh(script).start();
        let said = running.says(".").await;
        let pid = said.trim_end_matches(" .");
        assert!(lives(pid), "{pid:?}");
        running.command(ProcessCommand::End(StopStage::Kill));
        assert_eq!(running.end().await.exit, Exit::Signal(9));
        let left = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert_eq!(left, "", "{script}: neither running nor a zombie");
    }
}

#[tokio::test]
async fn process_that_ignores_signals_is_ended_by_rungs() {
    let script = "trap 'echo term' TERM; echo up; while :; do sleep 0.05; done";
    let mut running = Setup::sh(script).start();
    running.says("up").await;
    running.command(ProcessCommand::End(StopStage::Ask));
    running.command(ProcessCommand::End(StopStage::Term));
    running.says("term").await;
    running.command(ProcessCommand::End(StopStage::Kill));
    assert_eq!(running.end().await.exit, Exit::Signal(9));
}

#[tokio::test]
async fn asking_closes_standard_input_behind_the_writes() {
    let mut running = Setup::argv(&["/bin/cat"]).start();
    running.command(ProcessCommand::Tell(WorkerCommand::Cancel {
        turn: TurnId(1),
    }));
    running.command(ProcessCommand::End(StopStage::Ask));
    let end = running.end().await;
    assert_eq!((end.text.as_str(), end.exit), ("x", Exit::Code(0)));
}

#[tokio::test]
async fn a_stopped_process_hears_sigterm() {
    let mut running = Setup::sh("echo up; kill -STOP $$; sleep 300").start();
    running.says("up").await;
    running.command(ProcessCommand::End(StopStage::Term));
    assert_eq!(running.end().await.exit, Exit::Signal(15));
}

#[tokio::test]
async fn process_is_killed_when_its_owner_goes() {
    let mut running = Setup::sh("echo up; sleep 300").start();
    running.says("up").await;
    let (commands, _) = mpsc::channel(1);
    running.commands = commands;
    assert_eq!(running.end().await.exit, Exit::Signal(9));
}

#[tokio::test]
async fn flood_waits_for_the_owner_and_orders_pass() {
    let mut setup = Setup::argv(&["/usr/bin/yes", "0123456789"]);
    setup.room = 2;
    let mut running = setup.start();
    running.says("0123456789").await;
    // Nobody takes events now: the room is full, the process blocks, the command is obeyed.
    running.command(ProcessCommand::End(StopStage::Kill));
    let end = running.end().await;
    assert_eq!(end.exit, Exit::Signal(9));
    assert!(end.text.len() < 8 * 1024 * 1024, "{}", end.text.len());
}

#[tokio::test]
async fn standard_error_keeps_its_end_and_log_lines() {
    let script = "echo '[log]'; read a; i=0; while [ $i -lt 20000 ]; do echo line $i >&2; i=$((i+1)); done; exit 3";
    let mut running = Setup::sh(script).start();
    running.command(ProcessCommand::End(StopStage::Ask));
    let end = running.end().await;
    assert!(
        end.tail.ends_with("line 19998\nline 19999\n"),
        "{:?}",
        end.tail.len()
    );
    assert!(end.tail.len() <= TAIL && end.tail.len() > TAIL - 16);

    let end = Setup::sh("echo '[a log line]'; echo text")
        .start()
        .end()
        .await;
    assert_eq!(
        (end.text.as_str(), end.tail.as_str()),
        ("text", "[a log line]\n")
    );
}

#[tokio::test]
async fn environment_is_what_was_allowed_only() {
    let end = Setup::argv(&["/usr/bin/env", "-0"]);
    let mut running = Setup {
        framing: Framing::Raw,
        ..end
    }
    .start();
    let end = running.end().await;
    let mut found: Vec<&str> = end.text.split_terminator('\0').collect();
    found.sort_unstable();
    let instance = found
        .iter()
        .position(|entry| entry.starts_with("AGENTD_INSTANCE=test-"));
    found.remove(instance.expect("the instance is named"));
    assert_eq!(
        found,
        [
            "AGENTD_DEPTH=1",
            "AGENTD_SOCKET=/run/x.sock",
            "AGENTD_WORKER=3-2",
            "KEY=secret",
            "LC_ALL=C",
            "OF_ADAPTER=2",
            "OF_AGENT=1",
            "PATH=/usr/bin:/bin",
            "TERM=dumb",
            "WANTED=own",
        ]
    );
}

#[tokio::test]
async fn signals_and_limits_are_a_fresh_processs() {
    use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
    let script = "grep -E 'Sig(Blk|Ign)' /proc/self/status; ulimit -Sn";
    // As a script's `&`, `nohup` and others leave it.
    for ignored in [Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1] {
        // SAFETY: nothing runs when it comes.
        #[expect(unsafe_code, reason = "the only way to ignore a signal")]
        unsafe { signal(ignored, SigHandler::SigIgn) }.unwrap();
    }
    SigSet::from(Signal::SIGUSR2).thread_block().unwrap();
    crate::platform::signals::take_charge();
    // With and without a limit a child is made in different ways.
    for file_limit in [None, Some(FileLimit { soft: 77, hard: 99 })] {
        let mut setup = Setup::sh(script);
        setup.file_limit = file_limit;
        let end = setup.start().end().await;
        // 32 and 33 the C library keeps for itself: it refuses to look at them.
        let mask = |name: &str| {
            let at = end.text.find(name).unwrap() + name.len() + 1;
            u64::from_str_radix(&end.text[at..at + 16], 16).unwrap() & !(0b11 << 31)
        };
        assert_eq!((mask("SigBlk:"), mask("SigIgn:")), (0, 0), "{}", end.text);
        let restored = end.text.ends_with("77");
        assert_eq!(restored, file_limit.is_some(), "{}", end.text);
    }
}

#[tokio::test]
async fn program_missing_is_told_from_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "not a program").unwrap();
    for (program, says) in [
        ("/no/such/program", "No such file"),
        (plain.to_str().unwrap(), "Permission denied"),
        ("relative", "absolute"),
        ("/", "cannot run `/`"),
    ] {
        let expected = match program {
            "relative" => Fault::Agent,
            _ => Fault::Missing,
        };
        let (error, fault) = refused(Setup::argv(&[program])).await;
        assert!(error.contains(says), "{program}: {error}");
        assert_eq!(fault, expected, "{program}");
    }
    let mut setup = Setup::argv(&["/bin/cat"]);
    setup.cwd = dir.path().join("gone");
    let (error, fault) = refused(setup).await;
    assert!(
        error.contains("working directory") && error.contains("gone"),
        "{error}"
    );
    assert_eq!(fault, Fault::Directory);
    for text in ["x".repeat(4 * 1024 * 1024), "a\0b".to_owned()] {
        let (error, fault) = refused(Setup::argv(&["/bin/echo", &text])).await;
        assert_eq!(fault, Fault::Arguments, "{error}");
        assert!(error.len() < 200, "{error}");
    }
}

#[tokio::test]
async fn an_unknown_agent_is_refused_for_good() {
    let (sender, mut inbox) = mpsc::channel(4);
    let (spawner, _) = spawner("test-unknown", sender);
    let _orders = spawner.spawn(WorkerId(1), Generation(1), spawn_words());
    let event = inbox.recv().await.unwrap();
    assert!(
        matches!(&event, Event::SpawnFailed { fault: Fault::Agent, error, .. } if error.contains("echo")),
        "{event:?}"
    );
}

#[tokio::test]
async fn line_unterminated_counts_if_a_whole_object() {
    let end = Setup::sh(r#"printf 'a\n{"type":"x"}'"#).start().end().await;
    assert_eq!(
        (end.text.as_str(), end.tail.as_str()),
        (r#"a{"type":"x"}"#, "")
    );
    let end = Setup::sh(r#"printf 'a\n{"type":"x"'"#).start().end().await;
    assert_eq!(
        (end.text.as_str(), end.tail.as_str()),
        ("a", "{\"type\":\"x\"\n")
    );
}

#[tokio::test]
async fn text_given_at_start_closes_standard_input() {
    let text = vec![b'x'; 1024 * 1024];
    let mut setup = Setup::argv(&["/usr/bin/wc", "-c"]);
    setup.stdin = Some(text.clone());
    assert_eq!(setup.start().end().await.text, "1048576");
    // A program that doesn't read it all is no trouble.
    let mut setup = Setup::sh("exec <&-; echo done");
    setup.stdin = Some(text);
    let end = setup.start().end().await;
    assert_eq!((end.text.as_str(), end.exit), ("done", Exit::Code(0)));
}

#[tokio::test]
async fn filter_of_a_large_text_writes_while_reading() {
    // Line by line, as what is heard loses its ends of lines here.
    let text = b"0123456789abcde\n".repeat(256 * 1024);
    let mut setup = Setup::argv(&["/bin/cat"]);
    setup.stdin = Some(text);
    assert_eq!(setup.start().end().await.text.len(), 15 * 256 * 1024);
}

#[tokio::test]
async fn process_that_closes_its_input_is_stuck() {
    let mut running = Setup::sh("exec <&-; echo up; sleep 300").start();
    running.says("up").await;
    let question = "x".to_owned();
    let reply = Reply::Denied;
    running.command(ProcessCommand::Tell(WorkerCommand::Answer {
        question,
        reply,
    }));
    let event = running.next().await;
    assert!(
        matches!(&event, Event::WorkerStuck { why, .. } if why.contains("closed")),
        "{event:?}"
    );
    running.command(ProcessCommand::End(StopStage::Kill));
    running.end().await;
}

#[tokio::test]
async fn process_that_does_not_read_is_stuck() {
    let mut running = Setup::sh("echo up; sleep 300").start();
    running.says("up").await;
    let question = "x".repeat(1024 * 1024);
    let begun = Instant::now();
    let reply = Reply::Denied;
    running.command(ProcessCommand::Tell(WorkerCommand::Answer {
        question,
        reply,
    }));
    let event = running.next().await;
    assert!(matches!(event, Event::WorkerStuck { .. }), "{event:?}");
    assert!(begun.elapsed() >= Duration::from_secs(10));
    running.command(ProcessCommand::End(StopStage::Kill));
    running.end().await;
}

#[tokio::test]
async fn process_that_was_idle_takes_what_comes() {
    let mut running = Setup::sh("echo up; while read a; do echo $a; done").start();
    running.says("up").await;
    // Which of two that are ready comes first is drawn: once would be luck.
    for _ in 0..32 {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(3600)).await;
        tokio::time::resume();
        running.command(ProcessCommand::Tell(WorkerCommand::Cancel {
            turn: TurnId(1),
        }));
        let event = running.next().await;
        assert!(matches!(event, Event::Worker { .. }), "{event:?}");
    }
    running.command(ProcessCommand::End(StopStage::Kill));
    running.end().await;
}

#[tokio::test]
async fn line_over_the_limit_is_skipped_and_noted() {
    let line = "head -c 16777300 /dev/zero | tr '\\0' x; echo;";
    let script = format!("{line} echo -n 'end '; {line} echo after");
    let mut running = Setup::sh(&script).start();
    let mut noted = 0;
    let mut said = String::new();
    loop {
        match running.next().await {
            Event::Worker {
                event: WorkerEvent::Noted { code, .. },
                ..
            } => noted += usize::from(code == "frame-too-long"),
            Event::Worker {
                event: WorkerEvent::Text { text, .. },
                ..
            } => said.push_str(&text),
            Event::Exited { .. } => break,
            _ => {}
        }
    }
    assert_eq!((noted, said.as_str()), (2, "\"instead\"after"));
}

//! `agentd --stdio` over whatever its standard input and output are.
//!
//! Pipes are read without a thread, everything else with one; nobody else is to notice.

use std::fs::File;
use std::io::{BufRead as _, BufReader, PipeReader, Read as _, Write, pipe};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde_json::{Value, json};

use crate::cli_jobs::piped;
use crate::support::{AGENTCTL, AGENTD, Daemon, Place, Reaped, finish, wait_for};

const ASKED: &[u8] = b"{\"agent\":\"timmy\",\"prompt\":\"hi\"}\n";

fn place() -> Place {
    Place::new(&Daemon::config(
        "[agents.open]\nkind = \"exec\"\ncommand = [\"/bin/ls\", \"-l\", \"/proc/self/fd\"]\n",
    ))
}

fn run(place: &Place, input: impl Into<Stdio>, output: impl Into<Stdio>) {
    let mut command = place.command(AGENTD);
    command
        .arg("--stdio")
        .stdin(input)
        .stdout(output)
        .stderr(Stdio::null());
    let mut child = Reaped(command.spawn().unwrap());
    drop(command);
    let status = wait_for("the run leaves", || child.0.try_wait().unwrap());
    assert!(status.success(), "{status}");
}

fn is_answered(lines: &str) {
    let last: Value = serde_json::from_str(lines.lines().last().unwrap_or_default()).unwrap();
    assert_eq!(
        (&last["type"], &last["text"]),
        (&"message_end".into(), &"hi".into()),
        "{lines}"
    );
}

/// A pipe with the question in it, whose writer has left.
fn asked() -> PipeReader {
    let (reader, mut writer) = pipe().unwrap();
    writer.write_all(ASKED).unwrap();
    reader
}

#[test]
fn pipes_files_and_sockets_do_as_well() {
    let place = place();
    let (mut answers, output) = pipe().unwrap();
    run(&place, asked(), output);
    let mut lines = String::new();
    answers.read_to_string(&mut lines).unwrap();
    is_answered(&lines);

    std::fs::write(place.path("asked"), ASKED).unwrap();
    let input = File::open(place.path("asked")).unwrap();
    run(&place, input, File::create(place.path("answers")).unwrap());
    is_answered(&std::fs::read_to_string(place.path("answers")).unwrap());

    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(ASKED).unwrap();
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    let (input, output): (OwnedFd, OwnedFd) = (theirs.try_clone().unwrap().into(), theirs.into());
    run(&place, input, output);
    let mut lines = String::new();
    ours.read_to_string(&mut lines).unwrap();
    is_answered(&lines);
}

#[test]
fn stdio_pipe_still_blocks_for_its_others() {
    let place = place();
    let (answers, output) = pipe().unwrap();
    let input = asked();
    run(
        &place,
        input.try_clone().unwrap(),
        output.try_clone().unwrap(),
    );
    let blocks = |end: &dyn AsFd| {
        let flags = fcntl(end.as_fd(), FcntlArg::F_GETFL).unwrap();
        !OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK)
    };
    assert!(blocks(&input) && blocks(&output) && blocks(&answers));
}

/// A run that has answered to these requests with lines of these types, one after the other.
struct Asked<W> {
    run: Reaped,
    input: W,
    answers: BufReader<PipeReader>,
}

impl<W: Write> Asked<W> {
    fn new(place: &Place, input: W, theirs: impl Into<Stdio>) -> Self {
        let (answers, output) = pipe().unwrap();
        let mut command = place.command(AGENTD);
        command.arg("--stdio").stdin(theirs).stdout(output);
        let run = Reaped(command.stderr(Stdio::null()).spawn().unwrap());
        let answers = BufReader::new(answers);
        Self {
            run,
            input,
            answers,
        }
    }

    fn ask(&mut self, request: &Value, until: &str) -> Value {
        writeln!(self.input, "{request}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "{request}");
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["type"] == until {
                return line;
            }
        }
    }

    /// Nobody reads any more, and its input stays as it is.
    fn leave(self) -> (Reaped, W) {
        drop(self.answers);
        (self.run, self.input)
    }
}

fn left(fact: &str, run: &mut Reaped) {
    let status = wait_for(fact, || run.0.try_wait().unwrap());
    assert!(status.success(), "{status}");
}

#[test]
fn stdio_run_unread_ends_with_its_turn() {
    let place = place();
    let hello = json!({"type": "hello"});
    let gate = place.path("gate");
    let text = format!("chaos: wait-file {}; say done", gate.display());
    let (theirs, input) = pipe().unwrap();
    let mut runs = Asked::new(&place, input, theirs);
    runs.ask(&hello, "hello");
    let turn = json!({"type": "send", "id": 1, "agent": "chaos", "text": text});
    let job = runs.ask(&turn, "running")["job"].clone();

    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut idle = Asked::new(&place, ours, OwnedFd::from(theirs));
    idle.ask(&hello, "hello");
    let (mut idle, _open) = idle.leave();
    left("an idle run", &mut idle);

    // The turn of another run is nothing to stay for.
    let (theirs, input) = pipe().unwrap();
    let mut waits = Asked::new(&place, input, theirs);
    waits.ask(&hello, "hello");
    let collect = json!({"type": "collect", "id": 2, "jobs": [job]});
    writeln!(waits.input, "{collect}").unwrap();
    waits.ask(&json!({"type": "ping"}), "pong");
    let (mut waits, _open) = waits.leave();
    left("a run that waits for another's turn", &mut waits);

    let (mut runs, _open) = runs.leave();
    std::fs::write(gate, "").unwrap();
    left("a run whose turn has ended", &mut runs);
    let daemon = place.start();
    let collect = json!({"type": "collect", "jobs": [job]}).to_string();
    let result = &daemon.ask(&collect)[0]["results"][0];
    assert_eq!(
        (&result["type"], &result["text"]),
        (&json!("message_end"), &json!("done"))
    );
}

#[test]
fn stdio_worker_inherits_nothing_that_was_open() {
    let place = place();
    let secret = place.path("secret");
    std::fs::write(&secret, "").unwrap();
    let mut command: Command = place.command("/bin/sh");
    command.args(["-c", "exec 9<\"$1\"; exec \"$2\" --stdio", "sh"]);
    command.args([secret.as_os_str(), AGENTD.as_ref()]);
    let done = finish(command, b"{\"agent\":\"open\",\"prompt\":\"which?\"}\n");
    assert!(done.stdout.contains("pipe:["), "{done:?}");
    assert!(!done.stdout.contains("secret"), "{done:?}");
}

/// The lines of the proposal that this protocol began with, as they stand in it.
#[test]
fn stdio_takes_the_lines_it_began_with() {
    let place = place();
    let said = |lines: &str| -> Vec<Value> {
        let finished = piped(&place, &["stdio"], lines);
        assert_eq!(finished.code, Some(0), "{finished:?}");
        let lines = finished.stdout.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let of = |lines: &[Value], kind: &str| {
        let line = lines.iter().find(|line| line["type"] == kind);
        line.unwrap_or_else(|| panic!("no {kind}: {lines:#?}"))
            .clone()
    };
    let sent =
        said("{\"type\":\"send\", \"text\":\"hi\", \"session\":\"main\", \"thinking\":\"low\"}\n");
    assert_eq!(of(&sent, "message_start")["role"], "assistant");
    assert_eq!(of(&sent, "message_end")["text"], "hi");
    let said = said("{\"type\":\"abort\"}\n{\"type\":\"status\"}\n{\"type\":\"compact\"}\n");
    assert_eq!(of(&said, "abort")["ok"], true);
    let status = of(&said, "status");
    assert!(
        status["ok"] == true && status["details"].is_string(),
        "{status}"
    );
    // It names no session, and none is in use.
    assert!(of(&said, "error")["error"].is_string());
}

/// Clients of faces see no standard error.
#[test]
fn face_says_why_nothing_runs_alone() {
    let place = Place::new("agents = 5\n");
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "agents", "arguments": {}}});
    let version = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"}});
    let greeting = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": version});
    for (face, input) in [
        ("pi", r#"{"type":"prompt","message":"hi"}"#.to_owned()),
        ("bridge", r#"{"type":"run","message":"hi"}"#.to_owned()),
        ("mcp", format!("{greeting}\n{call}")),
    ] {
        let mut command = place.command(AGENTCTL);
        command.args(["serve", face]);
        let said = finish(command, format!("{input}\n").as_bytes());
        let why = said
            .stderr
            .lines()
            .find_map(|line| line.strip_prefix("error: "));
        let why = json!(why.unwrap_or_else(|| panic!("{said:?}"))).to_string();
        assert!(
            said.stdout.contains(why.trim_matches('"')),
            "{face}: {said:#?}"
        );
        assert!(!said.stdout.contains("agentctl start"), "{face}: {said:#?}");
    }
}

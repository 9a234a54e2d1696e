//! `agentd --stdio` over whatever its standard input and output are.
//!
//! Pipes are read without a thread, everything else with one; nobody else is to notice.

use std::fs::File;
use std::io::{PipeReader, Read as _, Write as _, pipe};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde_json::Value;

use crate::support::{AGENTD, Daemon, Place, Reaped, finish, wait_for};

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
fn a_pipe_that_others_use_too_still_blocks_for_them() {
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

#[test]
fn a_worker_gets_nothing_that_was_open_when_agentd_was_started() {
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

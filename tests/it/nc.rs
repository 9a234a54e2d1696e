//! `agentctl nc`: what `nc -U` does, and nothing at all at a socket of somebody else's.
//!
//! Owns listeners of the test's own beside the daemon's. What real `nc`s do is in `clients`.

use std::io::{Read as _, Write as _, pipe};
use std::os::unix::fs::{lchown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};

use crate::support::{AGENTCTL, Daemon, Place, Reaped, finish, skipped, wait_for};

const NOBODY: u32 = 65534;

fn place() -> Place {
    Place::new(&Daemon::config(""))
}

fn nc(place: &Place, socket: &Path) -> Command {
    let mut command = place.command(AGENTCTL);
    command.arg("nc").arg(socket);
    command
}

#[test]
fn nc_prints_the_answer_and_ends() {
    let daemon = Daemon::start();
    wait_for("the alias is there", || {
        daemon.path("timmy.sock").exists().then_some(())
    });
    let alias = daemon.path("timmy.sock");
    let alias = alias.to_str().unwrap();
    for words in [&["nc"][..], &["nc", alias], &["--socket", alias, "nc"]] {
        let mut command = daemon.place.command(AGENTCTL);
        command.args(words);
        let done = finish(command, b"{\"prompt\":\"here I am\"}\n");
        assert_eq!(
            (done.code, done.stderr.as_str()),
            (Some(0), ""),
            "{words:?}"
        );
        let last = done.stdout.lines().last().unwrap_or_default();
        let last: serde_json::Value = serde_json::from_str(last).unwrap();
        assert_eq!(last["text"], "here I am", "{words:?}");
    }
    let place = daemon.kill();
    let done = finish(nc(&place, &place.socket()), b"{}\n");
    assert_eq!(done.code, Some(69), "{done:?}");
    assert!(done.stderr.contains("`agentctl start`"), "{done:?}");
}

#[test]
fn nc_passes_every_byte_and_closes_half() {
    let place = place();
    let socket = place.path("echo.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let answers = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        // Ends at the half-close only.
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
        all.len()
    });
    // More than any buffer on the way, and every byte there is.
    let sent: Vec<u8> = (0..20_000_000_u32)
        .map(|at| (at % 251) as u8 ^ 0x5a)
        .collect();
    let mut command = nc(&place, &socket);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Reaped(command.spawn().unwrap());
    let (mut stdin, mut stdout) = (
        child.0.stdin.take().unwrap(),
        child.0.stdout.take().unwrap(),
    );
    let writes = std::thread::spawn(move || {
        stdin.write_all(&sent).unwrap();
        sent
    });
    let mut received = Vec::new();
    stdout.read_to_end(&mut received).unwrap();
    assert!(
        received == writes.join().unwrap(),
        "{} bytes",
        received.len()
    );
    assert_eq!(answers.join().unwrap(), received.len());
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn nc_ends_when_either_side_is_gone() {
    let place = place();
    let socket = place.path("says.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let spawn = |output: Stdio| {
        let mut command = nc(&place, &socket);
        command
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(Stdio::piped());
        let child = Reaped(command.spawn().unwrap());
        (child, listener.accept().unwrap().0)
    };
    let silent = |mut child: Reaped| {
        // Its standard input is open all the time.
        let status = wait_for("it leaves", || child.0.try_wait().unwrap());
        let mut said = String::new();
        let mut stderr = child.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        assert_eq!(said, "");
        status
    };
    let (child, mut stream) = spawn(Stdio::null());
    stream.write_all(b"bye\n").unwrap();
    drop(stream);
    assert_eq!(silent(child).code(), Some(0));

    let (reader, writer) = pipe().unwrap();
    let (child, mut stream) = spawn(writer.into());
    drop(reader);
    stream.write_all(b"is anybody there?\n").unwrap();
    assert_eq!(silent(child).code(), Some(0));

    let (child, _stream) = spawn(Stdio::null());
    kill(Pid::from_raw(child.0.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(silent(child).signal(), Some(Signal::SIGINT as i32));
}

#[test]
fn nc_sends_nothing_to_what_others_own() {
    if !Uid::effective().is_root() {
        skipped("root, who can give a file away");
        return;
    }
    let place = place();
    let (socket, link) = (place.path("own.sock"), place.path("link.sock"));
    let listener = UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    symlink(&socket, &link).unwrap();
    for (given_away, asked) in [(&link, &link), (&socket, &link), (&socket, &socket)] {
        lchown(given_away, Some(NOBODY), None).unwrap();
        let done = finish(nc(&place, asked), b"{\"prompt\":\"a secret\"}\n");
        lchown(given_away, Some(0), None).unwrap();
        assert_eq!(done.code, Some(69), "{done:?}");
        assert!(done.stderr.contains("uid 65534"), "{done:?}");
        assert!(done.stderr.contains("nothing was sent"), "{done:?}");
        let none = listener.accept().unwrap_err();
        assert_eq!(none.kind(), std::io::ErrorKind::WouldBlock);
    }
}

//! `forward`: another machine's socket on this one, for as long as this program runs.
//!
//! Owns the socket here and its checks. It listens for this user only, in a directory that is
//! private. Must not know how `ssh` is called (`ssh`).

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Uid;
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};

use super::args::ForwardArgs;
use super::exit::Exit;
use super::{connecting, outcome, output};
use agentd_client::endpoint::{LocalEndpoint, MAX_SOCKET_PATH};
use agentd_client::fallback::Fallback;
use agentd_client::places::Environment;
use agentd_client::remote::{Remote, RemoteError};
use agentd_client::ssh::{SOCKET, Target};

/// From the start of `ssh` to a socket that listens: its own time limits, and some.
const LISTENS_WITHIN: Duration = Duration::from_secs(30);
/// How often it is looked whether it listens.
const LOOKS_EVERY: Duration = Duration::from_millis(20);
/// A path and its newline.
const MAX_SAID: u64 = 4096;

pub(super) async fn forward(args: ForwardArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let environment = Environment::of_process();
    let Some(target) = args.to else {
        let path = LocalEndpoint::find(socket, &environment).path;
        output::out_line(&std::path::absolute(path)?.to_string_lossy())?;
        return Ok(Exit::Done);
    };
    let local = match args.local {
        Some(local) => std::path::absolute(local)?,
        None => beside(&environment.default_socket(), &target),
    };
    let _held = is_free(&local).map_err(|(why, exit)| outcome::ends(exit, &why, None))?;
    match serve(&target, &local).await {
        Ok(exit) => exit,
        Err(error) => {
            output::error(&error.error, error.hint.as_deref());
            Ok(Exit::Unreachable)
        }
    }
}

/// `HOST.sock` in the directory of this machine's own socket.
fn beside(own: &Path, target: &Target) -> PathBuf {
    // Colons separate the two ends of a forwarding.
    let name = target.to_string().replace(['[', ']'], "").replace(':', "-");
    own.with_file_name(format!("{name}.sock"))
}

/// A path that `ssh` takes as it is. It would put variables and tokens in, ours or its own.
fn is_plain(path: &str) -> bool {
    path.starts_with('/')
        && path.len() <= MAX_SOCKET_PATH
        && !path.contains([':', '%', '$', '\\', '"'])
        && !path.chars().any(char::is_control)
}

/// Makes the directory, and removes what an earlier one left. Never what isn't a dead socket of ours.
/// While what comes of it is held nobody else forwards there: until `ssh` listens the path is free.
fn is_free(local: &Path) -> Result<Flock<File>, (String, Exit)> {
    let shown = local.display();
    if !local.to_str().is_some_and(is_plain) {
        let length = local.as_os_str().as_bytes().len();
        let error = format!(
            "`{shown}` ({length} bytes) can't be forwarded to: expected at most {MAX_SOCKET_PATH} bytes without `:`, `%`, `$`, `\\` and `\"`"
        );
        return Err((error, Exit::Usage));
    }
    let failed = |what: &str, why: io::Error| (format!("{what} `{shown}`: {why}"), Exit::Refused);
    if let Some(dir) = local.parent().filter(|dir| !dir.exists()) {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|why| failed("cannot make the directory of", why))?;
    }
    let mut beside = local.as_os_str().to_owned();
    beside.push(".lock");
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&beside)
        .map_err(|why| failed("cannot lock", why))?;
    let held = Flock::lock(lock, FlockArg::LockExclusiveNonblock);
    let held = held.map_err(|(_, why)| match why {
        Errno::EWOULDBLOCK => {
            let error = format!("somebody forwards to `{shown}` already");
            (error, Exit::Refused)
        }
        why => failed("cannot lock", why.into()),
    })?;
    let found = match std::fs::symlink_metadata(local) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(held),
        Err(why) => return Err(failed("cannot look at", why)),
        Ok(found) => found,
    };
    if !found.file_type().is_socket() || found.uid() != Uid::effective().as_raw() {
        let error = format!("`{shown}` is there, and is no socket of ours");
        return Err((error, Exit::Refused));
    }
    match std::os::unix::net::UnixStream::connect(local) {
        Err(why) if why.kind() == io::ErrorKind::ConnectionRefused => {
            let removed = std::fs::remove_file(local).map(|()| held);
            removed.map_err(|why| failed("cannot remove", why))
        }
        _ => Err((
            format!("somebody listens on `{shown}` already"),
            Exit::Refused,
        )),
    }
}

async fn serve(target: &Target, local: &Path) -> Result<io::Result<Exit>, RemoteError> {
    let there = socket_of(target).await?;
    let command = target.forward(&local.to_string_lossy(), &there);
    let (mut remote, mut output, input) = Remote::start(target, command)?;
    let listening = async {
        while std::os::unix::net::UnixStream::connect(local).is_err() {
            tokio::time::sleep(LOOKS_EVERY).await;
        }
    };
    // It prints nothing: its output ends when it does.
    let mut nothing = [0; 64];
    let came = tokio::select! {
        came = tokio::time::timeout(LISTENS_WITHIN, listening) => came.ok(),
        _ = output.read(&mut nothing) => None,
    };
    if came.is_none() {
        return Err(remote.why_ended().await);
    }
    let stopped = stopped();
    tokio::pin!(stopped);
    if let Err(why) = told(target, local).await {
        return Ok(Err(why));
    }
    let exit = tokio::select! {
        stopped = &mut stopped => stopped.map(|()| Exit::Done),
        _ = output.read(&mut nothing) => {
            let _removed = std::fs::remove_file(local);
            return Err(remote.why_ended().await);
        }
    };
    // Its input has ended and it is told so: it leaves, and its socket goes with us.
    drop(input);
    remote.abandon();
    let _status = remote.wait().await;
    let _removed = std::fs::remove_file(local);
    Ok(exit)
}

/// Where the daemon there listens.
async fn socket_of(target: &Target) -> Result<String, RemoteError> {
    let (mut remote, output, input) = Remote::start(target, target.run(SOCKET))?;
    drop(input);
    let mut said = Vec::new();
    let mut output = output.take(MAX_SAID);
    let read = tokio::time::timeout(LISTENS_WITHIN, output.read_to_end(&mut said)).await;
    let path = String::from_utf8(said).unwrap_or_default();
    let path = path.trim_end_matches('\n');
    if matches!(read, Ok(Ok(_))) && is_plain(path) {
        return Ok(path.to_owned());
    }
    let why = remote.why_ended().await;
    // What its `authorized_keys` has it run instead: `agentctl ssh-key` makes such lines.
    if why.exit == Some(0) && path.is_empty() {
        return Err(RemoteError {
            error: format!(
                "`{target}` named no socket: the ssh key may send there, and nothing else"
            ),
            hint: Some(format!(
                "`agentctl --host {target} send` does; a socket needs a key that may log in"
            )),
            ..why
        });
    }
    if why.exit.is_none() && !path.is_empty() {
        let shown: String = path.chars().take(200).collect();
        return Err(RemoteError {
            error: format!("`{target}` named no socket that can be forwarded: `{shown}`"),
            ..why
        });
    }
    Err(why)
}

/// Says where it is, and whether anybody is there now.
async fn told(target: &Target, local: &Path) -> io::Result<()> {
    if let Err(error) = connecting::connect(Some(local), Fallback::Forbidden).await {
        output::note(&format!(
            "the daemon on `{target}` doesn't answer now, and may later: {error}"
        ));
    }
    let shown = local.display();
    output::out_line(&format!("`{target}` is at {shown} until Ctrl-C"))
}

/// Ctrl-C, or a wish to end.
async fn stopped() -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn socket_is_beside_ours_under_the_machines_name() {
        let beside = |target: &str| {
            let path = beside(
                Path::new("/run/agentd/agentd.sock"),
                &target.parse().unwrap(),
            );
            path.display().to_string()
        };
        assert_eq!(beside("me@mac:2222"), "/run/agentd/me@mac-2222.sock");
        assert_eq!(beside("[::1]:22"), "/run/agentd/--1-22.sock");
    }

    #[test]
    fn only_a_dead_socket_is_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("made/s");
        assert!(is_free(&path).is_ok() && path.parent().unwrap().is_dir());
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(is_free(&path).unwrap_err().1, Exit::Refused);
        drop(listener);
        assert!(is_free(&path).is_ok() && !path.exists());
        let held = is_free(&path).unwrap();
        let (why, exit) = is_free(&path).unwrap_err();
        assert!(why.contains("forwards") && exit == Exit::Refused, "{why}");
        drop(held);
        std::fs::write(&path, "mine").unwrap();
        assert_eq!(is_free(&path).unwrap_err().1, Exit::Refused);
        assert!(path.exists());
        for wrong in ["/tmp/a:b", "/tmp/%h", "/tmp/${HOME}", "/tmp/\u{1b}"] {
            assert_eq!(
                is_free(Path::new(wrong)).unwrap_err().1,
                Exit::Usage,
                "{wrong}"
            );
        }
    }
}

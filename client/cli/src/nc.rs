//! `nc`: bytes between standard input and output and the daemon's socket.
//!
//! Owns that nothing is written to a socket that somebody else put there. Must not know what the
//! bytes mean: it is `nc -U`, with that one look before.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::Uid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::args::NcArgs;
use super::exit::Exit;
use super::output;
use agentd_client::client::START_IT;
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::fallback::Fact;
use agentd_client::places::Environment;
use agentd_client::stdio;

/// What is copied at once.
const PIECE: usize = 64 * 1024;

pub(super) async fn nc(args: NcArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let given = args.place.as_deref().or(socket);
    let endpoint = LocalEndpoint::find(given, &Environment::of_process());
    if let Err(why) = check(&endpoint.path) {
        output::error(
            &why,
            Some("nothing was sent; name your own socket, or take this one away"),
        );
        return Ok(Exit::Unreachable);
    }
    // It looks at who serves there, which is what counts: the look before was at names.
    let stream = match endpoint.connect().await {
        Ok(stream) => stream,
        Err(not) => {
            let start = matches!(not.fact, Fact::NoSocket | Fact::Refused).then_some(START_IT);
            output::error(&not.error, not.hint.as_deref().or(start));
            return Ok(Exit::Unreachable);
        }
    };
    let (reader, writer) = stream.into_split();
    let sending = sent(stdio::input(), writer);
    let receiving = received(reader, stdio::output());
    tokio::pin!(sending, receiving);
    // It is over when the other side has said all, whether everything was read here or not.
    let ended = tokio::select! {
        ended = &mut receiving => ended,
        unread = &mut sending => match unread {
            Ok(()) => receiving.await,
            Err(error) => Err(error),
        },
    };
    match ended {
        Ok(()) => Ok(Exit::Done),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Done),
        Err(error) => {
            output::error(&format!("`{}`: {error}", endpoint.path.display()), None);
            Ok(Exit::Failed)
        }
    }
}

/// Is the link there, if it is one, ours or root's, and what it leads to ours? A missing one is
/// left to whoever connects.
fn check(path: &Path) -> Result<(), String> {
    let us = Uid::effective().as_raw();
    let shown = path.display();
    if let Ok(found) = fs::symlink_metadata(path)
        && found.uid() != us
        && !(found.is_symlink() && found.uid() == 0)
    {
        let uid = found.uid();
        return Err(format!("`{shown}` belongs to uid {uid}, not to uid {us}"));
    }
    if let Ok(found) = fs::metadata(path)
        && found.uid() != us
    {
        let uid = found.uid();
        return Err(format!(
            "`{shown}` leads to what belongs to uid {uid}, not to uid {us}"
        ));
    }
    Ok(())
}

/// Standard input, and that nothing follows. A daemon that reads no more has its reasons, and says
/// them: only what can't be read here is an error.
async fn sent(
    mut input: impl AsyncRead + Unpin,
    mut socket: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let length = input.read(&mut piece).await?;
        let bytes = piece.get(..length).unwrap_or_default();
        if length == 0 || socket.write_all(bytes).await.is_err() {
            break;
        }
    }
    let _gone = socket.shutdown().await;
    Ok(())
}

/// What is answered, as it comes.
async fn received(
    mut socket: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let length = match socket.read(&mut piece).await {
            Ok(length) => length,
            // Closed before all that was sent was read: what it had to say came before.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error),
        };
        let bytes = piece.get(..length).unwrap_or_default();
        if length == 0 {
            return Ok(());
        }
        output.write_all(bytes).await?;
        output.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nc_leaves_alone_what_is_not_ours() {
        if !Uid::effective().is_root() {
            eprintln!("left out: only root can make a link of somebody else's");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (socket, link) = (dir.path().join("socket"), dir.path().join("link"));
        let _listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        assert_eq!(check(&link), Ok(()));
        assert_eq!(check(&dir.path().join("missing")), Ok(()));
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        assert!(check(&link).unwrap_err().contains("belongs to uid 65534"));
        std::os::unix::fs::lchown(&link, Some(0), None).unwrap();
        std::os::unix::fs::lchown(&socket, Some(65534), None).unwrap();
        assert!(check(&link).unwrap_err().contains("leads to what belongs"));
        assert!(check(&socket).unwrap_err().contains("belongs to uid 65534"));
    }
}

//! Changes in a directory, told by the system where it can.
//!
//! Owns how that is heard. Must not know what is in the directory.

use std::path::Path;
use std::time::Duration;

/// Something has changed in a directory. An inotify descriptor is read like a pipe.
#[cfg(target_os = "linux")]
pub struct Changes(Option<tokio::net::unix::pipe::Receiver>);

#[cfg(target_os = "linux")]
impl Changes {
    /// Files that appear in it. Where the system can't tell, each minute counts as a change.
    #[must_use]
    pub fn arrivals(dir: &Path) -> Self {
        use nix::sys::inotify::AddWatchFlags as Flags;
        Self::of(dir, Flags::IN_CREATE | Flags::IN_MOVED_TO)
    }

    /// Files that are taken away, replaced, or closed after they were written to; or all with it.
    #[must_use]
    pub fn losses(dir: &Path) -> Self {
        use nix::sys::inotify::AddWatchFlags as Flags;
        let all = [
            Flags::IN_DELETE,
            Flags::IN_MOVE,
            // Not `IN_MODIFY`: the store's own commits would ring it all the time.
            Flags::IN_CLOSE_WRITE,
            Flags::IN_DELETE_SELF,
            Flags::IN_MOVE_SELF,
        ];
        Self::of(dir, all.into_iter().collect())
    }

    fn of(dir: &Path, flags: nix::sys::inotify::AddWatchFlags) -> Self {
        use nix::sys::inotify::{InitFlags, Inotify};
        use tokio::net::unix::pipe::Receiver;
        let watched =
            Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).and_then(|inotify| {
                inotify.add_watch(dir, flags)?;
                Ok(std::os::fd::OwnedFd::from(inotify))
            });
        let fd = watched
            .map_err(std::io::Error::from)
            // Unchecked, as it is no pipe, and read like one.
            .and_then(Receiver::from_owned_fd_unchecked);
        if let Err(error) = &fd {
            let dir = dir.display();
            tracing::warn!(%error, %dir, "changes there are looked for each minute only");
        }
        Self(fd.ok())
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        use tokio::io::AsyncReadExt as _;
        let Some(fd) = &mut self.0 else {
            return each_minute().await;
        };
        // What it was doesn't matter: who asks looks.
        if !matches!(fd.read(&mut [0; 4096]).await, Ok(1..)) {
            self.0 = None;
        }
    }
}

/// Where the system can't tell, the directory is looked at now and then.
#[cfg(not(target_os = "linux"))]
pub struct Changes;

#[cfg(not(target_os = "linux"))]
impl Changes {
    /// Files that appear in it.
    #[must_use]
    pub const fn arrivals(_dir: &Path) -> Self {
        Self
    }

    /// Files that are taken away or replaced.
    #[must_use]
    pub const fn losses(_dir: &Path) -> Self {
        Self
    }

    /// Waits for the time of the next look.
    pub async fn next(&mut self) {
        each_minute().await;
    }
}

async fn each_minute() {
    tokio::time::sleep(Duration::from_secs(60)).await;
}

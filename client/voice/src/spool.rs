//! Where utterances wait until a daemon has them: a directory as of a mail queue.
//!
//! Owns the files: `tmp` while they are written, `new` in the order they were said, `old` for what
//! isn't delivered any more, and one lock for each destination. What is in `new` is whole and
//! survives a power cut. Must not know how anything is delivered.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use agentd_base::clock::wall_ms;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use serde::{Deserialize, Serialize};

use super::Utterance;
use agentd_client::key;

/// Who talks to a machine that is never reached is told so, rather than filling the disk.
pub const MAX_WAITING: usize = 1000;
/// As many that weren't delivered are kept to be looked at.
const MAX_OLD: usize = 100;
/// A file of our own is smaller by far.
const MAX_FILE: u64 = 1024 * 1024;
/// What a writer left in `tmp` that was killed meanwhile.
const ABANDONED_AFTER: Duration = Duration::from_secs(3_600);
/// How often it is looked whether somebody else is done.
const LOOKS_EVERY: Duration = Duration::from_millis(10);
/// Names are numbers of this width, so that they sort.
const DIGITS: usize = 20;

/// The directory.
#[derive(Clone, Debug)]
pub struct Spool {
    dir: PathBuf,
}

/// Which file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Name(String);

/// Who holds it delivers to that destination, alone.
pub struct SpoolLock(#[expect(dead_code, reason = "it is held")] Flock<File>);

/// What was seen of a destination when it last took something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DestinationState {
    /// The daemon.
    pub pid: u32,
    /// How often it had restarted workers.
    pub restarts: u64,
}

impl Spool {
    /// The one in a state directory, made if it isn't there.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn open(state: &Path) -> io::Result<Self> {
        let dir = state.join("spool");
        for name in ["tmp", "new", "old"] {
            let made = DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir.join(name));
            made.map_err(|why| named(&dir.join(name), why))?;
        }
        Ok(Self { dir })
    }

    /// The one in a state directory, if it is there. Nothing is made.
    #[must_use]
    pub fn existing(state: &Path) -> Option<Self> {
        let dir = state.join("spool");
        dir.join("new").is_dir().then_some(Self { dir })
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file that makes a destination one of [`Self::machines`].
    #[must_use]
    pub fn lock(&self, to: &str) -> PathBuf {
        self.dir.join(format!("lock.{}", lane(to)))
    }

    /// What distinguishes this machine's keys from another one's, made on first use.
    ///
    /// # Errors
    /// When it can't be read or written.
    pub fn device(&self) -> io::Result<String> {
        let path = self.dir.join("device");
        match std::fs::read_to_string(&path) {
            Ok(device) => return Ok(device),
            Err(why) if why.kind() == ErrorKind::NotFound => {}
            Err(why) => return Err(named(&path, why)),
        }
        let device = key::random()?;
        let written = self.write(device.as_bytes())?;
        // A link is made or it isn't: two that begin at once have one name for this machine in the
        // end.
        let linked = std::fs::hard_link(&written, &path);
        let _left = std::fs::remove_file(&written);
        match linked {
            Ok(()) => sync(&self.dir).map(|()| device),
            // Somebody was faster: theirs counts.
            Err(why) if why.kind() == ErrorKind::AlreadyExists => std::fs::read_to_string(&path),
            Err(why) => Err(named(&path, why)),
        }
    }

    /// Keeps an utterance, behind all that wait. It is on the disk when this returns.
    ///
    /// # Errors
    /// When it isn't: nothing is left of it then.
    pub fn put(&self, utterance: &Utterance) -> io::Result<Name> {
        let written = self.write(serde_json::to_string(utterance)?.as_bytes())?;
        let kept = self.queue(&written);
        let _left = std::fs::remove_file(&written);
        kept
    }

    /// Gives a written file the next number. The clock may have been set back: what waits counts.
    fn queue(&self, written: &Path) -> io::Result<Name> {
        let new = self.dir.join("new");
        for _race in 0..MAX_WAITING {
            let waiting = self.names()?;
            if waiting.len() >= MAX_WAITING {
                let error = format!(
                    "`{}` has {MAX_WAITING} utterances already: see to it that `agentctl voice flush` works, or remove some",
                    new.display()
                );
                return Err(io::Error::new(ErrorKind::StorageFull, error));
            }
            let last = waiting.last().and_then(|name| name.0.parse::<u64>().ok());
            let number = last
                .map_or(0, |last| last.saturating_add(1))
                .max(wall_ms().unsigned_abs());
            let name = format!("{number:0DIGITS$}");
            // Whole under its number at once, and never over another one's.
            match std::fs::hard_link(written, new.join(&name)) {
                Ok(()) => return sync(&new).map(|()| Name(name)),
                Err(why) if why.kind() == ErrorKind::AlreadyExists => {}
                Err(why) => return Err(named(&new.join(&name), why)),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// A whole file in `tmp`, on the disk.
    fn write(&self, bytes: &[u8]) -> io::Result<PathBuf> {
        let path = self.dir.join("tmp").join(key::random()?);
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            file.write_all(bytes)?;
            // Before it has its name, under which a power cut would leave an empty file.
            file.sync_all()
        };
        write().map(|()| path.clone()).map_err(|why| {
            let _none = std::fs::remove_file(&path);
            named(&path, why)
        })
    }

    /// What waits, in order. What is no number isn't ours.
    fn names(&self) -> io::Result<Vec<Name>> {
        let new = self.dir.join("new");
        let entries = std::fs::read_dir(&new).map_err(|why| named(&new, why))?;
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(|why| named(&new, why))?.file_name();
            let name = name.to_str().unwrap_or_default();
            if name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_digit()) {
                names.push(Name(name.to_owned()));
            }
        }
        names.sort();
        Ok(names)
    }

    /// What waits, in order; what is no utterance with why it isn't.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn waiting(&self) -> io::Result<Vec<(Name, Result<Utterance, String>)>> {
        let mut found = Vec::new();
        for name in self.names()? {
            match self.read(&name) {
                // Somebody delivered it meanwhile.
                Err(why) if why.kind() == ErrorKind::NotFound => {}
                Err(why) if !is_of_content(&why) => return Err(why),
                Err(why) => found.push((name, Err(why.to_string()))),
                Ok(utterance) => found.push((name, Ok(utterance))),
            }
        }
        Ok(found)
    }

    fn read(&self, name: &Name) -> io::Result<Utterance> {
        let path = self.dir.join("new").join(&name.0);
        let mut text = String::new();
        // A pipe of that name would be waited for, and a link leads elsewhere.
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
        let mut options = OpenOptions::new();
        let opened = options.read(true).custom_flags(flags.bits()).open(&path);
        let file =
            opened.map_err(
                |why| match Errno::from_raw(why.raw_os_error().unwrap_or(0)) {
                    Errno::ELOOP => named(
                        &path,
                        io::Error::new(ErrorKind::InvalidData, "it is a link"),
                    ),
                    _ => named(&path, why),
                },
            )?;
        let read = file.take(MAX_FILE).read_to_string(&mut text);
        read.map_err(|why| named(&path, why))?;
        serde_json::from_str(&text).map_err(|why| named(&path, why.into()))
    }

    /// Does it wait still?
    #[must_use]
    pub fn has(&self, name: &Name) -> bool {
        self.dir.join("new").join(&name.0).exists()
    }

    /// It was delivered. Should it come back after a power cut, its key says so.
    ///
    /// # Errors
    /// When it stays.
    pub fn remove(&self, name: &Name) -> io::Result<()> {
        let path = self.dir.join("new").join(&name.0);
        match std::fs::remove_file(&path) {
            Err(why) if why.kind() != ErrorKind::NotFound => Err(named(&path, why)),
            _ => Ok(()),
        }
    }

    /// It isn't delivered any more, and kept to be looked at; the oldest of these go.
    ///
    /// # Errors
    /// When it stays where it is.
    pub fn put_aside(&self, name: &Name) -> io::Result<()> {
        let (from, old) = (self.dir.join("new").join(&name.0), self.dir.join("old"));
        std::fs::rename(&from, old.join(&name.0)).map_err(|why| named(&from, why))?;
        let mut kept: Vec<PathBuf> = std::fs::read_dir(&old)?
            .flatten()
            .map(|entry| entry.path())
            .collect();
        kept.sort();
        for path in kept.iter().rev().skip(MAX_OLD) {
            // What somebody else put there stays, and is in nobody's way.
            let _stays = std::fs::remove_file(path);
        }
        Ok(())
    }

    /// Removes what writers left that were killed.
    pub fn sweep(&self) {
        let entries = std::fs::read_dir(self.dir.join("tmp"));
        let abandoned = |path: &Path| {
            let age = std::fs::metadata(path)
                .and_then(|of| of.modified())
                .map(|modified| SystemTime::now().duration_since(modified));
            matches!(age, Ok(Ok(age)) if age > ABANDONED_AFTER)
        };
        for path in entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
        {
            if abandoned(&path) {
                // It is in nobody's way.
                let _stays = std::fs::remove_file(&path);
            }
        }
    }

    /// Waits until nobody else delivers there. Dropping what comes of it lets the next one in.
    ///
    /// # Errors
    /// When there can't be a lock.
    pub async fn hold(&self, to: &str) -> io::Result<SpoolLock> {
        loop {
            if let Some(held) = self.try_hold(to)? {
                return Ok(held);
            }
            tokio::time::sleep(LOOKS_EVERY).await;
        }
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// When there can't be a lock.
    pub fn try_hold(&self, to: &str) -> io::Result<Option<SpoolLock>> {
        let path = self.lock(to);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|why| named(&path, why))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Some(SpoolLock(held))),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, why)) => Err(named(&path, why.into())),
        }
    }

    /// Every machine that something was ever delivered to, or waits for, in order.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn machines(&self) -> io::Result<BTreeSet<String>> {
        let entries = std::fs::read_dir(&self.dir).map_err(|why| named(&self.dir, why))?;
        let mut found = BTreeSet::new();
        for entry in entries {
            let name = entry.map_err(|why| named(&self.dir, why))?.file_name();
            let lane = name.to_str().and_then(|name| name.strip_prefix("lock."));
            found.extend(lane.map(|lane| lane.replace('!', "/")));
        }
        let waiting = self.waiting()?;
        found.extend(
            waiting
                .into_iter()
                .filter_map(|(_, one)| Some(one.ok()?.to)),
        );
        found.retain(|to| to.starts_with("ssh://"));
        Ok(found)
    }

    /// What was seen there the last time; kept for the next.
    pub fn seen(&self, to: &str, now: DestinationState) -> Option<DestinationState> {
        let path = self.dir.join(format!("seen.{}", lane(to)));
        let before = std::fs::read_to_string(&path).ok();
        let before = before.and_then(|text| serde_json::from_str(&text).ok());
        if before != Some(now) {
            // It is for a note only.
            let _unknown = serde_json::to_string(&now)
                .map_err(io::Error::from)
                .and_then(|text| std::fs::write(&path, text));
        }
        before
    }
}

/// Is the file itself wrong, rather than the disk? One that can't be read must not keep the others
/// waiting.
fn is_of_content(why: &io::Error) -> bool {
    matches!(
        why.kind(),
        ErrorKind::InvalidData
            | ErrorKind::UnexpectedEof
            | ErrorKind::PermissionDenied
            | ErrorKind::IsADirectory
    )
}

/// A destination as part of a file's name. Two that share one only wait for each other.
fn lane(to: &str) -> String {
    match to {
        "" => "local".to_owned(),
        to => to.replace('/', "!"),
    }
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|why| named(dir, why))
}

fn named(path: &Path, why: io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("`{}`: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::request::Send;
    use std::os::unix::fs::PermissionsExt as _;

    fn utterance(id: &str) -> Utterance {
        Utterance {
            to: "ssh://mac".to_owned(),
            id: id.to_owned(),
            said_at: wall_ms(),
            moment: None,
            send: Send {
                text: format!("{id} `$(id)`\n"),
                ..Send::default()
            },
        }
    }

    fn ids(spool: &Spool) -> Vec<String> {
        let waiting = spool.waiting().unwrap();
        waiting
            .into_iter()
            .map(|(_, one)| one.unwrap().id)
            .collect()
    }

    #[test]
    fn spool_keeps_the_order_though_clocks_go_back() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let ahead = format!("{:020}", wall_ms() + 3_600_000);
        std::fs::write(
            dir.path().join("spool/new").join(&ahead),
            serde_json::to_string(&utterance("first")).unwrap(),
        )
        .unwrap();
        spool.put(&utterance("second")).unwrap();
        let third = spool.put(&utterance("third")).unwrap();
        assert_eq!(ids(&spool), ["first", "second", "third"]);
        let read = spool.waiting().unwrap().pop().unwrap().1.unwrap();
        assert_eq!(read.send.text, "third `$(id)`\n");
        spool.remove(&third).unwrap();
        spool.remove(&third).unwrap();
        assert!(!spool.has(&third));
        assert_eq!(ids(&spool), ["first", "second"]);
        let left = std::fs::read_dir(dir.path().join("spool/tmp")).unwrap();
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn spool_tells_unreadable_files_and_delays_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let new = dir.path().join("spool/new");
        std::fs::create_dir(new.join(format!("{:020}", 1))).unwrap();
        nix::unistd::mkfifo(
            &new.join(format!("{:020}", 2)),
            nix::sys::stat::Mode::S_IRWXU,
        )
        .unwrap();
        std::os::unix::fs::symlink("/etc/passwd", new.join(format!("{:020}", 3))).unwrap();
        let closed = new.join(format!("{:020}", 4));
        std::fs::write(&closed, "").unwrap();
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
        spool.put(&utterance("a")).unwrap();
        let waiting = spool.waiting().unwrap();
        let readable = waiting.iter().filter_map(|(_, one)| one.as_ref().ok());
        assert_eq!(
            readable.map(|one| one.id.as_str()).collect::<Vec<_>>(),
            ["a"]
        );
        assert_eq!(waiting.len(), 5);
        for (name, one) in waiting {
            if one.is_err() {
                spool.put_aside(&name).unwrap();
            }
        }
        assert_eq!(ids(&spool), ["a"]);
    }

    #[tokio::test]
    async fn spool_names_machines_talked_to_or_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        assert!(spool.machines().unwrap().is_empty());
        drop(spool.hold("").await.unwrap());
        drop(spool.hold("/run/agentd.sock").await.unwrap());
        drop(spool.hold("ssh://me@old:22").await.unwrap());
        spool.put(&utterance("a")).unwrap();
        let machines: Vec<String> = spool.machines().unwrap().into_iter().collect();
        assert_eq!(machines, ["ssh://mac", "ssh://me@old:22"]);
    }

    #[test]
    fn only_its_user_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("state")).unwrap();
        let name = spool.put(&utterance("a")).unwrap();
        let mode = |path: &str| {
            let path = dir.path().join("state").join(path);
            std::fs::metadata(path).unwrap().permissions().mode() & 0o777
        };
        for path in ["spool", "spool/new", "spool/tmp", "spool/old"] {
            assert_eq!(mode(path), 0o700, "{path}");
        }
        assert_eq!(mode(&format!("spool/new/{}", name.0)), 0o600);
        let device = spool.device().unwrap();
        assert_eq!((device.len(), mode("spool/device")), (32, 0o600));
        assert_eq!(spool.device().unwrap(), device);
    }

    #[test]
    fn spool_that_is_full_keeps_what_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        for number in 0..MAX_WAITING {
            std::fs::write(dir.path().join(format!("spool/new/{number:020}")), "").unwrap();
        }
        let why = spool.put(&utterance("a")).unwrap_err().to_string();
        assert!(why.contains("1000 utterances"), "{why}");
        assert_eq!(spool.names().unwrap().len(), MAX_WAITING);
        let left = std::fs::read_dir(dir.path().join("spool/tmp")).unwrap();
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn spool_puts_aside_up_to_a_number() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        for number in 0..MAX_OLD {
            std::fs::write(dir.path().join(format!("spool/old/{number:020}")), "").unwrap();
        }
        let name = spool.put(&utterance("a")).unwrap();
        spool.put_aside(&name).unwrap();
        let old = dir.path().join("spool/old");
        assert_eq!(std::fs::read_dir(&old).unwrap().count(), MAX_OLD);
        assert!(old.join(&name.0).exists() && !old.join(format!("{:020}", 0)).exists());
    }

    #[tokio::test]
    async fn one_delivers_to_a_destination_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let held = spool.hold("ssh://me@mac:1").await.unwrap();
        let other = spool.hold("ssh://other").await.unwrap();
        let soon = Duration::from_millis(50);
        let again = tokio::time::timeout(soon, spool.hold("ssh://me@mac:1")).await;
        assert!(again.is_err());
        drop((held, other));
        spool.hold("ssh://me@mac:1").await.unwrap();
    }

    #[test]
    fn what_was_seen_is_remembered_for_each_destination() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let seen = |pid| DestinationState { pid, restarts: 0 };
        assert_eq!(spool.seen("", seen(1)), None);
        assert_eq!(spool.seen("ssh://mac", seen(7)), None);
        assert_eq!(spool.seen("", seen(2)), Some(seen(1)));
        assert_eq!(spool.seen("", seen(2)), Some(seen(2)));
    }
}

//! What the writer does when nobody waits: it makes room in the log, forgets what is too old, and
//! has the log written back.
//!
//! Owns when there is time for it, or no way around it. Must not know what is forgotten, nor how.

use agentd_base::clock::wall_ms;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::store::age::{self, Clocks};
use crate::store::backup_plan::Planned;
use crate::store::checkpoint::{CheckpointEnd, Length, checkpoint};
use crate::store::columns::nat;
use crate::store::prune::{self, Pruned, SLICE};
use crate::store::reserve::ROOM;
use crate::store::schedules::OnSchedules;
use crate::store::{Moment, Role, trouble};
use agentd_protocol::Code;

use super::{PRUNE_PAUSE, Trouble, Writer, is_doubtful};

/// Whoever reads what is in the log lets go of it so soon after it was told to.
const LETS_GO_WITHIN: Duration = Duration::from_millis(100);

impl Writer {
    /// Carries out something about schedules, which answers by itself.
    pub(super) fn on_schedules(&mut self, work: OnSchedules) {
        if self.conn.is_none() || self.trouble.is_some() {
            let why = "the store can't be written at the moment".to_owned();
            return drop(work(Err(why)));
        }
        // The answer is given already.
        let _told = self.beside(|conn| work(Ok(conn)));
    }

    /// Only where somebody will need it soon, and nothing is known to be wrong.
    pub(super) fn room_is_short(&self) -> bool {
        let is_well = self.conn.is_some() && self.trouble.is_none();
        let pages = self.log.pages.load(Ordering::Relaxed);
        self.config.role == Role::Daemon && is_well && self.room.is_short(pages)
    }

    pub(super) fn make_room(&mut self) {
        if let (true, Some(conn)) = (self.room_is_short(), &self.conn) {
            let pages = self.log.pages.load(Ordering::Relaxed);
            self.room.make(conn, pages);
        }
    }

    /// Forgets a slice of what is too old, if it is time for it. Nobody waits.
    pub(super) fn prune(&mut self) {
        let (Some(at), Some(keep), Some(conn), None) =
            (self.prune_at, self.config.keep, &self.conn, &self.trouble)
        else {
            return;
        };
        self.config.verify.begin_if_due();
        if Instant::now() < at {
            return;
        }
        if self.config.role == Role::Daemon {
            self.reserve.take();
        }
        let clocks = clocks(self.config.boot.as_deref(), self.config.boot_ms);
        let pruned = (self.config.fault)(Moment::BeforeBegin, conn)
            .and_then(|()| prune::some(conn, keep, clocks));
        let pause = match pruned {
            Ok(prune::UpkeepDone::NOTHING) => {
                match Planned::read(conn) {
                    Ok(Some(planned)) => self.backups.begin_planned(planned),
                    Ok(None) => {}
                    Err(error) => tracing::warn!(%error, "whether a backup is due can't be seen"),
                }
                keep.every
            }
            Ok(done) => {
                tracing::debug!(?done, "old jobs and deliveries are forgotten");
                self.write_back();
                PRUNE_PAUSE
            }
            Err(error) => {
                if is_doubtful(&error) {
                    self.conn = None;
                }
                self.fail(&error);
                keep.every
            }
        };
        self.prune_at = Some(Instant::now() + pause);
    }

    /// On a full disk, what the log holds goes into the file and its own room with it, once for each
    /// time that the disk becomes full. Is there any room now?
    pub(super) fn log_makes_room(&self, error: &rusqlite::Error) -> bool {
        let (Some(conn), None, true) = (&self.conn, &self.trouble, trouble::is_full(error)) else {
            return false;
        };
        if self.log.pages.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.free_log();
        let until = Instant::now() + LETS_GO_WITHIN;
        loop {
            match checkpoint(conn, "TRUNCATE") {
                CheckpointEnd::Whole => return true,
                CheckpointEnd::InPart if Instant::now() < until => {
                    std::thread::park_timeout(Duration::from_millis(5));
                }
                CheckpointEnd::InPart | CheckpointEnd::Failed => return false,
            }
        }
    }

    /// A full disk is no time to wait for the next look: what has to go anyway leaves room in the
    /// file for what is to be written. Where that fails, too, it is as before.
    pub(super) fn forget_on_a_full_disk(&mut self) {
        let is_full = |trouble: &Trouble| trouble.code == Code::DiskFull;
        let (Some(keep), Some(conn), true) = (
            self.config.keep,
            &self.conn,
            self.trouble.as_ref().is_some_and(is_full),
        ) else {
            return;
        };
        // Begun anew, the log takes that where it has room already.
        if checkpoint(conn, "RESTART") == CheckpointEnd::InPart {
            self.free_log();
        }
        let clocks = clocks(self.config.boot.as_deref(), self.config.boot_ms);
        let forgotten = (self.config.fault)(Moment::BeforeBegin, conn)
            .and_then(|()| age::look(conn, clocks))
            .and_then(|believed| prune::slice(conn, keep, believed, SLICE));
        match forgotten {
            Ok(Pruned::All) => {}
            Ok(Pruned::Some(jobs)) => {
                tracing::info!(jobs, "old jobs are forgotten, as the disk is full");
                self.prune_at = Some(Instant::now());
            }
            Err(error) => tracing::debug!(%error, "nothing can be forgotten on the full disk"),
        }
    }

    /// What was kept for a full disk is kept again, or as much is free in the file.
    pub(super) fn has_reserve(&mut self) -> bool {
        if !self.reserve.is_let_go() || self.reserve.take() {
            return true;
        }
        let number = |pragma| {
            let conn = self.conn.as_ref()?;
            let number = conn.query_row(pragma, [], |row| row.get::<_, i64>(0));
            number.ok()
        };
        let free = number("PRAGMA freelist_count").zip(number("PRAGMA page_size"));
        free.is_some_and(|(pages, size)| nat(pages.saturating_mul(size)) >= ROOM)
    }

    pub(super) fn write_back(&mut self) {
        let Some(conn) = &self.conn else { return };
        // While others wait, writing back would cost them a second sync.
        let is_quiet = self.queue.is_empty();
        let length = (self.checkpoints).after_commit(conn, &self.config, is_quiet);
        if length == Length::TooLong {
            self.free_log();
        }
    }

    /// Whoever reads what is in the log lets go of it, so that it can begin anew.
    fn free_log(&self) {
        self.backups.give_up();
        self.config.verify.give_up();
        self.config.readers.give_up();
    }
}

fn clocks(boot: Option<&str>, boot_ms: fn() -> u64) -> Clocks<'_> {
    Clocks {
        wall_ms: wall_ms(),
        boot,
        boot_ms: boot_ms(),
    }
}

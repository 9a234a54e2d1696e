//! Bytes of memory that are held for others, and how many may be.
//!
//! Owns what a waiting job weighs, and the refusal of what there is no room for. Counts what grows
//! with the number and the size of requests; must not know allocators.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{Budget, MemoryFacts};
use agentd_protocol::request::Send;
use agentd_protocol::{Code, Request};

use crate::jobs::job::Job;
use crate::limits::{JOB_PLACES, PARKED_BYTES, QUEUED_BYTES, UNSENT_BYTES};
use crate::sessions::loading::of_parked;
use crate::state::State;
use crate::store::NewJob;

/// What a job weighs whose request is in the store; `terms` are those that it shares with nobody.
pub(crate) const fn of_waiting(terms: usize) -> usize {
    size_of::<Job>() + JOB_PLACES + terms
}

/// What its acceptance takes besides, until it is committed.
pub(crate) fn until_stored(new: &NewJob) -> usize {
    let key = new.key.as_ref().map_or(0, String::len);
    let labels = new.labels.as_ref().map_or(0, String::len);
    let system = new.system.as_ref().map_or(0, |system| system.len());
    let servers = new
        .reserves
        .as_ref()
        .map_or(0, |servers| servers.to.bytes());
    size_of::<NewJob>() + system + servers + new.request.len() + new.hashed.len() + key + labels
}

impl State {
    /// Is there memory for one more waiting job?
    pub(crate) fn room_in_memory(&self, send: &Send) -> Result<(), Rejected> {
        // Its text is there twice until it is stored: as it is written, and as its key's hash covers
        // it.
        let wanted = of_waiting(0) + 2 * send.bytes();
        let held = self.jobs.weight();
        if held + wanted <= QUEUED_BYTES {
            return Ok(());
        }
        Err(full(format!(
            "the turns that wait take {held} bytes of memory and this one {wanted}, the limit is \
             {QUEUED_BYTES}"
        )))
    }

    /// Is there memory for a request that waits until its sessions are known?
    pub(crate) fn room_to_park(&self, request: &Request) -> Result<(), Rejected> {
        let (held, wanted) = (self.sessions.parked(), of_parked(request));
        if held + wanted <= PARKED_BYTES {
            return Ok(());
        }
        Err(full(format!(
            "requests whose sessions are being looked up take {held} bytes of memory and this one \
             {wanted}, the limit is {PARKED_BYTES}"
        )))
    }

    /// Is there memory for one more page of a list?
    pub(crate) fn room_for_a_page(&self) -> Result<(), Rejected> {
        let held = self.peers.unsent();
        // How long the page will be is not known before it is read, so what is there already
        // decides.
        if held < UNSENT_BYTES {
            return Ok(());
        }
        let error = format!(
            "lines that their readers have not taken are {held} bytes of memory, the limit is \
             {UNSENT_BYTES}"
        );
        Err(Rejected::new(Code::QueueFull, error).hint("nothing was looked up; ask again later"))
    }

    /// What is held, as `status` tells it.
    pub(crate) fn memory(&self, attached: Budget) -> MemoryFacts {
        let budget = |bytes: usize, limit: usize| Budget {
            bytes: bytes as u64,
            limit: limit as u64,
        };
        MemoryFacts {
            queued: budget(self.jobs.weight(), QUEUED_BYTES),
            parked: budget(self.sessions.parked(), PARKED_BYTES),
            unsent: budget(self.peers.unsent(), UNSENT_BYTES),
            attached,
        }
    }
}

/// The refusal of work that there is no room for now.
pub(crate) fn full(what: String) -> Rejected {
    Rejected::new(Code::QueueFull, what).hint("nothing was run; ask again later")
}

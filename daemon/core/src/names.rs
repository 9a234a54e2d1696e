//! How much of a worker's names and ids is kept.
//!
//! Owns where they are cut: as they enter, so that every line they get into keeps its limit. Text
//! and output have limits of their own.

use agentd_protocol::limits::MAX_TOOL_OUTPUT;
use agentd_protocol::line::{FileChange, ToolLocation};

use crate::limits::{NAME_BYTES, TOOL_LOCATIONS};
use crate::text::{change_len, head_and_tail};
use crate::worker::{Failure, Outcome, Steering, WorkerEvent};

impl WorkerEvent {
    /// Cuts names, ids and sentences that are too long for a line; says by how many bytes.
    pub(crate) fn cut(&mut self) -> usize {
        match self {
            Self::ToolStarted {
                call, name, about, ..
            } => {
                let locations = fitting(&mut about.locations);
                cut(call) + cut(name) + locations + changes(&mut about.diff)
            }
            Self::ToolEnded { call, diff, .. } => cut(call) + changes(diff),
            Self::ToolUpdated { call, .. } => cut(call),
            Self::Other { kind, .. } => cut(kind),
            Self::Steered {
                steering: Steering::Refused(failure),
                ..
            }
            | Self::Compacted {
                result: Err(failure),
            }
            | Self::Models {
                result: Err(failure),
                ..
            }
            | Self::Commands {
                result: Err(failure),
                ..
            } => failure.cut(),
            Self::Ended { outcome, .. } => outcome.cut(),
            _ => 0,
        }
    }
}

impl Outcome {
    fn cut(&mut self) -> usize {
        let names = [&mut self.provider, &mut self.model, &mut self.cost.source];
        let names: usize = names.into_iter().flatten().map(cut).sum();
        names + self.result.as_mut().err().map_or(0, Failure::cut)
    }
}

impl Failure {
    fn cut(&mut self) -> usize {
        let before = self.error.len();
        let error = std::mem::take(&mut self.error);
        self.error = head_and_tail(error, MAX_TOOL_OUTPUT).0;
        before.saturating_sub(self.error.len()) + self.hint.as_mut().map_or(0, cut)
    }
}

/// The first files: half a path would be another one.
fn fitting(locations: &mut Vec<ToolLocation>) -> usize {
    let bytes = |all: &[ToolLocation]| all.iter().map(|one| one.path.len()).sum::<usize>();
    let before = bytes(locations);
    locations.retain(|one| (1..=NAME_BYTES).contains(&one.path.len()));
    locations.truncate(TOOL_LOCATIONS);
    before - bytes(locations)
}

/// All of what is changed, or nothing: a part of it would look like the whole.
fn changes(diff: &mut Vec<FileChange>) -> usize {
    let bytes: usize = diff.iter().map(change_len).sum();
    if bytes <= MAX_TOOL_OUTPUT && diff.len() <= TOOL_LOCATIONS {
        return 0;
    }
    *diff = Vec::new();
    bytes
}

fn cut(name: &mut String) -> usize {
    let before = name.len();
    if before > NAME_BYTES {
        name.truncate(name.floor_char_boundary(NAME_BYTES));
        // What was cut away is given back.
        name.shrink_to_fit();
    }
    before - name.len()
}

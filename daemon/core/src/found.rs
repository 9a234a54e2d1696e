//! Looking something up that must be there: `found!(self.jobs.get(turn))`.
//!
//! Owns the two forms of it. If it isn't there, that is logged as a mistake of this program
//! (`Outbox::dangling`). Must not know what is looked up.

/// What an owner has under an id that must be there.
macro_rules! found {
    ($state:ident . $owner:ident . $get:ident ($id:expr)) => {
        $state.outbox.expected($id, $state.$owner.$get(&$id))
    };
}

/// The same, and without it nothing more is done.
macro_rules! expected {
    ($state:ident . $owner:ident . $get:ident ($id:expr)) => {
        match $state.$owner.$get(&$id) {
            Some(found) => found,
            None => return $state.outbox.dangling($id),
        }
    };
}

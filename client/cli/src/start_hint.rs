//! What to do where no daemon runs: start one, or first mend what would keep it from coming up.
//!
//! Owns that the advice is true. Must not know how a daemon is started (`daemon`), nor what is in its
//! files.

use agentd_client::client::START_IT;
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::oneshot;
use agentd_client::places::{self, Environment, StoreFile};

use super::config_check;

/// For a daemon of this machine, with the variables that it would have if it was started from here.
pub(super) fn of_this_machine() -> String {
    let environment = Environment::of_process();
    // Asking a program costs more than all the rest, and one that began with these files takes them.
    let is_known = LocalEndpoint::find(None, &environment).began_with_this_configuration();
    // Where its program is missing, starting it says so.
    if !is_known
        && oneshot::program().is_file()
        && let Some(unusable) = config_check::of_program()
    {
        let (why, hint) = (unusable.why, unusable.hint);
        return format!("none can be started as things are: {why}; {hint}");
    }
    let state = environment.state_dir().unwrap_or_default();
    let state = state.display();
    match places::store_file(&environment) {
        StoreFile::None | StoreFile::There => START_IT.to_owned(),
        StoreFile::Gone => format!(
            "the store that was in `{state}` is gone: `agentctl restore FILE` puts a backup there, \
             `agentctl start` begins an empty one"
        ),
        StoreFile::Damaged => format!(
            "the store in `{state}` is damaged: `agentctl restore FILE` puts a backup in its place, \
             `agentctl start` moves it aside and begins an empty one"
        ),
    }
}

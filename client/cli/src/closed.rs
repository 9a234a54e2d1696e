//! Whether the session of a job is still there, or was closed since.
//!
//! Owns that question. Must not know what is made of it.

use agentd_protocol::JobId;
use agentd_protocol::rows::{JobRow, SessionPhase};
use agentd_protocol::work::Jobs;

use agentd_client::asked::RequestError;
use agentd_client::client::Client;

/// What became of a job's session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    /// It goes on with the next send.
    Open,
    /// Its name is free, or another one's.
    Closed,
}

/// Asks for the session that a job was sent to.
pub(super) async fn session_of(client: &mut Client, row: &JobRow) -> Result<Kept, RequestError> {
    match client.session_named(&row.session).await? {
        Some(one) if one.state != SessionPhase::Closed => {}
        Some(_) | None => return Ok(Kept::Closed),
    }
    // One that was made since has only its name, and other jobs: this would be the newest up to here.
    let upto = Jobs {
        session: Some(row.session.clone()),
        before: Some(JobId(row.job.0.saturating_add(1))),
        limit: Some(1),
        ..Jobs::default()
    };
    let is_its = client
        .jobs(upto)
        .await?
        .iter()
        .any(|one| one.job == row.job);
    Ok(if is_its { Kept::Open } else { Kept::Closed })
}

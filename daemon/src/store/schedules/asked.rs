//! What is asked of the writer about schedules, beside its queue.
//!
//! Owns the way there and back. Must not know what a schedule is.

use agentd_core::store::Fired;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{DueSchedules, KeptSchedule, Unsent};
use crate::store::{ENDED, Store, WriterMessage};

/// What is done to schedules beside the queue, in a transaction of its own; it gives the answer itself.
/// It is told why, when nothing can be done.
pub(in crate::store) type OnSchedules =
    Box<dyn FnOnce(Result<&Connection, String>) -> rusqlite::Result<()> + Send>;

impl Store {
    /// What is due by now, behind a place among those, as far as it is in the file.
    ///
    /// # Errors
    /// When the file can't be read, or the writer has ended.
    pub async fn due_schedules(
        &self,
        now_ms: i64,
        after: Option<(i64, u64)>,
        limit: usize,
    ) -> Result<DueSchedules, String> {
        self.on_schedules(move |conn| super::due(conn, now_ms, after, limit))
            .await
    }

    /// The schedule that somebody names, if there is one.
    ///
    /// # Errors
    /// When the file can't be read, or the writer has ended.
    pub async fn kept_schedule(&self, which: String) -> Result<Option<KeptSchedule>, String> {
        self.on_schedules(move |conn| super::kept(conn, &which))
            .await
    }

    /// Notes a due time that became no job of its own commit; it is durable then. False when it isn't
    /// the next one any more.
    ///
    /// # Errors
    /// When the file can't be written, or the writer has ended.
    pub async fn record_due(
        &self,
        due: Fired,
        unsent: Unsent,
        now_ms: i64,
    ) -> Result<bool, String> {
        self.on_schedules(move |conn| super::record(conn, &due, &unsent, now_ms))
            .await
    }

    /// Pauses a schedule that can't be acted on.
    ///
    /// # Errors
    /// When the file can't be written, or the writer has ended.
    pub async fn pause_schedule(&self, schedule: u64, why: String) -> Result<(), String> {
        self.on_schedules(move |conn| super::pause(conn, schedule, &why))
            .await
    }

    async fn on_schedules<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let (answer, answered) = oneshot::channel();
        let work = move |conn: Result<&Connection, String>| match conn.map(work) {
            Ok(Ok(done)) => {
                // Whoever no longer waits needs none.
                let _gone = answer.send(Ok(done));
                Ok(())
            }
            Ok(Err(error)) => {
                let _gone = answer.send(Err(error.to_string()));
                Err(error)
            }
            Err(why) => {
                let _gone = answer.send(Err(why));
                Ok(())
            }
        };
        self.hand_in(WriterMessage::Schedules(Box::new(work)))
            .map_err(|error| error.to_string())?;
        answered.await.unwrap_or_else(|_gone| Err(ENDED.to_owned()))
    }
}

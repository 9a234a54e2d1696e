//! Sessions as statements: made, entered, renamed, closed.
//!
//! Owns their names and the lease by which one instance has one open. Must not know jobs beyond
//! whether there are unfinished ones.

use agentd_core::store::{NewJob, NewSession, Stored, Written};
use rusqlite::{OptionalExtension as _, params};

use super::columns::int;
use super::write::{WriteStop, Writing};
use super::{Liveness, listed};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    ByUser,
    ByStore,
}

impl Writing<'_> {
    /// Takes the lease of a session, or makes the session.
    pub(super) fn enter(
        &mut self,
        item: usize,
        name: &str,
        new: &NewJob,
    ) -> Result<(i64, String), WriteStop> {
        if let Some(id) = self.entered.get(name) {
            return Ok((*id, name.to_owned()));
        }
        let known = self
            .conn
            .prepare_cached(
                "SELECT id, instance, title IS NULL AND listed_turns = turns
                 FROM sessions WHERE name = ?1",
            )?
            .query_row([name], |row| {
                let (id, holder): (i64, Option<String>) = (row.get(0)?, row.get(1)?);
                Ok((id, holder, row.get::<_, Option<bool>>(2)?))
            })
            .optional()?;
        let Some((id, holder, is_first)) = known else {
            let id = self.insert_session(name, Naming::ByUser, new)?;
            self.entered.insert(name.to_owned(), id);
            return Ok((id, name.to_owned()));
        };
        match holder {
            Some(holder) if holder == self.ours => {}
            Some(instance) => return Err(self.of_another(item, instance)),
            None => {
                self.conn
                    .prepare_cached("UPDATE sessions SET instance = ?2 WHERE id = ?1")?
                    .execute(params![id, self.ours])?;
            }
        }
        // Only then: other accepts write nothing into their session's row.
        if is_first == Some(true) {
            listed::begin(self.conn, id, &new.request)?;
        }
        if let Some(system) = &new.system {
            self.conn
                .prepare_cached("UPDATE sessions SET system = ?2 WHERE id = ?1")?
                .execute(params![id, system])?;
        }
        if let Some(reserves) = &new.reserves {
            self.conn
                .prepare_cached("UPDATE sessions SET mcp_servers = ?2 WHERE id = ?1")?
                .execute(params![id, reserves.to.text()])?;
        }
        self.entered.insert(name.to_owned(), id);
        Ok((id, name.to_owned()))
    }

    pub(super) fn enter_unnamed(
        &mut self,
        job: i64,
        new: &NewJob,
    ) -> Result<(i64, String), WriteStop> {
        // Somebody may have named one so.
        let mut name = format!("s{job}");
        let mut next = 2;
        while self.has_session(&name)? {
            name = format!("s{job}-{next}");
            next += 1;
        }
        let id = self.insert_session(&name, Naming::ByStore, new)?;
        Ok((id, name))
    }

    pub(super) fn open(&mut self, new: &NewSession) -> Result<Written, WriteStop> {
        let name = match &new.name {
            Some(name) => name.clone(),
            None => self.free_name()?,
        };
        let fork = new.fork.as_deref();
        let pins = fork.map(|fork| &fork.pins);
        let inserted = self
            .conn
            .prepare_cached(
                "INSERT INTO sessions (name, agent, cwd, toolsets, named, created_at, real_cwd,
                    listed_turns, system, turns, forks, provider, model, thinking, called,
                    mcp_servers, mode)
                 VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?8, ?7, ?8, ?9, ?10, ?11, ?12,
                    (SELECT coalesce(called, title) FROM sessions WHERE name = ?13), ?14, ?15) ON CONFLICT (name) DO NOTHING",
            )?
            .execute(params![
                name,
                new.agent,
                new.cwd,
                new.toolsets,
                new.at,
                new.real_cwd,
                new.system,
                fork.map_or(0, |fork| int(fork.turns)),
                fork.map(|fork| &fork.native),
                pins.and_then(|pins| pins.provider.as_deref()),
                pins.and_then(|pins| pins.model.as_deref()),
                pins.and_then(|pins| pins.thinking.as_deref()),
                fork.map(|fork| &fork.from),
                new.mcp_servers.text(),
                pins.and_then(|pins| pins.mode.as_deref()),
            ])?;
        if inserted == 0 {
            return Err(WriteStop::Refused(Stored::Taken));
        }
        Ok(Written::Opened { session: name })
    }

    /// A name for a session that was made without one and without a job.
    fn free_name(&self) -> rusqlite::Result<String> {
        self.conn
            // With a letter of its own: `s` and a number is the session of that job.
            .prepare_cached("SELECT 'n' || (1 + coalesce(max(id), 0)) FROM sessions")?
            .query_row([], |row| row.get(0))
            .and_then(|first: String| {
                let mut name = first.clone();
                let mut next = 2;
                while self.has_session(&name)? {
                    name = format!("{first}-{next}");
                    next += 1;
                }
                Ok(name)
            })
    }

    /// Why nothing is written about a session that another instance has open.
    fn of_another(&self, item: usize, instance: String) -> WriteStop {
        WriteStop::Refused(match (self.alive)(&instance) {
            Liveness::Alive { pid } => Stored::Leased {
                item,
                instance,
                pid,
            },
            // Not simply taken: what else it left has to come along, and its processes to be gone.
            Liveness::Dead => Stored::Orphaned { instance },
        })
    }

    fn has_session(&self, name: &str) -> rusqlite::Result<bool> {
        let sql = "SELECT 1 FROM sessions WHERE name = ?1";
        self.conn.prepare_cached(sql)?.exists([name])
    }

    /// The name is free again; its jobs stay under one that nobody can give.
    pub(super) fn close(&mut self, item: usize, session: &str) -> Result<Written, WriteStop> {
        let known = self
            .conn
            .prepare_cached(
                "SELECT id, instance, EXISTS (SELECT 1 FROM jobs
                    WHERE jobs.session = sessions.id AND final_seq IS NULL)
                 FROM sessions WHERE name = ?1",
            )?
            .query_row([session], |row| {
                <(i64, Option<String>, bool)>::try_from(row)
            })
            .optional()?;
        // Closed by whoever asked before: the same request may come twice.
        let Some((id, holder, busy)) = known else {
            return Ok(Written::Done);
        };
        if let Some(instance) = holder.filter(|holder| holder != self.ours)
            && let Liveness::Alive { pid } = (self.alive)(&instance)
        {
            return Err(WriteStop::Refused(Stored::Leased {
                item,
                instance,
                pid,
            }));
        }
        if busy {
            return Err(WriteStop::Refused(Stored::Taken));
        }
        self.entered.remove(session);
        let session = self
            .conn
            .prepare_cached(
                "UPDATE sessions SET name = name || '#' || id, named = 0, instance = NULL,
                    native = NULL, title = NULL, preview = NULL, system = NULL, forks = NULL,
                    mcp_servers = NULL, context_tokens = NULL, context_window = NULL
                 WHERE id = ?1 RETURNING name",
            )?
            .query_row([id], |row| row.get(0))?;
        Ok(Written::Opened { session })
    }

    /// Its jobs are its own under whatever name.
    pub(super) fn rename(
        &mut self,
        item: usize,
        session: &str,
        to: &str,
    ) -> Result<Written, WriteStop> {
        let known = self
            .conn
            .prepare_cached(
                "SELECT id, instance, (SELECT instance FROM jobs
                    WHERE jobs.session = sessions.id AND final_seq IS NULL LIMIT 1)
                 FROM sessions WHERE name = ?1",
            )?
            .query_row([session], |row| {
                <(i64, Option<String>, Option<String>)>::try_from(row)
            })
            .optional()?;
        let Some((id, holder, waits_in)) = known else {
            return Ok(Written::Done);
        };
        // Of another instance: its turns, and its process, know it by the old name.
        let others = holder.filter(|holder| holder != self.ours).or(waits_in);
        if let Some(instance) = others {
            return Err(self.of_another(item, instance));
        }
        if self.has_session(to)? {
            return Err(WriteStop::Refused(Stored::Taken));
        }
        self.entered.remove(session);
        self.conn
            .prepare_cached(
                "UPDATE sessions SET name = ?2, named = 1, instance = NULL WHERE id = ?1",
            )?
            .execute(params![id, to])?;
        Ok(Written::Opened {
            session: to.to_owned(),
        })
    }

    /// What people call it.
    pub(super) fn entitle(&self, session: &str, title: Option<&str>) -> Result<Written, WriteStop> {
        let changed = self
            .conn
            .prepare_cached("UPDATE sessions SET called = ?2 WHERE name = ?1")?
            .execute(params![session, title])?;
        Ok(match changed {
            0 => Written::Done,
            _ => Written::Opened {
                session: session.to_owned(),
            },
        })
    }

    fn insert_session(&self, name: &str, naming: Naming, new: &NewJob) -> rusqlite::Result<i64> {
        self.conn
            .prepare_cached(
                "INSERT INTO sessions
                    (name, agent, cwd, toolsets, named, instance, created_at, real_cwd,
                     listed_turns, title, system, mcp_servers)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, ?9, ?10, ?11)",
            )?
            .insert(params![
                name,
                new.agent,
                new.cwd,
                new.toolsets,
                naming == Naming::ByUser,
                self.ours,
                new.at,
                new.real_cwd,
                listed::beginning_of(&new.request),
                new.system,
                new.reserves.as_ref().and_then(|servers| servers.to.text()),
            ])
    }

    /// What its later turns are pinned to, if this one changes it.
    pub(super) fn pin(&self, session: i64, new: &NewJob) -> rusqlite::Result<()> {
        if let Some(pins) = &new.repins {
            self.conn
                .prepare_cached(
                    "UPDATE sessions SET provider = ?2, model = ?3, thinking = ?4 WHERE id = ?1",
                )?
                .execute(params![session, pins.provider, pins.model, pins.thinking])?;
        }
        Ok(())
    }
}

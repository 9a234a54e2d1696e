//! Whose fault a death is.
//!
//! Owns that rule. The counting is in `rules/crash_count.rs`.

use std::time::Duration;

use crate::health::{Cause, Health};
use crate::ids::SessionId;
use crate::pool::fit::Fit;
use crate::pool::slot::Slot;

/// An end that nobody asked for, or a process that never got ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Death<'a> {
    /// How long it was ready; `None` if it never was: it was never healthy, however long it took.
    pub(crate) ready_for: Option<Duration>,
    pub(crate) cause: Cause,
    pub(crate) why: &'a str,
    /// The end of what it printed.
    pub(crate) tail: &'a str,
}

/// Who a death counts against.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Blame {
    /// Every session of the agent would fare alike.
    Agent,
    /// Only these.
    Sessions(Vec<SessionId>),
    /// It was one more beside another one: what waited for it is taken by that one, or tried again
    /// when it is gone.
    Extra,
}

/// Deaths before readiness are the agent's; later ones, those of a resume, and those with pins that
/// only some session has, the session's. `usual` is what an unpinned turn in its place needs.
pub(crate) fn blame(slot: &Slot, was_ready: bool, usual: Option<&Fit>) -> Blame {
    // One typo in a model's name must not keep the agent from everybody for ten minutes.
    let odd = usual.is_some_and(|usual| *usual != slot.fit);
    let sessions: Vec<SessionId> = if was_ready || odd {
        slot.held().collect()
    } else {
        slot.resuming.into_iter().collect()
    };
    if sessions.is_empty() {
        Blame::Agent
    } else {
        Blame::Sessions(sessions)
    }
}

/// Counts a start that failed for a reason that may pass. While another process of the agent lives,
/// a machine that is short of something ends nobody's wait.
pub(crate) fn missed(health: &mut Health, now: Duration, death: &Death<'_>, lives: bool) {
    // Those that wait are served by the one that lives; giving up the agent would end their turns.
    if death.cause == Cause::Short && lives {
        health.missed_beside_others(now);
    } else {
        health.missed(now, death.cause, death.why.to_owned(), death.tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Agent, Capabilities, Found, Levels, Providers, Resume, Sessions};

    fn agent() -> Agent {
        Agent {
            name: "a".to_owned(),
            kind: "pi",
            command: Vec::new(),
            found: Found::Configured,
            version: None,
            usable: Ok(()),
            describe: Capabilities {
                sessions: Sessions::One,
                resume: Resume::Native,
                cancels: true,
                recycles: true,
                model_per_turn: false,
                thinking_per_turn: false,
                switches: false,
                models: true,
                providers: Providers::Any,
                thinking: Levels::Any,
                modes: crate::agent::Modes::None,
                toolsets: crate::toolsets::Toolsets::None,
                fallback_chain: false,
                system: crate::agent::SystemText::AtStart,
                history: false,
                mcp: crate::mcp::McpServing::Never,
                forks: false,
                tells: crate::agent::Reports::TEXT,
                attachments: crate::attached::AttachmentSupport::Nothing,
                steers: true,
                lists_models: true,
                lists_commands: true,
                compacts: true,
                concurrent_sends: 1,
                ready_within: Duration::from_secs(60),
            },
            warm: crate::agent::Warm::Always(0),
            idle_timeout: Duration::from_secs(60),
            provider: None,
            model: Some("usual".to_owned()),
            thinking: None,
            mode: None,
            has: Vec::new(),
            logged_in: None,
            revision: 0,
        }
    }

    #[test]
    fn blame_is_a_sessions_for_its_own_pins() {
        let agent = agent();
        let usual = Fit::usual(&agent, "/w");
        let odd = Fit {
            model: Some("odd".to_owned()),
            ..usual.clone()
        };
        let (one, two) = (SessionId(1), SessionId(2));
        let of = |sessions: &[SessionId]| Blame::Sessions(sessions.to_vec());
        for (fit, sessions, resuming, was_ready, expected) in [
            (&usual, &[one][..], None, false, Blame::Agent),
            (&usual, &[one], Some(one), false, of(&[one])),
            (&usual, &[one, two], None, true, of(&[one, two])),
            (&odd, &[one], None, false, of(&[one])),
            (&odd, &[one], None, true, of(&[one])),
            // A spare belongs to nobody.
            (&usual, &[], None, true, Blame::Agent),
            (&odd, &[], None, false, Blame::Agent),
        ] {
            let mut slot = Slot::new(&agent, fit.clone());
            slot.sessions = sessions.iter().copied().collect();
            slot.resuming = resuming;
            let told = blame(&slot, was_ready, Some(&usual));
            assert_eq!(told, expected, "{fit:?} {sessions:?} {was_ready}");
        }
    }
}

//! The line below an answer: who gave it, how long that took, and how to go on.
//!
//! Pure: a final line in, a row of text out. Must not know when it is shown.

use std::time::Duration;

use agentd_protocol::line::TurnFacts;
use agentd_protocol::spoken::span;
use agentd_protocol::usage::{Cost, CostStatus};

use super::output;

/// How a conversation is named when it is gone on with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GoOn {
    /// It is the last one of this directory: `-c` finds it.
    Here,
    /// By its name.
    Named,
}

/// How the turn came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// With an answer.
    Answered,
    /// Somebody ended it.
    Cancelled,
}

/// One row: what is known of the turn, and the command that goes on. The name of another machine
/// is part of that.
pub(super) fn footer(turn: &TurnFacts, end: End, go_on: GoOn, host: Option<&str>) -> String {
    let mut parts: Vec<String> = Vec::new();
    parts.extend(turn.agent.clone());
    parts.extend(turn.model.clone());
    let took = span(Duration::from_millis(turn.duration_ms));
    match end {
        End::Answered => parts.push(took),
        End::Cancelled => {
            let name = turn.job.map_or_else(String::new, |job| format!(" {job}"));
            parts.insert(0, format!("cancelled{name} after {took}"));
        }
    }
    parts.extend(cost(&turn.cost));
    let mut command = "agentctl".to_owned();
    if let Some(host) = host {
        command.push_str(&format!(" --host {host}"));
    }
    if let Some(session) = &turn.session {
        parts.push(format!("session {session}"));
        let which = match go_on {
            GoOn::Here => "-c".to_owned(),
            GoOn::Named => format!("-s {session}"),
        };
        parts.push(format!("go on: {command} send {which} \"...\""));
    }
    output::safe_line(&parts.join(", "))
}

fn cost(cost: &Cost) -> Option<String> {
    let usd = cost.usd.filter(|usd| *usd > 0.0)?;
    let exact = if usd < 0.01 {
        format!("${usd:.4}")
    } else {
        format!("${usd:.2}")
    };
    match cost.status {
        CostStatus::Actual => Some(exact),
        CostStatus::Estimated => Some(format!("about {exact}")),
        CostStatus::Included | CostStatus::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footer_says_who_and_how_to_go_on() {
        let mut turn = TurnFacts {
            session: Some("s41".to_owned()),
            agent: Some("pi".to_owned()),
            duration_ms: 12_400,
            ..TurnFacts::default()
        };
        assert_eq!(
            footer(&turn, End::Answered, GoOn::Here, None),
            "pi, 12 s, session s41, go on: agentctl send -c \"...\""
        );
        turn.model = Some("large\x1b".to_owned());
        turn.cost = Cost {
            usd: Some(0.0312),
            status: CostStatus::Estimated,
            source: None,
        };
        assert_eq!(
            footer(&turn, End::Answered, GoOn::Named, Some("mac")),
            "pi, large\\u{1b}, 12 s, about $0.03, session s41, \
             go on: agentctl --host mac send -s s41 \"...\""
        );
    }

    #[test]
    fn footer_says_that_a_turn_was_cancelled() {
        let turn = TurnFacts {
            job: Some(agentd_protocol::JobId(7)),
            session: Some("s41".to_owned()),
            agent: Some("pi".to_owned()),
            duration_ms: 2_000,
            ..TurnFacts::default()
        };
        assert_eq!(
            footer(&turn, End::Cancelled, GoOn::Here, None),
            "cancelled j7 after 2 s, pi, session s41, go on: agentctl send -c \"...\""
        );
    }

    #[test]
    fn footer_names_a_cost_that_is_known() {
        let shown = |usd, status| {
            cost(&Cost {
                usd,
                status,
                source: None,
            })
        };
        assert_eq!(
            shown(Some(0.0012), CostStatus::Actual).as_deref(),
            Some("$0.0012")
        );
        assert_eq!(shown(Some(0.0), CostStatus::Actual), None);
        assert_eq!(shown(None, CostStatus::Included), None);
    }
}

//! `route`: which agent a prompt would go to, and why, without running it.
//!
//! Owns how a decision is shown. Must not know the rules.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use agentd_client::client::START_IT;
use agentd_client::fallback::Fallback;
use agentd_protocol::request::Send;
use agentd_protocol::routed::{Considered, RouteAnswer, Routed};

use super::args::{HowArgs, RouteArgs, WhoArgs};
use super::exit::Exit;
use super::first_use::Notes;
use super::output::safe_line;
use super::prompt::prompt_of;
use super::{ask, compose, output};

/// Columns that the names of facts take.
const NAME: usize = 12;

pub(super) async fn route(args: RouteArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let prompt = match prompt_of(args.text.as_deref(), Notes::Told)? {
        Ok(prompt) => prompt,
        Err(none) => {
            let hint = "give it as an argument, or pipe it in: `agentctl route \"fix the test\"`";
            output::error(none.error(), Some(hint));
            return Ok(Exit::Usage);
        }
    };
    if let Err(why) = compose::readable(&args.attach) {
        output::error(&why, None);
        return Ok(Exit::Usage);
    }
    let who = WhoArgs {
        session: args.session,
        cwd: args.cwd,
        ..WhoArgs::default()
    };
    let how = HowArgs {
        labels: args.labels,
        attach: args.attach,
        ..HowArgs::default()
    };
    let mut send = Send {
        text: prompt.text,
        ..compose::common(&who, &how)
    };
    send.attachments.extend(prompt.attached);
    let mut client = match ask::connected(socket, Fallback::Allowed, START_IT).await {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    let answer = client.route(&send).await;
    client.close().await;
    ask::print(answer, args.json, shown)
}

fn shown(answer: &RouteAnswer) -> String {
    let RouteAnswer {
        agent,
        routed,
        uses,
        ok: _,
    } = answer;
    let mut text = String::new();
    let mut fact = |name: &str, value: &str| {
        let _infallible = writeln!(text, "{name:<NAME$}{}", safe_line(value));
    };
    fact("agent", agent);
    let list = |all: &Option<Vec<String>>| all.as_ref().map(|all| all.join(", "));
    let timeout = uses.timeout.map(|seconds| format!("{seconds} s"));
    for (name, value) in [
        ("provider", uses.provider.clone()),
        ("model", uses.model.clone()),
        ("thinking", uses.thinking.clone()),
        ("toolsets", list(&uses.toolsets)),
        ("timeout", timeout),
        ("fallbacks", list(&uses.fallback_chain)),
        ("class", routed.class.clone()),
        ("difficulty", routed.difficulty.clone()),
    ] {
        if let Some(value) = value {
            fact(name, &value);
        }
    }
    fact("route", routed.rule.as_deref().unwrap_or("(none)"));
    fact("because", &routed.because);
    for Considered { rule, because } in &routed.considered {
        fact("passed over", &format!("{rule}: {because}"));
    }
    text
}

/// A decision in a line, for a job.
pub(super) fn in_a_line(routed: &Routed) -> String {
    match &routed.rule {
        Some(rule) => format!("{rule}: {}", routed.because),
        None => routed.because.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::routed::RouteUse;

    #[test]
    fn route_shows_what_was_passed_over() {
        let answer = RouteAnswer {
            ok: true,
            agent: "pi".to_owned(),
            routed: Routed {
                rule: Some("night".to_owned()),
                because: "it is 23:10, between 22:00 and 06:00".to_owned(),
                considered: vec![Considered {
                    rule: "#1".to_owned(),
                    because: "`chars` is 2, not > 20000".to_owned(),
                }],
                ..Routed::default()
            },
            uses: RouteUse {
                agent: Some("pi".to_owned()),
                model: Some("large".to_owned()),
                timeout: Some(600),
                ..RouteUse::default()
            },
        };
        assert_eq!(
            shown(&answer),
            "agent       pi\n\
             model       large\n\
             timeout     600 s\n\
             route       night\n\
             because     it is 23:10, between 22:00 and 06:00\n\
             passed over #1: `chars` is 2, not > 20000\n"
        );
    }
}

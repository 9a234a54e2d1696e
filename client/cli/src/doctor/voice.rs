//! The checks of `doctor` for speech: what waits on this machine, and whether the machines that it
//! is for can be reached.
//!
//! Changes nothing and delivers nothing. Must not know the order of checks.

use std::collections::BTreeMap;
use std::time::Duration;

use agentd_protocol::doctor::Finding;

use super::service::Manager;
use crate::output;
use crate::voice::{Reached, reached};
use agentd_client::places::Environment;
use agentd_client::ssh::Target;
use agentd_voice::age;
use agentd_voice::spool::{MAX_WAITING, Spool};

const CHECK: &str = "voice";

fn spool() -> Option<Spool> {
    Spool::existing(&Environment::of_process().state_dir()?)
}

/// What waits, and since when.
pub(super) fn waiting(manager: &Manager) -> Vec<Finding> {
    let Some(spool) = spool() else {
        return Vec::new();
    };
    let shown = spool.dir().join("new");
    let shown = shown.display();
    let waiting = match spool.waiting() {
        Ok(waiting) => waiting,
        Err(why) => {
            let found = format!("what was said is kept nowhere: {why}");
            let remedy = format!("`{shown}` has to be a directory of yours with mode 0700");
            return vec![Finding::problem(CHECK, found, remedy)];
        }
    };
    if waiting.is_empty() {
        return vec![Finding::ok(CHECK, "nothing that was said waits")];
    }
    let mut findings = Vec::new();
    if waiting.len() >= MAX_WAITING {
        let found =
            format!("`{shown}` is full: {MAX_WAITING} utterances wait, and no more are kept");
        let remedy = "see to it that `agentctl voice flush` works, or remove some";
        findings.push(Finding::problem(CHECK, found, remedy));
    }
    let mut machines: BTreeMap<&str, (usize, Duration)> = BTreeMap::new();
    let mut unreadable = 0_usize;
    for (_, one) in &waiting {
        let Ok(one) = one else {
            unreadable += 1;
            continue;
        };
        let (count, oldest) = machines.entry(&one.to).or_default();
        *count += 1;
        *oldest = age::since(one.moment.as_ref(), one.said_at).max(*oldest);
    }
    for (to, (count, oldest)) in machines {
        let minutes = oldest.as_secs() / 60;
        let target = output::safe(to.trim_start_matches("ssh://")).into_owned();
        let is_here = to.is_empty();
        let to = match is_here {
            true => "this machine's daemon".to_owned(),
            false => format!("`{target}`"),
        };
        let found = format!("waiting for {to}: {count}, the oldest for {minutes} min");
        let remedy = match manager {
            Manager::There(units) if units.timer_is_active() => {
                "`agentctl voice flush` says why; a timer tries it each minute"
            }
            _ => {
                "`agentctl voice flush` delivers it, or says why not; no timer does that here, \
                 which `agentctl service install` starts"
            }
        };
        let remedy = match is_here {
            true => remedy.to_owned(),
            false => format!(
                "{remedy}; when that machine is gone for good, `agentctl voice forget {target}` puts \
                 it aside"
            ),
        };
        findings.push(Finding::warning(CHECK, found, remedy));
    }
    if unreadable > 0 {
        let found = format!("{unreadable} files in `{shown}` can't be read as utterances");
        let remedy = "`agentctl voice flush` puts them aside";
        findings.push(Finding::warning(CHECK, found, remedy));
    }
    findings
}

/// Every machine that speech went to, or waits for, is called.
pub(super) async fn machines() -> Vec<Finding> {
    let Some(spool) = spool() else {
        return Vec::new();
    };
    // That it can't be read was said.
    let machines = spool.machines().unwrap_or_default();
    let mut calls = tokio::task::JoinSet::new();
    for to in machines {
        let target = to
            .strip_prefix("ssh://")
            .and_then(|target| target.parse().ok());
        let Some(target): Option<Target> = target else {
            continue;
        };
        calls.spawn(async move {
            let reached = reached(&target).await;
            machine(&target, &reached)
        });
    }
    let mut findings = calls.join_all().await;
    findings.sort_by(|one, other| one.found.cmp(&other.found));
    findings
}

fn machine(target: &Target, reached: &Reached) -> Finding {
    let ms = reached.ms;
    match (&reached.daemon, reached.ssh) {
        (Ok(hello), _) => {
            let version = output::safe(&hello.version);
            Finding::ok(
                CHECK,
                format!("`{target}` answers in {ms} ms: agentd {version}"),
            )
        }
        (Err(why), true) => Finding::warning(
            CHECK,
            format!("`{target}` is reached by ssh, but: {}", output::safe(why)),
            format!(
                "what is said waits here or runs without it; there: `ssh {target} agentctl doctor`"
            ),
        ),
        (Err(why), false) => Finding::warning(
            CHECK,
            output::safe(why).into_owned(),
            format!(
                "what is said waits here; `ssh {target}` says more; a machine that is gone for good is \
                 forgotten by `agentctl voice forget {target}`"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::doctor::Verdict;

    #[test]
    fn machine_unreachable_is_told_from_one_unserved() {
        let target: Target = "me@mac".parse().unwrap();
        let found = |ssh, why: &str| {
            let reached = Reached {
                ms: 7,
                ssh,
                daemon: Err(why.to_owned()),
            };
            machine(&target, &reached)
        };
        let there = found(true, "no daemon runs there");
        assert!(there.found.contains("is reached by ssh, but: no daemon"));
        assert!(
            there
                .remedy
                .unwrap()
                .contains("`ssh me@mac agentctl doctor`")
        );
        let gone = found(false, "`me@mac` can't be reached by ssh: no route");
        assert_eq!(gone.verdict, Verdict::Warning);
        assert!(
            gone.remedy
                .unwrap()
                .contains("`agentctl voice forget me@mac`")
        );
    }
}

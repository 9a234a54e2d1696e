//! What agentd does by itself: deliveries and schedules.
//!
//! Owns what is said of those that it gave up. Must not know how they are made.

use super::{Finding, Patient};
use crate::config::Endpoints;
use crate::store;

/// Whoever never had webhooks hears nothing of them.
pub(super) fn webhooks(patient: &Patient) -> Vec<Finding> {
    let mut findings = Vec::new();
    match Endpoints::load(&Endpoints::file(&patient.paths.config)) {
        Ok(endpoints) if endpoints.count() == 0 => {}
        Ok(endpoints) => {
            let count = endpoints.count();
            findings.push(Finding::ok("webhooks", format!("{count} endpoints")));
        }
        Err(error) => findings.push(Finding::problem(
            "webhooks",
            error.to_string(),
            "correct it; until then callbacks are refused and deliveries wait",
        )),
    }
    // A store of another version is told of elsewhere.
    let given_up = match store::given_up(&patient.paths.state).unwrap_or(0) {
        0 => return findings,
        1 => "1 webhook was given up".to_owned(),
        more => format!("{more} webhooks were given up"),
    };
    let remedy = "`agentctl webhook list --state dead` says why; `agentctl webhook replay` sends one \
                  again, with `--dead` all of them";
    findings.push(Finding::warning("webhooks", given_up, remedy));
    findings
}

/// Whoever never had schedules hears nothing of them.
pub(super) fn schedules(patient: &Patient) -> Vec<Finding> {
    let paused = store::paused_schedules(&patient.paths.state).unwrap_or_default();
    let remedy = "`agentctl cron runs` says why, and `agentctl cron resume` has it go on";
    let paused = paused.into_iter();
    let told = paused.map(|why| Finding::warning("schedules", format!("paused: {why}"), remedy));
    told.collect()
}

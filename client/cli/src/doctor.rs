//! `doctor`: what is wrong with this installation, each with what to do about it.
//!
//! Owns the list of checks that are made from outside the daemon, their order, and how findings
//! look. What only the daemon's program knows (its files, its configuration), that one looks at.
//! Changes nothing unless asked to.

mod outside;
mod service;
mod voice;

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use agentd_base::hinted;
use agentd_protocol::doctor::{Finding, Report, Verdict};
use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

use super::args::DoctorArgs;
use super::busy::Busy;
use super::exit::Exit;
use super::output::{self, safe};
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::health::{self, Healthy, Unwell};
use agentd_client::oneshot;
use agentd_client::places::Environment;
use agentd_terminal::style::Style;
use agentd_terminal::table::wrapped;

/// The daemon's program looks at files only; with `--full` it reads the whole store.
const PROGRAM_WITHIN: Duration = Duration::from_secs(10);
const PROGRAM_WITHIN_FULL: Duration = Duration::from_secs(600);

/// What the checks from outside look at.
struct HostState<'a> {
    socket: Option<&'a Path>,
    endpoint: &'a LocalEndpoint,
    looked: &'a Result<Healthy, Unwell>,
    manager: &'a service::Manager,
}

type Check = fn(&HostState<'_>) -> Vec<Finding>;

/// Checks that take no time. Another one is another line here.
const CHECKS: &[Check] = &[
    outside::daemon,
    outside::socket,
    outside::version,
    outside::service,
    outside::linger,
    |seen| voice::waiting(seen.manager),
];

pub(super) async fn doctor(args: DoctorArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let endpoint = LocalEndpoint::find(socket, &Environment::of_process());
    let (looked, manager) = tokio::join!(
        health::look(&endpoint, "agentctl doctor"),
        service::Manager::ask()
    );
    let seen = HostState {
        socket,
        endpoint: &endpoint,
        looked: &looked,
        manager: &manager,
    };
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&seen)).collect();
    let mut busy = Busy::begin();
    let inside = busy.during("reading files and store", inside(args, &seen));
    findings.extend(inside.await);
    findings.extend(outside::sandbox().await);
    if args.full {
        let full = busy.during("asking agents and machines", full(&seen));
        findings.extend(full.await);
    }
    drop(busy);
    let worst = findings.iter().map(|finding| finding.verdict).max();
    let ok = worst < Some(Verdict::Problem);
    if args.json {
        output::out_json(&json!({"ok": ok, "findings": findings}).to_string())?;
    } else {
        output::out(&text(&findings, &Style::of_stdout()))?;
    }
    Ok(if ok { Exit::Done } else { Exit::Failed })
}

/// What takes its time: programs are run, machines are asked. Another one is another line here.
async fn full(seen: &HostState<'_>) -> Vec<Finding> {
    let (mut findings, machines) = tokio::join!(outside::agents(seen.socket), voice::machines());
    findings.extend(machines);
    findings
}

/// What the daemon's own program sees.
async fn inside(args: DoctorArgs, seen: &HostState<'_>) -> Vec<Finding> {
    let program = oneshot::program();
    let mut command = Command::new(&program);
    command
        .arg("doctor")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if args.fix {
        command.arg("--fix");
    }
    if args.full {
        command.arg("--full");
    }
    if args.accept_loss {
        command.arg("--accept-loss");
    }
    if let Some(socket) = seen.socket {
        command.arg("--socket").arg(socket);
    }
    if let Some(path) = outside::service_path(seen) {
        command.arg("--service-path").arg(path);
    }
    if let Some(names) = outside::service_variables(seen) {
        command.arg("--service-variables").arg(names);
    }
    let within = if args.full {
        PROGRAM_WITHIN_FULL
    } else {
        PROGRAM_WITHIN
    };
    let shown = program.display();
    let broken = |found: String| {
        let remedy = "install `agentd` and `agentctl` of one version, next to each other";
        vec![Finding::problem("program", found, remedy)]
    };
    match timeout(within, command.output()).await {
        Err(_) => broken(format!(
            "`{shown} doctor` did not end within {} s",
            within.as_secs()
        )),
        Ok(Err(error)) => broken(format!("cannot start `{shown}`: {error}")),
        Ok(Ok(printed)) => match serde_json::from_slice::<Report>(&printed.stdout) {
            Ok(report) => report.findings,
            Err(_) if !printed.status.success() && !printed.stderr.is_empty() => {
                let said = String::from_utf8_lossy(&printed.stderr);
                let (found, remedy) = hinted::split(said.trim().trim_start_matches("error: "));
                let remedy = remedy.map(str::to_owned);
                let remedy = remedy.unwrap_or_else(|| format!("`{shown} doctor` says it, too"));
                vec![Finding::problem("program", found, remedy)]
            }
            Err(error) => broken(format!(
                "`{shown} doctor` said nothing that is known: {error}"
            )),
        },
    }
}

/// For people.
fn text(findings: &[Finding], style: &Style) -> String {
    let mut shown = String::new();
    for finding in findings {
        let verdict = match (finding.verdict, finding.fixed) {
            (_, true) => "fixed",
            (Verdict::Ok, _) => "ok",
            (Verdict::Warning, _) => "warning",
            (Verdict::Problem, _) => "PROBLEM",
        };
        let found = safe(&finding.found).replace('\n', " ");
        let line = format!("{verdict:<8} {:<10} {found}", finding.check);
        shown.push_str(&(wrapped(&line, &" ".repeat(20), style) + "\n"));
        if let Some(remedy) = &finding.remedy {
            let remedy = safe(remedy).replace('\n', " ");
            let line = format!("{:19} -> {remedy}", "");
            shown.push_str(&(wrapped(&line, &" ".repeat(23), style) + "\n"));
        }
    }
    let count = |verdict| {
        findings
            .iter()
            .filter(|finding| finding.verdict == verdict)
            .count()
    };
    let (problems, warnings) = (count(Verdict::Problem), count(Verdict::Warning));
    shown.push_str(&match (problems, warnings) {
        (0, 0) => "nothing is wrong\n".to_owned(),
        _ => format!("problems: {problems}, warnings: {warnings}\n"),
    });
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_is_a_safe_line_above_its_remedy() {
        let findings = [
            Finding::ok("disk", "3 GiB"),
            Finding::fixed("files", "now 0600"),
            Finding::problem("alias", "bad\u{1b}[2J\nline", "take it away"),
        ];
        assert_eq!(
            text(&findings, &Style::PLAIN),
            "\
ok       disk       3 GiB
fixed    files      now 0600
PROBLEM  alias      bad\\u{1b}[2J line
                    -> take it away
problems: 1, warnings: 0
"
        );
        assert!(text(&findings[..2], &Style::PLAIN).ends_with("nothing is wrong\n"));
        let narrow = Style {
            columns: Some(30),
            ..Style::PLAIN
        };
        let folded = text(
            &[Finding::problem("disk", "no room", "free some room")],
            &narrow,
        );
        assert!(
            folded.starts_with(
                "PROBLEM  disk       no room\n                    -> free\n                       \
                 some\n                       room\n"
            ),
            "{folded}"
        );
    }
}

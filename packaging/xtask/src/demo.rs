//! `cargo xtask demo`: the main job end to end, with an agent that needs no key and no network.
//!
//! Owns the steps, what is said about them, and the facts that must hold. Must not know how the
//! product does it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::sandbox::{Sandbox, kill_9, said};
use crate::{Programs, build};

/// A warm answer takes a millisecond or two; a debug build on a busy machine may take more.
const SOON: Duration = Duration::from_millis(250);
/// The longest line that is shown whole.
const SHOWN: usize = 150;

pub(crate) fn run() -> anyhow::Result<()> {
    println!("building the three programs …");
    let begun = Instant::now();
    let programs = build()?;
    println!("built in {}\n", time(begun.elapsed()));
    let mut demo = Demo {
        place: Sandbox::new()?,
        programs,
        step: 0,
    };
    println!(
        "Everything happens in `{}`; nothing of yours is read or changed.",
        demo.place.path("").display()
    );
    println!("The agent is timmy with provider `echo`: no key, no network, no model.");
    let begun = Instant::now();
    let shown = demo.steps();
    let steps = demo.step;
    match shown {
        Ok(()) => {
            let place = demo.place.path("");
            demo.place.close()?;
            ensure!(
                !place.exists(),
                "`{}` could not be removed",
                place.display()
            );
            println!(
                "\nAll {steps} steps did what they say, in {}. Nothing is left behind.",
                time(begun.elapsed())
            );
            println!("Next: `cargo install --path .`, then see README.md.");
            Ok(())
        }
        Err(error) => {
            let log = std::fs::read_to_string(demo.place.path("log")).unwrap_or_default();
            eprintln!("\nthe daemon's log:\n{log}");
            Err(error.context(format!("step {steps} did not do what it says")))
        }
    }
}

struct Demo {
    place: Sandbox,
    programs: Programs,
    step: usize,
}

impl Demo {
    fn steps(&mut self) -> anyhow::Result<()> {
        self.starts()?;
        self.answers_a_bare_line()?;
        self.gives_structure()?;
        self.is_fast_when_warm()?;
        self.says_how_it_is()?;
        self.names_a_dead_worker()?;
        self.falls_back()?;
        self.remembers()
    }

    fn begin(&mut self, title: &str) {
        self.step += 1;
        println!("\n{}. {title}", self.step);
    }

    fn starts(&mut self) -> anyhow::Result<()> {
        self.begin("The daemon starts");
        command("agentd &");
        let took = self.place.start(&self.programs.agentd)?;
        println!(
            "   it answered its first ping after {}, pid {}",
            time(took),
            self.place.daemon_pid()
        );
        Ok(())
    }

    fn answers_a_bare_line(&mut self) -> anyhow::Result<()> {
        self.begin("A prompt is one line into the socket; the daemon answers and closes");
        let line = r#"{"agent":"timmy","prompt":"hello world"}"#;
        command(&format!(
            "echo '{line}' | nc -U {}",
            self.place.alias().display()
        ));
        let (lines, took) = self.place.ask(line)?;
        for line in &lines {
            println!("   {}", cut(&line.to_string()));
        }
        ensure!(lines.len() == 2, "expected two lines, got {lines:?}");
        ensure!(lines[0]["type"] == "accepted", "no `accepted`");
        ensure!(lines[1]["text"] == "hello world", "another text came back");
        println!(
            "   {}, the start of the agent's process included",
            time(took)
        );
        Ok(())
    }

    fn gives_structure(&mut self) -> anyhow::Result<()> {
        self.begin("The result is structured: text, tools, model, cost, time");
        let line = r#"{"prompt":"listed [[tool ls]] one file","session":"main"}"#;
        command(&format!(
            "echo '{line}' | nc -U {}",
            self.place.alias().display()
        ));
        let (lines, took) = self.place.ask(line)?;
        let end = lines.last().context("nothing came back")?;
        for name in [
            "text",
            "tool_trace",
            "provider",
            "model",
            "cost",
            "duration_ms",
        ] {
            println!("   {name:<12} {}", cut(&end[name].to_string()));
        }
        ensure!(end["type"] == "message_end", "the turn failed: {end}");
        ensure!(end["text"] == "listed one file", "another text came back");
        ensure!(end["tool_trace"][0]["name"] == "ls", "no tool trace");
        ensure!(end["context"] == "new", "a new session has no past");
        println!("   {}", time(took));
        Ok(())
    }

    fn is_fast_when_warm(&mut self) -> anyhow::Result<()> {
        self.begin("The second prompt of a session finds its agent running");
        let line = r#"{"prompt":"and again","session":"main"}"#;
        let (lines, took) = self.place.ask(line)?;
        let end = lines.last().context("nothing came back")?;
        ensure!(end["text"] == "and again", "another line came back: {end}");
        ensure!(end["context"] == "continued", "the session was forgotten");
        ensure!(took < SOON, "it took {took:?}");
        println!(
            "   context {}, {} from the line to the result",
            end["context"],
            time(took)
        );
        Ok(())
    }

    fn says_how_it_is(&mut self) -> anyhow::Result<()> {
        self.begin("Scripts ask one question");
        let (code, out, err, took) = self.agentctl(&["status", "--rpc"])?;
        ensure!(code == Some(0), "exit code {code:?}: {err}");
        ensure!(out.starts_with("a worker lives"), "it said {out:?}");
        println!("   exit code 0 after {}", time(took));
        Ok(())
    }

    fn names_a_dead_worker(&mut self) -> anyhow::Result<()> {
        self.begin("A worker is killed in the middle of a turn: one error, with the reason");
        let mut lines = self.place.connect()?;
        lines.send(r#"{"type":"hello","client":"demo"}"#)?;
        lines.next()?;
        lines.send(
            r#"{"id":1,"prompt":"thinking [[sleep 60000]] for a minute","session":"main"}"#,
        )?;
        let pid = self.place.until("a worker is busy", |place| {
            let (status, _) = place.ask(r#"{"type":"status"}"#).ok()?;
            let workers = status.first()?["workers"].as_array()?;
            let busy = workers.iter().find(|worker| worker["state"] == "busy")?;
            u32::try_from(busy["pid"].as_u64()?).ok()
        })?;
        self.place.remember(pid);
        command(&format!("kill -9 {pid}"));
        let begun = Instant::now();
        kill_9(pid)?;
        let mut errors = Vec::new();
        while errors.is_empty() {
            let line = lines.next()?.context("the daemon closed")?;
            ensure!(line["type"] != "message_end", "a dead worker answered");
            errors.extend((line["type"] == "error").then_some(line));
        }
        let took = begun.elapsed();
        let error = &errors[0];
        println!(
            "   {}: {}",
            error["code"].as_str().unwrap_or("?"),
            error["error"].as_str().unwrap_or("?")
        );
        println!("   said {} after the kill", time(took));
        ensure!(error["code"] == "worker-exited", "another code: {error}");
        // The connection is still there: a second final line would come before this answer.
        lines.send(r#"{"type":"ping","id":2}"#)?;
        let next = lines.next()?.context("the daemon closed")?;
        ensure!(
            next["type"] == "pong",
            "something came after the error: {next}"
        );
        let (code, out, err, took) =
            self.agentctl(&["send", "--session", "main", "still there?"])?;
        ensure!(
            code == Some(0) && out == "still there?",
            "{code:?} {out} {err}"
        );
        println!("   the next turn works, in {}", time(took));
        Ok(())
    }

    fn falls_back(&mut self) -> anyhow::Result<()> {
        self.begin("The daemon is killed: `agentctl` still gets the work done, and says how");
        self.remember_workers()?;
        command(&format!("kill -9 {}", self.place.daemon_pid()));
        self.place.kill_daemon()?;
        let (code, out, err, took) = self.agentctl(&["send", "work anyway"])?;
        ensure!(
            code == Some(0) && out == "work anyway",
            "{code:?} {out} {err}"
        );
        ensure!(err.contains("going on without it"), "no note: {err:?}");
        println!("   {} by a one-shot", time(took));
        Ok(())
    }

    fn remembers(&mut self) -> anyhow::Result<()> {
        self.begin("The next daemon knows every result, and leaves when asked");
        let took = self.place.start(&self.programs.agentd)?;
        println!("   up again after {}", time(took));
        let (code, out, err, _) = self.agentctl(&["collect", "j1", "--json"])?;
        let collected: Value = serde_json::from_str(&out).unwrap_or_default();
        ensure!(
            collected["results"][0]["text"] == "hello world",
            "{code:?} {out} {err}"
        );
        self.remember_workers()?;
        let (code, _, err, _) = self.agentctl(&["stop"])?;
        ensure!(code == Some(0), "exit code {code:?}: {err}");
        let status = self.place.left()?;
        ensure!(status.success(), "the daemon left with {status}");
        ensure!(
            !self.place.path("agentd.sock").exists(),
            "the socket is still there"
        );
        Ok(())
    }

    /// Workers are ended with the demo, whatever happens.
    fn remember_workers(&self) -> anyhow::Result<()> {
        let (status, _) = self.place.ask(r#"{"type":"status"}"#)?;
        let workers = status.first().and_then(|line| line["workers"].as_array());
        for worker in workers.into_iter().flatten() {
            if let Some(pid) = worker["pid"].as_u64() {
                self.place.remember(u32::try_from(pid)?);
            }
        }
        Ok(())
    }

    /// Shows a command, runs it and shows what it printed.
    fn agentctl(&self, words: &[&str]) -> anyhow::Result<(Option<i32>, String, String, Duration)> {
        let shown: Vec<String> = words
            .iter()
            .map(|word| {
                if word.contains(' ') {
                    format!("\"{word}\"")
                } else {
                    (*word).to_owned()
                }
            })
            .collect();
        command(&format!("agentctl {}", shown.join(" ")));
        let begun = Instant::now();
        let output = self
            .place
            .command(&self.programs.agentctl)
            .args(words)
            .output()?;
        let took = begun.elapsed();
        let (code, out, err) = said(&output);
        for line in err.lines().chain(out.lines()) {
            println!("   {}", cut(line));
        }
        Ok((code, out, err, took))
    }
}

fn command(words: &str) {
    println!("   $ {words}");
}

fn cut(line: &str) -> String {
    if line.chars().count() <= SHOWN {
        return line.to_owned();
    }
    let start: String = line.chars().take(SHOWN).collect();
    format!("{start}…")
}

fn time(took: Duration) -> String {
    let ms = took.as_secs_f64() * 1000.0;
    if ms < 1000.0 {
        format!("{ms:.1} ms")
    } else {
        format!("{:.1} s", took.as_secs_f64())
    }
}

//! What the worker is told at its start, and says of itself.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

#[derive(Default)]
pub(crate) struct Flags {
    pub(crate) no_handshake: bool,
    pub(crate) deaf_after_idle: bool,
    pub(crate) exit_at_start: Option<i32>,
    pub(crate) slow_start: Duration,
    pub(crate) one_session: bool,
    pub(crate) concurrent: u32,
    pub(crate) resumes: Option<PathBuf>,
    pub(crate) takes: bool,
    pub(crate) attachments: bool,
    /// So many models it lists; none: it can't.
    pub(crate) models: Option<u32>,
    pub(crate) deaf_to_models: bool,
}

impl Flags {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Self {
        let mut flags = Self {
            concurrent: 1,
            attachments: true,
            ..Self::default()
        };
        while let Some(argument) = arguments.next() {
            if argument == "--resumes" {
                flags.resumes = arguments.next().map(PathBuf::from);
                continue;
            }
            let mut number = || {
                arguments
                    .next()
                    .and_then(|n| n.parse::<u32>().ok())
                    .unwrap_or(1)
            };
            match argument.as_str() {
                "--no-handshake" => flags.no_handshake = true,
                "--deaf-after-idle" => flags.deaf_after_idle = true,
                "--no-attachments" => flags.attachments = false,
                "--one-session" => flags.one_session = true,
                "--takes" => flags.takes = true,
                "--exit-at-start" => flags.exit_at_start = i32::try_from(number()).ok(),
                "--slow-start" => flags.slow_start = Duration::from_millis(number().into()),
                super::outside::THREAD_ONLY => super::outside::end_first_thread(),
                "--models" => flags.models = Some(number()),
                "--deaf-to-models" => flags.deaf_to_models = true,
                "--concurrent" => flags.concurrent = number(),
                other => {
                    let _nobody_reads =
                        writeln!(std::io::stderr(), "chaos-worker: what is {other}?");
                    std::process::exit(2);
                }
            }
        }
        flags
    }

    pub(crate) fn status(&self, id: &Value) -> Value {
        json!({
            "type": "status",
            "id": id,
            "ok": true,
            "details": "chaos-worker is ready",
            "sessions": if self.one_session { "one" } else { "many" },
            "concurrent_sends": self.concurrent,
            "steer": true,
            "compact": true,
            "resumes": self.resumes.is_some(),
            "toolsets": self.takes,
            "fallback_chain": self.takes,
            "attachments": self.attachments,
            "models": self.models.is_some() || self.deaf_to_models,
            "commands": self.models.is_some(),
        })
    }

    /// The answer to a question for its models, if it answers any.
    pub(crate) fn models(&self, request: &Value) -> Option<Value> {
        let count = self.models.filter(|_| !self.deaf_to_models)?;
        let row = |number| {
            json!({
                "provider": "chaos",
                "model": format!("model-{number}"),
                "label": format!("Model {number} {}", "x".repeat(100)),
                "default": number == 0,
            })
        };
        let models: Vec<Value> = (0..count).map(row).collect();
        Some(json!({"type": "models", "id": request["id"], "ok": true, "models": models}))
    }
}

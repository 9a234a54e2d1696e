//! Claude Code's news: the lines of type `system`.
//!
//! Owns which of them a turn's sender hears of. Must not know the other lines.

use agentd_core::worker::WorkerEvent;
use agentd_protocol::line::Level;

use super::Claude;
use crate::adapter::driver::Out;
use crate::adapter::object::Object;

/// News of version 2.1.329 that a sender would not miss: of its tasks, hooks, files and hosts, and
/// what a result or a tool's end says as well.
const SILENT: &[&str] = &[
    "agents_killed",
    "api_error",
    "away_summary",
    "background_tasks_changed",
    "bridge_state",
    "bridge_status",
    "checkpoint_done",
    "cloud_session_delta",
    "cloud_session_status",
    "code_change_published",
    "commands_changed",
    "control_request_progress",
    "dev_intent",
    "elicitation_complete",
    "feedback_draft_queued",
    "file_attachments_missing",
    "file_snapshot",
    "files_persisted",
    "hook_progress",
    "hook_response",
    "hook_started",
    "inherited_asks_settled",
    "instruction_size_warning",
    "late_allow_not_run",
    "local_command",
    "local_command_output",
    "memory_recall",
    "memory_saved",
    "mirror_error",
    "peer_message_hold",
    "per_turn_effort_changed",
    "permission_check_status",
    "permission_denied",
    "permission_retry",
    "plugin_install",
    "post_turn_summary",
    "rewind_stand_in",
    "scheduled_task_fire",
    "session_metadata",
    "session_state_changed",
    "session_title_changed",
    "shell_cwd",
    "stop_hook_summary",
    "task_list_statuses",
    "task_notification",
    "task_progress",
    "task_started",
    "task_summary",
    "task_updated",
    "thinking",
    "thinking_tokens",
    "tool_host_result",
    "turn_duration",
    "turn_handoff_available",
    "turn_preempted",
    "upgrade_relay_marker",
    "vcs_state_changed",
    "worker_shutting_down",
];

/// 2.0.30 ignores it without a word.
fn takes_system(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0_u32));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next()) >= (2, 0, 60)
}

impl Claude {
    pub(super) fn system(&mut self, line: &Object<'_>, out: &mut Out<'_>) {
        let text = |field| line.string(field).unwrap_or_default();
        let kind = text("subtype");
        if matches!(kind.as_str(), "init" | "status") {
            self.works_in(line.string("permissionMode"), out);
        }
        match kind.as_str() {
            "init" => {
                self.begin();
                // It comes with each run.
                let native = line.string("session_id").filter(|id| !id.is_empty());
                if native.is_some() && native != self.named {
                    self.named = native;
                    let native = self.named.clone();
                    out.extend(native.map(|native| WorkerEvent::SessionNamed { native }));
                    let version = text("claude_code_version");
                    if self.system.is_some() && !takes_system(&version) {
                        let text = format!(
                            "Claude Code {version} may not know the system text: 2.0.60 and later do"
                        );
                        self.note(Level::Warning, "worker", text, out);
                    }
                }
            }
            "status" => {
                self.begin();
                let error = line.string("compact_error");
                if let Some(compaction) = &mut self.driver.compaction {
                    compaction.done |= text("compact_result") == "success";
                    compaction.error = error.or(compaction.error.take());
                } else if let Some(error) = error {
                    let text = format!("compaction failed: {error}");
                    self.note(Level::Warning, "compaction", text, out);
                } else if line.string("status").as_deref() == Some("compacting") {
                    let text = "Claude Code compacts its context".to_owned();
                    self.note(Level::Info, "compaction", text, out);
                }
            }
            "compact_boundary" => {
                if let Some(compaction) = &mut self.driver.compaction {
                    compaction.done = true;
                }
            }
            "api_retry" => {
                let status = line.raw("error_status").unwrap_or("?");
                let text = format!(
                    "attempt {} of {} after: {} ({status})",
                    line.raw("attempt").unwrap_or("?"),
                    line.raw("max_retries").unwrap_or("?"),
                    text("error"),
                );
                self.note(Level::Warning, "retry", text, out);
            }
            "informational" => self.note(Level::Info, "worker", text("content"), out),
            "notification" => self.note(Level::Info, "worker", text("text"), out),
            "model_consent_fallback" | "model_fallback" | "model_refusal_fallback" => {
                self.note(Level::Warning, "fallback", text("content"), out);
            }
            "model_refusal_no_fallback" => {
                if let Some(turn) = &mut self.driver.turn {
                    turn.refusal = line.string("content");
                }
            }
            "session_writes_lost" => {
                let why = text("error_code");
                let text = format!("Claude Code could not keep all of the session: {why}");
                self.note(Level::Warning, "worker", text, out);
            }
            known if SILENT.contains(&known) => {}
            other => self.not_understood(&format!("system {other}"), out),
        }
    }
}

//! What the tests of all adapters are made of: a spawn, a prompt and the other commands of the core.
//!
//! Owns nothing that is an agent's own. Must not be part of the product.

#[cfg(test)]
mod replay;

use agentd_core::attached::Attachments;
use agentd_core::effect::Spawn;
use agentd_core::ids::TurnId;
use agentd_core::mcp::McpServers;
use agentd_core::worker::Prompt;
#[cfg(test)]
use agentd_core::worker::{Reply, WorkerCommand};
use agentd_protocol::JobId;

#[cfg(test)]
pub(super) use replay::{Record, Recorded, Replay, load};

/// A process with nothing chosen.
pub(super) fn spawn() -> Spawn {
    Spawn {
        agent: "it".into(),
        cwd: "/w".into(),
        provider: None,
        model: None,
        thinking: None,
        mode: None,
        toolsets: None,
        system: None,
        mcp_servers: McpServers::default(),
        session: None,
        resume: None,
        forks: false,
        prompt: None,
    }
}

/// A server of each kind, each with a secret.
#[cfg(test)]
pub(super) fn servers() -> McpServers {
    let known = r#"[{"type":"stdio","name":"files","command":"mcp","args":["-v"],"env":{"KEY":"hush"}},
        {"type":"http","name":"web","url":"https://a.example/mcp","headers":{"Authorization":"hush"}},
        {"type":"sse","name":"old","url":"https://b.example/sse"}]"#;
    McpServers::stored(Some(known.to_owned()))
}

/// Those of it that Codex takes, too.
#[cfg(test)]
pub(super) fn servers_of_today() -> McpServers {
    McpServers::of(&servers().list()[..2])
}

/// A turn with nothing chosen.
pub(super) fn turn(turn: u64, text: &str) -> Prompt {
    Prompt {
        turn: TurnId(turn),
        job: JobId(1),
        session: "main".into(),
        text: text.into(),
        attachments: Attachments::None,
        provider: None,
        model: None,
        thinking: None,
        mode: None,
        fallback_chain: None,
        native: None,
        forks: false,
        begins: None,
        cwd: "/w".into(),
        toolsets: None,
        mcp_servers: McpServers::default(),
    }
}

#[cfg(test)]
pub(super) fn prompt(number: u64, text: &str) -> WorkerCommand {
    WorkerCommand::Prompt(Box::new(turn(number, text)))
}

/// A steer for turn 1.
#[cfg(test)]
pub(super) fn steer(steer: u64, text: &str) -> WorkerCommand {
    WorkerCommand::Steer {
        turn: TurnId(1),
        steer,
        text: text.into(),
    }
}

#[cfg(test)]
pub(super) fn cancel(turn: u64) -> WorkerCommand {
    WorkerCommand::Cancel { turn: TurnId(turn) }
}

#[cfg(test)]
pub(super) fn answer(question: &str, reply: Reply) -> WorkerCommand {
    let question = question.to_owned();
    WorkerCommand::Answer { question, reply }
}

#[cfg(test)]
pub(super) fn models(number: u64) -> WorkerCommand {
    let pins = Box::default();
    WorkerCommand::Models { number, pins }
}

#[cfg(test)]
pub(super) fn compact(instructions: Option<&str>) -> WorkerCommand {
    WorkerCommand::Compact {
        session: "main".into(),
        instructions: instructions.map(str::to_owned),
    }
}

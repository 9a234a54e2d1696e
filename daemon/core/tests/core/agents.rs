//! The agents of the world: one of each way to relate sessions and processes.

use std::time::Duration;

use agentd_core::agent::{
    Agent, Capabilities, ExecForm, Found, Levels, Modes, Providers, Reports, Resume, Sessions,
    SystemText, Warm,
};
use agentd_core::attached::AttachmentSupport;
use agentd_core::mcp::McpServing;
use agentd_core::toolsets::Toolsets;
use agentd_core::{Served, Settings, Socket};

pub fn describe(sessions: Sessions, resume: Resume) -> Capabilities {
    Capabilities {
        sessions,
        resume,
        cancels: sessions != Sessions::PerTurn,
        recycles: sessions != Sessions::PerTurn,
        model_per_turn: sessions != Sessions::One,
        thinking_per_turn: sessions != Sessions::One,
        switches: false,
        models: true,
        providers: Providers::Any,
        thinking: Levels::Any,
        modes: Modes::None,
        toolsets: match resume {
            Resume::InTurn => Toolsets::Own,
            _ => Toolsets::None,
        },
        fallback_chain: resume == Resume::InTurn,
        system: match (sessions, resume) {
            (Sessions::One, _) => SystemText::AtStart,
            (_, Resume::InTurn) => SystemText::WithTurn,
            _ => SystemText::InPrompt,
        },
        history: resume == Resume::InTurn,
        mcp: match (sessions, resume) {
            (Sessions::One, _) => McpServing::AtStart,
            (_, Resume::InTurn) => McpServing::WithTurn,
            _ => McpServing::Never,
        },
        forks: matches!(resume, Resume::Native | Resume::InTurn),
        steers: sessions != Sessions::PerTurn,
        lists_models: sessions != Sessions::PerTurn,
        lists_commands: sessions != Sessions::PerTurn,
        compacts: sessions != Sessions::PerTurn,
        tells: Reports::TEXT,
        attachments: match sessions {
            Sessions::One => AttachmentSupport::Images,
            Sessions::Many => AttachmentSupport::Files,
            Sessions::PerTurn => AttachmentSupport::Nothing,
        },
        concurrent_sends: 1,
        ready_within: Duration::from_secs(30),
    }
}

fn agent(name: &str, sessions: Sessions, resume: Resume) -> Agent {
    Agent {
        name: name.to_owned(),
        kind: "jsonl",
        command: vec![format!("/bin/{name}")],
        found: Found::Configured,
        version: None,
        usable: Ok(()),
        describe: describe(sessions, resume),
        warm: Warm::Always(0),
        idle_timeout: Duration::from_secs(600),
        provider: None,
        model: None,
        thinking: None,
        mode: None,
        has: Vec::new(),
        logged_in: None,
        revision: 0,
    }
}

/// The form that each of them has left when its program lacks the other.
pub fn exec_form() -> ExecForm {
    ExecForm {
        kind: "exec",
        command: vec!["/bin/once".to_owned()],
        describe: Capabilities {
            thinking: Levels::None,
            ..describe(Sessions::PerTurn, Resume::Stateless)
        },
        why: "this version has no `long`".to_owned(),
    }
}

pub fn settings() -> Settings {
    let agents = [
        agent("many", Sessions::Many, Resume::None),
        agent("one", Sessions::One, Resume::Native),
        agent("turn", Sessions::PerTurn, Resume::Stateless),
        agent("keeps", Sessions::Many, Resume::InTurn),
    ];
    Settings {
        around: 0,
        agents: agents
            .into_iter()
            .map(|agent| (agent.name.clone(), agent))
            .collect(),
        default_agent: Some("many".to_owned()),
        home: "/home/u".to_owned(),
        version: "0.0.0".to_owned(),
        pid: 1,
        uid: 1000,
        epoch: "e".to_owned(),
        last_seq: 0,
        ended_jobs: 0,
        fallbacks: 0,
        wall_ahead: None,
        losses: Vec::new(),
        backups_lack: None,
        schedules_paused: None,
        before: None,
        served: Served::Daemon,
        socket: Socket::Ours,
        nested: false,
        max_workers: 4,
        spare_memory: None,
        seed: 7,
        looked_for: String::new(),
    }
}

/// The same with spares: of each way to have them.
pub fn with_spares() -> Settings {
    let mut settings = settings();
    for (name, warm) in [
        ("many", Warm::Always(1)),
        ("one", Warm::WhenUsed),
        ("keeps", Warm::WhenUsed),
    ] {
        if let Some(agent) = settings.agents.get_mut(name) {
            agent.warm = warm;
        }
    }
    settings
}

//! agentd as an agent of agentd: its face for editors and that for pi's clients, driven like any agent
//! that speaks their protocol, with timmy behind it.
//!
//! The face runs without a daemon of its own, as it does where a client starts it and none is there:
//! then all of it is the process of one agent. Its socket is named, as the environment of an agent
//! leads to the daemon that it is an agent of.

use std::path::PathBuf;

use super::{Asks, Can, Driven, Turns, WORK};
use crate::mock_model::MockModel;
use crate::support::{AGENTCTL, DEADLINE, Place, TIMMY};

fn installed() -> Vec<Driven> {
    vec![through("acp")]
}

fn through(face: &str) -> Driven {
    Driven {
        label: format!("agentctl serve {face}"),
        program: PathBuf::from(AGENTCTL),
        configure,
        can: Can {
            turns: Turns::InOneProcess,
            tool: Some("execute"),
            asks: Asks::Never,
            denied: "",
            errors: &[(401, "agent-auth")],
            overflow: Some("context-overflow"),
            keeps_young: true,
            told: &[],
            stops: &[("[[full]]", "max_tokens"), ("[[refuse=finish]]", "refusal")],
            attached: &["pixel.png", "notes.txt"],
            hears_of_tools: "tides_low_water",
            models: [(Some("mock"), "mock-1"), (Some("mock"), "mock-2")],
            switches: false,
            mode: None,
            beside: None,
            tries_again: &[429, 500],
            refusal_lasts: Some("agent-auth"),
            patience: DEADLINE,
        },
    }
}

fn configure(driven: &Driven, place: &Place, model: &MockModel) -> String {
    let (dir, url) = (place.path(WORK), &model.url);
    let inner = format!(
        "default_agent = \"it\"\n[agents.it]\nkind = \"jsonl\"\ncommand = [{TIMMY:?}, \"--rpc\"]\n\
         [models]\ndefault = \"mock/mock-1\"\naliases = {{ other = \"mock/mock-2\" }}\n[providers.mock]\nbase_url = {url:?}\n\
         [timmy]\nwritable = [{dir:?}]\n"
    );
    let config = place.path("inner.toml");
    std::fs::write(&config, inner).unwrap();
    let program = &driven.program;
    let face = driven.label.rsplit(' ').next().unwrap();
    let (state, socket) = (place.path("inner"), place.path("inner.sock"));
    format!(
        "[agents.it]\nkind = {face:?}\n\
         command = [{program:?}, \"--socket\", {socket:?}, \"serve\", {face:?}]\n\
         provider = \"mock\"\nmodel = \"mock-1\"\n\
         env = {{ AGENTD_CONFIG = {config:?}, AGENTD_STATE_DIR = {state:?} }}\n"
    )
}

suite!();

/// pi's protocol has fewer words: what it can't say isn't asked of it.
mod by_pi {
    use crate::agents::Driven;

    fn installed() -> Vec<Driven> {
        let mut driven = super::through("pi");
        (driven.can.tool, driven.can.attached) = (Some("bash"), &["pixel.png"]);
        vec![driven]
    }

    suite! { says runs_a_tool is_aborted goes_on_after_a_kill }
}

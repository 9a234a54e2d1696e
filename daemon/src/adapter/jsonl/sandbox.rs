//! What a worker says that held its tools' commands.

use agentd_core::ids::TurnId;
use agentd_core::worker::WorkerEvent;
use agentd_protocol::line::{Reach, Sandbox};

use super::tests::{hear, with};

#[test]
fn sandbox_of_tools_is_told_where_known() {
    let held = Sandbox {
        files: Reach::Granted,
        network: Reach::None,
        signals: Reach::Unknown,
        sockets: Reach::None,
        processes: Reach::Unknown,
    };
    for (said, expected) in [
        (
            r#"{"files":"granted","network":"none","signals":"of its house","sockets":"none","more":1}"#,
            Some(held),
        ),
        // What says it otherwise says nothing: it is never taken for more than it is.
        (r#"{"files":"granted"}"#, None),
        ("true", None),
    ] {
        let line = format!(r#"{{"type":"tool_end","tool_call_id":"c","sandbox":{said}}}"#);
        let told = hear(&mut with(&[7]), &line);
        let [WorkerEvent::ToolEnded { turn, sandbox, .. }] = told[..] else {
            panic!("{told:?}")
        };
        assert_eq!((turn, sandbox), (TurnId(7), expected), "{said}");
    }
}

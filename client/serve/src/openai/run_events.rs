//! `GET /v1/runs/{id}/events`.
//!
//! Owns how a run's events are numbered. Must not know what is in them.

use std::sync::Arc;

use agentd_client::wire::Received;
use agentd_faces::openai::run_events::RunEvents;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;

use super::{Refusal, now, runs};
use crate::app::App;
use crate::events;
use crate::jobs::Named;

pub(super) async fn events(
    State(app): State<Arc<App>>,
    id: Named,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let row = runs::named(&app, id).await?;
    let mut run = RunEvents::new(row.job);
    let form = move |received: &Received, epoch: &str| told(&mut run, received, epoch);
    Ok(events::stream(app, row.job, &headers, form).await?)
}

/// The events of a line. Its number stands with the last of them: whoever read that has read it.
fn told(run: &mut RunEvents, received: &Received, epoch: &str) -> String {
    #[derive(Deserialize)]
    struct Numbered {
        seq: Option<u64>,
    }
    let Some(line) = &received.line else {
        return String::new();
    };
    let numbered: Option<Numbered> = serde_json::from_str(&received.text).ok();
    let seq = numbered.and_then(|line| line.seq);
    let events = run.line(line, now().as_secs_f64());
    let count = events.len();
    let mut text = String::new();
    for (number, event) in events.iter().enumerate() {
        if let Some(seq) = seq.filter(|_| number + 1 == count) {
            text += &format!("id: {seq}.{epoch}\n");
        }
        text += &format!("data: {event}\n\n");
    }
    if line.ends_job() {
        text += ": stream closed\n\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::JobId;

    fn of(line: &str) -> String {
        told(
            &mut RunEvents::new(JobId(1)),
            &Received::parse(line.as_bytes()),
            "e",
        )
    }

    #[test]
    fn run_events_have_the_numbers_of_lines() {
        let delta = r#"{"type":"message_delta","id":1,"job":"j1","message":0,"offset":0,"text":"a","native":true}"#;
        assert!(of(delta).starts_with("data: {\"event\":\"message.delta\",\"run_id\":\"run_j1\","));
        let end = r#"{"type":"message_end","id":1,"seq":7,"job":"j1","session":"s","text":"a"}"#;
        let told = of(end);
        assert!(
            told.starts_with("id: 7.e\ndata: {\"event\":\"run.completed\""),
            "{told}"
        );
        assert!(told.ends_with("}\n\n: stream closed\n\n"), "{told}");
        let running = r#"{"type":"running","id":1,"seq":6,"job":"j1","attempt":1}"#;
        assert_eq!(of(running), "");
    }
}

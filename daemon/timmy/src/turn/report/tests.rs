//! What a final line says of what was used.

use super::*;

#[test]
fn cost_that_is_unknown_has_no_sum() {
    let cost = |usd, status| Cost {
        usd,
        status,
        source: CostSource::List,
        as_of: None,
    };
    let attempt = |cost| Attempt {
        local: false,
        provider: "p".to_owned(),
        model: "m".to_owned(),
        started: 0,
        ended: 1,
        class: None,
        status: None,
        retry_after: None,
        usage: None,
        window: None,
        cost: Some(cost),
    };
    let mut report = Report::new(Vec::new(), None);
    assert_eq!(report.cost()["status"], "unknown");
    report
        .attempts
        .push(attempt(cost(Some(1.0), CostStatus::Actual)));
    report
        .attempts
        .push(attempt(cost(Some(2.0), CostStatus::Estimated)));
    assert_eq!(
        (&report.cost()["usd"], &report.cost()["status"]),
        (&json!(3.0), &json!("estimated"))
    );
    report
        .attempts
        .push(attempt(cost(None, CostStatus::Unknown)));
    assert_eq!(report.cost()["usd"], Value::Null);
}

#[test]
fn times_are_written_as_everywhere() {
    assert_eq!(rfc3339(1_795_752_306_789), "2026-11-27T04:05:06.789Z");
    assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
}

#[test]
fn a_fingerprint_tells_keys_apart_and_shows_none() {
    let key = |text: &str| fingerprint(&Key::new(text.to_owned()));
    assert_eq!(key("sk-secret"), key("sk-secret"));
    assert_ne!(key("sk-secret"), key("sk-other"));
    assert!(!key("sk-secret").contains("secret") && key("sk-secret").len() == 16);
}

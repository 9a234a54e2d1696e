//! What a final line says of what was used.

use super::*;

fn cost(usd: Option<f64>, status: Sure) -> Cost {
    Cost {
        usd,
        status,
        source: status.name().to_owned(),
    }
}

fn report(costs: &[Cost]) -> Report {
    let mut report = Report::new(Vec::new(), None);
    report.attempts = costs
        .iter()
        .map(|cost| Attempt {
            provider: "p".to_owned(),
            model: "m".to_owned(),
            started: 0,
            ended: 1,
            class: None,
            status: None,
            retry_after: None,
            usage: None,
            cost: Some(cost.clone()),
        })
        .collect();
    report
}

#[test]
fn a_sum_is_as_sure_as_its_least_sure_part() {
    let (actual, estimated) = (cost(Some(1.0), Sure::Actual), cost(Some(2.0), Sure::Estimated));
    let (included, unknown) = (cost(None, Sure::Included), cost(None, Sure::Unknown));
    for (parts, usd, status) in [
        (vec![actual.clone(), actual.clone()], Some(2.0), Sure::Actual),
        (vec![actual.clone(), estimated.clone()], Some(3.0), Sure::Estimated),
        (vec![included.clone(), estimated.clone()], Some(2.0), Sure::Estimated),
        (vec![included.clone(), included], None, Sure::Included),
        (vec![estimated, unknown, actual], None, Sure::Unknown),
    ] {
        let sum = report(&parts).cost().unwrap();
        assert_eq!((sum.usd, sum.status), (usd, status), "{parts:?}");
        assert_eq!(sum.source, status.name());
    }
    assert_eq!(report(&[]).cost(), None);
}

#[test]
fn only_a_short_reply_that_begins_so_may_be_a_refusal() {
    for (text, suspected) in [
        ("I'm sorry, but I can't help with that.", true),
        ("  I\u{2019}m unable to assist with this request.", true),
        ("I cannot help with that", true),
        ("The error says: I'm sorry, but I can't", false),
        ("I can't find the file; here is what I did instead.", false),
    ] {
        assert_eq!(looks_like_refusal(text), suspected, "{text}");
    }
    let long = format!("I can't help with {}", "x".repeat(400));
    assert!(!looks_like_refusal(&long));
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

//! Errors in the shapes that they come in.

use super::*;

#[test]
fn code_says_more_than_a_number() {
    for (raw, code, text) in [
        (
            r#"{"error":{"message":"m","type":"insufficient_quota","code":null}}"#,
            Some("insufficient_quota"),
            "m",
        ),
        (
            r#"{"error":{"message":"m","type":"invalid_request_error","code":"model_not_found"}}"#,
            Some("model_not_found"),
            "m",
        ),
        (
            r#"{"error":{"message":"m","type":"invalid_request_error","code":null}}"#,
            Some("invalid_request_error"),
            "m",
        ),
        (
            r#"{"error":{"message":"m","code":"1305"}}"#,
            Some("1305"),
            "m",
        ),
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
            Some("overloaded_error"),
            "m",
        ),
        (
            r#"[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}]"#,
            Some("RESOURCE_EXHAUSTED"),
            "m",
        ),
        (
            r#"{"code":"team:spending-limit","error":"m"}"#,
            Some("team:spending-limit"),
            "m",
        ),
        (r#"{"error":"m"}"#, None, "m"),
        (
            r#"{"error":{"code":502,"message":"m","metadata":{"raw":"behind"}}}"#,
            Some("502"),
            "m: behind",
        ),
        (r#"{"detail":"m"}"#, None, "m"),
        ("just words\n", None, "just words"),
        (
            "<html><body><h1>Bad Gateway</h1></body></html>",
            None,
            "an HTML page instead of an answer: Bad Gateway",
        ),
        ("<!DOCTYPE html>", None, "an HTML page instead of an answer"),
    ] {
        let told = body(raw);
        assert_eq!(
            (told.code.as_deref(), told.text.as_str()),
            (code, text),
            "{raw}"
        );
    }
}

#[test]
fn patience_is_read_wherever_it_is_said() {
    let second = Duration::from_secs;
    for (raw, wait) in [
        (
            r#"{"error":{"message":"Please try again in 7.66s. Visit us."}}"#,
            Some(Duration::from_millis(7660)),
        ),
        (
            r#"{"error":{"message":"Please try again in 1m26.4s."}}"#,
            Some(Duration::from_millis(86_400)),
        ),
        (
            r#"{"error":{"message":"Please try again in 850ms."}}"#,
            Some(Duration::from_millis(850)),
        ),
        (
            r#"{"error":{"message":"m","details":[{"a":1},{"retryDelay":"34s"}]}}"#,
            Some(second(34)),
        ),
        (
            r#"{"error":{"message":"Please try again in a while."}}"#,
            None,
        ),
        (
            r#"{"error":{"message":"try again in 99999999999h"}}"#,
            Some(LONGEST_WAIT),
        ),
    ] {
        assert_eq!(body(raw).retry_after, wait, "{raw}");
    }
}

#[test]
fn headers_say_seconds_milliseconds_or_a_date() {
    // Sun, 06 Nov 1994 08:49:37 GMT
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let wait = |headers: &[(&str, &'static str)]| {
        let find = |name: &str| {
            let found = headers.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| *value)
        };
        header_wait(find, now)
    };
    let millis = |millis| Some(Duration::from_millis(millis));
    assert_eq!(wait(&[("retry-after", "7")]), millis(7000));
    assert_eq!(wait(&[("retry-after", "0.5")]), millis(500));
    assert_eq!(
        wait(&[("retry-after-ms", "1500"), ("retry-after", "9")]),
        millis(1500)
    );
    assert_eq!(
        wait(&[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")]),
        millis(30_000)
    );
    assert_eq!(
        wait(&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")]),
        millis(0)
    );
    assert_eq!(wait(&[("retry-after", "999999999")]), Some(LONGEST_WAIT));
    for wrong in ["-5", "soon", "", "NaN"] {
        let headers = [("retry-after", wrong)];
        assert_eq!(wait(&headers), None, "{wrong}");
    }
    assert_eq!(wait(&[]), None);
}

#[test]
fn keys_are_left_out_of_what_is_shown() {
    let key = "f00-a-key-of-no-known-form";
    let text =
        format!("key {key} is wrong, and so is sk-proj-abcdefgh****wxyz or Bearer abcdefghijkl.");
    let shown = shown(&text, Some(key));
    assert_eq!(shown, "key … is wrong, and so is sk-… or Bearer …");
    assert_eq!(
        super::shown("a task-force of sk-ills", Some("a")),
        "a task-force of sk-ills"
    );
}

#[test]
fn what_is_shown_ends_between_letters() {
    let text = "é".repeat(MOST_TEXT);
    let shown = shown(&text, None);
    assert_eq!(shown.len(), MOST_TEXT);
    assert!(super::shown(&"€".repeat(MOST_TEXT), None).len() <= MOST_TEXT);
}

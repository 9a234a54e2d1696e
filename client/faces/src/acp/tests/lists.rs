//! Lists of sessions.

use super::opening::row;
use super::*;

#[test]
fn acp_list_has_sessions_that_were_used() {
    let mut scene = Scene::new();
    let id = scene.request("session/list", json!({"cwd": "/w"}));
    let mut rows = row(2, "idle");
    let mut empty = rows["sessions"][0].clone();
    (empty["session"], empty["turns"]) = (json!("empty"), json!(0));
    rows["sessions"].as_array_mut().unwrap().push(empty);
    assert_eq!(
        scene.answer("session.list", rows),
        json!({"cwd": "/w", "newest": true, "limit": 500})
    );
    let said = scene.said.remove(0);
    let listed = json!([{"sessionId": SESSION, "cwd": "/w", "title": "hi", "updatedAt": "2026-11-26T00:00:00Z"}]);
    assert_eq!(
        (&said["id"], &said["result"]["sessions"]),
        (&json!(id), &listed)
    );
}

#[test]
fn acp_list_goes_on_behind_the_newest() {
    let mut scene = Scene::new();
    let named = |names: &mut dyn Iterator<Item = u64>, next: Value| {
        let mut rows = row(2, "idle");
        let one = rows["sessions"][0].clone();
        let sessions = names.map(|number| {
            let mut one = one.clone();
            one["session"] = json!(format!("s{number}"));
            one
        });
        rows["sessions"] = sessions.collect();
        rows["next"] = next;
        rows
    };
    let mut list = |cursor: Value, asked: Value, answer: Value| {
        scene.request("session/list", json!({"cursor": cursor}));
        assert_eq!(scene.answer("session.list", answer), asked);
        let result = scene.said.remove(0)["result"].take();
        let names: Vec<String> = result["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["sessionId"].as_str().unwrap().to_owned())
            .collect();
        (names, result["nextCursor"].clone())
    };
    let newest = json!({"newest": true, "limit": 500});
    let (first, next) = list(json!(null), newest, named(&mut (100..600), json!(null)));
    assert_eq!((first.len(), next.as_str()), (500, Some("0")));
    let behind = |after: u64| json!({"limit": 500, "after": after});
    let (second, next) = list(next, behind(0), named(&mut (1..501), json!(77)));
    assert_eq!((second.len(), next.as_str()), (99, Some("77")));
    let (third, next) = list(next, behind(77), named(&mut (599..602), json!(null)));
    assert_eq!(
        (third, next),
        (vec!["s600".to_owned(), "s601".to_owned()], json!(null))
    );
}

#[test]
fn acp_list_of_a_stopping_daemon_waits() {
    let mut scene = Scene::new();
    let id = scene.request("session/list", json!({}));
    let draining =
        json!({"type": "error", "code": "draining", "error": "stopping", "retryable": true});
    scene.answer("session.list", draining);
    assert!(scene.said.is_empty());
    scene.lose();
    scene.answer("session.list", row(2, "idle"));
    assert_eq!(scene.told(), [format!("{id} ")]);
}

//! Working directories as facts: which are refused, and which are the session's own.

use std::collections::BTreeMap;

use agentd_core::event::{Directory, RequestContext};
use agentd_core::ids::ConnId;
use agentd_protocol::Code;
use agentd_protocol::serde_json::{self, Value, json};

use crate::scenarios::running;
use crate::world::World;

fn there(real: &str) -> Directory {
    Directory::There(Some(real.to_owned()))
}

fn send(
    world: &mut World,
    conn: ConnId,
    id: u64,
    fields: Value,
    directories: &[(&str, Directory)],
) -> Option<Code> {
    let mut line = json!({ "type": "send", "text": "x" });
    for (name, value) in fields.as_object().unwrap() {
        line[name] = value.clone();
    }
    let known = directories.iter();
    let directories: BTreeMap<_, _> = known
        .map(|(path, found)| ((*path).to_owned(), found.clone()))
        .collect();
    let facts = RequestContext {
        directories,
        ..RequestContext::default()
    };
    let before = errors(world, conn).len();
    world.request_from(conn, id, &line.to_string(), facts);
    let errors = errors(world, conn);
    (errors.len() > before).then(|| errors[errors.len() - 1].0)
}

fn errors(world: &World, conn: ConnId) -> Vec<(Code, String)> {
    let lines = world.clients[&conn].lines.iter();
    let errors = lines.filter(|line| line["type"] == "error");
    let told = errors.map(|line| {
        let code = serde_json::from_value(line["code"].clone()).unwrap();
        (code, line["error"].as_str().unwrap().to_owned())
    });
    told.collect()
}

#[test]
fn cwd_is_a_directory_and_not_a_spelling() {
    let (mut world, conn, _) = running();
    let made = json!({ "session": "s", "cwd": "/w/proj" });
    let at = [("/w/proj", there("/real/proj"))];
    assert_eq!(send(&mut world, conn, 2, made, &at), None);
    for (id, spelling) in (3..).zip(["/w/proj/", "/w/proj/.", "//w/./proj", "/w/proj"]) {
        let again = json!({ "session": "s", "cwd": spelling });
        assert_eq!(send(&mut world, conn, id, again, &[]), None, "{spelling}");
    }
    for (id, link) in [(10, "/link"), (11, "/real/proj"), (12, "/w/x/../proj")] {
        let again = json!({ "session": "s", "cwd": link });
        let found = [(link, there("/real/proj"))];
        assert_eq!(send(&mut world, conn, id, again, &found), None, "{link}");
    }
    for (id, other) in [(20, "/w"), (21, "/w/proj/below"), (22, "/w/x/../proj")] {
        let again = json!({ "session": "s", "cwd": other });
        let found = [(other, there("/real/other"))];
        let refused = send(&mut world, conn, id, again, &found);
        assert_eq!(refused, Some(Code::SessionConflict), "{other}");
    }
}

#[test]
fn toolsets_are_a_set() {
    let (mut world, conn, _) = running();
    let with =
        |toolsets: &[&str]| json!({ "session": "s", "agent": "keeps", "toolsets": toolsets });
    assert_eq!(send(&mut world, conn, 2, with(&["web", "file"]), &[]), None);
    let same = [&["file", "web"][..], &["web", "file", "web"]];
    for (id, toolsets) in (3..).zip(same) {
        assert_eq!(send(&mut world, conn, id, with(toolsets), &[]), None);
    }
    for (id, toolsets) in (10..).zip([&["web"][..], &[], &["web", "file", "image"]]) {
        let refused = send(&mut world, conn, id, with(toolsets), &[]);
        assert_eq!(refused, Some(Code::SessionConflict), "{toolsets:?}");
    }
}

#[test]
fn cwd_if_new_is_for_new_sessions() {
    let (mut world, conn, _) = running();
    let made = json!({ "session": "s", "cwd": "/w" });
    assert_eq!(
        send(&mut world, conn, 2, made, &[("/w", there("/w"))]),
        None
    );
    for (id, found) in (3..).zip([Directory::Missing, Directory::Silent]) {
        let fields = |session: &str| json!({ "session": session, "cwd_if_new": "/gone" });
        let facts = [("/gone", found)];
        assert_eq!(send(&mut world, conn, id, fields("s"), &facts), None);
        let refused = send(&mut world, conn, id + 10, fields("fresh"), &facts);
        assert_eq!(refused, Some(Code::InvalidRequest));
        let (_, error) = errors(&world, conn).pop().unwrap();
        assert!(error.starts_with("`cwd_if_new` is `/gone`: "), "{error}");
    }
}

#[test]
fn cwd_that_hangs_refuses_only_its_send() {
    let (mut world, conn, _) = running();
    let there_is = json!({ "session": "s", "cwd": "/hung" });
    let refused = send(
        &mut world,
        conn,
        2,
        there_is,
        &[("/hung", Directory::Silent)],
    );
    assert_eq!(refused, Some(Code::InvalidRequest));
    let (_, error) = errors(&world, conn).pop().unwrap();
    assert!(error.contains("does not answer"), "{error}");
    let elsewhere = json!({ "session": "s", "cwd": "/w" });
    assert_eq!(
        send(&mut world, conn, 3, elsewhere, &[("/w", there("/w"))]),
        None
    );
}

#[test]
fn cwd_by_link_still_matches_after_restart() {
    for opens in [true, false] {
        let (mut world, conn, _) = running();
        let made = json!({ "session": "s", "cwd": "/link" });
        let at = [("/link", there("/real/proj"))];
        if opens {
            assert_eq!(send(&mut world, conn, 2, made, &at), None);
        } else {
            let facts = RequestContext {
                directories: BTreeMap::from([("/link".to_owned(), there("/real/proj"))]),
                ..RequestContext::default()
            };
            let new = r#"{"type":"session.new","session":"s","cwd":"/link"}"#;
            world.request_from(conn, 2, new, facts);
        }
        world.crash(crate::agents::settings());
        let conn = world.connect();
        let link = json!({ "session": "s", "cwd": "/real/proj" });
        let found = [("/real/proj", there("/real/proj"))];
        assert_eq!(send(&mut world, conn, 3, link, &found), None, "{opens}");
        let other = json!({ "session": "s", "cwd": "/elsewhere" });
        let found = [("/elsewhere", there("/elsewhere"))];
        let refused = send(&mut world, conn, 4, other, &found);
        assert_eq!(refused, Some(Code::SessionConflict), "{opens}");
    }
}

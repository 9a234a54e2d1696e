//! What `agentctl` can say of how a session begins, what it is called, and what becomes of it.

use serde_json::json;

use crate::support::Daemon;

#[test]
fn session_begun_by_agentctl_is_told_its_text() {
    let daemon = Daemon::with("[agents.once]\nkind = \"exec\"\ncommand = [\"cat\"]\n");
    let file = daemon.path("system.md");
    std::fs::write(&file, "be brief\n").unwrap();
    let named = format!("@{}", file.display());
    let args = [
        "send", "-q", "-a", "once", "-s", "main", "--system", &named, "go",
    ];
    let out = daemon.agentctl(&args);
    assert_eq!(
        out.stdout, "# System\n\nbe brief\n\n# Prompt\n\ngo\n",
        "{out:?}"
    );
    let again = daemon.agentctl(&args);
    assert_ne!(again.code, Some(0));
    let said = again.stderr;
    assert!(
        said.contains("`--system` is given, but the session"),
        "{said}"
    );
    let gone = ["send", "--system", "@/no/such/file", "go"];
    let out = daemon.agentctl(&gone);
    let said = out.stderr;
    assert!(said.contains("can't be read"), "{said}");
}

#[test]
fn session_is_titled_and_counted_by_agentctl() {
    let daemon = Daemon::start();
    daemon.agentctl(&["send", "-q", "-s", "main", "first prompt"]);
    let titled = daemon.agentctl(&["sessions", "title", "main", "the parser"]);
    assert_eq!(titled.stdout, "the parser\n", "{titled:?}");
    let list = daemon.agentctl(&["sessions"]).stdout;
    assert!(list.contains("the parser"), "{list}");
    let forked = daemon.agentctl(&["sessions", "fork", "main", "other"]);
    assert_eq!(forked.stdout, "other\n", "{forked:?}");
    let line = r#"{"prompt":"second","session":"other"}"#;
    let turn = daemon.ask(line).pop().unwrap();
    assert_eq!(
        (&turn["context"], &turn["text"]),
        (&json!("continued"), &json!("second"))
    );
    let taken = daemon.agentctl(&["sessions", "fork", "main", "other"]);
    assert!(
        taken.code != Some(0) && taken.stderr.contains("exists"),
        "{taken:?}"
    );
    let daemon = daemon.kill().start();
    let listed = daemon.ask(r#"{"type":"session.list"}"#).remove(0);
    assert_eq!(listed["sessions"][0]["title"], json!("the parser"));
    let cleared = daemon.agentctl(&["sessions", "title", "main", "--clear"]);
    assert_eq!(cleared.code, Some(0), "{cleared:?}");
    let usage = daemon.agentctl(&["usage", "--by", "session"]).stdout;
    assert!(usage.contains("main"), "{usage}");
}

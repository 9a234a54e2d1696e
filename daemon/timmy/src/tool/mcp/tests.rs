//! Against servers that are a few lines of shell: what a server does wrong can be seen in them.

use std::path::PathBuf;

use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::tool::{Approval, Asker};

/// The handshake up to the tools, as lines of shell; `$TOOLS` is a JSON list.
const HANDSHAKE: &str = r#"
read -r line
echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}'
read -r line
read -r line
printf '{"jsonrpc":"2.0","id":1,"result":{"tools":%s}}\n' "$TOOLS"
"#;

fn shell(tools: &Value, after: &str) -> McpServer {
    let script = format!("TOOLS='{tools}'\n{HANDSHAKE}\n{after}");
    server(&["sh", "-c", &script])
}

fn server(command: &[&str]) -> McpServer {
    McpServer {
        command: command.iter().map(|&word| word.to_owned()).collect(),
        timeout: Some(2),
        ..McpServer::default()
    }
}

fn one(config: McpServer) -> Servers {
    let environment = std::env::vars_os().collect();
    Servers::new(&BTreeMap::from([("s".to_owned(), config)]), environment)
}

fn tool(name: &str) -> Value {
    json!({"name": name, "description": "d", "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": true}})
}

/// Answers every question alike.
#[derive(Debug)]
struct Always(Approval);

impl Asker for Always {
    fn approve<'a>(
        &'a self,
        _call: Option<&'a str>,
        _title: &'a str,
        _detail: &'a str,
    ) -> Boxed<'a, Approval> {
        Box::pin(async { self.0.clone() })
    }
}

fn around(approval: Approval) -> Surroundings {
    Surroundings {
        cwd: PathBuf::from("/"),
        anchors: Arc::default(),
        spill: std::env::temp_dir().join("never-made"),
        call: "c1".to_owned(),
        job: None,
        cancel: CancellationToken::new(),
        progress: mpsc::channel(1).0,
        asker: Arc::new(Always(approval)),
    }
}

fn denied() -> Approval {
    Approval::Denied("nobody is there".to_owned())
}

#[tokio::test]
async fn mcp_tool_needs_leave_whatever_it_claims() {
    let answer = r#"read -r line
echo '{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"hi"},{"type":"image","data":"AA==","mimeType":"image/png"}]}}'
read -r line"#;
    let servers = one(shell(&json!([tool("say")]), answer));
    let offered = servers.offered().await;
    assert_eq!(offered.problems, Vec::<String>::new());
    let [said] = &offered.tools[..] else {
        panic!("one tool, not {}", offered.tools.len());
    };
    assert_eq!(said.spec().name, "mcp__s__say");
    assert!(!said.is_read_only());
    let refused = said
        .run(&Map::new(), &around(denied()))
        .await
        .unwrap_or_else(ToolOutcome::failed);
    assert!(
        !refused.ok && refused.output.contains("nobody is there"),
        "{refused:?}"
    );
    let answered = said
        .run(&Map::new(), &around(Approval::Granted))
        .await
        .unwrap_or_else(ToolOutcome::failed);
    assert_eq!(
        answered,
        ToolOutcome::done("hi\n[an image, image/png, not shown]".to_owned())
    );
    servers.end().await;
}

#[tokio::test]
async fn mcp_tool_configured_as_harmless_needs_no_leave() {
    let answer = r#"read -r line
echo '{"jsonrpc":"2.0","id":2,"result":{"content":[],"structuredContent":{"n":1},"isError":true}}'
read -r line"#;
    let mut config = shell(&json!([tool("say")]), answer);
    config.read_only = vec!["say".to_owned()];
    let offered = one(config).offered().await;
    let answered = offered.tools[0]
        .run(&Map::new(), &around(denied()))
        .await
        .unwrap_or_else(ToolOutcome::failed);
    assert!(offered.tools[0].is_read_only());
    assert_eq!(answered, ToolOutcome::failed(r#"{"n":1}"#.to_owned()));
}

#[tokio::test]
async fn mcp_server_that_dies_keeps_its_last_words() {
    for (config, expected) in [
        (server(&["/no/such/program"]), "can't be started"),
        (
            server(&["sh", "-c", "echo 'no token' >&2; exit 1"]),
            "no token",
        ),
        (server(&[]), "either `command` or `url`"),
    ] {
        let offered = one(config).offered().await;
        assert!(offered.tools.is_empty());
        let [problem] = &offered.problems[..] else {
            panic!("{:?}", offered.problems);
        };
        assert!(problem.contains(expected), "{problem}");
    }
}

#[tokio::test(start_paused = true)]
async fn mcp_server_that_is_silent_is_given_up() {
    let servers = one(server(&["sleep", "600"]));
    let offered = servers.offered().await;
    assert!(
        offered.problems[0].contains("within 10 s"),
        "{:?}",
        offered.problems
    );
    let begun = Instant::now();
    assert_eq!(servers.offered().await.problems, offered.problems);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn mcp_call_that_hangs_ends_with_its_time() {
    let servers = one(shell(
        &json!([tool("hang")]),
        "while read -r line; do :; done",
    ));
    let offered = servers.offered().await;
    let late = offered.tools[0]
        .run(&Map::new(), &around(Approval::Granted))
        .await
        .unwrap_or_else(ToolOutcome::failed);
    assert!(
        !late.ok && late.output.contains("did not answer within 2 s"),
        "{late:?}"
    );
    // Before anybody was asked.
    let cancelled = around(Approval::Granted);
    cancelled.cancel.cancel();
    let cancelled = offered.tools[0]
        .run(&Map::new(), &cancelled)
        .await
        .unwrap_or_else(ToolOutcome::failed);
    assert!(cancelled.output.starts_with("cancelled"), "{cancelled:?}");
    // While the server is busy with it.
    let around = around(Approval::Granted);
    let cancel = around.cancel.clone();
    let tool = Arc::clone(&offered.tools[0]);
    let mut running = tokio::task::JoinSet::new();
    running.spawn(async move {
        tool.run(&Map::new(), &around)
            .await
            .unwrap_or_else(ToolOutcome::failed)
    });
    tokio::task::yield_now().await;
    cancel.cancel();
    let cancelled = running.join_next().await.unwrap().unwrap();
    assert_eq!(
        cancelled,
        ToolOutcome::failed("the turn was cancelled".to_owned())
    );
}

#[tokio::test]
async fn mcp_server_that_dies_is_started_again() {
    let servers = one(shell(
        &json!([tool("die")]),
        "read -r line; echo 'out of luck' >&2; exit 3",
    ));
    let offered = servers.offered().await;
    let dead = offered.tools[0]
        .run(&Map::new(), &around(Approval::Granted))
        .await
        .unwrap_or_else(ToolOutcome::failed);
    assert!(!dead.ok && dead.output.contains("has ended"), "{dead:?}");
    assert!(
        dead.output.ends_with("its last words: out of luck"),
        "{dead:?}"
    );
    let again = servers.offered().await;
    assert_eq!((again.tools.len(), again.problems.len()), (1, 0));
    let dead = again.tools[0]
        .run(&Map::new(), &around(Approval::Granted))
        .await
        .unwrap_or_else(ToolOutcome::failed);
    assert!(!dead.ok && dead.output.contains("has ended"), "{dead:?}");
}

#[tokio::test]
async fn tools_that_can_not_be_offered_are_named() {
    let long = "x".repeat(MOST_SCHEMA);
    let mut big = tool("big");
    big["inputSchema"]["description"] = json!(long);
    let mut many: Vec<Value> = (0..MOST_TOOLS).map(|n| tool(&format!("t{n}"))).collect();
    many.insert(0, big);
    let offered = one(shell(&json!(many), "read -r line")).offered().await;
    assert_eq!(offered.tools.len(), MOST_TOOLS - 1);
    let problems = offered.problems.join("\n");
    assert!(
        problems.contains("1 of its tools are left out"),
        "{problems}"
    );
    assert!(problems.contains("tool `big` is left out"), "{problems}");
}

#[tokio::test]
async fn mcp_server_sees_only_the_variables_it_may() {
    let print = r#"read -r line
printf '{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"%s"}]}}\n' "$(env | grep -c -e SECRET -e AGENTD):$GIVEN"
read -r line"#;
    let mut config = shell(&json!([tool("env")]), print);
    config.pass_env = vec!["GIVEN".to_owned()];
    let set = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
    let mut environment: BTreeMap<_, _> = std::env::vars_os().collect();
    environment.extend([
        set("SECRET_KEY", "s"),
        set("AGENTD_SOCKET", "/s"),
        set("GIVEN", "yes"),
    ]);
    let servers = Servers::new(&BTreeMap::from([("s".to_owned(), config)]), environment);
    let offered = servers.offered().await;
    let seen = offered.tools[0]
        .run(&Map::new(), &around(Approval::Granted))
        .await
        .unwrap_or_else(ToolOutcome::failed);
    assert_eq!(seen.output, "0:yes");
}

#[tokio::test]
async fn only_https_or_this_machine_is_reached() {
    for url in [
        "http://example.org/mcp",
        "http://127.0.0.1.example.org/",
        "ftp://x",
        "",
    ] {
        let mut config = server(&[]);
        config.url = Some(url.to_owned());
        let offered = one(config).offered().await;
        assert!(
            offered.problems[0].contains("expected `https://…`"),
            "{url}: {:?}",
            offered.problems
        );
    }
}

#[tokio::test]
async fn a_server_is_ended_with_what_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    let child = format!("sleep 600 & echo $! > {}; read -r line", pid.display());
    let servers = one(shell(&json!([tool("x")]), &child));
    assert_eq!(servers.offered().await.problems, Vec::<String>::new());
    let until = Instant::now() + Duration::from_secs(10);
    let child: i32 = loop {
        match std::fs::read_to_string(&pid).map(|pid| pid.trim().parse()) {
            Ok(Ok(child)) => break child,
            other => assert!(Instant::now() < until, "no child after 10 s: {other:?}"),
        }
        tokio::task::yield_now().await;
    };
    servers.end().await;
    let gone = || {
        let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    };
    while !gone() {
        assert!(Instant::now() < until, "process {child} is still there");
        tokio::task::yield_now().await;
    }
}

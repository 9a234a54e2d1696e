//! `/mcp` of `agentctl serve http`.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::http::{Answer, Http, served};
use crate::support::{Place, needs};

const BOTH: &str = "Accept: application/json, text/event-stream";

/// A request of 2026-07-28, with the headers that say the same.
fn modern(http: &Http, method: &str, mut params: Value) -> Answer {
    params["_meta"] = json!({
        "progressToken": 1,
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    });
    let name = params["name"].as_str().unwrap_or("none").to_owned();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let headers = [format!("Mcp-Method: {method}"), format!("Mcp-Name: {name}")];
    let version = "MCP-Protocol-Version: 2026-07-28";
    http.post_with(
        "/mcp",
        &body,
        &[
            "-H",
            BOTH,
            "-H",
            version,
            "-H",
            &headers[0],
            "-H",
            &headers[1],
        ],
    )
}

/// The lines of a stream.
fn events(answer: &Answer) -> Vec<Value> {
    assert!(
        answer.head.contains("content-type: text/event-stream"),
        "{answer:?}"
    );
    let data = answer
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    data.map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn mcp_over_http_asks_and_is_answered() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let found = modern(&http, "server/discover", json!({}));
    assert_eq!(
        (
            found.status,
            &found.json()["result"]["supportedVersions"][0]
        ),
        (200, &json!("2026-07-28"))
    );
    let said = modern(
        &http,
        "tools/call",
        json!({"name": "ask", "arguments": {"prompt": "hello"}}),
    );
    let said = events(&said);
    assert_eq!(said[0]["method"], "notifications/progress", "{said:#?}");
    let last = said.last().unwrap();
    assert_eq!(
        last["result"]["structuredContent"]["text"], "hello",
        "{said:#?}"
    );
    // The revisions before: with an `initialize`, and without the headers.
    let post = |body: &Value, more: &[&str]| http.post_with("/mcp", body, more);
    let params =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x"}});
    let begun = post(
        &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}),
        &["-H", BOTH],
    );
    assert_eq!(
        begun.json()["result"]["protocolVersion"],
        "2025-06-18",
        "{begun:?}"
    );
    let told = post(
        &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        &[],
    );
    assert_eq!((told.status, told.body.as_str()), (202, ""));
    let version = "MCP-Protocol-Version: 2025-06-18";
    let call = json!({"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"name": "ask", "arguments": {"prompt": "hello"}}});
    // Without streams it is one document.
    let done = post(&call, &["-H", version, "-H", "Accept: application/json"]);
    assert_eq!(
        (
            &done.json()["id"],
            &done.json()["result"]["structuredContent"]["text"]
        ),
        (&json!("a"), &json!("hello"))
    );
}

#[test]
fn mcp_over_http_refuses_in_its_own_words() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let unknown = modern(&http, "tools/run", json!({}));
    assert_eq!(
        (unknown.status, &unknown.json()["error"]["code"]),
        (404, &json!(-32601))
    );
    let raw = |body: &str, more: &[&str]| {
        let mut words = vec!["-H", "Content-Type: application/json", "-d", body];
        words.extend(more);
        let answer = http.curl("/mcp", &words);
        (
            answer.status,
            answer.json()["error"]["code"].clone(),
            answer.json()["id"].clone(),
        )
    };
    for (body, status, code, id) in [
        ("{", 400, -32700, json!(null)),
        ("[]", 400, -32600, json!(null)),
        (r#"{"jsonrpc":"2.0","id":7}"#, 400, -32600, json!(7)),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"x"}"#,
            200,
            -32601,
            json!(7),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":5}"#,
            200,
            -32602,
            json!(7),
        ),
    ] {
        assert_eq!(raw(body, &[]), (status, json!(code), id), "{body}");
    }
    let ping = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
    let of_2026 = raw(ping, &["-H", "MCP-Protocol-Version: 2026-07-28"]);
    assert_eq!(of_2026, (400, json!(-32020), json!(7)));
    let of_1900 = raw(ping, &["-H", "MCP-Protocol-Version: 1900-01-01"]);
    assert_eq!(of_1900, (400, json!(-32022), json!(7)));
    // The guard is the same as everywhere.
    assert_eq!(http.curl("/mcp", &[]).status, 405);
    let typed = ["-H", "Content-Type: application/json", "-d", ping];
    assert_eq!(http.bare_curl("/mcp", &typed).status, 401);
    let mut page = vec!["-H", "Origin: https://evil.example"];
    page.extend(typed);
    assert_eq!(http.curl("/mcp", &page).status, 403);
}

#[test]
fn mcp_over_http_never_runs_without_a_daemon() {
    if needs("curl").is_none() {
        return;
    }
    let place = Place::new("");
    let http = Http::start(&place);
    let said = modern(
        &http,
        "tools/call",
        json!({"name": "ask", "arguments": {"prompt": "hello"}}),
    );
    let last = events(&said).pop().unwrap();
    assert_eq!(
        last["result"]["structuredContent"]["code"], "unreachable",
        "{last:#}"
    );
    assert!(!place.path("state/agentd.db").exists());
}

/// A stream, read while it goes on.
fn open(http: &Http, body: &Value, header: &str) -> BufReader<TcpStream> {
    let (body, head) = (body.to_string(), http.head("POST /mcp"));
    let more = format!("Content-Type: application/json\r\n{BOTH}\r\n{header}");
    let mut stream = http.connect();
    let length = body.len();
    write!(
        stream,
        "{head}{more}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    BufReader::new(stream)
}

/// The next line of a stream that has this method, or is an answer.
fn next(stream: &mut impl BufRead, method: Option<&str>) -> Value {
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "it ended");
        if let Some(data) = line.strip_prefix("data: ") {
            let data: Value = serde_json::from_str(data).unwrap();
            if data["method"].as_str() == method {
                return data;
            }
        }
    }
}

#[test]
fn mcp_http_question_is_put_within_a_session() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let post = |body: &Value, more: &[&str]| http.post_with("/mcp", body, more);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "x"}});
    let begin = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let begun = post(&begin, &["-H", BOTH]);
    let head = begun.head.lines();
    let mut head = head.filter_map(|line| line.strip_prefix("mcp-session-id: "));
    let session = format!("Mcp-Session-Id: {}", head.next().unwrap());
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(post(&told, &["-H", &session]).status, 202);
    let call = |id: u64, kind: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "ask", "arguments": {"prompt": format!("chaos:ask {kind}"), "agent": "chaos"}}});
    for (id, kind, content, expected) in [
        (1, "approval", json!({"approve": true}), "approve=true"),
        (2, "text", json!({"text": "a.b"}), "text=\"a.b\""),
    ] {
        let mut stream = open(&http, &call(id, kind), &session);
        let form = next(&mut stream, Some("elicitation/create"));
        // Without the session it is nobody's, and the question waits.
        let filled = json!({"action": "accept", "content": content});
        let answer = json!({"jsonrpc": "2.0", "id": form["id"], "result": filled});
        let nobody = post(&answer, &[]);
        assert_eq!((nobody.status, &nobody.json()["id"]), (400, &form["id"]));
        // Not the turn's: another server answers, as after a restart.
        let other = Http::start(&daemon.place);
        let taken = other.post_with("/mcp", &answer, &["-H", &session]);
        assert_eq!((taken.status, taken.body.as_str()), (202, ""));
        // Twice is once.
        assert_eq!(post(&answer, &["-H", &session]).status, 202);
        let done = next(&mut stream, None);
        assert_eq!(done["id"], id);
        assert_eq!(
            done["result"]["structuredContent"]["text"], expected,
            "{done:#}"
        );
    }
    // Without a stream nobody can be asked: denied at once. So it is for clients that take no forms.
    let done = post(
        &call(3, "approval"),
        &["-H", &session, "-H", "Accept: application/json"],
    );
    let denied = &done.json()["result"]["structuredContent"]["text"];
    assert_eq!(denied, "approve=false");
    let unknown = post(&call(4, "approval"), &["-H", "Mcp-Session-Id: x"]);
    assert_eq!(
        (unknown.status, &unknown.json()["id"]),
        (404, &json!(4)),
        "{unknown:?}"
    );
}

#[test]
fn mcp_over_http_question_is_an_answer() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let mut params =
        json!({"name": "ask", "arguments": {"prompt": "chaos:ask approval", "agent": "chaos"}});
    let asked = events(&modern(&http, "tools/call", params.clone()))
        .pop()
        .unwrap();
    let result = &asked["result"];
    let question = result["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    params["inputResponses"] =
        json!({question: {"action": "accept", "content": {"approve": true}}});
    params["requestState"] = result["requestState"].clone();
    let done = events(&modern(&http, "tools/call", params)).pop().unwrap();
    assert_eq!(
        done["result"]["structuredContent"]["text"], "approve=true",
        "{done:#}"
    );
}

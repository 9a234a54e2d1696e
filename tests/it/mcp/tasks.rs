//! Tasks, in the words of both revisions that have them.

use serde_json::{Value, json};

use super::Client;
use crate::support::{Daemon, wait_for};

fn meta(elicitation: bool) -> Value {
    let mut capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    if elicitation {
        capabilities["elicitation"] = json!({"form": {}});
    }
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

#[test]
fn mcp_task_of_2025_is_read_and_listed() {
    let daemon = Daemon::start();
    let mut client = Client::new(&daemon.place);
    let gate = daemon.path("gate");
    let prompt = format!("chaos:say half;wait-file {};say  whole", gate.display());
    let params = json!({"name": "ask", "arguments": {"prompt": prompt, "agent": "chaos"}, "task": {"ttl": 60000}});
    let made = client.request("tools/call", &params);
    let task = &made["result"]["task"];
    assert_eq!(
        (&task["taskId"], &task["status"]),
        (&json!("j1"), &json!("working")),
        "{made:#}"
    );
    assert_eq!(
        (&task["ttl"], &task["pollInterval"]),
        (&json!(null), &json!(2000)),
        "{made:#}"
    );
    // Whoever comes next knows it.
    let mut client = Client::new(&daemon.place);
    let of_it = json!({"taskId": "j1"});
    assert_eq!(
        client.request("tasks/get", &of_it)["result"]["status"],
        "working"
    );
    let result = client.asks("tasks/result", &of_it);
    std::fs::write(gate, "").unwrap();
    let done = client.answer(result);
    assert_eq!(
        done["result"]["structuredContent"]["text"], "half whole",
        "{done:#}"
    );
    let related = &done["result"]["_meta"]["io.modelcontextprotocol/related-task"];
    assert_eq!(related["taskId"], "j1");
    assert_eq!(
        client.request("tasks/get", &of_it)["result"]["status"],
        "completed"
    );
    let late = client.request("tasks/cancel", &of_it);
    assert_eq!(late["error"]["code"], -32602, "{late:#}");
    let hang = json!({"name": "ask", "arguments": {"prompt": "chaos:sleep-ms 60000", "agent": "chaos"}, "task": {}});
    let made = client.request("tools/call", &hang);
    let second = json!({"taskId": made["result"]["task"]["taskId"]});
    let cancelled = client.request("tasks/cancel", &second);
    assert_eq!(cancelled["result"]["status"], "cancelled", "{cancelled:#}");
    wait_for("the task is cancelled", || {
        (client.request("tasks/get", &second)["result"]["status"] == "cancelled").then_some(())
    });
    let list = client.request("tasks/list", &json!({}));
    let ids = [0, 1].map(|at| list["result"]["tasks"][at]["taskId"].clone());
    assert_eq!(ids, ["j2", "j1"], "{list:#}");
    for unknown in ["j99", "x", ""] {
        let of_it = json!({"taskId": unknown});
        for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"] {
            let refused = client.request(method, &of_it);
            assert_eq!(
                refused["error"]["code"], -32602,
                "{method} {unknown}: {refused:#}"
            );
        }
    }
    let plain = json!({"name": "agents", "arguments": {}, "task": {}});
    assert_eq!(
        client.request("tools/call", &plain)["error"]["code"],
        -32601
    );
}

#[test]
fn mcp_task_of_2025_has_its_questions_put() {
    let daemon = Daemon::start();
    let mut client = Client::initialized(&daemon.place, "2025-11-25", &json!({"elicitation": {}}));
    let params = json!({"name": "ask", "arguments": {"prompt": "chaos:ask approval", "agent": "chaos"}, "task": {}});
    client.request("tools/call", &params);
    let of_it = json!({"taskId": "j1"});
    wait_for("the task asks", || {
        (client.request("tasks/get", &of_it)["result"]["status"] == "input_required").then_some(())
    });
    let result = client.asks("tasks/result", &of_it);
    let form = client.next();
    assert_eq!(form["method"], "elicitation/create", "{form:#}");
    let related = &form["params"]["_meta"]["io.modelcontextprotocol/related-task"];
    assert_eq!(related["taskId"], "j1", "{form:#}");
    let filled = json!({"action": "accept", "content": {"approve": true}});
    client.says(&json!({"jsonrpc": "2.0", "id": form["id"], "result": filled}));
    let done = client.answer(result);
    assert_eq!(
        done["result"]["structuredContent"]["text"], "approve=true",
        "{done:#}"
    );
}

#[test]
fn mcp_task_of_2026_is_a_long_ask() {
    let daemon = Daemon::start();
    let mut client = Client::bare(&daemon.place, &[]);
    let ask = |prompt: &str, elicitation: bool| {
        let arguments = json!({"prompt": prompt, "agent": "chaos", "wait_s": 0});
        json!({"name": "ask", "arguments": arguments, "_meta": meta(elicitation)})
    };
    let gate = daemon.path("gate");
    let prompt = format!("chaos:say half;wait-file {};say  whole", gate.display());
    let made = client.request("tools/call", &ask(&prompt, false));
    let task = &made["result"];
    assert_eq!(
        (&task["resultType"], &task["status"]),
        (&json!("task"), &json!("working")),
        "{made:#}"
    );
    assert_eq!(task["pollIntervalMs"], 2000);
    let mut client = Client::bare(&daemon.place, &[]);
    let of_it = json!({"taskId": "j1", "_meta": meta(false)});
    let working = client.request("tasks/get", &of_it);
    assert_eq!(
        (
            &working["result"]["status"],
            &working["result"]["resultType"]
        ),
        (&json!("working"), &json!("complete"))
    );
    std::fs::write(gate, "").unwrap();
    let done = wait_for("the task is done", || {
        let found = client.request("tasks/get", &of_it);
        (found["result"]["status"] == "completed").then_some(found)
    });
    assert_eq!(
        done["result"]["result"]["structuredContent"]["text"], "half whole",
        "{done:#}"
    );
    // One that fails is done, too: what it says is for the model.
    client.request("tools/call", &ask("chaos:sleep-ms 50;exit 3", false));
    let of_it = json!({"taskId": "j2", "_meta": meta(false)});
    let failed = wait_for("the second is done", || {
        let found = client.request("tasks/get", &of_it);
        (found["result"]["status"] == "completed").then_some(found)
    });
    assert_eq!(failed["result"]["result"]["isError"], true, "{failed:#}");
    // And one that asks is told so.
    client.request("tools/call", &ask("chaos:sleep-ms 50;ask choice", true));
    let of_it = json!({"taskId": "j3", "_meta": meta(true)});
    let asks = wait_for("the third asks", || {
        let found = client.request("tasks/get", &of_it);
        (found["result"]["status"] == "input_required").then_some(found)
    });
    let question = asks["result"]["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    let answers =
        json!({question: {"action": "accept", "content": {"choice": "left"}}, "j1-q1": {}});
    let told = client.request(
        "tasks/update",
        &json!({"taskId": "j3", "inputResponses": answers, "_meta": meta(true)}),
    );
    assert_eq!(
        told["result"],
        json!({"resultType": "complete"}),
        "{told:#}"
    );
    let done = wait_for("the third is done", || {
        let found = client.request("tasks/get", &of_it);
        (found["result"]["status"] == "completed").then_some(found)
    });
    assert_eq!(
        done["result"]["result"]["structuredContent"]["text"], "choice=\"left\"",
        "{done:#}"
    );
}

#[test]
fn mcp_task_of_2026_is_cancelled() {
    let daemon = Daemon::start();
    let mut client = Client::bare(&daemon.place, &[]);
    let arguments = json!({"prompt": "chaos:sleep-ms 60000", "agent": "chaos", "wait_s": 0});
    let ask = json!({"name": "ask", "arguments": arguments, "_meta": meta(false)});
    client.request("tools/call", &ask);
    let of_it = json!({"taskId": "j1", "_meta": meta(false)});
    let told = client.request("tasks/cancel", &of_it);
    assert_eq!(
        told["result"],
        json!({"resultType": "complete"}),
        "{told:#}"
    );
    wait_for("the task is cancelled", || {
        let found = client.request("tasks/get", &of_it);
        (found["result"]["status"] == "cancelled").then_some(())
    });
}

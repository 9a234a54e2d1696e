//! Open WebUI in a real browser, with timmy behind it. It is heavy: it is tested where
//! `packaging/ci/install-open-webui.sh` put it, as `.ci/run --nightly` does.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::http::Http;
use crate::mock_model::MockModel;
use crate::support::{Place, Reaped, finish_within, needs, poll};
use crate::timmy;

/// It brings 100 MB of Python, on a busy machine.
const STARTS_WITHIN: Duration = Duration::from_secs(180);
const USED_WITHIN: Duration = Duration::from_secs(240);

/// It, in front of a server; and where it listens.
fn open_webui(dir: &Path, place: &Place, http: &Http) -> (Reaped, String) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let port = port.unwrap().port().to_string();
    let log = std::fs::File::create(place.path("open-webui.log")).unwrap();
    let mut command = place.command(dir.join("venv/bin/open-webui"));
    command
        .args(["serve", "--host", "127.0.0.1", "--port", &port])
        // As the book has it.
        .env("OPENAI_API_BASE_URL", format!("http://{}/v1", http.at))
        .env("OPENAI_API_KEY", &http.token)
        .env("ENABLE_FORWARD_USER_INFO_HEADERS", "True")
        // Nothing of it here, and nothing is fetched.
        .env("DATA_DIR", place.path("open-webui"))
        .env("OFFLINE_MODE", "true")
        .env("ENABLE_OLLAMA_API", "false")
        .env("BYPASS_EMBEDDING_AND_RETRIEVAL", "true")
        .env("RAG_EMBEDDING_ENGINE", "openai")
        .env("WEBUI_SECRET_KEY", "of this test")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    let mut server = Reaped(command.spawn().unwrap());
    let url = format!("http://127.0.0.1:{port}");
    let said = || std::fs::read_to_string(place.path("open-webui.log")).unwrap();
    let listens = poll(STARTS_WITHIN, || {
        let left = server.0.try_wait().unwrap();
        assert!(left.is_none(), "it left with {left:?}: {}", said());
        TcpStream::connect(format!("127.0.0.1:{port}")).ok()
    });
    assert!(listens.is_some(), "{}", said());
    (server, url)
}

#[test]
fn openai_open_webui_chats_in_one_session() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/open-webui");
    if !dir.join("versions").is_file() {
        return;
    }
    let Some(chromium) = needs("chromium") else {
        return;
    };
    let model = MockModel::start();
    let daemon = timmy::daemon(&model, "");
    let http = Http::start(&daemon.place);
    let (_server, url) = open_webui(&dir, &daemon.place, &http);
    let mut command = daemon.place.command(dir.join("venv/bin/python"));
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/openai/open_webui.py");
    command.arg("-B").arg(program).arg(url).arg(chromium);
    let done = finish_within(USED_WITHIN, command, b"");
    assert_eq!(done.code, Some(0), "{done:?}");
    let told = |name: &str| {
        let lines = done.stdout.lines();
        let mut lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let found = lines.find(|line| line[0] == name);
        found.unwrap_or_else(|| panic!("{name}: {done:?}"))[1].clone()
    };
    assert_eq!(told("model"), "timmy");
    let pieces = told("first").as_array().unwrap().len();
    assert!(pieces > 3, "it was shown as it came: {done:?}");
    let first = "[[deltas=20]] [[slow=100]] pack a tent";
    for name in ["second", "again"] {
        assert!(told(name).as_str().unwrap().contains(first), "{done:?}");
    }
    assert_eq!(told("stopped"), "hanging");

    // What it asked for itself is in no session of the chat's.
    let jobs = daemon.ask(r#"{"type":"jobs","limit":500}"#).remove(0);
    let mut jobs: Vec<Value> = jobs["jobs"].as_array().unwrap().clone();
    jobs.reverse();
    let of_itself = |job: &&Value| job["preview"].as_str().unwrap().starts_with("### Task:");
    let (own, chats): (Vec<&Value>, Vec<&Value>) = jobs.iter().partition(of_itself);
    assert!(!own.is_empty(), "{jobs:#?}");
    let session = |job: &Value| job["session"].clone();
    assert!(
        own.iter()
            .all(|own| chats.iter().all(|chat| session(own) != session(chat))),
        "{jobs:#?}"
    );
    // A turn for each time that the user asked: the second goes on in the session of the first, one
    // that is asked for again begins with what was said before, and the last is cancelled.
    let states: Vec<Value> = chats
        .iter()
        .map(|chat| json!([chat["preview"], chat["state"], chat["stop"]]))
        .collect();
    let expected = [
        json!([first, "completed", "end_turn"]),
        json!(["[[recall]]", "completed", "end_turn"]),
        json!(["[[recall]]", "completed", "end_turn"]),
        json!(["[[hang]]", "cancelled", "cancelled"]),
    ];
    assert_eq!(states, expected, "{jobs:#?}");
    let sessions: Vec<Value> = chats.iter().map(|chat| session(chat)).collect();
    assert!(sessions[0] == sessions[1] && sessions[1] != sessions[2] && sessions[2] == sessions[3]);
}

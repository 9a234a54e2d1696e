//! `/api/ws` of `agentctl serve http`: the gateway over WebSocket.
//!
//! Owns a client of it. What the gateway itself does is in `gateway_server`.

use std::io::Write as _;
use std::net::TcpStream;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

use crate::http::Http;
use crate::openai::header;
use crate::support::{Daemon, kill, needs, wait_for};

/// The longest message that is taken.
const LONGEST: usize = 32 << 20;

struct Page {
    socket: WebSocket<TcpStream>,
    last: u64,
}

impl Page {
    /// One that was greeted, with these words behind its token.
    fn open(http: &Http, more: &str) -> Self {
        let (at, token) = (http.at, &http.token);
        let address = format!("ws://{at}/api/ws?token={token}{more}");
        let (socket, _) = client(address.as_str(), http.connect()).unwrap();
        let mut page = Self { socket, last: 0 };
        page.event("gateway.ready");
        page
    }

    fn next(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.socket.read().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    /// The payload of the next event of a type.
    fn event(&mut self, kind: &str) -> Value {
        loop {
            let said = self.next();
            if said["params"]["type"] == kind {
                return said["params"]["payload"].clone();
            }
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let request =
            json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params});
        self.socket
            .send(Message::text(request.to_string()))
            .unwrap();
        loop {
            let said = self.next();
            if said["id"] == self.last {
                assert!(said.get("error").is_none(), "{request}: {said:#}");
                return said["result"].clone();
            }
        }
    }

    fn submit(&mut self, session: &str, text: &str) {
        let params = json!({"session_id": session, "text": text});
        self.ask("prompt.submit", &params);
    }

    /// How the server closes it.
    fn closed(&mut self) -> CloseFrame {
        loop {
            if let Message::Close(close) = self.socket.read().unwrap() {
                return close.expect("a reason");
            }
        }
    }
}

fn served() -> (Daemon, Http) {
    let daemon = Daemon::start();
    let http = Http::start(&daemon.place);
    (daemon, http)
}

#[test]
fn gateway_socket_serves_as_standard_input_does() {
    let (daemon, http) = served();
    let work = daemon.path("work");
    std::fs::create_dir(&work).unwrap();
    let more = format!("&agent=chaos&cwd={}", work.display());
    let mut page = Page::open(&http, &more);
    let made = page.ask("session.create", &json!({"cols": 80}));
    assert_eq!(made["info"]["cwd"], work.to_str().unwrap(), "{made}");
    let session = made["session_id"].as_str().unwrap().to_owned();
    page.event("session.info");
    // JSON over several lines is one message, and what is none is answered.
    let spread = "{\"jsonrpc\":\"2.0\",\n\"id\":\"x\",\r\n\"method\":\"pet.info\"}";
    page.socket.send(Message::text(spread)).unwrap();
    assert_eq!(page.next()["result"]["enabled"], false);
    for (text, code) in [("nonsense", -32700), ("[]", -32600)] {
        page.socket.send(Message::text(text)).unwrap();
        let said = page.next();
        assert_eq!(said["error"]["code"], code, "{said}");
    }
    page.socket
        .send(Message::Ping(b"there?".to_vec().into()))
        .unwrap();
    assert_eq!(
        page.socket.read().unwrap(),
        Message::Pong(b"there?".to_vec().into())
    );
    // A turn goes on without its client, which finds it again; what it said last counts.
    let gate = daemon.path("gate");
    let waits = format!("chaos:say on;wait-file {}", gate.display());
    page.submit(&session, &waits);
    assert_eq!(page.event("message.delta")["text"], "on");
    page.last += 1;
    let params = json!({"session_id": session, "text": "chaos:say after"});
    let request =
        json!({"jsonrpc": "2.0", "id": page.last, "method": "prompt.submit", "params": params});
    page.socket
        .send(Message::text(request.to_string()))
        .unwrap();
    drop(page);
    daemon.until("both are there", |_| {
        let jobs = daemon.ask(r#"{"type":"jobs"}"#).remove(0);
        (jobs["jobs"].as_array().unwrap().len() == 2).then_some(())
    });
    let mut page = Page::open(&http, &more);
    let shown = page.ask("session.resume", &json!({"session_id": session}));
    assert_eq!(shown["inflight"]["assistant"], "on", "{shown:#}");
    std::fs::write(&gate, "").unwrap();
    assert_eq!(page.event("message.complete")["text"], "on");
    assert_eq!(page.event("message.complete")["text"], "after");
    page.socket.close(None).unwrap();
    while page.socket.read().is_ok() {}
    // The server leaves, and says so.
    let mut page = Page::open(&http, "");
    kill(http.pid(), Signal::SIGTERM);
    assert_eq!(page.closed().code, CloseCode::Away);
    drop(page);
    assert_eq!(http.left().code(), Some(0));
}

#[test]
fn gateway_socket_is_refused_by_the_servers_rules() {
    if needs("curl").is_none() {
        return;
    }
    let (daemon, http) = served();
    let socket = [
        "-H",
        "Connection: Upgrade",
        "-H",
        "Upgrade: websocket",
        "-H",
        "Sec-WebSocket-Version: 13",
        "-H",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    let asked = |path: &str, more: &[&str]| {
        let answer = http.bare_curl(path, &[&socket[..], more].concat());
        (answer.status, answer.code())
    };
    let good = format!("/api/ws?token={}", http.token);
    for (path, more, status, code) in [
        ("/api/ws", &[][..], 401, "unauthorized"),
        ("/api/ws?token=x", &[], 401, "unauthorized"),
        (&good, &["-H", "Host: evil.example"], 421, "wrong-host"),
        (
            &good,
            &["-H", "Origin: https://evil.example"],
            403,
            "forbidden-origin",
        ),
        (&format!("{good}&agents=x"), &[], 422, "invalid-request"),
        (&good, &["-X", "DELETE"], 405, "unknown-method"),
    ] {
        assert_eq!(asked(path, more), (status, code.to_owned()), "{path}");
    }
    let plain = http.curl("/api/ws", &[]);
    assert_eq!((plain.status, plain.code().as_str()), (426, "no-websocket"));
    assert_eq!(header(&plain, "sec-websocket-version"), Some("13"));
    // Elsewhere a token in the query is none; nor is it logged.
    let elsewhere = format!("/v1/jobs?token={}", http.token);
    assert_eq!(http.bare_curl(&elsewhere, &[]).status, 401);
    let log = std::fs::read_to_string(daemon.path("http.log")).unwrap();
    assert!(!log.contains(&http.token), "{log}");
}

#[test]
fn gateway_socket_frames_that_are_wrong_end_it() {
    let (_daemon, http) = served();
    // No mask, no text, and one that is too long by its head: nothing of it has to come.
    let length = u64::try_from(LONGEST + 1).unwrap().to_be_bytes();
    let long = [&[0x81, 0xff][..], &length, b"mask"].concat();
    for (bytes, code) in [
        (&b"\x82\x81mask\x00"[..], CloseCode::Unsupported),
        (b"\x81\x81\0\0\0\0\xff", CloseCode::Invalid),
        (b"\x81\x01x", CloseCode::Protocol),
        (b"\x83\x81mask\x00", CloseCode::Protocol),
        (&long, CloseCode::Size),
    ] {
        let mut page = Page::open(&http, "");
        page.socket.get_mut().write_all(bytes).unwrap();
        let closed = page.closed();
        assert_eq!(closed.code, code, "{bytes:x?}");
        assert!(!closed.reason.is_empty());
    }
    // Whoever breaks off within a frame is gone.
    let mut page = Page::open(&http, "");
    page.socket.get_mut().write_all(b"\x81\xfe").unwrap();
    drop(page);
    // A message that is as long as may be, in two frames, is one that is answered.
    let mut page = Page::open(&http, "");
    let room = LONGEST - r#"{"jsonrpc":"2.0","id":1,"method":"pet.info","params":{"x":""}}"#.len();
    let filled = page.ask("pet.info", &json!({"x": "x".repeat(room)}));
    assert_eq!(filled["enabled"], false);
}

/// Whoever reads nothing keeps what is said waiting, and nobody else.
#[test]
fn gateway_socket_slow_reader_costs_no_memory() {
    let (_daemon, http) = served();
    let peak = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", http.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: u64 = line
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap();
        kib / 1024
    };
    let mut slow = Page::open(&http, "&agent=chaos");
    let made = slow.ask("session.create", &json!({}));
    let session = made["session_id"].as_str().unwrap();
    slow.submit(session, "chaos:say first");
    slow.event("message.complete");
    let before = peak();
    let flood = json!({"session_id": session, "text": "chaos:flood 20;say last"});
    let request = json!({"jsonrpc": "2.0", "id": 99, "method": "prompt.submit", "params": flood});
    slow.socket
        .send(Message::text(request.to_string()))
        .unwrap();
    let mut other = Page::open(&http, "&agent=chaos");
    wait_for("the turn has ended", || {
        let shown = other.ask("session.list", &json!({}));
        let row = &shown["sessions"][0];
        (row["message_count"].as_u64() >= Some(4)).then_some(())
    });
    let after = peak();
    // Whoever reads it keeps the text so far, for clients that come later.
    assert!(after < before + 20 + 24, "{before} MiB became {after} MiB");
    let complete = slow.event("message.complete");
    assert!(
        complete["text"].as_str().unwrap().ends_with("last"),
        "the end of it"
    );
}

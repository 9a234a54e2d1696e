//! Attempts of strangers: requests to the server on loopback, places that a webhook is to be sent to,
//! and lines that come by a key which may only send.
//!
//! Owns the servers and the receivers. Rows of `http`: `try` is the head, a line each, `body` what
//! follows it, and with `open` the connection could be used for more. Rows of `webhooks`: `add`, `call` or `deliver`, and an address. Rows of `ssh`: `try` is
//! what is sent, `asks` the command that ssh was given, `rules` what the key's line was made with.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::path::Path;

use serde_json::{Value, json};

use crate::catalogue::{Row, none_failed, rows};
use crate::server::{Http, rest};
use crate::support::{AGENTCTL, Daemon, Place, finish, wait_for};

/// No row has a key to plant: this is nowhere.
const NO_KEY: &str = "PLANTED-nowhere";

fn jobs(daemon: &Daemon) -> usize {
    let answer = &daemon.ask(r#"{"type":"jobs","limit":500}"#)[0];
    answer["jobs"].as_array().unwrap().len()
}

fn asked(http: &Http, row: &Row) -> String {
    let body = row.field("body").unwrap_or_default().replace('\n', "\r\n");
    let fill = |text: &str| {
        text.replace("{AT}", &http.at.to_string())
            .replace("{PORT}", &http.at.port().to_string())
            .replace("{TOKEN}", &http.token)
            .replace("{HALF}", &http.token[..32])
            .replace("{UPPER}", &http.token.to_uppercase())
            .replace("{BLANK}", "\r\n\r\n")
            .replace("{LONG}", &"z".repeat(70_000))
            .replace("{MANY}", &"X-Y: z\r\n".repeat(200))
            .replace("{LENGTH}", &body.len().to_string())
    };
    let mut head = fill(&row.tries().replace('\n', "\r\n"));
    let goes_on = row.field("open").is_some();
    if !goes_on {
        head.push_str("\r\nConnection: close");
    }
    let mut stream = http.connect();
    let _refused = stream.write_all(format!("{head}\r\n\r\n{}", fill(&body)).as_bytes());
    if goes_on {
        let _gone = stream.shutdown(Shutdown::Write);
    }
    let said = rest(&mut stream);
    if said.is_empty() {
        return "NOTHING".to_owned();
    }
    said
}

#[test]
fn attacks_by_http_are_refused() {
    let daemon = Daemon::start();
    let http = Http::start(&daemon.place);
    let mut failed = Vec::new();
    for row in rows("http") {
        let said = asked(&http, &row);
        failed.extend(row.judge(row.must(), &said, NO_KEY).err());
        if said.contains("HTTP/1.1 2") || said.contains(&http.token) {
            failed.push(format!("{}: it was answered: {said}", row.name));
        }
        if jobs(&daemon) > 0 {
            none_failed("http", &[format!("{}: there is a job", row.name)]);
        }
    }
    none_failed("http", &failed);
    // The same as it should be.
    let mut stream = http.connect();
    let body = r#"{"prompt":"a"}"#;
    let head = http.head("POST /v1/dispatch?wait=20");
    let lines = "Content-Type: application/json\r\nConnection: close\r\nContent-Length: 14\r\n";
    write!(stream, "{head}{lines}\r\n{body}").unwrap();
    let said = rest(&mut stream);
    assert!(said.starts_with("HTTP/1.1 20"), "{said}");
    assert_eq!(jobs(&daemon), 1);
}

/// Answers each request with this, until the test is over.
fn receiver(answer: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // The whole request is there at once: it is short.
            let _request = stream.read(&mut [0; 64 * 1024]);
            let _gone = stream.write_all(answer.as_bytes());
        }
    });
    port
}

fn delivery(place: &Place, url: &str) -> String {
    let sent = place.agentctl(&["send", "hello", "--callback", url]);
    if sent.code != Some(0) {
        return format!("{sent:?}");
    }
    wait_for("an attempt", || {
        let listed = place.agentctl(&["webhook", "list", "--json"]);
        let listed: Value = serde_json::from_str(&listed.stdout).ok()?;
        let rows = listed["deliveries"].as_array()?;
        let row = rows.iter().find(|row| row["url"] == url)?;
        row["last_at"].is_string().then(|| row.to_string())
    })
}

#[test]
fn attacks_by_webhooks_reach_nobody() {
    let daemon = Daemon::start();
    let place = &daemon.place;
    let trap = TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let trapped = trap.local_addr().unwrap().port();
    let redirects = receiver(format!(
        "HTTP/1.1 307 Go\r\nlocation: http://127.0.0.1:{trapped}/\r\ncontent-length: 0\r\n\r\n"
    ));
    let fill = |text: &str| {
        text.replace("{TRAP}", &trapped.to_string())
            .replace("{REDIRECTS}", &redirects.to_string())
    };
    let mut failed = Vec::new();
    for row in rows("webhooks") {
        let tries = fill(row.tries());
        let (how, url) = tries.split_once(' ').unwrap();
        let (url, more) = match url.strip_prefix("--allow-private ") {
            Some(url) => (url, &["--allow-private"][..]),
            None => (url, &[][..]),
        };
        let said = match how {
            "add" => {
                let added = place.agentctl(&[&["webhook", "add", url][..], more].concat());
                format!("exit {:?}\n{}{}", added.code, added.stdout, added.stderr)
            }
            "call" => {
                let line = json!({"type": "send", "text": "x", "callback": {"url": url}});
                daemon.ask(&line.to_string()).remove(0).to_string()
            }
            "deliver" => {
                let added = place.agentctl(&[&["webhook", "add", url][..], more].concat());
                assert_eq!(added.code, Some(0), "{}: {added:?}", row.name);
                delivery(place, url)
            }
            _ => panic!("{how}"),
        };
        failed.extend(row.judge(row.must(), &said, NO_KEY).err());
        if trap.accept().is_ok() {
            failed.push(format!("{}: somebody was called", row.name));
        }
    }
    none_failed("webhooks", &failed);
    let taken = receiver("HTTP/1.1 204 No Content\r\n\r\n".to_owned());
    let url = format!("http://127.0.0.1:{taken}/hook");
    let added = place.agentctl(&["webhook", "add", &url, "--allow-private"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    let said = delivery(place, &url);
    assert!(said.contains("\"delivered\""), "{said}");
}

/// What the line of a key runs.
fn forced(place: &Place, rules: &str) -> String {
    let file = place.path("voice.pub");
    let key = format!(
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{} voice\n",
        "B".repeat(43)
    );
    std::fs::write(&file, key).unwrap();
    let file = file.to_str().unwrap();
    let mut words = vec!["ssh-key", "voice", "--key", file, "--program", AGENTCTL];
    words.extend(rules.split_whitespace());
    let said = place.agentctl(&words);
    assert_eq!(said.code, Some(0), "{said:?}");
    let (_, behind) = said.stdout.split_once("command=\"").unwrap();
    behind.split_once('"').unwrap().0.to_owned()
}

fn by_key(daemon: &Daemon, row: &Row, planted: &Path) -> String {
    let place = &daemon.place;
    let fill = |text: &str| {
        text.replace("{PLANTED}", planted.to_str().unwrap())
            .replace("{PLACE}", place.dir.path().to_str().unwrap())
            .replace("{AGENTCTL}", AGENTCTL)
    };
    let mut command = place.command("/bin/sh");
    let rules = fill(row.field("rules").unwrap_or_default());
    command.args(["-c", &forced(place, &rules)]);
    if let Some(asks) = row.field("asks") {
        command.env("SSH_ORIGINAL_COMMAND", fill(asks));
    }
    let done = finish(command, format!("{}\n", fill(row.tries())).as_bytes());
    format!("{}{}", done.stdout, done.stderr)
}

#[test]
fn attacks_by_a_sending_key_are_forbidden() {
    let daemon = Daemon::start();
    let planted = daemon.path("planted");
    std::fs::write(&planted, "PLANTED-by-ssh").unwrap();
    std::fs::create_dir(daemon.path("root")).unwrap();
    let mut failed = Vec::new();
    for row in rows("ssh") {
        let said = by_key(&daemon, &row, &planted);
        failed.extend(row.judge(row.must(), &said, "PLANTED-by-ssh").err());
        if said.contains("message_end") || daemon.path("pwned").exists() {
            failed.push(format!("{}: it got through: {said}", row.name));
        }
    }
    none_failed("ssh", &failed);
    assert_eq!(jobs(&daemon), 0);
    assert_eq!(daemon.status()["state"], "ready");
    // What the key is for.
    let allowed = r#"{"type":"send","id":1,"text":"hi","stream":false}"#;
    let mut command = daemon.place.command("/bin/sh");
    command.args(["-c", &forced(&daemon.place, "")]);
    let done = finish(command, format!("{allowed}\n").as_bytes());
    assert!(done.stdout.contains("message_end"), "{done:?}");
}

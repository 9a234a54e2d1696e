//! What is asked badly, by pages, by strangers and by broken programs: nothing of it reaches the
//! daemon, and others are served meanwhile.

use std::io::{Read as _, Write as _};
use std::time::Instant;

use serde_json::json;

use super::{Answer, Http, SOON, jobs, rest, served};
use crate::support::{Daemon, wait_for};

/// A whole dispatch with these lines in its head.
fn dispatch(http: &Http, lines: &str, body: &str) -> String {
    format!(
        "{}{lines}Content-Type: application/json\r\nConnection: close\r\n\r\n{body}",
        http.head("POST /v1/dispatch")
    )
}

#[test]
fn another_host_is_not_answered() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let port = http.at.port();
    for (host, status) in [
        (format!("evil.example:{port}"), 421),
        ("evil.example".to_owned(), 421),
        (format!("127.0.0.1.evil.example:{port}"), 421),
        (format!("0.0.0.0:{port}"), 421),
        (format!("[::ffff:127.0.0.1]:{port}"), 421),
        (format!("127.1:{port}"), 421),
        (format!("localhost.:{port}"), 421),
        ("127.0.0.1".to_owned(), 421),
        (format!("localhost:{port}"), 200),
        (format!("[::1]:{port}"), 200),
    ] {
        let header = format!("Host: {host}");
        let words = [
            "-H",
            &header,
            "-H",
            "Content-Type: application/json",
            "-d",
            r#"{"prompt":"a"}"#,
        ];
        let answer = http.curl("/v1/dispatch?wait=20", &words);
        assert_eq!(answer.status, status, "{host}");
        // Nor is it told that somebody is here.
        assert_eq!(
            http.bare_curl("/health", &words[..2]).status,
            status,
            "{host}"
        );
    }
    assert_eq!(jobs(&daemon), 2);
    let token = format!("Authorization: Bearer {}", http.token);
    let at = http.at;
    for (head, status) in [
        (format!("GET /v1/jobs HTTP/1.1\r\n{token}"), "400"),
        (format!("GET /v1/jobs HTTP/1.0\r\n{token}"), "400"),
        (
            format!("GET /v1/jobs HTTP/1.1\r\nHost: {at}\r\nHost: {at}\r\n{token}"),
            "400",
        ),
        (
            format!("GET http://evil.example/v1/jobs HTTP/1.1\r\nHost: {at}\r\n{token}"),
            "421",
        ),
        (
            format!("GET http://{at}/v1/jobs HTTP/1.1\r\nHost: {at}\r\n{token}"),
            "200",
        ),
    ] {
        let said = http.raw(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes());
        assert_eq!(said.split(' ').nth(1), Some(status), "{head}: {said}");
    }
}

#[test]
fn a_page_can_not_ask() {
    let Some((daemon, http)) = served() else {
        return;
    };
    for header in [
        "Origin: https://evil.example",
        "Origin: null",
        &format!("Origin: http://{}", http.at),
        "Referer: https://evil.example/",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-origin",
    ] {
        let answer = http.post_with("/v1/dispatch", &json!({"prompt": "a"}), &["-H", header]);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (403, "forbidden-origin"),
            "{header}"
        );
        assert_eq!(
            http.bare_curl("/health", &["-H", header]).status,
            403,
            "{header}"
        );
    }
    let preflight = [
        "-X",
        "OPTIONS",
        "-H",
        "Origin: https://evil.example",
        "-H",
        "Access-Control-Request-Method: POST",
    ];
    for words in [&preflight[..], &preflight[..2]] {
        let answer = http.bare_curl("/v1/dispatch", words);
        assert_eq!(answer.status, 403);
        assert!(!answer.head.contains("access-control"), "{answer:?}");
    }
    // What a page can send without asking first.
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        let kind = format!("Content-Type: {kind}");
        let words = ["-H", kind.as_str(), "-d", r#"{"prompt":"a"}"#];
        assert_eq!(http.curl("/v1/dispatch", &words).status, 415, "{kind}");
        assert_eq!(http.bare_curl("/v1/dispatch", &words).status, 415, "{kind}");
    }
    assert_eq!(
        http.curl("/v1/dispatch", &["-H", "Content-Type:", "-d", "{}"])
            .status,
        415
    );
    assert_eq!(jobs(&daemon), 0);
}

#[test]
fn without_the_token_nothing_is_said() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let half = &http.token[..32];
    let upper = http.token.to_uppercase();
    let longer = format!("{}0", http.token);
    for value in ["", "Bearer", "Bearer x", half, &upper, &longer] {
        let bearer = format!("Authorization: Bearer {value}");
        for path in [
            "/v1/jobs",
            "/health/detailed",
            "/metrics",
            "/openapi.json",
            "/nowhere",
        ] {
            let answer = http.bare_curl(path, &["-H", &bearer]);
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (401, "unauthorized"),
                "{path}"
            );
            assert!(answer.head.contains("\r\nwww-authenticate: bearer"));
        }
    }
    let basic = format!("x:{}", http.token);
    assert_eq!(http.bare_curl("/v1/jobs", &["-u", &basic]).status, 401);
    assert_eq!(
        http.bare_curl(&format!("/v1/jobs?token={}", http.token), &[])
            .status,
        401
    );
    let twice = format!("Authorization: Bearer {}", http.token);
    assert_eq!(http.curl("/v1/jobs", &["-H", &twice]).status, 401);
    let health = http.bare_curl("/health", &[]);
    assert_eq!(
        (health.status, health.json()),
        (200, json!({"status": "ok"}))
    );
    assert!(!health.head.contains("\r\nserver:"), "{health:?}");
    assert_eq!(http.bare_curl("/health/", &[]).status, 401);
    // Nor does a stranger keep a connection.
    for (line, status) in [("GET /v1/jobs", 401), ("GET /health", 200)] {
        let said = http.raw(format!("{line} HTTP/1.1\r\nHost: {}\r\n\r\n", http.at).as_bytes());
        let answer = Answer::parse(&said);
        assert_eq!(answer.status, status);
        assert!(answer.head.contains("\r\nconnection: close"), "{said}");
    }
    assert_eq!(jobs(&daemon), 0);
}

#[test]
fn http_body_of_another_shape_is_refused() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let deep = format!("{{\"prompt\":{}{}}}", "[".repeat(70), "]".repeat(70));
    for (body, status, code) in [
        (&b"nonsense"[..], 400, "bad-json"),
        (b"", 400, "bad-json"),
        (b"5", 400, "not-an-object"),
        (br#"{"prompt":"a","prompt":"b"}"#, 400, "bad-json"),
        (
            br#"{"prompt":"a","labels":{"x":"1","\u0078":"2"}}"#,
            400,
            "bad-json",
        ),
        (b"\xef\xbb\xbf{\"prompt\":\"a\"}", 400, "bad-json"),
        (br#"{"prompt":"\ud800"}"#, 400, "bad-json"),
        (deep.as_bytes(), 400, "bad-json"),
        (b"{\"prompt\":\"\xff\"}", 400, "bad-utf8"),
        (br#"{"prompt":"a"}{"prompt":"b"}"#, 400, "bad-json"),
        (br#"{"prompt":"a","sesion":"x"}"#, 422, "invalid-request"),
        (br#"{"prompt":"a","text":"b"}"#, 422, "invalid-request"),
        (br#"{"prompt":" "}"#, 422, "invalid-request"),
        (br#"{"prompt":"a","cwd":"../x"}"#, 422, "invalid-request"),
        (br#"{"prompt":"a","agent":"-x"}"#, 422, "invalid-request"),
        (
            br#"{"prompt":"a","job":"j1","native":"x"}"#,
            422,
            "invalid-request",
        ),
        (
            br#"{"type":"daemon.stop","prompt":"a"}"#,
            422,
            "invalid-request",
        ),
    ] {
        let lines = format!("Content-Length: {}\r\n", body.len());
        let mut request = dispatch(&http, &lines, "").into_bytes();
        request.extend_from_slice(body);
        let answer = Answer::parse(&http.raw(&request));
        let shown = String::from_utf8_lossy(body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (status, code),
            "{shown}: {answer:?}"
        );
    }
    assert_eq!(jobs(&daemon), 0);
}

#[test]
fn http_path_or_query_misshapen_is_refused() {
    let Some((daemon, http)) = served() else {
        return;
    };
    for path in [
        "/v1/jobs?colour=red",
        "/v1/jobs?limit=501",
        "/v1/jobs?state=lost",
        "/v1/jobs?since=nan",
        "/v1/jobs?since=inf",
        "/v1/jobs?since=-1",
        "/v1/jobs/j1?wait=301",
    ] {
        let answer = http.curl(path, &[]);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (422, "invalid-request"),
            "{path}"
        );
    }
    let answer = http.curl("/v1/dispatch", &[]);
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (405, "unknown-method")
    );
    assert!(answer.head.contains("\r\nallow: post"), "{answer:?}");
    for path in [
        "/",
        "/v1",
        "/v1/jobs/",
        "//v1/jobs",
        "/v1/jobs/../jobs",
        "/v1/jobs/%2e%2e",
    ] {
        assert_eq!(http.curl(path, &["--path-as-is"]).status, 404, "{path}");
    }
    for (path, code) in [
        ("/v1/jobs/%ff", "unknown-job"),
        ("/v1/jobs/%ff/events", "unknown-job"),
    ] {
        let answer = http.curl(path, &[]);
        assert_eq!((answer.status, answer.code().as_str()), (404, code));
    }
    for (path, code) in [
        ("/v1/jobs/%ff/abort", "unknown-job"),
        ("/v1/questions/%ff", "unknown-question"),
    ] {
        let answer = http.post(path, &json!({}));
        assert_eq!((answer.status, answer.code().as_str()), (404, code));
    }
    assert_eq!(jobs(&daemon), 0);
}

#[test]
fn http_body_too_long_is_not_read() {
    let Some((daemon, http)) = served() else {
        return;
    };
    const MOST: usize = 16 * 1024 * 1024 - 64 * 1024;
    let turn = r#"{"prompt":"a"}"#;
    let padded = |length: usize| {
        let mut body = turn.as_bytes().to_vec();
        body.resize(length, b' ');
        body
    };
    for (length, status) in [(MOST, 200), (MOST + 1, 413)] {
        let file = daemon.path("body");
        std::fs::write(&file, padded(length)).unwrap();
        let data = format!("@{}", file.display());
        let words = [
            "-H",
            "Content-Type: application/json",
            "--data-binary",
            &data,
        ];
        assert_eq!(
            http.curl("/v1/dispatch?wait=20", &words).status,
            status,
            "{length}"
        );
    }
    // 100 MB are announced and none comes: the answer doesn't wait for them.
    let said = http.raw(dispatch(&http, "Content-Length: 104857600\r\n", "").as_bytes());
    let answer = Answer::parse(&said);
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (413, "frame-too-long")
    );
    // Whoever sends all the same hears it, and no broken pipe.
    let long = " ".repeat(MOST + 4 * 1024 * 1024);
    let length = format!("Content-Length: {}\r\n", long.len());
    let said = http.raw(dispatch(&http, &length, &long).as_bytes());
    assert_eq!(Answer::parse(&said).status, 413);
    let most = format!("Content-Length: {}\r\n", u64::MAX);
    let said = http.raw(dispatch(&http, &most, "").as_bytes());
    assert!(said.starts_with("HTTP/1.1 4"), "{said}");
    // Without a length, 1 MiB.
    for (length, status) in [(1024 * 1024, 200), (1024 * 1024 + 1, 413)] {
        let mut request = dispatch(&http, "Transfer-Encoding: chunked\r\n", "").into_bytes();
        for chunk in padded(length).chunks(4096) {
            request.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
            request.extend(chunk);
            request.extend(b"\r\n");
        }
        request.extend(b"0\r\n\r\n");
        let request = String::from_utf8(request).unwrap();
        let request = request.replace("/v1/dispatch ", "/v1/dispatch?wait=20 ");
        let said = http.raw(request.as_bytes());
        assert_eq!(Answer::parse(&said).status, status, "{length}");
    }
    assert_eq!(jobs(&daemon), 2);
}

/// Lengths that lie: lines of a head, a body, and whether the first request may be accepted. `LEN` is
/// the turn's length, `TURN` the turn, `CHUNKED` the same as one chunk and the end.
const LIES: &[(&str, &str, bool)] = &[
    // Both lengths: chunks count, and the connection ends.
    (
        "Content-Length: LEN\r\nTransfer-Encoding: chunked",
        "CHUNKED",
        true,
    ),
    (
        "Transfer-Encoding: chunked\r\nContent-Length: LEN",
        "CHUNKED",
        true,
    ),
    (
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        "CHUNKED",
        true,
    ),
    // Two lengths, or none that is one.
    ("Content-Length: LEN\r\nContent-Length: 0", "TURN", false),
    ("Content-Length: LEN, 0", "TURN", false),
    ("Content-Length: +LEN", "TURN", false),
    ("Content-Length: -1", "TURN", false),
    ("Content-Length: 0x12", "TURN", false),
    ("Content-Length : LEN", "TURN", false),
    (" Content-Length: LEN", "TURN", false),
    ("X: a\0b\r\nContent-Length: 0", "", false),
    // Chunks that aren't.
    ("Transfer-Encoding: xchunked", "CHUNKED", false),
    ("Transfer-Encoding: chunked, identity", "CHUNKED", false),
    ("Transfer-Encoding : chunked", "CHUNKED", false),
    (
        "Transfer-Encoding: chunked",
        "zz\r\nTURN\r\n0\r\n\r\n",
        false,
    ),
    (
        "Transfer-Encoding: chunked",
        "-1\r\nTURN\r\n0\r\n\r\n",
        false,
    ),
    (
        "Transfer-Encoding: chunked",
        "2\r\nTURN\r\n0\r\n\r\n",
        false,
    ),
    (
        "Transfer-Encoding: chunked",
        "ffffffffffffffff1\r\nTURN\r\n0\r\n\r\n",
        false,
    ),
];

#[test]
fn what_lies_about_its_length_smuggles_nothing() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let turn = r#"{"prompt":"first"}"#;
    let length = turn.len();
    let filled = |text: &str| {
        text.replace("CHUNKED", &format!("{length:x}\r\nTURN\r\n0\r\n\r\n"))
            .replace("TURN", turn)
            .replace("LEN", &length.to_string())
    };
    let body = r#"{"prompt":"smuggled"}"#;
    let hidden = dispatch(&http, &format!("Content-Length: {}\r\n", body.len()), body);
    let mut accepted = 0;
    for (lines, body, may) in LIES {
        // Kept open, so that what follows could be taken for a request.
        let first = dispatch(&http, &filled(&format!("{lines}\r\n")), &filled(body));
        let first = first.replace("Connection: close\r\n", "");
        let said = http.raw_and_no_more(format!("{first}{hidden}").as_bytes());
        assert!(said.matches("HTTP/1.1 ").count() <= 1, "{lines:?}: {said}");
        let found = said.matches("HTTP/1.1 202").count();
        assert!(found <= usize::from(*may), "{lines:?}: {said}");
        accepted += found;
    }
    assert_eq!((jobs(&daemon), accepted), (3, 3));
    let all = daemon.ask(r#"{"type":"jobs","limit":500}"#)[0].to_string();
    assert!(!all.contains("smuggled"), "{all}");
    // A body that is shorter than it said, and one that breaks off.
    for (lines, body) in [
        ("Content-Length: 100\r\n", "TURN"),
        ("Transfer-Encoding: chunked\r\n", "12\r\nTURN\r\n"),
    ] {
        let said = http.raw_and_no_more(dispatch(&http, lines, &filled(body)).as_bytes());
        assert!(!said.contains("HTTP/1.1 2"), "{said}");
    }
    assert_eq!(jobs(&daemon), accepted);
}

#[test]
fn requests_on_one_connection_are_answered_in_order() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let one = http.head("GET /v1/jobs/j7") + "\r\n";
    let two = http.head("GET /openapi.json") + "\r\n";
    let three = http.head("GET /v1/jobs") + "Connection: close\r\n\r\n";
    let said = http.raw(format!("{one}{two}{three}").as_bytes());
    let at = |text: &str| said.find(text).unwrap_or_else(|| panic!("{text}: {said}"));
    assert!(at("unknown-job") < at(r#"{"openapi":"#));
    assert!(at(r#"{"openapi":"#) < at(r#"{"jobs":[]}"#));
}

#[test]
fn http_head_too_long_or_unending_is_cut() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let many = "X-Y: z\r\n".repeat(200);
    let long = format!("X-Y: {}\r\n", "z".repeat(70_000 - 200));
    let longer = format!("X-Y: {}\r\n", "z".repeat(256 * 1024));
    let target = "z".repeat(70_000);
    for (line, lines, status, code) in [
        ("GET /v1/jobs", &many, 431, "long-head"),
        ("GET /v1/jobs", &long, 431, "long-head"),
        ("GET /v1/jobs", &longer, 431, "long-head"),
        (&format!("GET /{target}"), &String::new(), 414, "long-line"),
    ] {
        let said = http.raw(format!("{}{lines}\r\n", http.head(line)).as_bytes());
        let answer = Answer::parse(&said);
        assert_eq!((answer.status, answer.code().as_str()), (status, code));
        assert!(answer.head.contains("\r\nconnection: close"), "{said}");
    }
    // Behind another request, too.
    let first = http.head("GET /v1/jobs") + "\r\n";
    let second = format!("{}{long}\r\n", http.head("GET /v1/jobs"));
    let said = http.raw(format!("{first}{second}").as_bytes());
    let (_, second) = said.rsplit_once("HTTP/1.1 ").unwrap();
    assert!(second.starts_with("431 "), "{said}");
    assert!(second.contains("long-head"), "{said}");
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"\r\n\r\n\r\n\0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let said = http.raw_and_no_more(garbage);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    }
    // Byte by byte, more slowly than the time there is.
    let begun = Instant::now();
    let mut slow = http.connect();
    slow.write_all(b"GET /v1/jobs HTTP/1.1\r\nHost: ").unwrap();
    slow.set_read_timeout(Some(std::time::Duration::from_millis(200)))
        .unwrap();
    let ended = wait_for("the slow one is cut off", || {
        let _gone = slow.write_all(b"1");
        let mut byte = [0];
        match slow.read(&mut byte) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
            read => {
                assert_eq!(read.unwrap(), 1, "it is told why");
                Some(begun.elapsed())
            }
        }
    });
    let said = format!("H{}", rest(&mut slow));
    assert_eq!(Answer::parse(&said).code(), "late-head");
    assert!(
        ended > SOON - std::time::Duration::from_secs(1),
        "{ended:?}"
    );
    assert_eq!(http.curl("/v1/jobs", &[]).status, 200);
}

#[test]
fn http_with_every_place_in_use_refuses() {
    let Some((daemon, http)) = served() else {
        return;
    };
    // Each has shown the token, and waits.
    let job = http
        .post("/v1/dispatch", &json!({"prompt": "a [[sleep 600000]]"}))
        .json()["jobs"][0]["job"]
        .clone();
    let asked = http.head(&format!("GET /v1/jobs/{}?wait=60", job.as_str().unwrap())) + "\r\n";
    let taken: Vec<_> = (0..256)
        .map(|_| {
            let mut stream = http.connect();
            stream.write_all(asked.as_bytes()).unwrap();
            stream
        })
        .collect();
    let answer = wait_for("one is refused", || {
        let mut stream = http.connect();
        let request = http.head("GET /health") + "Connection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).ok()?;
        let answer = Answer::parse(&rest(&mut stream));
        (answer.status == 503).then_some(answer)
    });
    assert_eq!(answer.code(), "too-many-connections");
    assert_eq!(daemon.status()["ok"], true);
    drop(taken);
    wait_for("there is room again", || {
        let mut stream = http.connect();
        let request = http.head("GET /health") + "Connection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).ok()?;
        rest(&mut stream).starts_with("HTTP/1.1 200").then_some(())
    });
}

#[test]
fn the_daemon_itself_listens_on_no_network() {
    let daemon = Daemon::start();
    let inodes: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid()))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|link| {
            let link = link.to_str()?.to_owned();
            Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    assert!(!inodes.is_empty());
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{}/net/{table}", daemon.pid()))
        else {
            continue;
        };
        for line in text.lines().skip(1) {
            let inode = line.split_whitespace().nth(9).unwrap().to_owned();
            assert!(!inodes.contains(&inode), "{table}: {line}");
        }
    }
}

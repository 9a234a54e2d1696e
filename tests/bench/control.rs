//! What the product is compared with: the least that does anything like it.
//!
//! Owns the helper processes and the bare echo. Must not know the product.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

/// Bytes read at once, as the daemon does.
const BUFFER: usize = 4096;

/// A tokio server over a SQLite file with one table; it says every byte back.
pub(crate) fn serve(socket: &str) -> ExitCode {
    raise_file_limit();
    let _stale = std::fs::remove_file(socket);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = UnixListener::bind(socket).unwrap();
        let store = rusqlite::Connection::open(format!("{socket}.db")).unwrap();
        store
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                 CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, text TEXT);",
            )
            .unwrap();
        echo(listener).await;
    });
    ExitCode::SUCCESS
}

/// Says every byte of every connection back.
async fn echo(listener: UnixListener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut buffer = vec![0; BUFFER];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..read]).await.is_err() {
                    break;
                }
            }
        });
    }
}

/// A piece of a flooding turn.
pub(crate) const DELTA: &str = "a dozen words or so that a model gives in one piece at a time ";

/// A worker whose turns have so many deltas.
pub(crate) fn flood(deltas: usize) -> ExitCode {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lines() {
        let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        if line["type"] == "send" {
            writeln!(out, r#"{{"type":"message_start","id":{}}}"#, line["id"]).unwrap();
            for _ in 0..deltas {
                let delta = r#"{"type":"message_delta","text":""#;
                writeln!(out, r#"{delta}{DELTA}","id":{}}}"#, line["id"]).unwrap();
            }
            writeln!(
                out,
                r#"{{"type":"message_end","id":{},"stop":"end_turn"}}"#,
                line["id"]
            )
            .unwrap();
        } else {
            writeln!(out, r#"{{"type":"status","id":{},"ok":true}}"#, line["id"]).unwrap();
        }
        out.flush().unwrap();
    }
    ExitCode::SUCCESS
}

/// The least that acknowledges requests durably: a line is read for what it says, a row like that
/// of a job is written, as many as are there in one commit, and each is answered by its id.
pub(crate) fn write(socket: &str) -> ExitCode {
    raise_file_limit();
    let _stale = std::fs::remove_file(socket);
    let (orders, received) = std::sync::mpsc::channel();
    let file = format!("{socket}.db");
    std::thread::spawn(move || commit(&file, &received));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = UnixListener::bind(socket).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(acknowledge(stream, orders.clone()));
        }
    });
    ExitCode::SUCCESS
}

/// What is asked for.
#[derive(serde::Deserialize, serde::Serialize)]
struct Asked {
    #[serde(default)]
    id: u64,
    #[serde(default)]
    text: String,
    #[serde(default)]
    session: String,
}

/// A row to be written, and where to say so.
type Row = (Asked, tokio::sync::mpsc::UnboundedSender<String>);

async fn acknowledge(stream: tokio::net::UnixStream, orders: std::sync::mpsc::Sender<Row>) {
    let (reader, mut writer) = stream.into_split();
    let (answers, mut answered) = tokio::sync::mpsc::unbounded_channel::<String>();
    tokio::spawn(async move {
        while let Some(mut answer) = answered.recv().await {
            // What is there goes in one write, as the daemon does.
            while let Ok(next) = answered.try_recv() {
                answer.push_str(&next);
            }
            if writer.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(reader));
    while let Ok(Some(line)) = lines.next_line().await {
        let asked = serde_json::from_str(&line).unwrap();
        orders.send((asked, answers.clone())).unwrap();
    }
}

/// A job's columns that a new one fills, and the indexes it enters.
const TABLE: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS jobs (job INTEGER PRIMARY KEY, seq INTEGER NOT NULL UNIQUE,
        session TEXT NOT NULL, state TEXT NOT NULL, attempt INTEGER NOT NULL,
        instance TEXT NOT NULL, accepted_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
        boot TEXT, expires_boot INTEGER, request TEXT NOT NULL, final_seq INTEGER) STRICT;
    CREATE INDEX IF NOT EXISTS unfinished ON jobs (session) WHERE final_seq IS NULL;";

fn commit(file: &str, received: &std::sync::mpsc::Receiver<Row>) {
    let store = rusqlite::Connection::open(file).unwrap();
    store.execute_batch(TABLE).unwrap();
    let mut insert = store
        .prepare(
            "INSERT INTO jobs (seq, session, state, attempt, instance, accepted_at, expires_at,
                boot, expires_boot, request)
             VALUES ((SELECT coalesce(max(seq), 0) + 1 FROM jobs), ?1, 'queued', 0,
                'an-instance', 1767225600000, 1767312000000,
                '00000000-0000-0000-0000-000000000000', 86400000, ?2)",
        )
        .unwrap();
    while let Ok(first) = received.recv() {
        let mut batch = vec![first];
        batch.extend(received.try_iter().take(1023));
        store.execute_batch("BEGIN IMMEDIATE").unwrap();
        let row = |(asked, answers): Row| {
            let request = serde_json::to_string(&asked).unwrap();
            insert.execute([&asked.session, &request]).unwrap();
            let (id, session, job) = (asked.id, asked.session, store.last_insert_rowid());
            let jobs = format!(r#"[{{"job":"{job}","session":"{session}","replayed":false}}]"#);
            let answer = format!(r#"{{"type":"dispatch","id":{id},"ok":true,"jobs":{jobs}}}"#);
            (answer + "\n", answers)
        };
        let answers: Vec<_> = batch.into_iter().map(row).collect();
        store.execute_batch("COMMIT").unwrap();
        for (answer, answers) in answers {
            let _gone = answers.send(answer);
        }
    }
}

/// Opens connections, each of which says hello, tells when all are there, and holds them until its
/// input ends.
pub(crate) fn connect(socket: &str, count: usize) -> ExitCode {
    raise_file_limit();
    let connect = |_| {
        let mut stream = UnixStream::connect(Path::new(socket)).unwrap();
        stream
            .write_all(b"{\"type\":\"hello\",\"client\":\"bench\"}\n")
            .unwrap();
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).unwrap();
        assert!(answer.contains("hello"), "{answer}");
        stream
    };
    let connections: Vec<UnixStream> = (0..count).map(connect).collect();
    println!("ready");
    let _end = std::io::stdin().read_to_end(&mut Vec::new());
    drop(connections);
    ExitCode::SUCCESS
}

fn raise_file_limit() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
}

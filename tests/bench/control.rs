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
pub(crate) async fn echo(listener: UnixListener) {
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

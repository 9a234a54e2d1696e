//! Who is told of ends: a receiver of webhooks that takes them, refuses them, or never answers.
//!
//! Owns its port and what it answers, which a seed decides. Must not know what is right.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::history::Told;
use crate::random::Random;
use crate::record::{Record, held};

/// How often whoever holds a connection looks whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Listens until this program ends; gives the URL.
pub(crate) fn start(record: &Arc<Record>, random: Random) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its own address").port();
    let (record, random) = (Arc::clone(record), Arc::new(Mutex::new(random)));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (record, random) = (Arc::clone(&record), Arc::clone(&random));
            // A daemon that is killed leaves half a request.
            std::thread::spawn(move || drop(receive(stream, &record, &random)));
        }
    });
    format!("http://127.0.0.1:{port}/hook")
}

fn receive(mut stream: TcpStream, record: &Record, random: &Mutex<Random>) -> io::Result<()> {
    let (headers, body) = read(&stream)?;
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let word = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let told = Told {
        id: headers.get("webhook-id").cloned().unwrap_or_default(),
        job: word(&body["data"]["job"]),
        state: word(&body["data"]["state"]),
        seq: body["data"]["seq"].as_u64().unwrap_or(0),
    };
    record.with(|history| history.told.push(told));
    let answer = if record.is_stopping() {
        0
    } else {
        held(random).below(100)
    };
    match answer {
        0..75 => stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n"),
        75..95 => stream.write_all(b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n"),
        // The daemon hears nothing, until it is killed or everything is over.
        _ => {
            stream.set_read_timeout(Some(LOOK_EVERY))?;
            while !record.is_stopping() && is_there(&mut stream) {}
            Ok(())
        }
    }
}

fn is_there(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(read) => read > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// One request: its headers by their small names, and its body.
fn read(stream: &TcpStream) -> io::Result<(BTreeMap<String, String>, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let mut headers = BTreeMap::new();
    reader.read_line(&mut String::new())?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length");
    let length = length.and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((headers, body))
}

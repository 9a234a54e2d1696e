//! A daemon for tests of the library: it answers `hello`, then each request with the next line of
//! its script, leaves when there is none, and gives back what it was asked.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use crate::client::{Attended, Client, Options};
use crate::fallback::Fallback;
use crate::oneshot::Asks;

const HELLO: &str = r#"{"type":"hello","id":0,"ok":true,"server":"agentd","version":"0.1.0","protocol":1,"epoch":"e","pid":1,"uid":1,"capabilities":[],"limits":{"line_in":1,"line_out":1,"in_flight":1}}"#;

pub(crate) struct Scripted {
    answers: Vec<String>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test waits for its daemon by itself"
)]
fn spawn(served: impl Future<Output = Vec<Value>> + Send + 'static) -> JoinHandle<Vec<Value>> {
    tokio::spawn(served)
}

impl Scripted {
    /// Each line gets the `id` of the request that it answers.
    pub(crate) fn new(answers: &[&str]) -> Self {
        Self {
            answers: answers.iter().map(|line| (*line).to_owned()).collect(),
        }
    }

    pub(crate) async fn connect(self) -> (Client, JoinHandle<Vec<Value>>) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let served = spawn(self.serve(listener));
        let options = Options {
            socket: Some(socket),
            fallback: Fallback::Forbidden,
            name: "test".to_owned(),
            attended: Attended::No,
            asks: Asks::Anything,
        };
        let client = Client::connect_or_oneshot(options).await.unwrap();
        (client, served)
    }

    async fn serve(self, listener: UnixListener) -> Vec<Value> {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut asked = Vec::new();
        let mut answers = self.answers.into_iter();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        let hello = format!("{HELLO}\n");
        stream.write_all(hello.as_bytes()).await.unwrap();
        loop {
            line.clear();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return asked;
            }
            let request: Value = serde_json::from_str(&line).unwrap();
            let id = request["id"].clone();
            asked.push(request);
            let Some(answer) = answers.next() else {
                return asked;
            };
            let mut answer: Value = serde_json::from_str(&answer).unwrap();
            answer["id"] = id;
            let answer = format!("{answer}\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }
}

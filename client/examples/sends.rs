//! Sends as the Rust client makes them, for whoever compares: one for each line of standard input,
//! on one connection. Prints how many microseconds each took.
//!
//! Owns nothing but this. Must not know who compares.

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::time::Instant;

use agentd_client::fallback::Fallback;
use agentd_client::{Asks, Attended, Client, Options};
use agentd_protocol::request::Send;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args_os().nth(1).ok_or("expected: sends SOCKET")?;
    let options = Options {
        socket: Some(socket.into()),
        fallback: Fallback::Forbidden,
        name: "sends".to_owned(),
        attended: Attended::No,
        asks: Asks::Anything,
    };
    let mut client = Client::connect_or_oneshot(options).await?;
    let send = Send {
        text: "hi".to_owned(),
        session: Some("rust".to_owned()),
        stream: Some(false),
        ..Send::default()
    };
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let _go = line?;
        let begun = Instant::now();
        let (id, mut received) = client.send(&send).await?;
        while !(received.answers(id) && received.ends_turn()) {
            received = client.next().await?;
        }
        writeln!(output, "{}", begun.elapsed().as_micros())?;
        output.flush()?;
    }
    Ok(())
}

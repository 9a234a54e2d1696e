//! What every wire has to do alike.

use super::*;
use crate::message::CallArguments;
use crate::model::{FailedAt, Stop, Usage};

#[tokio::test]
async fn text_comes_piecewise_and_whole_on_each_wire() {
    let mock = MockModel::start();
    for wire in WIRES {
        let (reply, pieces) = hear(&models(), &says(&mock, wire, "[[deltas=3]]")).await;
        let reply = reply.unwrap();
        let words = ["w0 ", "w1 ", "w2 "].map(|word| Piece::Text(word.to_owned()));
        assert_eq!(pieces, words, "{wire:?}");
        assert_eq!(reply.message.text, "w0 w1 w2 ", "{wire:?}");
        assert_eq!(reply.stop, Stop::EndTurn, "{wire:?}");
        assert_eq!(reply.message.provider, "env");
        assert_eq!(reply.message.model, model(wire));
    }
}

#[tokio::test]
async fn tokens_are_counted_with_the_cached_ones() {
    let mock = MockModel::start();
    for wire in WIRES {
        let reply = ask(&says(&mock, wire, "hi")).await.unwrap();
        let expected = match wire {
            // It counts what was cached apart, and what was written.
            Wire::Anthropic => Usage {
                input: 19,
                cache_read: 5,
                cache_write: 2,
                output: 3,
                reasoning: 0,
            },
            Wire::Ollama => Usage {
                reasoning: 0,
                ..PLAIN
            },
            _ => PLAIN,
        };
        assert_eq!(reply.usage, expected, "{wire:?}");
    }
}

const PLAIN: Usage = Usage {
    input: 12,
    cache_read: 5,
    cache_write: 0,
    output: 3,
    reasoning: 1,
};

#[tokio::test]
async fn calls_of_one_reply_return_on_each_wire() {
    let mock = MockModel::start();
    for wire in WIRES {
        let text = r#"[[use read {"path":"a"}]] [[use read {"path":"b"}]]"#;
        let mut request = says(&mock, wire, text);
        request.tools = Arc::from([tool("read")]);
        let reply = ask(&request).await.unwrap();
        assert_eq!(reply.stop, Stop::ToolUse, "{wire:?}");
        let calls = &reply.message.calls;
        let paths: Vec<&CallArguments> = calls.iter().map(|call| &call.arguments).collect();
        let path = |path| CallArguments::Object(json!({"path": path}).as_object().unwrap().clone());
        assert_eq!(paths, [&path("a"), &path("b")], "{wire:?}");
        assert_ne!(calls[0].id, calls[1].id, "{wire:?}");

        request
            .messages
            .push(Message::Assistant(reply.message.clone()));
        for (call, said) in calls.iter().zip(["one", "two"]) {
            request.messages.push(result(&call.id, &call.name, said));
        }
        let reply = ask(&request).await.unwrap();
        assert!(
            reply.message.text.starts_with("tool said: "),
            "{wire:?}: {reply:?}"
        );
        let sent = body(&mock).to_string();
        for said in ["one", "two"] {
            assert!(sent.contains(said), "{wire:?} lost {said}: {sent}");
        }
        assert!(sent.contains("Be brief."), "{wire:?}");
        assert!(
            mock.asked()
                .pop()
                .unwrap()
                .tools
                .contains(&"read".to_owned())
        );
    }
}

#[tokio::test]
async fn reasoning_is_told_apart_from_the_answer() {
    let mock = MockModel::start();
    for wire in WIRES {
        let mut request = says(&mock, wire, "hi [[think]]");
        request.thinking = Some(Thinking::High);
        let (reply, pieces) = hear(&models(), &request).await;
        let reply = reply.unwrap();
        let thought = ["let me ", "see"].map(|word| Piece::Thinking(word.to_owned()));
        assert_eq!(pieces[..2], thought, "{wire:?}");
        let told = reply
            .message
            .thoughts
            .iter()
            .filter_map(|thought| thought.text.as_deref());
        assert_eq!(told.collect::<String>(), "let me see", "{wire:?}");
        assert!(reply.message.text.starts_with("echo: "), "{wire:?}");
    }
}

#[tokio::test]
async fn key_goes_in_a_header_not_an_address() {
    let mock = MockModel::start();
    for wire in WIRES {
        ask(&says(&mock, wire, "hi")).await.unwrap();
        let asked = mock.asked().pop().unwrap();
        assert!(!asked.path.contains(KEY), "{}", asked.path);
        let header = match wire {
            Wire::Anthropic => "x-api-key",
            Wire::Gemini => "x-goog-api-key",
            _ => "authorization",
        };
        assert!(asked.header(header).unwrap().ends_with(KEY), "{wire:?}");
        assert_eq!(asked.header("user-agent"), Some(crate::model::http::AGENT));
    }
    let mut request = says(&mock, Wire::Anthropic, "hi");
    request.target.key = Some(Key::bearer("a-token-of-anthropic".to_owned()));
    ask(&request).await.unwrap();
    let asked = mock.asked().pop().unwrap();
    assert_eq!(
        asked.header("authorization"),
        Some("Bearer a-token-of-anthropic")
    );
    assert_eq!(asked.header("x-api-key"), None);
}

#[tokio::test]
async fn a_local_server_is_asked_without_a_key() {
    let mock = MockModel::start();
    for wire in [Wire::OpenAi, Wire::Ollama] {
        let mut request = says(&mock, wire, "hi");
        request.target.key = None;
        ask(&request).await.unwrap();
        assert_eq!(mock.asked().pop().unwrap().header("authorization"), None);
    }
}

#[tokio::test]
async fn leaving_the_question_closes_the_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    for wire in WIRES {
        let mut request = at(base.clone(), wire, model(wire));
        request.messages.push(user("hi"));
        let models = models();
        let (pieces, _heard) = mpsc::channel(ROOM);
        let mut asking = models.ask(&request, &pieces);
        let accept = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            let mut first = [0; 16];
            stream.read_exact(&mut first).await.unwrap();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: here\n\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            stream
        };
        let mut stream = tokio::select! {
            stream = accept => stream,
            done = &mut asking => panic!("{wire:?} ended: {done:?}"),
        };
        drop(asking);
        // To its end: the request itself, and then nothing more.
        let mut rest = Vec::new();
        let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest);
        let closed = tokio::time::timeout(SOON, read).await;
        assert!(closed.is_ok(), "{wire:?}: the connection stayed open");
    }
}

#[tokio::test]
async fn model_that_stops_or_never_begins_is_dropped() {
    let mock = MockModel::start();
    let impatient = patient(Duration::from_millis(150));
    for wire in WIRES {
        for (text, words) in [
            ("[[hang]]", "stopped in the middle"),
            ("[[silent]]", "didn't begin to answer"),
        ] {
            let (outcome, _) = hear(&impatient, &says(&mock, wire, text)).await;
            let failure = outcome.unwrap_err();
            assert_eq!(
                failure.at,
                FailedAt::TimedOut,
                "{wire:?} {text}: {failure:?}"
            );
            assert!(failure.text.contains(words), "{wire:?}: {}", failure.text);
        }
    }
}

#[tokio::test]
async fn a_broken_connection_is_not_an_answer() {
    let mock = MockModel::start();
    for wire in WIRES {
        let failure = ask(&says(&mock, wire, "[[cut]]")).await.unwrap_err();
        assert_eq!(failure.at, FailedAt::Transport, "{wire:?}: {failure:?}");
    }
}

#[tokio::test]
async fn nobody_listening_is_known_from_a_broken_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let mut request = at(base, Wire::OpenAi, "mock-1");
    request.messages.push(user("hi"));
    let failure = ask(&request).await.unwrap_err();
    assert_eq!(failure.at, FailedAt::Refused, "{failure:?}");
}

#[tokio::test]
async fn base_url_that_is_none_says_what_fits() {
    let request = at("not a url".to_owned(), Wire::OpenAi, "mock-1");
    let failure = ask(&request).await.unwrap_err();
    assert_eq!(failure.at, FailedAt::Request);
    assert!(failure.text.contains("not a url") && failure.text.contains("https://example.com/v1"));
}

#[tokio::test]
async fn a_redirect_to_another_server_is_not_followed() {
    let elsewhere = MockModel::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let to = format!("{}/chat/completions", elsewhere.url);
    let server = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = listener.accept().unwrap();
        let _some = stream.read(&mut [0; 4096]).unwrap();
        let head = format!("HTTP/1.1 307 Elsewhere\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
    });
    let mut request = at(base, Wire::OpenAi, "mock-1");
    request.messages.push(user("hi"));
    let failure = ask(&request).await.unwrap_err();
    server.join().unwrap();
    assert_eq!(failure.at, FailedAt::Status(307), "{failure:?}");
    assert!(
        elsewhere.asked().is_empty(),
        "the key went to somebody else"
    );
}

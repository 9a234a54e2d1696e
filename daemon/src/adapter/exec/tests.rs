//! What the `exec` translator must do.

use agentd_core::worker::Prompt;
use proptest::prelude::*;

use super::*;
use crate::adapter::testing;

fn spawn(text: &str) -> Spawn {
    Spawn {
        agent: "say".into(),
        session: Some("main".into()),
        resume: Some("main".into()),
        prompt: Some(Box::new(Prompt {
            model: Some("m".into()),
            ..testing::turn(7, text)
        })),
        ..testing::spawn()
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Everything told of a process that printed these portions: its text, and its final word.
fn run(portions: &[&[u8]], exit: Exit, tail: &str) -> (String, Outcome) {
    let mut exec = Exec::new(&spawn("hi"));
    let (mut events, mut write) = (Vec::new(), Vec::new());
    for portion in portions {
        exec.decode(portion, &mut events, &mut write);
        assert!(exec.undecoded.len() < 4);
        assert!(exec.beyond.len() <= 2 * TAIL);
    }
    exec.exited(exit, tail, &mut events);
    assert!(write.is_empty());
    let Some(WorkerEvent::Ended { outcome, .. }) = events.pop() else {
        panic!("no final word");
    };
    let is_cut = |event: &WorkerEvent| {
        matches!(
            event,
            WorkerEvent::Noted {
                code: "text-cut",
                ..
            }
        )
    };
    let cut = events.iter().any(is_cut);
    assert_eq!(cut, outcome.result == Ok(Stop::MaxTokens));
    events.retain(|event| !matches!(event, WorkerEvent::Skipped { .. }) && !is_cut(event));
    let text = events.iter().map(|event| match event {
        WorkerEvent::Text {
            text, native: true, ..
        } => text.as_str(),
        other => panic!("{other:?}"),
    });
    (text.collect(), *outcome)
}

#[test]
fn exec_that_prints_nothing_says_its_errors() {
    let noted = |portions: &[&[u8]], exit, tail| {
        let mut exec = Exec::new(&spawn("hi"));
        let (mut events, mut write) = (Vec::new(), Vec::new());
        for portion in portions {
            exec.decode(portion, &mut events, &mut write);
        }
        exec.exited(exit, tail, &mut events);
        events.into_iter().find_map(|event| match event {
            WorkerEvent::Noted { code, text, .. } => Some((code, text)),
            _ => None,
        })
    };
    let (code, text) = noted(&[], Exit::Code(0), " only this\n").unwrap();
    assert_eq!(code, "no-text");
    assert!(text.ends_with("it said: only this"), "{text}");
    assert_eq!(noted(&[], Exit::Code(0), "\n"), None);
    assert_eq!(noted(&[b"text"], Exit::Code(0), "more"), None);
    assert_eq!(noted(&[], Exit::Code(1), "why"), None);
}

#[test]
fn placeholders_are_filled_once_without_a_shell() {
    let command = strings(&[
        "/bin/{cwd}",
        "-p",
        "<{prompt}>",
        "{session}{model}{cwd}",
        "{x}{",
        "a b",
    ]);
    let launch = launch(&command, &spawn("{model} $(rm -rf)"));
    assert_eq!(
        launch.argv,
        strings(&[
            "/bin/{cwd}",
            "-p",
            "<{model} $(rm -rf)>",
            "mainm/w",
            "{x}{",
            "a b"
        ])
    );
    assert_eq!(launch.stdin, Some(Vec::new()));
}

#[test]
fn prompt_without_a_placeholder_is_standard_input() {
    let launch = launch(&strings(&["/bin/cat"]), &spawn("hi"));
    assert_eq!(launch.argv, strings(&["/bin/cat"]));
    assert_eq!(launch.stdin, Some(b"hi".to_vec()));
}

#[test]
fn session_placeholder_keeps_the_commands_own_session() {
    assert_eq!(
        describe(&strings(&["a", "-s={session}"])).resume,
        Resume::Native
    );
    assert_eq!(
        describe(&strings(&["a", "{prompt}"])).resume,
        Resume::Stateless
    );
    let resumed = Spawn {
        resume: Some("old".into()),
        ..spawn("hi")
    };
    assert_eq!(
        launch(&strings(&["a", "{session}"]), &resumed).argv[1],
        "old"
    );
}

#[test]
fn newline_at_the_end_is_no_text() {
    for (portions, text) in [
        (&[&b"hi\n"[..]][..], "hi"),
        (&[b"hi", b"\n"], "hi"),
        (&[b"hi\n", b"\n"], "hi\n"),
        (&[b"hi\n", b"you"], "hi\nyou"),
        (&[b"\n"], ""),
        (&[], ""),
    ] {
        let (found, outcome) = run(portions, Exit::Code(0), "");
        assert_eq!(found, text, "{portions:?}");
        assert_eq!(outcome, Outcome::ended(Stop::EndTurn));
    }
}

#[test]
fn character_cut_in_two_is_whole() {
    for (portions, text) in [
        (&[&b"\xc3"[..], b"\xa4"][..], "ä"),
        (&[b"\xf0\x9f", b"\x98", b"\x80!"], "😀!"),
        (&[b"a\xffb"], "a\u{fffd}b"),
        (&[b"a\xc3", b"b"], "a\u{fffd}b"),
        (&[b"a\xc3"], "a\u{fffd}"),
        (&[b"\n\xc3"], "\n\u{fffd}"),
    ] {
        assert_eq!(run(portions, Exit::Code(0), "").0, text, "{portions:?}");
    }
}

#[test]
fn exit_that_is_bad_names_its_last_words() {
    for (exit, tail, error) in [
        (
            Exit::Code(3),
            " no key\n",
            "agent `say` exited with code 3: no key",
        ),
        (
            Exit::Signal(9),
            "",
            "agent `say` was killed by signal 9 and said nothing on standard error",
        ),
    ] {
        let (text, outcome) = run(&[b"so far"], exit, tail);
        assert_eq!(text, "so far");
        assert_eq!(outcome.result, Err(Failure::new(Code::AgentFailed, error)));
    }
    let (_, outcome) = run(&[], Exit::Code(1), &"ä".repeat(5000));
    assert!(outcome.result.unwrap_err().error.len() < STDERR + 100);
}

#[test]
fn text_over_the_limit_keeps_head_and_tail() {
    let at_limit = vec![b'h'; MAX_TEXT];
    assert_eq!(run(&[&at_limit], Exit::Code(0), "").0.len(), MAX_TEXT);
    let (text, outcome) = run(&[&at_limit, &[b't'; TAIL]], Exit::Code(0), "");
    assert_eq!(text.len(), MAX_TEXT + TAIL);
    assert_eq!(outcome.result, Ok(Stop::EndTurn));
    let middle = vec![b'm'; 1_000_000];
    let (text, outcome) = run(&[&at_limit, &middle, &[b't'; TAIL]], Exit::Code(0), "");
    assert_eq!(outcome.result, Ok(Stop::MaxTokens));
    let marker = "\n[… 1000000 bytes left out …]\n";
    assert_eq!(text.len(), MAX_TEXT + marker.len() + TAIL);
    assert_eq!(&text[MAX_TEXT..MAX_TEXT + marker.len()], marker);
    assert!(text.ends_with("tt") && !text.contains('m'.to_string().repeat(100).as_str()));
}

proptest! {
    #[test]
    fn text_does_not_depend_on_how_bytes_come(
        bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), Just(0xc3), Just(0xa4), Just(0xf0), any::<u8>()], 0..200),
        cuts in proptest::collection::vec(1usize..9, 0..200),
    ) {
        let whole = run(&[&bytes], Exit::Code(0), "").0;
        let mut rest = bytes.as_slice();
        let mut portions = Vec::new();
        for cut in cuts {
            let (head, tail) = rest.split_at(cut.min(rest.len()));
            portions.push(head);
            rest = tail;
        }
        portions.push(rest);
        prop_assert_eq!(&whole, &run(&portions, Exit::Code(0), "").0);
        let expected = String::from_utf8_lossy(&bytes).into_owned();
        prop_assert_eq!(whole, expected.strip_suffix('\n').unwrap_or(&expected));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn exec_never_panics_nor_grows_whatever_the_input(
        portions in proptest::collection::vec((any::<[u8; 7]>(), 1usize..40_000), 0..12),
    ) {
        let portions: Vec<Vec<u8>> = portions.iter().map(|(bytes, times)| bytes.repeat(*times)).collect();
        let portions: Vec<&[u8]> = portions.iter().map(Vec::as_slice).collect();
        let (text, _) = run(&portions, Exit::Code(0), "");
        prop_assert!(text.len() <= MAX_TEXT + TAIL + 64);
    }
}

#[test]
fn option_without_a_value_is_left_out() {
    let words: Vec<String> = [
        "/x",
        "--model={model}",
        "{model}",
        "--text={prompt}",
        "-m=a{model}",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut spawn = spawn("");
    spawn.prompt.as_mut().unwrap().model = None;
    assert_eq!(launch(&words, &spawn).argv, ["/x", "", "--text=", "-m=a"]);
    spawn.model = Some("m".to_owned());
    assert_eq!(
        launch(&words, &spawn).argv,
        ["/x", "--model=m", "m", "--text=", "-m=am"]
    );
}

fn openclaw(printed: &str, exit: Exit, tail: &str) -> (String, Outcome) {
    let mut openclaw = Openclaw::new(&spawn("hi"));
    let (mut events, mut write) = (Vec::new(), Vec::new());
    for portion in printed.as_bytes().chunks(7) {
        openclaw.decode(portion, &mut events, &mut write);
    }
    assert!(events.is_empty(), "{events:?}");
    openclaw.exited(exit, tail, &mut events);
    let mut text = String::new();
    for event in &events {
        if let WorkerEvent::Text { text: piece, .. } = event {
            text.push_str(piece);
        }
    }
    let Some(WorkerEvent::Ended { outcome, .. }) = events.pop() else {
        panic!("{events:?}")
    };
    (text, *outcome)
}

#[test]
fn openclaws_object_becomes_text_model_and_usage() {
    let inner = r#"{"payloads":[{"text":"a {\n","mediaUrl":null},{"text":"b"}],
        "meta":{"durationMs":9,"agentMeta":{"sessionId":"s","provider":"p","model":"m",
        "usage":{"input":3,"output":2,"cacheRead":1,"total":6,"cost":{"total":0.5}}}}}"#;
    let wrapped =
        format!(r#"{{"runId":"r","status":"ok","summary":"completed","result":{inner}}}"#);
    for printed in [
        inner.to_owned(),
        format!("[plugins] {{}} loaded\n{{odd\n{wrapped}\n"),
    ] {
        let (text, outcome) = openclaw(&printed, Exit::Code(0), "");
        assert_eq!(text, "a {\n\nb");
        assert_eq!(outcome.result, Ok(Stop::EndTurn));
        assert_eq!(
            (outcome.provider.as_deref(), outcome.model.as_deref()),
            (Some("p"), Some("m"))
        );
        let usage = outcome.usage.unwrap();
        assert_eq!(
            (
                usage.input_tokens,
                usage.output_tokens,
                usage.cache_read_tokens
            ),
            (4, 2, 1)
        );
        assert_eq!(outcome.cost.usd, Some(0.5));
    }
}

#[test]
fn openclaws_failures_say_what_it_said() {
    let error =
        |printed: &str, exit, tail: &str| openclaw(printed, exit, tail).1.result.unwrap_err().error;
    let down = r#"{"ok":false,"error":{"type":"cli_error","message":"Gateway not reachable"}}"#;
    let said = error(down, Exit::Code(1), "may still be running");
    assert!(said.ends_with("Gateway not reachable"), "{said}");
    assert!(error("", Exit::Code(1), "no such option").contains("no such option"));
    assert!(error("plain text", Exit::Code(0), "").contains("needs `--json`"));
    assert!(error("{\"a\":1}", Exit::Code(0), "").contains("needs `--json`"));
    assert!(error("", Exit::Signal(9), "").contains("signal 9"));
}

/// What version 2026.9.6 printed, word for word.
fn recorded(name: &str) -> String {
    let folder =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/openclaw");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn openclaw_answer_has_text_model_and_tokens() {
    let (text, outcome) = openclaw(&recorded("tool.json"), Exit::Code(0), "log");
    assert_eq!(text, "tool said: from-the-tool");
    assert_eq!(outcome.result, Ok(Stop::EndTurn));
    assert_eq!(outcome.model.as_deref(), Some("mock-1"));
    let usage = outcome.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (24, 6));
}

#[test]
fn openclaw_refusal_is_an_error_and_no_answer() {
    for (name, code, words) in [
        ("error-401.json", Code::AgentAuth, "Re-authenticate"),
        (
            "overflow.json",
            Code::ContextOverflow,
            "maximum context length is 8192",
        ),
    ] {
        // It says so by its exit code, too; the object alone is enough.
        for exit in [Exit::Code(1), Exit::Code(0)] {
            let (text, outcome) = openclaw(&recorded(name), exit, "log");
            assert_eq!(text, "", "{name}");
            let failure = outcome.result.unwrap_err();
            assert_eq!(failure.code, code, "{name}: {}", failure.error);
            assert!(failure.error.contains(words), "{name}: {}", failure.error);
        }
    }
}

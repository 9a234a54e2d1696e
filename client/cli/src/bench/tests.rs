//! What a bench runs and shows, without running it.

use super::*;

#[test]
fn bench_shows_medians_beside_its_own_command() {
    let times = Times {
        own: vec![900.0, 1000.0, 1200.0],
        first: vec![400.0, 500.0],
        second: vec![100.0],
    };
    let shown = shown(&times, &Style::PLAIN);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].ends_with("1.00 s  0.90 s – 1.20 s"), "{shown}");
    assert!(
        lines[2].contains("0.45 s  0.40 s – 0.50 s  2.2 times as fast"),
        "{shown}"
    );
    assert!(
        lines[3].contains("0.10 s  0.10 s – 0.10 s  10 times as fast"),
        "{shown}"
    );
}

#[test]
fn bench_says_that_trivial_commands_are_as_fast() {
    let times = Times {
        own: vec![2.0],
        first: vec![18.3],
        second: vec![2.1],
    };
    let told = shown(&times, &Style::PLAIN);
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[2].ends_with("16.3 ms more"), "{told}");
    assert!(lines[3].ends_with("as fast"), "{told}");
    let slower = Times {
        second: vec![9.0],
        ..times
    };
    let told = shown(&slower, &Style::PLAIN);
    let last = "This agent starts in 2.0 ms: the one-shot is as fast, or faster.\n";
    assert!(told.ends_with(last), "{told}");
}

#[test]
fn bench_tells_the_own_command_its_model() {
    let row = |kind: &str, words: &str| AgentRow {
        name: "a".to_owned(),
        kind: kind.to_owned(),
        command: Vec::new(),
        found: "path".to_owned(),
        version: None,
        logged_in: None,
        note: None,
        one_shot: Some(words.split(' ').map(str::to_owned).collect()),
        usable: true,
        why_not: None,
        default: false,
    };
    for (kind, words, wanted) in [
        (
            "claude",
            "/bin/claude -p --model=n",
            "/bin/claude -p --model=m",
        ),
        (
            "codex",
            "codex exec --skip-git-repo-check -",
            "codex exec --model=m --skip-git-repo-check -",
        ),
        (
            "acp",
            "opencode run -- {prompt}",
            "opencode run --model=m -- {prompt}",
        ),
        ("acp", "hermes -z {prompt}", "hermes --model=m -z {prompt}"),
    ] {
        let told = pinned(&row(kind, words), None, Some("m"));
        assert_eq!(told.unwrap().join(" "), wanted);
    }
    let timmy = row("jsonl", "/b/timmy --prompt={prompt} --provider echo");
    let told = pinned(&timmy, Some("p"), Some("m")).unwrap();
    assert_eq!(
        told.join(" "),
        "/b/timmy --model=m --provider=p --prompt={prompt}"
    );
    assert_eq!(pinned(&row("claude", "claude -p"), Some("p"), None), None);
    assert_eq!(pinned(&row("exec", "sh -c x"), None, Some("m")), None);
    assert!(pinned(&row("exec", "sh -c x"), None, None).is_some());
}

#[test]
fn bench_without_a_command_shows_only_ours() {
    let times = Times {
        first: vec![400.0],
        second: vec![100.0],
        ..Times::default()
    };
    let shown = shown(&times, &Style::PLAIN);
    assert_eq!(shown.lines().count(), 3, "{shown}");
    assert!(!shown.contains("fast") && !shown.contains("OWN"), "{shown}");
}

#[test]
fn bench_knows_a_command_without_a_model() {
    for (words, wanted) in [
        ("/b/timmy --prompt={prompt} --provider echo", true),
        ("/b/timmy --provider=echo --prompt={prompt}", true),
        ("/b/timmy --provider=groq --prompt=echo", false),
        ("/b/timmy --prompt={prompt}", false),
    ] {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        assert_eq!(is_echo(&words), wanted, "{words:?}");
    }
}

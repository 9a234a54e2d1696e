//! Long outputs: what is shown, what is kept, and what it costs.

use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;

use super::*;

/// More than the two parts, for the line between them and the file's name in it.
const WITH_MARKER: usize = MOST_BYTES + 500;

fn shown_of(dir: &Path, pieces: &[&[u8]]) -> Shown {
    let mut output = Output::new(dir, "call");
    for piece in pieces {
        output.push(piece);
    }
    output.shown()
}

fn only_file(dir: &Path) -> PathBuf {
    let files: Vec<_> = std::fs::read_dir(dir).unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.into_iter().next().unwrap().unwrap().path()
}

#[test]
fn output_that_fits_is_shown_and_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let spill = dir.path().join("spill");
    let long = "x".repeat(MOST_BYTES - 1) + "\n";
    let many = "\n".repeat(MOST_LINES);
    for text in ["", "a", "ä\nb\n", &long, &many] {
        assert_eq!(
            shown_of(&spill, &[text.as_bytes()]),
            Shown {
                text: text.to_owned(),
                truncated: false
            }
        );
    }
    assert!(!spill.exists());
}

#[test]
fn output_too_long_shows_head_and_more_tail() {
    let dir = tempfile::tempdir().unwrap();
    let spill = dir.path().join("spill");
    let text: String = (1..=100_000).map(|n| format!("line {n}\n")).collect();
    let shown = shown_of(&spill, &[text.as_bytes()]);
    assert!(shown.truncated);
    assert!(shown.text.len() <= WITH_MARKER, "{}", shown.text.len());
    let (head, rest) = shown.text.split_once("[…").unwrap();
    let (marker, tail) = rest.split_once("…]\n").unwrap();
    assert!(head.starts_with("line 1\n") && head.ends_with('\n'));
    assert!(tail.starts_with("line ") && tail.ends_with("line 100000\n"));
    assert_eq!(head.lines().count(), 800);
    assert_eq!(tail.lines().count(), 1200);
    let kept = only_file(&spill);
    assert!(
        marker.contains(&format!("of {} bytes", text.len())),
        "{marker}"
    );
    assert!(marker.contains("98000 of 100000 lines"), "{marker}");
    assert!(marker.contains(kept.to_str().unwrap()), "{marker}");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), text);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&spill), mode(&kept)), (0o700, 0o600));
}

#[test]
fn output_that_is_long_takes_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut output = Output::new(dir.path(), "call");
    let piece: Vec<u8> = (0..1 << 16).map(|n| b" \nabcdef"[n % 8]).collect();
    let mut most = 0;
    for _ in 0..(1 << 12) {
        output.push(&piece);
        most = most.max(output.memory());
    }
    assert!(most < 4 * MOST_BYTES, "{most}");
    let shown = output.shown();
    assert!(shown.text.len() <= WITH_MARKER);
    assert!(shown.text.contains("of 268435456 bytes"));
    assert!(shown.text.contains("the rest was dropped"));
    assert_eq!(only_file(dir.path()).metadata().unwrap().len(), MOST_KEPT);
    // Nothing more is kept for this session, and that is said.
    let next = shown_of(dir.path(), &[&piece]);
    assert!(next.text.contains("64 MiB, and these are full"));
    only_file(dir.path());
}

#[test]
fn output_that_can_not_be_kept_is_shown() {
    let shown = shown_of(Path::new("/dev/null/no"), &[&[b'a'; 60_000]]);
    assert!(
        shown.text.contains("it could not be kept: "),
        "{}",
        shown.text
    );
    assert!(shown.text.starts_with("aaa") && shown.text.ends_with("aaa"));
}

#[test]
fn output_name_stays_below_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let spill = dir.path().join("spill");
    for name in ["../../up", "/etc/x", "", "a\0b", &"long".repeat(1000)] {
        let mut output = Output::new(&spill, name);
        output.push(&[b'a'; 60_000]);
        assert!(output.shown().text.contains("bytes are in"), "{name:?}");
    }
    assert_eq!(std::fs::read_dir(&spill).unwrap().count(), 5);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn an_existing_file_is_never_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let first = shown_of(dir.path(), &[&[b'a'; 60_000]]);
    let second = shown_of(dir.path(), &[&[b'b'; 60_000]]);
    assert!(first.text.contains("call-1.txt") && second.text.contains("call-2.txt"));
    let kept = std::fs::read(dir.path().join("call-1.txt")).unwrap();
    assert_eq!(kept, [b'a'; 60_000]);
}

proptest! {
    #[test]
    fn output_in_any_pieces_loses_nothing_within_limits(
        unit in proptest::collection::vec(any::<u8>(), 1..40),
        times in 1..6_000_usize,
        piece in 1..70_000_usize,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let all: Vec<u8> = unit.iter().copied().cycle().take(unit.len() * times).collect();
        let mut output = Output::new(dir.path(), "call");
        for piece in all.chunks(piece) {
            output.push(piece);
        }
        let shown = output.shown();
        prop_assert!(shown.text.len() <= WITH_MARKER, "{}", shown.text.len());
        if shown.truncated {
            prop_assert_eq!(std::fs::read(only_file(dir.path())).unwrap(), all);
        } else {
            prop_assert_eq!(shown.text, String::from_utf8_lossy(&all));
        }
    }

    #[test]
    fn text_is_cut_between_characters(
        unit in "[aä€😀\n]{1,30}",
        times in 1..9_000_usize,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let all = unit.repeat(times);
        let shown = shown_of(dir.path(), &[all.as_bytes()]);
        let broken = shown.text.contains('\u{FFFD}');
        prop_assert!(!broken);
        if let Some((head, rest)) = shown.text.split_once("[…") {
            let tail = rest.split_once("…]\n").unwrap().1;
            prop_assert!(all.starts_with(head) || all.starts_with(&head[..head.len() - 1]));
            prop_assert!(all.ends_with(tail));
        }
    }
}

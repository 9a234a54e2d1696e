//! Long texts: kept in pieces, read in portions.

use super::*;

const TEXT: usize = 1_000_000;

fn said(message: u32, kind: TextKind, text: &str) -> MessageText {
    MessageText {
        message,
        kind,
        text: text.to_owned(),
    }
}

/// A job that has ended with these.
fn ended(store: &mut Bench, texts: &[MessageText]) -> JobId {
    let (job, ..) = store.accept(started("main"));
    store.commit(vec![Write::Finish {
        job,
        end: End::Completed,
        line: last_line("whole"),
        texts: Some(texts.to_vec()),
    }]);
    job
}

fn long() -> Vec<MessageText> {
    vec![
        said(0, TextKind::Text, &"abc".repeat(TEXT / 3)),
        said(0, TextKind::Thinking, &"ö".repeat(200_000)),
        said(1, TextKind::Text, ""),
        said(2, TextKind::Text, &"ü".repeat(300_000)),
    ]
}

/// The place behind a piece.
fn behind(piece: &TextPiece, before: Position) -> Position {
    let begun = piece.message as usize + 1;
    let mut place = match before {
        same if same.messages == begun => same,
        _ => Position {
            messages: begun,
            ..Position::default()
        },
    };
    match piece.kind {
        TextKind::Text => place.text = piece.at + piece.text.len(),
        TextKind::Thinking => place.thinking = piece.at + piece.text.len(),
    }
    place
}

/// All portions of a job's text, each asked for from the end of the one before.
fn portions(mut portion: impl FnMut(Position) -> (Vec<TextPiece>, bool)) -> Vec<Vec<TextPiece>> {
    let (mut place, mut all) = (Position::default(), Vec::new());
    for _ in 0..100 {
        let (pieces, whole) = portion(place);
        place = pieces
            .iter()
            .fold(place, |before, piece| behind(piece, before));
        all.push(pieces);
        if whole {
            return all;
        }
    }
    panic!("no end")
}

fn of_job(store: &mut Bench, job: JobId) -> Vec<Vec<TextPiece>> {
    portions(|from| {
        let (after, from) = (0, Some(from));
        match store.load(Query::Events { job, after, from }) {
            Loaded::Events { texts, whole, .. } => (texts, whole),
            other => panic!("{other:?}"),
        }
    })
}

/// What was thought comes before what was said, and nothing twice.
fn check(found: &[Vec<TextPiece>], texts: &[MessageText]) {
    let mut joined: Vec<MessageText> = Vec::new();
    for piece in found.iter().flatten() {
        match joined.last_mut() {
            Some(last) if (last.message, last.kind) == (piece.message, piece.kind) => {
                assert_eq!(last.text.len(), piece.at);
                last.text.push_str(&piece.text);
            }
            _ => {
                assert_eq!(piece.at, 0);
                joined.push(said(piece.message, piece.kind, &piece.text));
            }
        }
    }
    let mut texts = texts.to_vec();
    texts.sort_by_key(|text| (text.message, text.kind == TextKind::Text));
    assert!(joined == texts, "{} messages", joined.len());
}

fn largest(found: &[Vec<TextPiece>]) -> usize {
    let bytes = |portion: &Vec<TextPiece>| portion.iter().map(|piece| piece.text.len()).sum();
    found.iter().map(bytes).max().unwrap_or(0)
}

#[test]
fn texts_come_in_portions_that_repeat_nothing() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let job = ended(&mut store, &long());
    let found = of_job(&mut store, job);
    check(&found, &long());
    assert!(largest(&found) < 512 * 1024);
    let db = Connection::open(dir.path().join(FILE)).unwrap();
    let piece = "SELECT max(length(CAST(text AS BLOB))) FROM texts";
    let piece: i64 = db.query_row(piece, [], |row| row.get(0)).unwrap();
    assert!(piece <= 256 * 1024, "{piece}: read as one");
}

#[test]
fn texts_stay_in_pieces_at_an_end() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(started("main"));
    let mut long = String::new();
    let mut add = |store: &mut Bench, text: &str, end| {
        let mut writes = vec![piece(job, long.len() as u64, text)];
        writes.extend(end);
        store.commit(writes);
        long.push_str(text);
    };
    for _ in 0..9 {
        add(&mut store, &"ü".repeat(70_000), None);
    }
    let end = Write::Finish {
        job,
        end: End::Completed,
        line: last_line("whole"),
        texts: None,
    };
    add(&mut store, "the rest", Some(end));
    let found = of_job(&mut store, job);
    check(&found, &[said(0, TextKind::Text, &long)]);
}

#[test]
fn texts_before_final_lines_come_in_portions() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let job = ended(&mut store, &long());
    let mut lines = 0;
    let found = portions(|from| {
        let query = Query::Log {
            after: 1,
            session: None,
            jobs: None,
            first: JobId(0),
            texts: vec![(job, from)],
        };
        let Loaded::Log {
            lines: mut told,
            more,
            portion,
            ..
        } = store.load(query)
        else {
            panic!("a log")
        };
        lines += told.len();
        match (told.pop(), portion) {
            (None, Some((of, pieces))) if of == job && more => (pieces, false),
            (Some(last), None) if !more => (last.texts, true),
            other => panic!("{other:?}"),
        }
    });
    check(&found, &long());
    assert!(found.len() > 4 && lines == 1, "{lines} in {}", found.len());
}

#[test]
fn texts_of_earlier_versions_come_in_portions() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let job = ended(&mut store, &[]);
    let text = "ö".repeat(5 * TEXT / 2);
    let db = Connection::open(dir.path().join(FILE)).unwrap();
    db.execute("INSERT INTO texts VALUES (?1, 0, 0, 0, ?2)", (1, &text))
        .unwrap();
    let found = of_job(&mut store, job);
    check(&found, &[said(0, TextKind::Text, &text)]);
    assert_eq!(found.len(), 3);
}

#[test]
fn messages_are_read_from_any_place() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let text = "xö".repeat(TEXT / 3);
    let job = ended(&mut store, &[said(0, TextKind::Text, &text)]);
    let mut piece = |after: usize| {
        let query = Query::Message {
            session: "main".to_owned(),
            job,
            message: 0,
            after: after as u64,
        };
        match store.load(query) {
            Loaded::Message(Some(row)) => (usize::try_from(row.offset).unwrap(), row),
            other => panic!("{other:?}"),
        }
    };
    // Two of them are inside of a character.
    for (after, offset) in [
        (0, 0),
        (400_001, 400_000),
        (600_002, 600_001),
        (9 * TEXT, text.len()),
    ] {
        let (from, row) = piece(after);
        assert_eq!(from, offset, "{after}");
        assert!(text[from..].starts_with(&row.text));
        assert_eq!(row.truncated, from + row.text.len() < text.len());
    }
}

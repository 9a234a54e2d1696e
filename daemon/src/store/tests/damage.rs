//! Files that are damaged anywhere: the store starts and says what is gone, or says why it doesn't.

use super::*;
use crate::store::verify;

/// Ended jobs with some text, in a file with indexes of several pages.
const JOBS: u64 = 150;
/// Jobs that wait, behind them.
const WAITING: u64 = 30;
/// What they say, of some length.
const PROMPT: &str = "read all of it, say what is wrong in it, and change nothing";

fn waiting(number: u64) -> NewJob {
    NewJob {
        request: format!(r#"{{"text":"{}{number}"}}"#, PROMPT.repeat(10)),
        ..new(Some(&format!("later-{number}")))
    }
}

/// Files of a daemon that was stopped, and of one that was killed.
fn images() -> [TempDir; 2] {
    [true, false].map(|closed| {
        let dir = TempDir::new().unwrap();
        let mut store = bench(dir.path(), "first", Role::Daemon, dead);
        for number in 0..JOBS {
            let (job, ..) = store.accept(started(&format!("of-{}", number % 20)));
            store.commit(vec![finish(job, End::Completed)]);
        }
        for number in 0..WAITING {
            store.accept(waiting(number));
        }
        let image = TempDir::new().unwrap();
        if closed {
            store.close();
        }
        for end in ["", "-wal", ".epoch"] {
            let name = beside(Path::new(FILE), end);
            let copied = std::fs::copy(dir.path().join(&name), image.path().join(&name));
            assert!(copied.is_ok() || (closed && end == "-wal"), "{copied:?}");
        }
        image
    })
}

/// Numbers that look like chance and are the same each time: <https://prng.di.unimi.it/splitmix64.c>.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(end).unwrap()).unwrap()
    }
}

/// Damages one of the files somewhere; what was done.
fn damage(dir: &Path, chance: &mut Chance) -> String {
    let files = ["", "-wal"].map(|end| dir.join(beside(Path::new(FILE), end)));
    let files: Vec<&PathBuf> = files.iter().filter(|file| file.exists()).collect();
    let file = files[chance.below(files.len())];
    let mut bytes = std::fs::read(file).unwrap();
    let place = chance.below(bytes.len());
    let what = chance.below(4);
    let end = |length: usize| bytes.len().min(place + length);
    match what {
        0 => bytes[place] ^= 1 << chance.below(8),
        1 => {
            let end = end(512);
            bytes[place..end].fill(0);
        }
        2 => {
            let end = end(4096);
            bytes[place..end].fill_with(|| u8::try_from(chance.below(256)).unwrap());
        }
        _ => bytes.truncate(place),
    }
    std::fs::write(file, bytes).unwrap();
    let what = ["a bit", "a sector", "a page", "the end"][what];
    format!("{what} at {place} of {}", file.display())
}

/// The numbers of the jobs that a list has, or why there is none.
fn listed(store: &mut Bench) -> Result<Vec<u64>, String> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let line = match store.load(Query::Export {
            after,
            session: None,
        }) {
            Loaded::Line(line) => line,
            Loaded::Failed(why) => return Err(why),
            other => panic!("{other:?}"),
        };
        let page: serde_json::Value = serde_json::from_str(line.as_json()).unwrap();
        let jobs = page["rows"].as_array().unwrap().iter();
        let jobs = jobs.filter(|row| row["kind"] == "job");
        let numbers = jobs.map(|row| serde_json::from_value(row["job"].clone()));
        found.extend(numbers.map(|number: Result<JobId, _>| number.unwrap().0));
        match page["next"].as_u64() {
            Some(next) => {
                assert!(next > after, "a page that leads nowhere: {next}");
                after = next;
            }
            None => return Ok(found),
        }
    }
}

#[test]
#[ignore = "heavy"]
fn damage_anywhere_is_told() {
    let places = std::env::var("AGENTD_TEST_PLACES");
    let places = places.map_or(100, |places| places.parse().unwrap());
    let seed = std::env::var("AGENTD_TEST_SEED").map_or(21, |seed| seed.parse().unwrap());
    let images = images();
    let mut chance = Chance(seed);
    let (mut refused, mut told, mut whole) = (0, 0, 0);
    for place in 0..places {
        let dir = TempDir::new().unwrap();
        for entry in std::fs::read_dir(images[place % 2].path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
        }
        let what = damage(dir.path(), &mut chance);
        let (answer, answers) = answering();
        let faults = Faults::of_writer(Box::new(|_, _| Ok(())));
        let opened = open_with(dir.path(), daemon("next"), Box::new(dead), answer, faults);
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                assert!(error.to_string().len() > 20, "{what}: {error}");
                refused += 1;
                continue;
            }
        };
        let mut store = Bench {
            opened,
            answers,
            next: 1,
        };
        let found = listed(&mut store);
        let left = || store.opened.orphans.iter().flat_map(|left| &left.jobs);
        let taken = left().filter(|left| left.terms.is_ok()).count() as u64;
        let unread = left().filter(|left| left.terms.is_err()).count();
        let conn = schema::reopen_to_read(&dir.path().join(FILE)).unwrap();
        verify::walk(&conn, &dir.path().join(FILE)).unwrap();
        let losses = losses(dir.path()).unwrap();
        let all = JOBS + WAITING;
        let is_whole = found.as_ref().is_ok_and(|found| found.len() as u64 == all);
        let is_whole = is_whole && taken == WAITING;
        // A log without its end is what a power cut leaves: what is before it holds.
        let is_cut = what.starts_with("the end") && what.ends_with("-wal");
        let is_prefix = found.as_ref().is_ok_and(|found| {
            found
                .iter()
                .zip(1..)
                .all(|(found, number)| *found == number)
        });
        assert!(
            is_whole || !losses.is_empty() || (is_cut && is_prefix),
            "{what}: {found:?} of {all}, {taken} of {WAITING}, and nothing is told"
        );
        assert!(unread == 0 || !losses.is_empty(), "{what}: {unread} unread");
        if losses.is_empty() {
            whole += 1;
        } else {
            told += 1;
        }
    }
    eprintln!("{places} places: {refused} refused, {told} told, {whole} with all their jobs");
    assert!(told > 0 && whole > 0, "{told} {whole}");
}

/// A store that was closed, with an ended job and two that wait.
fn closed() -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "first", Role::Daemon, dead);
    let (job, ..) = store.accept(started("ended"));
    store.commit(vec![Write::Event {
        job,
        line: line("said"),
    }]);
    store.commit(vec![finish(job, End::Completed)]);
    for number in 0..2 {
        store.accept(waiting(number));
    }
    store.close();
    dir
}

/// Puts zeros over what is found there first.
fn overwrite(file: &Path, found: &[u8]) {
    let mut bytes = std::fs::read(file).unwrap();
    let place = bytes.windows(found.len()).position(|some| some == found);
    let place = place.unwrap();
    bytes[place..place + found.len()].fill(0);
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn damage_of_a_waiting_prompt_is_told() {
    let dir = closed();
    let prompt = format!("{}1", PROMPT.repeat(8));
    overwrite(&dir.path().join(FILE), &prompt.as_bytes()[PROMPT.len()..]);
    for name in ["next", "again"] {
        let store = bench(dir.path(), name, Role::Daemon, dead);
        let left = &store.opened.orphans[0].jobs;
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(left[0].terms.is_ok(), "{left:?}");
        let unread = left[1].terms.as_ref().unwrap_err();
        assert!(unread.is_damaged());
        let losses = &store.opened.losses;
        assert_eq!(losses.len(), 1, "{losses:?}");
        assert!(losses[0].contains("what was asked of job j3"), "{losses:?}");
        store.close();
    }
}

#[test]
fn damage_of_a_waiting_row_is_told() {
    let dir = closed();
    let db = Connection::open(dir.path().join(FILE)).unwrap();
    db.execute("DELETE FROM sessions WHERE name = 'later-1'", [])
        .unwrap();
    drop(db);
    let store = bench(dir.path(), "next", Role::Daemon, dead);
    assert_eq!(store.opened.orphans[0].jobs.len(), 1);
    let losses = &store.opened.losses;
    assert_eq!(losses.len(), 1, "{losses:?}");
    assert!(losses[0].contains("job j3 was accepted"), "{losses:?}");
    store.close();
}

/// Waits until something is told as lost.
fn told(dir: &Path) -> Vec<String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let losses = losses(dir).unwrap();
        if !losses.is_empty() || Instant::now() > until {
            return losses;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn damage_met_by_a_read_is_told() {
    type Harm = fn(&Path);
    let harms: [(Harm, Query, &str); 2] = [
        // A page of a table.
        (
            |file| {
                let db = Connection::open(file).unwrap();
                let page = "SELECT rootpage FROM sqlite_schema WHERE name = 'texts'";
                let page: i64 = db.query_row(page, [], |row| row.get(0)).unwrap();
                drop(db);
                let bytes = std::fs::File::options().write(true).open(file).unwrap();
                let place = u64::try_from((page - 1) * 4096).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&bytes, &[0; 512], place).unwrap();
            },
            Query::Events {
                job: JobId(1),
                after: 0,
                from: Some(Position::default()),
            },
            "malformed",
        ),
        // A row, and all that leads to it, but for what it said.
        (
            |file| {
                let db = Connection::open(file).unwrap();
                db.pragma_update(None, "foreign_keys", false).unwrap();
                db.execute("DELETE FROM jobs WHERE job = 1", []).unwrap();
            },
            Query::Jobs {
                jobs: vec![JobId(1)],
            },
            "job j1 was accepted",
        ),
    ];
    for (harm, query, words) in harms {
        let dir = closed();
        harm(&dir.path().join(FILE));
        let mut store = bench(dir.path(), "next", Role::Daemon, dead);
        assert_eq!(store.opened.losses, [""; 0]);
        let Loaded::Failed(why) = store.load(query) else {
            panic!("it was found")
        };
        for word in ["the store is damaged", words, "agentctl doctor --full"] {
            assert!(why.contains(word), "{word}: {why}");
        }
        let losses = told(dir.path());
        assert!(losses[0].contains("the store is damaged"), "{losses:?}");
        store.close();
    }
}

#[test]
fn damage_is_no_job_that_never_was() {
    let dir = closed();
    let mut store = bench(dir.path(), "next", Role::Daemon, dead);
    let jobs = vec![JobId(77)];
    assert_eq!(store.load(Query::Jobs { jobs }), Loaded::Jobs(Vec::new()));
    assert_eq!(losses(dir.path()).unwrap(), [""; 0]);
    store.close();
}

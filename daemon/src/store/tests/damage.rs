//! Files that are damaged anywhere: the store starts and says what is gone, or says why it doesn't.

use super::*;
use crate::store::verify;

/// Ended jobs with some text, in a file with indexes of several pages.
const JOBS: u64 = 150;

/// Files of a daemon that was stopped, and of one that was killed.
fn images() -> [TempDir; 2] {
    [true, false].map(|closed| {
        let dir = TempDir::new().unwrap();
        let mut store = bench(dir.path(), "first", Role::Daemon, dead);
        for number in 0..JOBS {
            let (job, ..) = store.accept(started(&format!("of-{}", number % 20)));
            store.commit(vec![finish(job, End::Completed)]);
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
        let line = match store.load(Query::Export { after }) {
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
        let conn = schema::reopen_to_read(&dir.path().join(FILE)).unwrap();
        verify::walk(&conn, &dir.path().join(FILE)).unwrap();
        let losses = losses(dir.path()).unwrap();
        let is_whole = found.as_ref().is_ok_and(|found| found.len() as u64 == JOBS);
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
            "{what}: {found:?} of {JOBS}, and nothing is told"
        );
        if losses.is_empty() {
            whole += 1;
        } else {
            told += 1;
        }
    }
    eprintln!("{places} places: {refused} refused, {told} told, {whole} with all their jobs");
    assert!(told > 0 && whole > 0, "{told} {whole}");
}

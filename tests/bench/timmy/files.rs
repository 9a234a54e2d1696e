//! The tools `search` and `list` on a tree of 100,000 files, beside `rg`.
//!
//! Owns this measurement and the tree. Must not know how it is judged.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;

use super::{Timmy, figure, place};
use crate::mock_model::MockModel;
use crate::place::ms;
use crate::report::{Figure, Limit};

const DIRECTORIES: usize = 200;
const FILES: usize = 500;
/// In each directory one file has what is looked for.
const WITH_IT: usize = 7;
const RUNS: usize = 3;

/// Time of both tools, each beside `rg`, which has as many threads.
pub(crate) fn tree(repetitions: usize) -> Vec<Figure> {
    let Some(rg) = program("rg") else {
        println!("left out: needs rg");
        return Vec::new();
    };
    let model = MockModel::start();
    let place = place(&model.url, "");
    let tree = place.path("tree");
    grow(&tree);
    let files = DIRECTORIES * FILES;
    let aside = format!("`search` in {files} files; control: rg");
    let mut search = figure("timmy-search", "ms", Limit::Ratio(2.0), &aside);
    let aside = format!("`list` of {files} files by name; control: rg --files --sort path");
    let mut list = figure("timmy-list", "ms", Limit::Ratio(2.0), &aside);
    let mut timmy = Timmy::start(&place);
    let rg = |words: &[&str]| {
        let words: Vec<&str> = words
            .iter()
            .copied()
            .chain([tree.to_str().unwrap()])
            .collect();
        ms(place.run(rg.to_str().unwrap(), &words, 0))
    };
    // The first ones find cold caches.
    for run in 0..=repetitions * RUNS {
        let pairs = [
            (
                &mut search,
                rg(&["--line-number", "needle"]),
                r#"[[use search {"pattern":"needle"}]]"#,
            ),
            (
                &mut list,
                rg(&["--files", "--sort", "path", "--glob", "*.txt"]),
                r#"[[use list {"glob":"*.txt"}]]"#,
            ),
        ];
        for (figure, control, text) in pairs {
            let ours = tool(&mut timmy, &tree, text);
            if run > 0 {
                figure.control.push(control);
                figure.ours.push(ours);
            }
        }
    }
    vec![search, list]
}

/// From the beginning of a tool's call to its end.
fn tool(timmy: &mut Timmy, cwd: &Path, text: &str) -> f64 {
    timmy.say(&json!({"type": "send", "id": 1, "session": "bench", "text": text, "cwd": cwd}));
    timmy.until("tool_start");
    let begun = Instant::now();
    let end = timmy.until("tool_end");
    let took = ms(begun.elapsed());
    assert_eq!(end["ok"], true, "{end:#}");
    timmy.until("message_end");
    took
}

fn grow(tree: &Path) {
    for directory in 0..DIRECTORIES {
        let directory = tree.join(format!("d{directory}"));
        std::fs::create_dir_all(&directory).unwrap();
        for number in 0..FILES {
            let mut text = String::new();
            for line in 0..20 {
                writeln!(text, "line {line} of a file with some words in it").unwrap();
            }
            if number == WITH_IT {
                text.push_str("a needle\n");
            }
            std::fs::write(directory.join(format!("f{number}.txt")), text).unwrap();
        }
    }
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|place| place.join(name))
        .find(|program| program.is_file())
}

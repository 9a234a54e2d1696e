//! How often the rules find the class and the difficulty of a prompt.
//!
//! Owns what is printed of it: `cargo test -p agentd-route --test prompts -- --nocapture`.

#![expect(clippy::print_stdout, reason = "the shares are to be read")]

use std::collections::BTreeMap;

use agentd_route::{Class, Difficulty, classify};

/// What became of one prompt.
struct Judged {
    class: &'static str,
    found: Class,
    difficulty: &'static str,
    seems: Difficulty,
    text: String,
}

fn judged(table: &'static str) -> Vec<Judged> {
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    let row = |line: &'static str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [class, difficulty, _language, text] = columns[..] else {
            panic!("{line}");
        };
        assert!(Class::ALL.iter().any(|one| one.name() == class), "{line}");
        assert!(
            Difficulty::ALL.iter().any(|one| one.name() == difficulty),
            "{line}"
        );
        let text = text.replace("\\n", "\n");
        let (found, seems) = classify(&text);
        Judged {
            class,
            found,
            difficulty,
            seems,
            text,
        }
    };
    rows.map(row).collect()
}

/// The percentages of the right classes and the right difficulties, which are printed with what is wrong.
fn share(name: &str, table: &'static str) -> (usize, usize) {
    let all = judged(table);
    let mut wrong: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for one in all.iter().filter(|one| one.found.name() != one.class) {
        let text = one.text.chars().take(60).collect();
        wrong
            .entry((one.class, one.found.name()))
            .or_default()
            .push(text);
    }
    let right = all
        .iter()
        .filter(|one| one.found.name() == one.class)
        .count();
    let other = all.iter().filter(|one| one.found == Class::Other).count();
    let as_hard = all
        .iter()
        .filter(|one| one.seems.name() == one.difficulty)
        .count();
    println!(
        "{name}: of {} the class of {right} is right, of {other} it is `other`, of {} it is wrong; \
         the difficulty of {as_hard} is right",
        all.len(),
        all.len() - right - other,
    );
    for ((class, found), texts) in wrong {
        println!("  {class} is taken for {found}: {texts:?}");
    }
    (100 * right / all.len(), 100 * as_hard / all.len())
}

#[test]
fn classes_of_the_prompts_before_are_found() {
    let (class, difficulty) = share("prompts", include_str!("prompts.tsv"));
    assert!(class >= 90, "{class} %");
    assert!(difficulty >= 80, "{difficulty} %");
}

#[test]
fn classes_of_other_prompts_are_told_honestly() {
    let (class, _) = share("more", include_str!("more.tsv"));
    assert!(class >= 90, "{class} %");
    // Nobody had these in mind: what is found of them is printed, and promised by nobody.
    let (class, difficulty) = share("held out", include_str!("held_out.tsv"));
    assert!(class > 0 && difficulty > 0);
}

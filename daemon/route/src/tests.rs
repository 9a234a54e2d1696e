//! Each condition by a table, all of them together by chance, and how long a hundred rules take.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use agentd_protocol::routed::RouteUse;
use proptest::prelude::*;

use crate::{
    Asked, Attached, Between, Class, Condition, Difficulty, Facts, Glob, Pattern, Rule, weigh,
};

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn facts<'a>(text: &'a str, labels: &'a BTreeMap<String, String>) -> Facts<'a> {
    Facts {
        asked: Asked::ByName,
        text,
        attachments: Vec::new(),
        directories: vec!["/home/u"],
        labels,
        minute: 12 * 60,
        classified: OnceCell::new(),
    }
}

fn rule(when: Vec<Condition>) -> Rule {
    let uses = RouteUse {
        agent: Some("a".to_owned()),
        ..RouteUse::default()
    };
    Rule::new("r".to_owned(), when, uses)
}

/// What a rule with one condition says.
fn said(condition: Condition, facts: &Facts<'_>) -> (bool, String) {
    let rules = [rule(vec![condition])];
    let weighed = weigh(&rules, facts).remove(0);
    (weighed.uses.is_some(), weighed.because)
}

fn yes(words: &str) -> (bool, String) {
    (true, words.to_owned())
}

fn no(words: &str) -> (bool, String) {
    (false, words.to_owned())
}

#[test]
fn condition_text_is_an_expression() {
    let labels = labels(&[]);
    let text = |source: &str| Condition::Text(Pattern::new(source).unwrap());
    let facts = facts("Please review\nthis", &labels);
    for (source, holds) in [
        ("review", true),
        ("Review", false),
        ("(?i)PLEASE", true),
        ("^this", false),
        ("(?m)^this$", true),
        ("", true),
    ] {
        assert_eq!(said(text(source), &facts).0, holds, "{source}");
    }
    assert_eq!(said(text("x+"), &facts), no("`text` doesn't match `x+`"));
    assert_eq!(Pattern::new("a(b").unwrap_err(), "unclosed group");
    let error = Pattern::new(r"(\w{500}){500}").unwrap_err();
    assert!(error.contains("the limit"), "{error}");
}

#[test]
fn condition_chars_counts_characters() {
    let labels = labels(&[]);
    let facts = facts("süß", &labels);
    for (bound, holds) in [
        ("> 2", true),
        (">3", false),
        (">= 3", true),
        ("< 4", true),
        ("<3", false),
        ("<= 3", true),
    ] {
        let condition = Condition::Chars(bound.parse().unwrap());
        assert_eq!(said(condition, &facts).0, holds, "{bound}");
    }
    let condition = Condition::Chars("> 20000".parse().unwrap());
    assert_eq!(said(condition, &facts), no("`chars` is 3, not > 20000"));
    for wrong in ["3", "", ">", "> x", "> -1", "=> 3", "> 1.5"] {
        assert!(wrong.parse::<crate::Bound>().is_err(), "{wrong}");
    }
}

#[test]
fn condition_attachments_goes_by_their_types() {
    let labels = labels(&[]);
    let with = |types: &[&'static str]| Facts {
        attachments: types.to_vec(),
        ..facts("x", &labels)
    };
    let held = |types: &[&'static str]| {
        let facts = with(types);
        let all = Attached::ALL.iter();
        let held = all.filter(|kind| said(Condition::Attachments(**kind), &facts).0);
        held.map(|kind| kind.name()).collect::<Vec<_>>()
    };
    assert_eq!(held(&[]), ["none"]);
    assert_eq!(held(&["image/png"]), ["image", "any"]);
    assert_eq!(
        held(&["text/x-diff", "application/pdf"]),
        ["pdf", "text", "any"]
    );
}

#[test]
fn condition_cwd_is_a_glob() {
    let labels = labels(&[]);
    let within = |glob: &str, directory| {
        let glob = Glob::new(glob, Some("/home/u[1]/")).unwrap();
        let facts = Facts {
            directories: vec!["/elsewhere", directory],
            ..facts("x", &labels)
        };
        said(Condition::Cwd(glob), &facts).0
    };
    for (glob, directory, holds) in [
        ("~/projects/**", "/home/u[1]/projects", true),
        ("~/projects/**", "/home/u[1]/projects/a/b", true),
        ("~/projects/**", "/home/u[1]/projectshop", false),
        ("~/projects/*", "/home/u[1]/projects/a", true),
        ("~/projects/*", "/home/u[1]/projects/a/b", false),
        ("~", "/home/u[1]", true),
        ("/srv/{a,b}", "/srv/b", true),
        ("**/agentd", "/x/y/agentd", true),
        ("/**", "/x", true),
    ] {
        assert_eq!(within(glob, directory), holds, "{glob} {directory}");
    }
    for wrong in ["projects/**", "~u/x", "", "/a[", "./x"] {
        assert!(Glob::new(wrong, Some("/home/u")).is_err(), "{wrong}");
    }
    assert!(Glob::new("~/projects", None).is_err());
}

#[test]
fn condition_label_is_a_value_or_any() {
    let labels = labels(&[("team", "a")]);
    let facts = facts("x", &labels);
    let label = |key: &str, value: &str| Condition::Label(key.to_owned(), value.to_owned());
    assert_eq!(said(label("team", "a"), &facts), yes("`label.team` is `a`"));
    assert!(said(label("team", "*"), &facts).0);
    assert_eq!(
        said(label("team", "b"), &facts),
        no("`label.team` is `a`, not `b`")
    );
    assert_eq!(said(label("x", "*"), &facts), no("there is no label `x`"));
}

#[test]
fn condition_between_may_pass_midnight() {
    let labels = labels(&[]);
    let at = |between: &str, minute| {
        let condition = Condition::Between(between.parse().unwrap());
        let facts = Facts {
            minute,
            ..facts("x", &labels)
        };
        said(condition, &facts).0
    };
    for (between, minute, holds) in [
        ("22:00-06:00", 22 * 60, true),
        ("22:00-06:00", 0, true),
        ("22:00-06:00", 5 * 60 + 59, true),
        ("22:00-06:00", 6 * 60, false),
        ("22:00-06:00", 12 * 60, false),
        ("9:00 - 17:30", 9 * 60, true),
        ("9:00 - 17:30", 17 * 60 + 29, true),
        ("9:00 - 17:30", 17 * 60 + 30, false),
        ("18:00-24:00", 23 * 60 + 59, true),
        ("18:00-24:00", 0, false),
    ] {
        assert_eq!(at(between, minute), holds, "{between} {minute}");
    }
    for wrong in [
        "22:00",
        "22-6",
        "25:00-26:00",
        "22:60-23:00",
        "6:00-6:00",
        "24:00-6:00",
        "-",
        "+1:00-2:00",
    ] {
        assert!(wrong.parse::<Between>().is_err(), "{wrong}");
    }
}

#[test]
fn condition_agent_is_for_who_says_auto() {
    let labels = labels(&[]);
    let by_default = Facts {
        asked: Asked::ByDefault,
        ..facts("x", &labels)
    };
    assert!(said(Condition::Named, &facts("x", &labels)).0);
    assert_eq!(
        said(Condition::Named, &by_default),
        no("the send doesn't say `auto` itself")
    );
}

#[test]
fn conditions_of_a_rule_all_hold() {
    let labels = labels(&[("a", "b")]);
    let label = |value: &str| Condition::Label("a".to_owned(), value.to_owned());
    let text = |source: &str| Condition::Text(Pattern::new(source).unwrap());
    let facts = facts("fix it", &labels);
    for (when, because, holds) in [
        (vec![], "it holds for every turn", true),
        (
            vec![text("fix"), label("b")],
            "`label.a` is `b`, `text` matches `fix`",
            true,
        ),
        (
            vec![text("zz"), label("b")],
            "`text` doesn't match `zz`",
            false,
        ),
        (
            vec![text("x"), label("c")],
            "`label.a` is `b`, not `c`",
            false,
        ),
    ] {
        let weighed = weigh(&[rule(when)], &facts).remove(0);
        assert_eq!(weighed.because, because);
        assert_eq!(weighed.uses.is_some(), holds);
    }
}

#[test]
fn condition_class_is_one_of_several() {
    let labels = labels(&[]);
    let facts = facts("fix the failing test", &labels);
    let class = |any: &[Class]| Condition::Class(any.to_vec());
    assert_eq!(
        said(class(&[Class::Chat, Class::Debugging]), &facts),
        yes("`class` is debugging")
    );
    assert_eq!(
        said(class(&[Class::Chat, Class::Data]), &facts),
        no("`class` is debugging, not chat or data")
    );
    let difficulty = Condition::Difficulty(vec![Difficulty::Hard]);
    assert_eq!(
        said(difficulty, &facts),
        no("`difficulty` is easy, not hard")
    );
}

fn conditions() -> impl Strategy<Value = Vec<Condition>> {
    let text = prop_oneof![Just("a"), Just("b|c"), Just("^$"), Just(r"\d+")]
        .prop_map(|source| Condition::Text(Pattern::new(source).unwrap()));
    let chars = (any::<bool>(), 0..6_u64).prop_map(|(more, number)| {
        let sign = if more { ">=" } else { "<" };
        Condition::Chars(format!("{sign}{number}").parse().unwrap())
    });
    let between = (0..23_u16, 1..24_u16).prop_map(|(from, to)| {
        let to = if from == to { 24 } else { to };
        Condition::Between(format!("{from:02}:00-{to:02}:00").parse().unwrap())
    });
    let attached = proptest::sample::select(Attached::ALL).prop_map(Condition::Attachments);
    let label = prop_oneof![Just("1"), Just("*")]
        .prop_map(|value| Condition::Label("k".to_owned(), value.to_owned()));
    let class = proptest::sample::select(Class::ALL).prop_map(|one| Condition::Class(vec![one]));
    let named = Just(Condition::Named);
    let one = prop_oneof![text, chars, between, attached, label, class, named];
    proptest::collection::vec(one, 0..4)
}

proptest! {
    /// Whatever the rules and the turn are: each rule says something, the same each time, and it
    /// holds just when all of its conditions do.
    #[test]
    fn routes_are_total_and_deterministic(
        rules in proptest::collection::vec(conditions(), 0..12),
        text in "[abc1 ]{0,6}",
        labelled in any::<bool>(),
        picture in any::<bool>(),
        named in any::<bool>(),
        minute in 0..1440_u16,
    ) {
        let labels = if labelled { labels(&[("k", "1")]) } else { labels(&[]) };
        let facts = Facts {
            asked: if named { Asked::ByName } else { Asked::ByDefault },
            attachments: if picture { vec!["image/png"] } else { Vec::new() },
            minute,
            ..facts(&text, &labels)
        };
        let rules: Vec<Rule> = rules.into_iter().map(rule).collect();
        let weighed = weigh(&rules, &facts);
        prop_assert_eq!(weighed.len(), rules.len());
        prop_assert_eq!(&weighed, &weigh(&rules, &facts));
        for (rule, weighed) in rules.iter().zip(&weighed) {
            let holds = rule.when.iter().all(|one| one.holds(&facts));
            prop_assert_eq!(weighed.uses.is_some(), holds);
            prop_assert!(!weighed.because.is_empty());
        }
    }
}

/// The shortest of many runs: what others did meanwhile is in all the rest.
fn shortest(mut run: impl FnMut()) -> Duration {
    let timed = |_| {
        let began = Instant::now();
        run();
        began.elapsed()
    };
    (0..200).map(timed).min().unwrap_or_default()
}

/// Prints what it measured: `cargo test --release -p agentd-route hundred -- --nocapture`.
#[test]
fn routes_of_a_hundred_rules_take_microseconds() {
    let labels = labels(&[("team", "a")]);
    let text = "Please have a look at the failing test in src/parser.rs, and say why. ".repeat(3);
    let facts = facts(&text, &labels);
    let hundred: Vec<Rule> = (0..100)
        .map(|number| {
            let words = format!(r"(?i)\bword{number}\b|other{number}\s+thing");
            rule(vec![
                Condition::Label("team".to_owned(), "a".to_owned()),
                Condition::Chars("> 20".parse().unwrap()),
                Condition::Text(Pattern::new(&words).unwrap()),
            ])
        })
        .collect();
    let classes = (0..100).map(|_| rule(vec![Condition::Class(vec![Class::Chat])]));
    let classes: Vec<Rule> = classes.collect();
    let took = shortest(|| drop(black_box(weigh(black_box(&hundred), &facts))));
    // The control: a hundred walks over the same text.
    let control = shortest(|| {
        for number in 0..100_u8 {
            black_box(
                text.bytes()
                    .filter(|byte| *byte == black_box(number))
                    .count(),
            );
        }
    });
    let ratio = took.as_secs_f64() / control.as_secs_f64().max(1e-9);
    // The words are looked at once for all of them.
    let by_class = shortest(|| {
        let facts = Facts {
            classified: OnceCell::new(),
            ..facts.clone()
        };
        drop(black_box(weigh(black_box(&classes), &facts)));
    });
    println!("a decision by the class of 100 rules: {by_class:?}");
    println!("a decision of 100 rules: {took:?}, {ratio:.1} times a plain walk for each");
    // Debug builds are some twenty times slower, the control with them.
    assert!(ratio < 100.0, "{took:?} is {ratio:.1} times {control:?}");
}

//! The rules, row by row and over any sequence of failures.

use proptest::prelude::*;

use super::*;

const CLASSES: &[Class] = &[
    Class::Cancelled,
    Class::Refusal,
    Class::ContextOverflow,
    Class::Billing,
    Class::Auth,
    Class::NotConfigured,
    Class::ModelNotFound,
    Class::RateLimit,
    Class::Overloaded,
    Class::ServerError,
    Class::Timeout,
    Class::Certificate,
    Class::MalformedResponse,
    Class::BadRequest,
    Class::Unknown,
];

fn entry(name: &str) -> Entry {
    let (provider, model) = name.split_once('/').unwrap();
    Entry {
        provider: provider.to_owned(),
        model: model.to_owned(),
        url: format!("http://{provider}"),
        window: Some(100_000),
        standing: Standing::Ready,
    }
}

fn chain(names: &[&str]) -> Policy {
    let entries = names.iter().map(|name| entry(name)).collect();
    Policy::new(entries, OnRefusal::Stop, None)
}

fn failed(class: Class) -> Failed {
    Failed {
        class,
        retry_after: None,
        took: Duration::ZERO,
        effects: Effects::None,
        jitter: 0.5,
    }
}

fn after(class: Class, retry_after: u64) -> Failed {
    Failed {
        retry_after: Some(Duration::from_secs(retry_after)),
        ..failed(class)
    }
}

/// What happens when this goes wrong again and again, in a few words; waits are virtual.
fn story(policy: &mut Policy, failure: Failed) -> String {
    let mut now = Duration::ZERO;
    let mut told = Vec::new();
    let mut verdict = policy.begin(now);
    loop {
        if let Some(cool) = verdict.cool {
            let time = cooldown::time(cool.class, 0, cool.retry_after).unwrap();
            told.push(format!("cool {} {}s", cool.entry, time.as_secs()));
        }
        match verdict.next {
            Next::Ask(entry) => told.push(format!("ask {entry}")),
            Next::Wait(entry, time) => {
                now += time;
                told.push(format!("wait {}s ask {entry}", time.as_secs_f64()));
            }
            Next::Compact(entry) => told.push(format!("compact {entry}")),
            Next::GiveUp(class, retry_in) => {
                let retry = retry_in.map_or(String::new(), |time| format!(" {}s", time.as_secs()));
                told.push(format!("{class:?}{retry}"));
                return told.join(", ");
            }
        }
        verdict = policy.failed(now, failure);
    }
}

fn alone(failure: Failed) -> String {
    story(&mut chain(&["a/m"]), failure)
}

fn two(failure: Failed) -> String {
    story(&mut chain(&["a/m", "b/m"]), failure)
}

#[test]
fn cancelled_ends_at_once() {
    assert_eq!(two(failed(Class::Cancelled)), "ask 0, Cancelled");
}

#[test]
fn refusal_ends_or_goes_one_further_if_wanted() {
    assert_eq!(two(failed(Class::Refusal)), "ask 0, Refusal");
    let wanted = || {
        let entries = ["a/m", "b/m", "c/m"].map(entry).to_vec();
        Policy::new(entries, OnRefusal::Next, None)
    };
    let refused = failed(Class::Refusal);
    assert_eq!(story(&mut wanted(), refused), "ask 0, ask 1, Refusal");
    let effects = Effects::Possible;
    let after_a_tool = Failed { effects, ..refused };
    assert_eq!(story(&mut wanted(), after_a_tool), "ask 0, Refusal");
}

#[test]
fn overflow_shortens_twice_then_wants_a_larger_window() {
    let overflow = failed(Class::ContextOverflow);
    let expected = "ask 0, compact 0, compact 0, ContextOverflow";
    assert_eq!(alone(overflow), expected);
    assert_eq!(two(overflow), expected, "the next one is no larger");
    let mut larger = vec![entry("a/m"), entry("b/m"), entry("c/m")];
    larger[2].window = Some(200_000);
    let mut policy = Policy::new(larger.clone(), OnRefusal::Stop, None);
    let expected = "ask 0, compact 0, compact 0, ask 2, ContextOverflow";
    assert_eq!(story(&mut policy, overflow), expected);
    larger[0].window = None;
    let mut policy = Policy::new(larger, OnRefusal::Stop, None);
    assert_eq!(story(&mut policy, overflow), expected, "so much is assumed");
    let mut unknown = vec![entry("a/m"), entry("b/m")];
    unknown[0].window = Some(UNKNOWN_WINDOW);
    unknown[1].window = None;
    let mut policy = Policy::new(unknown, OnRefusal::Stop, None);
    let expected = "ask 0, compact 0, compact 0, ContextOverflow";
    assert_eq!(story(&mut policy, overflow), expected, "no more is assumed");
}

#[test]
fn billing_leaves_the_whole_provider() {
    let billing = failed(Class::Billing);
    assert_eq!(alone(billing), "ask 0, cool 0 600s, Billing");
    let mut policy = chain(&["a/m", "a/n", "b/m"]);
    let expected = "ask 0, cool 0 600s, ask 2, cool 2 600s, Billing";
    assert_eq!(story(&mut policy, billing), expected);
}

#[test]
fn auth_goes_on_at_once() {
    let expected = "ask 0, cool 0 86400s, ask 1, cool 1 86400s, Auth 86400s";
    assert_eq!(two(failed(Class::Auth)), expected);
}

#[test]
fn provider_absent_or_keyless_is_passed_over() {
    let expected = "ask 0, cool 0 30s, ask 1, cool 1 30s, NotConfigured 30s";
    assert_eq!(two(failed(Class::NotConfigured)), expected);
    let mut entries = vec![entry("a/m"), entry("b/m")];
    entries[0].standing = Standing::NoKey;
    let mut policy = Policy::new(entries, OnRefusal::Stop, None);
    let verdict = policy.begin(Duration::ZERO);
    assert_eq!(verdict.passed, [(0, Passed::NoKey)]);
    assert_eq!(verdict.next, Next::Ask(1));
    let mut none = vec![entry("a/m")];
    none[0].standing = Standing::NoKey;
    let verdict = Policy::new(none, OnRefusal::Stop, None).begin(Duration::ZERO);
    assert_eq!(verdict.next, Next::GiveUp(Class::NotConfigured, None));
}

#[test]
fn model_not_found_is_not_asked_again() {
    let expected = "ask 0, ask 1, ModelNotFound";
    assert_eq!(two(failed(Class::ModelNotFound)), expected);
}

#[test]
fn rate_limit_is_waited_for_when_alone() {
    let limit = failed(Class::RateLimit);
    let expected = "ask 0, wait 2s ask 0, wait 4s ask 0, wait 8s ask 0, cool 0 30s, RateLimit 30s";
    assert_eq!(alone(limit), expected);
    let expected = "ask 0, wait 2s ask 0, cool 0 30s, ask 1, wait 2s ask 1, wait 4s ask 1, \
        wait 8s ask 1, cool 1 30s, RateLimit 16s";
    assert_eq!(two(limit), expected);
    let minute = after(Class::RateLimit, 60);
    let expected = "ask 0, cool 0 60s, ask 1, wait 60s ask 1, wait 60s ask 1, wait 60s ask 1, \
        cool 1 60s, RateLimit 0s";
    assert_eq!(two(minute), expected);
    let longer = after(Class::RateLimit, 61);
    assert_eq!(alone(longer), "ask 0, cool 0 61s, RateLimit 61s");
    let expected = "ask 0, cool 0 61s, ask 1, cool 1 61s, RateLimit 61s";
    assert_eq!(two(longer), expected);
}

#[test]
fn overloaded_is_like_rate_limits_with_its_rest() {
    let expected = "ask 0, wait 2s ask 0, wait 4s ask 0, wait 8s ask 0, cool 0 30s, Overloaded 30s";
    assert_eq!(alone(failed(Class::Overloaded)), expected);
}

#[test]
fn server_error_is_tried_twice_more() {
    for class in [Class::ServerError, Class::Timeout] {
        let expected = format!("ask 0, wait 2s ask 0, wait 4s ask 0, cool 0 15s, {class:?} 15s");
        assert_eq!(alone(failed(class)), expected);
        let expected = format!(
            "ask 0, wait 2s ask 0, cool 0 15s, ask 1, wait 2s ask 1, wait 4s ask 1, cool 1 15s, \
            {class:?} 9s"
        );
        assert_eq!(two(failed(class)), expected);
    }
}

#[test]
fn silence_is_not_asked_again_while_others_could() {
    let silent = |seconds| Failed {
        took: Duration::from_secs(seconds),
        ..failed(Class::Timeout)
    };
    assert!(two(silent(120)).starts_with("ask 0, cool 0 15s, ask 1, wait"));
    assert!(two(silent(3)).starts_with("ask 0, wait 2s ask 0, cool"));
    assert!(alone(silent(120)).starts_with("ask 0, wait 2s ask 0, wait"));
}

#[test]
fn a_certificate_ends_the_turn() {
    assert_eq!(two(failed(Class::Certificate)), "ask 0, Certificate");
}

#[test]
fn nonsense_is_tried_twice_more_and_nobody_rests() {
    let expected = "ask 0, wait 2s ask 0, ask 1, wait 2s ask 1, wait 4s ask 1, MalformedResponse";
    assert_eq!(two(failed(Class::MalformedResponse)), expected);
}

#[test]
fn bad_request_is_not_repeated_unknown_is_once() {
    assert_eq!(two(failed(Class::BadRequest)), "ask 0, ask 1, BadRequest");
    let expected = "ask 0, wait 2s ask 0, ask 1, wait 2s ask 1, Unknown";
    assert_eq!(two(failed(Class::Unknown)), expected);
}

#[test]
fn jitter_never_goes_below_the_providers_word() {
    let mut waits = Vec::new();
    for (jitter, retry_after) in [(0.0, 0), (1.0, 0), (0.0, 2), (7.0, 0)] {
        let failure = Failed {
            jitter,
            ..after(Class::RateLimit, retry_after)
        };
        waits.push(wait(&failure, 0).as_millis());
    }
    assert_eq!(waits, [1500, 2500, 2000, 2500]);
}

#[test]
fn no_wait_ends_after_the_deadline() {
    let mut policy = chain(&["a/m"]);
    policy.deadline = Some(Duration::from_secs(5));
    let expected = "ask 0, wait 2s ask 0, cool 0 30s, RateLimit 30s";
    assert_eq!(story(&mut policy, failed(Class::RateLimit)), expected);
}

#[test]
fn an_entry_that_repeats_one_is_skipped() {
    let mut policy = chain(&["a/m", "a/m", "b/m"]);
    let not_found = failed(Class::ModelNotFound);
    assert_eq!(story(&mut policy, not_found), "ask 0, ask 2, ModelNotFound");
}

#[test]
fn resting_models_are_waited_for_when_all_rest() {
    let resting = |seconds, class| Standing::Cooling(Duration::from_secs(seconds), class);
    let mut entries = vec![entry("a/m"), entry("b/m")];
    entries[0].standing = resting(20, Class::Overloaded);
    let mut policy = Policy::new(entries.clone(), OnRefusal::Stop, None);
    let verdict = policy.begin(Duration::ZERO);
    assert_eq!(verdict.next, Next::Ask(1));
    assert_eq!(verdict.passed, [(0, Passed::Cooling(Class::Overloaded))]);
    entries[1].standing = resting(10, Class::Timeout);
    let verdict = Policy::new(entries.clone(), OnRefusal::Stop, None).begin(Duration::ZERO);
    assert_eq!(verdict.next, Next::Wait(1, Duration::from_secs(10)));
    entries[0].standing = resting(200, Class::Billing);
    entries[1].standing = resting(100, Class::RateLimit);
    let mut policy = Policy::new(entries, OnRefusal::Stop, None);
    let verdict = policy.begin(Duration::ZERO);
    let hundred = Some(Duration::from_secs(100));
    assert_eq!(verdict.next, Next::GiveUp(Class::RateLimit, hundred));
    assert_eq!(policy.current(), 1, "the one that the reason is about");
}

#[test]
fn answer_makes_the_next_failure_a_first_one() {
    let mut policy = chain(&["a/m", "b/m"]);
    policy.begin(Duration::ZERO);
    policy.failed(Duration::ZERO, failed(Class::ModelNotFound));
    policy.answered();
    for _ in 0..3 {
        let verdict = policy.failed(Duration::ZERO, failed(Class::Unknown));
        assert!(matches!(verdict.next, Next::Wait(1, _)), "{verdict:?}");
        policy.answered();
    }
    let verdict = policy.failed(Duration::ZERO, failed(Class::BadRequest));
    assert_eq!(verdict.next, Next::GiveUp(Class::BadRequest, None));
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let standing = prop_oneof![
        3 => Just(Standing::Ready),
        1 => Just(Standing::NoKey),
        1 => (0u64..400).prop_map(|s| Standing::Cooling(Duration::from_secs(s), Class::Timeout)),
    ];
    let window = prop::option::of(1u64..4);
    (0..3usize, 0..3usize, window, standing).prop_map(|(provider, model, window, standing)| Entry {
        window,
        standing,
        ..entry(&format!("p{provider}/m{model}"))
    })
}

fn any_failure() -> impl Strategy<Value = Failed> {
    let class = prop::sample::select(CLASSES);
    let retry_after = prop::option::of((0u64..200).prop_map(Duration::from_secs));
    let took = (0u64..200).prop_map(Duration::from_secs);
    let all = (class, retry_after, took, any::<bool>(), 0.0..1.0);
    all.prop_map(|(class, retry_after, took, ran, jitter)| {
        let effects = if ran {
            Effects::Possible
        } else {
            Effects::None
        };
        Failed {
            class,
            retry_after,
            took,
            effects,
            jitter,
        }
    })
}

proptest! {
    #[test]
    fn policy_always_ends_and_asks_nobody_who_rests(
        entries in prop::collection::vec(any_entry(), 1..6),
        failures in prop::collection::vec(any_failure(), 1..30),
        next_on_refusal in any::<bool>(),
        deadline in prop::option::of((1u64..300).prop_map(Duration::from_secs)),
    ) {
        let on_refusal = if next_on_refusal { OnRefusal::Next } else { OnRefusal::Stop };
        let most = entries.len() * TRIES as usize + COMPACTIONS as usize;
        let mut rests: Vec<Duration> = entries.iter().map(|entry| match entry.standing {
            Standing::Cooling(until, _) => until,
            _ => Duration::ZERO,
        }).collect();
        let mut policy = Policy::new(entries.clone(), on_refusal, deadline);
        let mut now = Duration::ZERO;
        let mut waited = vec![Duration::ZERO; entries.len()];
        let mut last = 0;
        let mut failures = failures.iter().cycle();
        let mut verdict = policy.begin(now);
        for asked in 0.. {
            prop_assert!(asked <= most, "more than {most} requests");
            if let Some(cool) = verdict.cool {
                let time = cooldown::time(cool.class, 0, cool.retry_after).unwrap();
                rests[cool.entry] = now + time;
            }
            let entry = match verdict.next {
                Next::Ask(entry) | Next::Compact(entry) => entry,
                Next::Wait(entry, time) => {
                    prop_assert!(time <= LONGEST_WAIT);
                    let healthy = (entry + 1..entries.len())
                        .any(|next| policy.is_healthy(next, now));
                    if healthy && entry == last && asked > 0 {
                        waited[entry] += time;
                        prop_assert!(waited[entry] <= WAIT_BESIDE_HEALTHY);
                    }
                    now += time;
                    prop_assert!(deadline.is_none_or(|deadline| now < deadline));
                    entry
                }
                Next::GiveUp(..) => break,
            };
            prop_assert!(entry >= last, "the chain is walked forward");
            prop_assert!(rests[entry] <= now, "entry {entry} rests until {:?}", rests[entry]);
            prop_assert!(entries[entry].standing != Standing::NoKey);
            last = entry;
            verdict = policy.failed(now, *failures.next().unwrap());
        }
    }

    #[test]
    fn a_pinned_model_is_never_left(failures in prop::collection::vec(any_failure(), 1..30)) {
        let mut policy = chain(&["a/m"]);
        let mut now = Duration::ZERO;
        let mut verdict = policy.begin(now);
        let mut failures = failures.iter().cycle();
        loop {
            match verdict.next {
                Next::Ask(entry) | Next::Compact(entry) => prop_assert_eq!(entry, 0),
                Next::Wait(entry, time) => {
                    prop_assert_eq!(entry, 0);
                    now += time;
                }
                Next::GiveUp(..) => break,
            }
            verdict = policy.failed(now, *failures.next().unwrap());
        }
    }
}

//! The timer that delivers speech which waits, each minute.
//!
//! Owns its two units and whether they are ours to write. Must not know when they are right.

use std::path::PathBuf;

use super::installation::Installation;
use super::packaged;
use super::step::{Step, ours};
use super::systemd::{environment, quoted, shown, systemctl, unit_dir};

pub(super) const SERVICE: &str = "agentd-voice-flush.service";
pub(super) const TIMER: &str = "agentd-voice-flush.timer";
const SERVICE_TEMPLATE: &str =
    include_str!("../../../../packaging/systemd/agentd-voice-flush.service");
const TIMER_TEMPLATE: &str = include_str!("../../../../packaging/systemd/agentd-voice-flush.timer");

fn units(of: &Installation) -> [(PathBuf, String); 2] {
    let dir = unit_dir(of);
    let service = SERVICE_TEMPLATE
        .replace("@AGENTCTL@", &quoted(&shown(&of.control)))
        .replace("@ENVIRONMENT@", &environment(of));
    [
        (dir.join(SERVICE), service),
        (dir.join(TIMER), TIMER_TEMPLATE.to_owned()),
    ]
}

/// Did the user copy them there by hand, or write others?
fn is_theirs(of: &Installation) -> bool {
    units(of).iter().any(|(path, _)| ours(path).is_err())
}

/// What is to be there: the units, or what is added to a package's. Nothing when the user has own ones.
pub(super) fn files(of: &Installation) -> Vec<(PathBuf, String)> {
    if is_theirs(of) {
        Vec::new()
    } else if packaged::has_timer(of) {
        vec![packaged::addition_to_timer(of)]
    } else {
        units(of).into()
    }
}

pub(super) fn start(of: &Installation) -> Option<Step> {
    let start = Step::Run(systemctl(&["enable", "--now", TIMER]));
    (!is_theirs(of)).then_some(start)
}

pub(super) fn stop() -> Vec<Step> {
    // There may be none.
    vec![Step::Try(systemctl(&["disable", "--now", TIMER]))]
}

pub(super) fn remove(of: &Installation) -> Vec<Step> {
    let (addition, _) = packaged::addition_to_timer(of);
    let dir = addition.parent().map(ToOwned::to_owned);
    let mut steps = vec![Step::Remove(addition)];
    steps.extend(dir.map(Step::RemoveDir));
    if !is_theirs(of) {
        for (path, _) in units(of) {
            steps.push(Step::RemoveKept(path.clone()));
            steps.push(Step::Remove(path));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_where_the_shells_speech_waits() {
        let [(path, service), (_, timer)] = units(&Installation::example());
        let expected = "/h/.config/systemd/user/agentd-voice-flush.service";
        assert_eq!(path, PathBuf::from(expected));
        for line in [
            "ExecStart=\"/opt/my agents/50%%/agentctl\" voice flush",
            "Environment=\"PATH=/a \\\"b\\\"\\\\c:/usr/bin\"",
            // A turn without a daemon goes on when the time is over.
            "KillMode=process",
        ] {
            assert!(
                service.lines().any(|found| found == line),
                "{line}\n{service}"
            );
        }
        assert!(!service.contains("=@") && !timer.contains('@'), "{service}");
    }

    #[test]
    fn what_was_copied_there_by_hand_stays() {
        let dir = tempfile::tempdir().unwrap();
        let of = Installation {
            config_home: dir.path().to_owned(),
            ..Installation::example()
        };
        assert_eq!(files(&of).len(), 2);
        std::fs::create_dir_all(unit_dir(&of)).unwrap();
        std::fs::write(unit_dir(&of).join(TIMER), "[Timer]\n").unwrap();
        assert_eq!(files(&of), []);
        assert_eq!(start(&of), None);
        let kept = unit_dir(&of).join(TIMER);
        assert!(!remove(&of).contains(&Step::Remove(kept)));
    }
}

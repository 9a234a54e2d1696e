//! Hermes' own terminal interface, with timmy behind `serve gateway` and with Hermes' own gateway, and
//! the same model on loopback.
//!
//! Owns these measurements. Must not know how figures are judged. Where Hermes isn't installed it is
//! left out, aloud.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use nix::pty::{Winsize, openpty};

use super::beside::{REST, STARTS_WITHIN, figure, ours};
use super::{Pair, acp, installed, until_quiet};
use crate::mock_model::MockModel;
use crate::place::{AGENTCTL, Place, ms};
use crate::report::{Figure, Limit};

/// How soon it is ready, and how long its prompts take until they are answered.
pub(crate) fn interface(repetitions: usize) -> Vec<Figure> {
    let Some(hermes) = installed(acp::HERMES.program) else {
        return Vec::new();
    };
    let venv = hermes.ancestors().nth(2).map(|dir| dir.join("venv"));
    let entry = venv.as_deref().and_then(|venv| {
        let mut pythons = std::fs::read_dir(venv.join("lib")).ok()?.flatten();
        pythons.find_map(|python| {
            let packages = python.path().join("site-packages");
            let entry = packages.join("hermes_cli/tui_dist/entry.js");
            entry.is_file().then_some((packages, entry))
        })
    });
    let (Some(venv), Some((packages, entry))) = (venv, entry) else {
        println!(
            "left out: Hermes has no interface below {}",
            hermes.display()
        );
        return Vec::new();
    };
    let (mut ready, mut first, mut next) = (Pair::default(), Pair::default(), Pair::default());
    for _ in 0..repetitions {
        let model = MockModel::start();
        let place = ours(&model);
        let daemon = place.daemon();
        let link = place.path("hermes-gateway");
        std::os::unix::fs::symlink(AGENTCTL, &link).unwrap();
        let their_place = Place::new();
        let (own, _) = (acp::HERMES.prepare)(&hermes, &their_place, &model);
        for number in 0..=INTERFACES {
            let python = venv.join("bin/python3");
            let theirs = shown(&their_place, &entry, (&python, &packages), &own.env);
            let us = shown(&place, &entry, (&link, &packages), &[]);
            if number > 0 {
                ready.add(theirs[0], us[0]);
                first.add(theirs[1], us[1]);
                next.add(theirs[2], us[2]);
            }
        }
        daemon.stop();
    }
    let no_slower = Limit::Ratio(1.0);
    let aside = |what: &str| format!("{what}, timmy; control: Hermes' own gateway");
    vec![
        figure(
            "beside-tui-ready",
            "ms",
            ready,
            no_slower,
            aside("from the start of Hermes' interface until it is ready"),
        ),
        figure(
            "beside-tui-first",
            "ms",
            first,
            no_slower,
            aside("its first prompt, until it is answered"),
        ),
        figure(
            "beside-tui-next",
            "ms",
            next,
            no_slower,
            aside("its second prompt, until it is answered"),
        ),
    ]
}

/// Starts of the interface in a repetition, but for one that finds cold caches.
const INTERFACES: usize = 5;

/// The interface at a terminal: until it is ready, its first answer, and the next.
fn shown(
    place: &Place,
    entry: &Path,
    (python, packages): (&Path, &Path),
    env: &[(String, String)],
) -> [f64; 3] {
    until_quiet();
    let size = Winsize {
        ws_row: 40,
        ws_col: 130,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(&size, None).unwrap();
    let slave = || Stdio::from(pty.slave.try_clone().unwrap());
    let begun = Instant::now();
    let mut child = place
        .command("node", &[entry.to_str().unwrap()])
        .envs(env.iter().map(|(name, value)| (name, value)))
        .env("TERM", "xterm-256color")
        .env("HERMES_PYTHON", python)
        .env("HERMES_PYTHON_SRC_ROOT", packages)
        .env("HERMES_CWD", place.path("home"))
        .stdin(slave())
        .stdout(slave())
        .stderr(slave())
        .spawn()
        .unwrap();
    let mut screen = Shown {
        screen: File::from(pty.master),
        seen: String::new(),
    };
    screen.until("ready");
    let ready = ms(begun.elapsed());
    let [first, next] = ["[[deltas=20]]", "[[deltas=30]]"].map(|prompt| {
        std::thread::sleep(REST);
        let words = prompt
            .trim_start_matches("[[deltas=")
            .trim_end_matches("]]");
        let last: usize = words.parse::<usize>().unwrap() - 1;
        screen.say(prompt);
        screen.until(prompt);
        // What comes at once with a text is part of a paste, and the line stays.
        std::thread::sleep(REST);
        let begun = Instant::now();
        screen.say("\r");
        screen.until(&format!("w{last}"));
        let took = ms(begun.elapsed());
        // What is typed before that isn't a prompt of its own.
        screen.until("ready");
        took
    });
    let _gone = child.kill();
    child.wait().unwrap();
    [ready, first, next]
}

/// What a terminal shows.
struct Shown {
    screen: File,
    seen: String,
}

impl Shown {
    fn say(&mut self, keys: &str) {
        self.screen.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads until this was drawn, behind what was waited for before.
    fn until(&mut self, text: &str) {
        let begun = Instant::now();
        let mut bytes = [0; 4096];
        loop {
            if let Some(found) = self.seen.find(text) {
                self.seen.drain(..found + text.len());
                return;
            }
            assert!(
                begun.elapsed() < STARTS_WITHIN,
                "no {text:?} in {:?}",
                self.seen
            );
            let count = self.screen.read(&mut bytes).unwrap();
            self.seen += &String::from_utf8_lossy(&bytes[..count]);
        }
    }
}

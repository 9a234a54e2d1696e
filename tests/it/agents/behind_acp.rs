//! An agent in an editor: acpx, with our ACP face before the real agent.
//!
//! Owns what such a client sees of a real agent. What the face says of each line is tested without one.

use super::{Asks, Driven, Scene, WORK};
use crate::acp_server::clients::Acpx;

pub(super) fn answers_acpx(driven: &Driven) {
    let Some(acpx) = Acpx::installed() else {
        return;
    };
    let label = &driven.label;
    let scene = Scene::of(driven, "");
    let work = scene.daemon.path(WORK);
    let says = |words: &[&str], part: &str| {
        let finished = acpx.run(&scene.daemon, "it", &work, words);
        let is_said = finished.stdout.contains(part);
        assert!(
            finished.code == Some(0) && is_said,
            "{label}: {words:?}: {finished:#?}"
        );
    };
    says(&["sessions", "new"], "");
    says(&["[[deltas=3]]"], "w0 w1 w2");
    says(&["still there"], "echo: still there");
    let touch = |name: &str| {
        let made = work.join(name);
        (format!("[[bash=touch {}]]", made.display()), made)
    };
    let (prompt, made) = touch("approved");
    says(&["--approve-all", &prompt], "");
    assert!(made.exists(), "{label}");
    if driven.can.asks == Asks::Always {
        let (prompt, made) = touch("denied");
        let finished = acpx.run(&scene.daemon, "it", &work, &["--deny-all", &prompt]);
        assert!(!made.exists(), "{label}: {finished:#?}");
    }
    says(&["sessions", "close"], "");
    scene.was_understood(driven);
}

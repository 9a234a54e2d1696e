//! What a newcomer is told where silence misleads: turns that a stop cut off, a file that is broken, a
//! variable that goes before a setting, an empty pipe, keys that were used before, a script that isn't
//! what it was added as.

use crate::cli_jobs::piped;
use crate::support::{Daemon, Place};

#[test]
fn config_set_names_what_stands_against_it() {
    let place = Place::new("");
    let set = |key: &str, value: &str| place.agentctl(&["config", "set", key, value]);
    for (text, line) in [("[client\n", 1), ("\nretentoin.days = 3\n", 2)] {
        place.configure(text);
        let refused = set("client.start", "never");
        assert_eq!(refused.code, Some(78), "{refused:?}");
        let where_it_is = format!("config.toml:{line}: ");
        assert!(refused.stderr.contains(&where_it_is), "{refused:?}");
    }
    place.configure("");
    let wrong = set("client.start", "soon");
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(!wrong.stderr.contains("config.toml:"), "{wrong:?}");
    let outdone = set("alias", "false");
    assert_eq!(outdone.code, Some(0), "{outdone:?}");
    assert!(outdone.stderr.contains("`AGENTD_ALIAS`"), "{outdone:?}");
    assert_eq!(set("client.start", "never").stderr, "");
}

#[test]
fn send_says_that_its_pipe_is_empty() {
    let daemon = Daemon::start();
    let said = "standard input is empty";
    let send = ["send", "-a", "chaos", "chaos:say hi"];
    let sent = daemon.agentctl(&send);
    assert_eq!((sent.code, sent.stdout.as_str()), (Some(0), "hi\n"));
    assert!(sent.stderr.contains(said), "{sent:?}");
    let quiet = [&send[..], &["-q"]].concat();
    assert_eq!(daemon.agentctl(&quiet).stderr, "");
    assert_eq!(piped(&daemon.place, &send, "x").stderr, "");
    for words in [&["send"][..], &["send", "-"]] {
        let refused = daemon.agentctl(words);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
}

//! What is granted, as a list; that it is so is tested with commands, in `terminal`.

use super::grants::MOST_GRANTS;
use super::*;
use crate::tool::tests::{AllowedPath, Says};

#[test]
fn sandbox_grants_a_workspace_and_nothing_private_beside() {
    let place = AllowedPath::new(Says::no());
    place.write("user/.cargo/bin/x", "");
    place.write("user/.cargo/credentials.toml", "");
    place.write("user/.ssh/id", "");
    let mut rules = place.rules();
    let path = format!(
        "{0}/user/bin:{0}/user:{0}:relative:{0}/state",
        place.dir.path().display()
    );
    place.write("user/bin/y", "");
    rules.environment = [("PATH".into(), path.into())].into();
    let grants = Grants::of(&rules, &place.around, false).unwrap();
    assert_eq!(grants.write, [place.path("ws")]);
    assert!(grants.list.is_empty());
    let below = |path: &&PathBuf| path.starts_with(place.dir.path());
    let read: Vec<_> = grants.read.iter().filter(below).cloned().collect();
    assert_eq!(
        read,
        [place.path("user/.cargo/bin"), place.path("user/bin")]
    );
}

#[test]
fn sandbox_grants_a_homes_parts_but_private_ones() {
    let mut place = AllowedPath::new(Says::no());
    place.write("user/.ssh/id", "");
    place.write("user/.bashrc", "");
    place.write("user/code/.env", "");
    place.write("user/apps/agentd/env", "");
    place.write("user/apps/other", "");
    std::os::unix::fs::symlink(place.path("user/.ssh"), place.path("user/link")).unwrap();
    place.around.cwd = place.path("user");
    let mut rules = place.rules();
    rules.private.push(place.path("user/apps/agentd"));
    let mut grants = Grants::of(&rules, &place.around, false).unwrap();
    grants.write.sort();
    grants.list.sort();
    assert_eq!(
        grants.write,
        [place.path("user/apps/other"), place.path("user/code")]
    );
    assert_eq!(grants.list, [place.path("user"), place.path("user/apps")]);
}

#[test]
fn sandbox_of_a_large_home_is_cut() {
    let mut place = AllowedPath::new(Says::no());
    for number in 0..MOST_GRANTS + 10 {
        place.write(&format!("user/{number}"), "");
    }
    place.around.cwd = place.path("user");
    let grants = Grants::of(&place.rules(), &place.around, false).unwrap();
    let all = grants.read.len() + grants.write.len() + grants.list.len();
    assert!((MOST_GRANTS - 60..=MOST_GRANTS).contains(&all), "{all}");
}

#[test]
fn words_that_are_none_run_nothing() {
    for words in [&["--reed", "/"][..], &["--read", "/"], &[], &["--"]] {
        let error = become_command(words.iter().map(OsString::from));
        let said = error.to_string();
        assert!(
            said.contains("unknown word") || said.contains("no workspace"),
            "{said}"
        );
    }
}

#[test]
fn sandbox_of_public_files_leaves_out_homes() {
    let place = AllowedPath::new(Says::no());
    place.write("opt/app/.ssh/id", "");
    place.write("opt/app/bin/x", "");
    place.write("opt/etc/agentd.toml", "");
    place.write("opt/etc/hosts", "");
    place.write("opt/tool/x", "");
    place.write("opt/app/.local/share/uv/credentials/x", "");
    place.write("opt/app/.local/share/uv/python/x", "");
    let mut rules = place.rules();
    rules.home = Some(place.path("opt/app"));
    rules.private.push(place.path("opt/etc/agentd.toml"));
    rules.environment = [
        ("RUSTUP_HOME".into(), place.path("opt").into()),
        ("PATH".into(), place.path("opt/app/bin").into()),
    ]
    .into();
    let grants = Grants::of(&rules, &place.around, false).unwrap();
    let below = |paths: &[PathBuf]| {
        let own = |path: &&PathBuf| path.starts_with(place.path("opt"));
        let mut found: Vec<_> = paths.iter().filter(own).cloned().collect();
        found.sort();
        found
    };
    assert_eq!(
        below(&grants.read),
        [
            place.path("opt/app/.local/share/uv/python"),
            place.path("opt/app/bin"),
            place.path("opt/etc/hosts"),
            place.path("opt/tool")
        ]
    );
    assert!(
        grants.list.is_empty(),
        "names are seen in all that is below"
    );
}

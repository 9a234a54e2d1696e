//! Where paths lead.

use super::*;
use crate::tool::tests::{AllowedPath as Test, Says};

#[test]
fn the_innermost_directory_decides() {
    let place = Test::new(Says::no());
    let mut rules = place.rules();
    rules.writable = vec![
        place.path("ws/out"),
        place.path("outside"),
        place.path("not-there"),
    ];
    std::fs::create_dir(place.path("ws/out")).unwrap();
    std::fs::create_dir_all(place.path("state/spill/tmp")).unwrap();
    let roots: Vec<_> = rules
        .roots(&place.around)
        .unwrap()
        .into_iter()
        .map(|root| (root.dir().to_owned(), root.access))
        .collect();
    assert_eq!(roots.len(), 5, "{roots:?}");
    assert!(roots.contains(&(place.path("state/spill"), Access::Read)));
    assert!(roots.contains(&(place.path("state/spill/tmp"), Access::Write)));
    let at = |name: &str| {
        roots
            .iter()
            .position(|(dir, _)| *dir == place.path(name))
            .unwrap()
    };
    assert!(at("ws/out") < at("ws") && at("state/spill/tmp") < at("state/spill"));
}

#[test]
fn agentds_own_directory_is_no_workspace() {
    let mut place = Test::new(Says::yes());
    let rules = place.rules();
    place.write("state/env", "KEY=x");
    place.write("state/skills/a.md", "x");
    for cwd in ["state", "state/skills"] {
        place.around.cwd = place.path(cwd);
        for path in ["env", "new", "."] {
            let found = locate(&rules, &place.around, path, Access::Write);
            assert!(matches!(found, Ok(Located::Never(_))), "{path}: {found:?}");
        }
    }
}

#[test]
fn places_of_agentd_are_private_in_a_workspace() {
    let mut place = Test::new(Says::yes());
    let rules = place.rules();
    place.write("state/env", "KEY=x");
    place.write("state/spill/a.txt", "x");
    place.around.cwd = place.dir.path().to_owned();
    let found = |path: &str| locate(&rules, &place.around, path, Access::Read).unwrap();
    // The home is in it, so it is too much for a workspace.
    assert!(matches!(found("outside"), Located::Outside { .. }));
    let rules = Rules {
        home: None,
        ..rules
    };
    let found = |path: &str| locate(&rules, &place.around, path, Access::Read).unwrap();
    assert!(matches!(found("outside"), Located::Inside(_)));
    assert!(matches!(found("state/env"), Located::Never(_)));
    assert!(matches!(found("state/spill/a.txt"), Located::Inside(_)));
}

#[test]
fn programs_on_the_path_are_read_not_written() {
    let place = Test::new(Says::yes());
    place.write("ws/bin/tool", "x");
    let rules = Rules {
        programs: vec![place.path("ws/bin"), place.path("ws/later")],
        ..place.rules()
    };
    let found = |path: &str, access| locate(&rules, &place.around, path, access).unwrap();
    assert!(matches!(
        found("bin/tool", Access::Read),
        Located::Inside(_)
    ));
    for path in ["bin/tool", "bin/git", "later/git"] {
        let there = found(path, Access::Write);
        assert!(matches!(there, Located::Outside { .. }), "{there:?}");
    }
    // Who works there means to.
    let mut around = place.around.clone();
    around.cwd = place.path("ws/bin");
    let there = locate(&rules, &around, "tool", Access::Write).unwrap();
    assert!(matches!(there, Located::Inside(_)), "{there:?}");
}

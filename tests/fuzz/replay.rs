//! The kept corpus, for the tests of what is fuzzed.
//!
//! Owns where it is. Each crate with such tests has this file as a module of theirs: a crate of its own,
//! or a feature of one, would have the programs and the tests built apart.

use std::path::Path;

/// Gives a check each input that is kept for a target, and names it before; there has to be one, and
/// the fuzzer has to know the target.
pub(crate) fn replay(target: &str, mut check: impl FnMut(&[u8])) {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut kept = above.map(|dir| dir.join("tests/fuzz/corpus"));
    let kept = kept.find(|dir| dir.is_dir()).expect("the corpus");
    let targets = std::fs::read_to_string(kept.join("../Cargo.toml")).unwrap();
    assert!(
        targets.contains(&format!("path = \"fuzz_targets/{target}.rs\"")),
        "no target {target} in tests/fuzz/Cargo.toml"
    );
    let mut seen = 0;
    for entry in std::fs::read_dir(kept.join(target)).unwrap() {
        let path = entry.unwrap().path();
        eprintln!("{}", path.display());
        check(&std::fs::read(path).unwrap());
        seen += 1;
    }
    assert!(seen > 0, "no corpus for {target}");
}

//! Many attempts as one script, so that one command of a turn runs them all.
//!
//! Owns the files of a workspace: the attempts, what runs them, and what they said. Must not know who
//! runs it.
//!
//! An attempt is run by `sh` in the workspace. `$A` is the attacker, `$OUT` the directory outside,
//! `$PLACE` what both are in, `$SOCK` and `$STATE` are agentd's, `$VICTIM` a process of the same user
//! that has the key, `$KEEPER` the one that started the script, `$DAEMON` agentd, `$PORT` a port on
//! which somebody listens, `$ABSTRACT` a name of the same kind.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::catalogue::Row;

/// The words that run it; what started it is the keeper then.
pub const RUN: &str = "exec /bin/sh ./driver";

const DRIVER: &str = r#"
KEEPER=$PPID LC_ALL=C
export KEEPER LC_ALL
for row in rows/*; do
    echo "== ${row#rows/}"
    /bin/sh "$row" < /dev/null 2>&1
    echo "-- $?"
done > said
"#;

/// Writes a workspace with these rows.
pub fn write(work: &Path, variables: &[(&str, String)], rows: &[Row]) {
    let attempts = work.join("rows");
    std::fs::create_dir_all(&attempts).unwrap();
    let mut driver = String::new();
    for (name, value) in variables {
        writeln!(driver, "{name}='{value}'; export {name}").unwrap();
    }
    driver.push_str(DRIVER);
    std::fs::write(work.join("driver"), driver).unwrap();
    std::fs::write(work.join("mine"), "of the workspace\n").unwrap();
    for (number, row) in rows.iter().enumerate() {
        std::fs::write(attempts.join(format!("{number:03}")), row.tries()).unwrap();
    }
    crate::support::copy_program(attacker(), &work.join("attacker"));
}

/// What each row of the script said, by its number; without its exit code when that is 0.
pub fn said(work: &Path) -> Option<BTreeMap<usize, String>> {
    let text = std::fs::read(work.join("said")).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut said = BTreeMap::new();
    for part in text.split("== ").skip(1) {
        let (number, rest) = part.split_once('\n')?;
        said.insert(number.parse().ok()?, rest.to_owned());
    }
    Some(said)
}

pub fn attacker() -> std::path::PathBuf {
    let built = Path::new(crate::support::AGENTD).parent().unwrap();
    let path = built.join("examples/attacker");
    assert!(
        path.exists(),
        "`{}` is not built: run `cargo test`, or `cargo build --examples`",
        path.display()
    );
    path
}

/// The version of landlock that this kernel has; 0 for none.
pub fn landlock() -> u8 {
    let done = std::process::Command::new(attacker())
        .arg("landlock")
        .output()
        .unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    match said.lines().next() {
        Some("ENOSYS" | "EOPNOTSUPP") => 0,
        version => version.and_then(|text| text.parse().ok()).expect(&said),
    }
}

/// Have files here attributes?
pub fn has_attributes() -> bool {
    let file = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    let path = format!("s:{}", file.path().display());
    let mut command = std::process::Command::new(attacker());
    command.args(["call", "setxattr", &path, "s:user.x", "s:x", "1", "0"]);
    let has = command.output().unwrap().status.success();
    if !has {
        crate::support::skipped("attributes of files in /tmp");
    }
    has
}

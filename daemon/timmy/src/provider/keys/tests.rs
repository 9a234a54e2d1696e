//! The environment, then the file, and nothing that others can read.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn write(text: &str, mode: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(FILE);
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    dir
}

#[test]
fn keys_of_the_environment_come_before_the_file() {
    let dir = write("# keys\nexport A=\"from file\"\n\nB='b'\nC=\n", 0o600);
    let keys = Keys::read(dir.path()).unwrap();
    let environment = |name: &str| match name {
        "A" => Some("from environment".to_owned()),
        "B" => Some("  ".to_owned()),
        _ => None,
    };
    let get = |name| keys.get_with(name, &environment);
    assert_eq!(get("A").as_deref(), Some("from environment"));
    assert_eq!(get("B").as_deref(), Some("b"));
    assert_eq!(get("C"), None);
    assert_eq!(keys.get_with("A", &|_| None).as_deref(), Some("from file"));
    assert_eq!(keys.names().collect::<Vec<_>>(), ["A", "B", "C"]);
}

#[test]
fn keys_file_open_to_others_is_refused() {
    for mode in [0o640, 0o604, 0o620, 0o666] {
        let dir = write("A=secret-value\n", mode);
        let error = Keys::read(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("chmod 600") && error.contains(&format!("{mode:04o}")),
            "{error}"
        );
    }
}

#[test]
fn keys_file_mistake_names_the_line_only() {
    let dir = write("A=x\nsecret-value\n", 0o600);
    let error = Keys::read(dir.path()).unwrap_err().to_string();
    assert!(
        error.contains("line 2") && !error.contains("secret"),
        "{error}"
    );
}

#[test]
fn keys_are_none_without_file_and_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Keys::read(dir.path()).unwrap().names().count(), 0);
    let dir = write("A=secret-value\n", 0o600);
    let shown = format!("{:?}", Keys::read(dir.path()).unwrap());
    assert_eq!(shown, "{\"A\"}");
}

#[test]
fn the_first_variable_that_says_something_counts() {
    let said = |name: &str| match name {
        "A" => Some(" ".to_owned()),
        "B" => Some(" b\n".to_owned()),
        ANTHROPIC_TOKEN => Some("t".to_owned()),
        _ => None,
    };
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let found = find(&names(&["A", "B", "C"]), &said).unwrap();
    assert_eq!((found.secret(), found.is_bearer()), ("b", false));
    let found = find(&names(&["A", ANTHROPIC_TOKEN]), &said).unwrap();
    assert_eq!((found.secret(), found.is_bearer()), ("t", true));
    assert_eq!(find(&names(&["A", "C"]), &said), None);
}

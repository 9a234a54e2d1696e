//! What a name means after somebody has put something else there.

use std::os::unix::fs::symlink;

use super::*;

fn places() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    for name in ["app", "other"] {
        std::fs::create_dir(path.join(name)).unwrap();
    }
    (dir, path)
}

#[test]
fn anchor_refuses_a_name_that_became_a_link() {
    let (_dir, at) = places();
    let name = at.join("app");
    for is_open in [true, false] {
        let anchors = Anchors::default();
        anchors.settle_all([&name]);
        // As in the session's next turn, which may be another process's.
        let anchors = if is_open {
            anchors
        } else {
            Anchors::new(anchors.led())
        };
        std::fs::rename(&name, at.join("app.old")).unwrap();
        symlink(at.join("other"), &name).unwrap();
        let lost = anchors.find(&name).unwrap_err();
        assert!(matches!(lost, Lost::Moved(_)), "{lost:?}");
        assert!(lost.to_string().contains("put it back"), "{lost}");
        std::fs::remove_file(&name).unwrap();
        std::fs::rename(at.join("app.old"), &name).unwrap();
        assert_eq!(anchors.find(&name).unwrap().path, name);
    }
}

#[test]
fn anchor_refuses_another_directory_of_its_name() {
    let (_dir, at) = places();
    let name = at.join("app");
    let anchors = Anchors::default();
    let before = anchors.find(&name).unwrap().inode;
    std::fs::rename(&name, at.join("app.old")).unwrap();
    std::fs::rename(at.join("other"), &name).unwrap();
    assert!(matches!(anchors.find(&name), Err(Lost::Moved(_))));
    // In the next turn it is where its user has put it.
    let now = Anchors::new(anchors.led()).find(&name).unwrap().inode;
    assert_ne!(now, before);
}

#[test]
fn anchor_of_a_link_stays_where_it_led() {
    let (_dir, at) = places();
    let name = at.join("link");
    symlink(at.join("app"), &name).unwrap();
    let anchors = Anchors::default();
    assert_eq!(anchors.find(&name).unwrap().path, at.join("app"));
    std::fs::remove_file(&name).unwrap();
    symlink(at.join("other"), &name).unwrap();
    for anchors in [&anchors, &Anchors::new(anchors.led())] {
        assert_eq!(anchors.find(&name).unwrap().path, at.join("app"));
    }
}

#[test]
fn anchor_of_what_comes_later_is_no_link() {
    let (_dir, at) = places();
    let name = at.join("app/out");
    let anchors = Anchors::default();
    assert!(matches!(anchors.find(&name), Err(Lost::Closed { .. })));
    symlink(at.join("other"), &name).unwrap();
    assert!(matches!(anchors.find(&name), Err(Lost::Moved(_))));
    std::fs::remove_file(&name).unwrap();
    std::fs::create_dir(&name).unwrap();
    assert_eq!(anchors.find(&name).unwrap().path, name);
}

#[test]
fn opening_follows_no_link_in_a_path() {
    let (_dir, at) = places();
    std::fs::write(at.join("app/file"), "").unwrap();
    symlink(at.join("app"), at.join("link")).unwrap();
    symlink("file", at.join("app/short")).unwrap();
    assert!(open(&at.join("app/file")).is_ok() && open(&at.join("app")).is_ok());
    for refused in ["link/file", "link", "app/short", "app/../other", "none"] {
        assert!(open(&at.join(refused)).is_err(), "{refused}");
    }
    assert!(open(Path::new("relative")).is_err());
}

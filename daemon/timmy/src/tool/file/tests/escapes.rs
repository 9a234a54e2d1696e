//! What a hostile model tries with paths.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::super::open;
use super::Files;
use crate::tool::tests::{Says, exists};

/// Each way out, tried with each tool that takes a path.
#[tokio::test]
async fn no_path_leads_out_of_the_workspace() {
    let files = Files::new();
    let place = &files.place;
    place.write("outside/secret", "S3CRET\n");
    place.write("state/env", "OPENAI_API_KEY=S3CRET\n");
    place.write("user/.ssh/id", "S3CRET\n");
    let link = |to: &str, at: &str| symlink(place.path(to), place.path(at)).unwrap();
    link("outside/secret", "ws/link");
    link("outside", "ws/dir");
    symlink("../outside", place.path("ws/relative")).unwrap();
    symlink("dir/secret", place.path("ws/chain")).unwrap();
    symlink("/proc/self", place.path("ws/self")).unwrap();
    symlink("loop", place.path("ws/loop")).unwrap();
    link("outside/new", "ws/dangling");
    let absolute = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let ways = [
        "link",
        "dir/secret",
        "dir/new",
        "relative/secret",
        "chain",
        "loop",
        "dangling",
        "../outside/secret",
        "dir/../secret",
        "./../ws/../outside/secret",
        "../../../../../../../../etc/passwd",
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/../outside/secret",
        "/proc/self/fd/0",
        "/proc/1/environ",
        "self/environ",
        "/dev/zero",
        "/dev/stdin",
        "/sys/kernel",
        "~/.ssh/id",
        "",
        "a\0b",
        &absolute("outside/secret"),
        &absolute("state/env"),
        &absolute("user/.ssh/id"),
    ];
    for path in ways {
        for (tool, arguments) in [
            ("read", json!({ "path": path })),
            ("write", json!({ "path": path, "content": "gone" })),
            (
                "edit",
                json!({ "path": path, "old": "S3CRET", "new": "gone" }),
            ),
            ("search", json!({ "path": path, "pattern": "S3CRET|root" })),
            ("list", json!({ "path": path })),
        ] {
            // A home is no name for a path: it is a directory to be made here.
            if tool == "write" && path.starts_with('~') {
                continue;
            }
            let outcome = files.run(tool, arguments).await;
            assert!(!outcome.ok, "{tool} {path:?}: {}", outcome.output);
            assert!(!outcome.output.contains("S3CRET"), "{tool} {path:?}");
            assert!(!outcome.output.contains("root:"), "{tool} {path:?}");
        }
    }
    assert_eq!(place.read("outside/secret"), "S3CRET\n");
    assert!(!exists(&place.path("outside/new")));
    // What is never given isn't even asked for.
    let asked = place.asker.asked();
    assert!(
        asked.iter().any(|(title, _)| title == "read /etc/passwd"),
        "{asked:?}"
    );
    let never = |(title, _): &(String, String)| title.contains("/proc") || title.contains("state");
    assert!(!asked.iter().any(never), "{asked:?}");
}

#[tokio::test]
async fn leave_opens_what_is_outside_but_no_keys() {
    let files = Files::asking(Says::yes());
    files.place.write("outside/a", "text\n");
    files.place.write("state/env", "KEY=S3CRET\n");
    let outside = files.place.path("outside/a");
    let outside = outside.to_str().unwrap();
    assert_eq!(files.read(outside).await.output, "text\n");
    let written = files
        .run("write", json!({ "path": outside, "content": "new\n" }))
        .await;
    assert!(written.ok, "{}", written.output);
    assert_eq!(files.place.read("outside/a"), "new\n");
    let asked = files.place.asker.asked();
    assert_eq!(asked[0].0, format!("read {outside}"));
    assert_eq!(asked[1].0, format!("write {outside}"));
    for path in ["../state/env", "/proc/self/environ"] {
        let refused = files.read(path).await;
        assert!(
            !refused.ok && refused.output.contains("never given to tools"),
            "{}",
            refused.output
        );
    }
    assert_eq!(files.place.asker.asked().len(), 2);
}

#[tokio::test]
async fn absolute_paths_and_links_within_the_workspace_work() {
    let files = Files::new();
    files.place.write("ws/a", "text\n");
    symlink("a", files.place.path("ws/link")).unwrap();
    let absolute = files.place.path("ws/a");
    for path in [absolute.to_str().unwrap(), "link", "./x/../a", "../ws/a"] {
        let read = files.read(path).await;
        // `x` isn't there, so neither is what is beside it.
        assert_eq!(
            read.ok,
            !path.contains('x') || path.starts_with('/'),
            "{path}: {}",
            read.output
        );
    }
    let written = files
        .run("write", json!({ "path": "link", "content": "new\n" }))
        .await;
    assert!(written.ok, "{}", written.output);
    assert!(files.place.path("ws/link").is_symlink());
    assert_eq!(files.place.read("ws/a"), "new\n");
    assert!(files.place.asker.asked().is_empty());
}

#[tokio::test]
async fn file_that_is_none_is_never_waited_for() {
    let files = Files::new();
    let pipe = files.place.path("ws/pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(files.place.path("ws/socket")).unwrap();
    for (path, is) in [
        ("pipe", "a named pipe"),
        ("socket", "a socket"),
        (".", "a directory"),
    ] {
        for (tool, arguments) in [
            ("read", json!({ "path": path })),
            ("write", json!({ "path": path, "content": "x" })),
            ("edit", json!({ "path": path, "old": "a", "new": "b" })),
            ("search", json!({ "path": path, "pattern": "x" })),
        ] {
            if path == "." && tool != "read" && tool != "edit" {
                continue;
            }
            let outcome = tokio::time::timeout(
                std::time::Duration::from_secs(20),
                files.run(tool, arguments),
            );
            let outcome = outcome.await.unwrap();
            assert!(!outcome.ok, "{tool} {path}");
            assert!(
                outcome.output.contains(is),
                "{tool} {path}: {}",
                outcome.output
            );
        }
    }
    files.place.write("ws/a", "x\n");
    let found = files.run("search", json!({ "pattern": "x" })).await;
    assert_eq!(found.output, "a\n1: x\n");
}

#[tokio::test]
async fn directory_that_becomes_a_link_is_not_followed() {
    let files = Files::new();
    files.place.write("ws/dir/a", "mine\n");
    files.place.write("outside/a", "S3CRET\n");
    let rules = files.place.rules();
    let found = crate::tool::places::find(
        &rules,
        &files.place.around,
        "dir/a",
        crate::tool::places::Access::Write,
        &[],
    );
    let found = found.await.unwrap();
    // Between the look and the touch.
    std::fs::remove_dir_all(files.place.path("ws/dir")).unwrap();
    symlink(files.place.path("outside"), files.place.path("ws/dir")).unwrap();
    assert!(open(&found).is_err());
    assert!(found.parent().is_err() && found.parent_made().is_err());
    assert_eq!(files.place.read("outside/a"), "S3CRET\n");
}

#[tokio::test]
async fn a_search_in_the_home_sees_nothing_private() {
    let mut files = Files::new();
    for name in [".ssh/id", ".bashrc", "notes", "code/.env"] {
        files.place.write(&format!("user/{name}"), "needle\n");
    }
    files.place.around.cwd = files.place.path("user");
    let found = files
        .run("search", json!({ "pattern": "needle", "files_only": true }))
        .await;
    assert_eq!(found.output, "code/.env\nnotes\n");
    assert_eq!(files.run("list", json!({})).await.output, "code/\nnotes\n");
    let read = files.read(".ssh/id").await;
    assert!(
        !read.ok && read.output.contains("private to the user's programs"),
        "{}",
        read.output
    );
    // Above the home nothing is a workspace: that is where a daemon happens to be.
    files.place.around.cwd = "/".into();
    assert!(!files.run("list", json!({})).await.ok);
}

#[tokio::test]
async fn files_stay_where_the_session_began() {
    let files = Files::new();
    files.place.write("ws/a", "mine\n");
    files.place.write("outside/a", "S3CRET\n");
    assert_eq!(files.read("a").await.output, "mine\n");
    std::fs::rename(files.place.path("ws"), files.place.path("ws.old")).unwrap();
    symlink(files.place.path("outside"), files.place.path("ws")).unwrap();
    for (tool, arguments) in [
        ("read", json!({ "path": "a" })),
        ("write", json!({ "path": "a", "content": "gone" })),
        ("edit", json!({ "path": "a", "old": "S", "new": "gone" })),
        ("search", json!({ "pattern": "S3CRET" })),
        ("list", json!({})),
        ("read", json!({ "path": files.place.path("ws/a") })),
    ] {
        let refused = files.run(tool, arguments).await;
        assert!(
            !refused.ok && refused.output.contains("when this session began"),
            "{tool}: {}",
            refused.output
        );
    }
    assert_eq!(files.place.read("outside/a"), "S3CRET\n");
    assert!(files.place.asker.asked().is_empty());
}

/// Somebody swaps a directory for a link, over and over, while it is worked in.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[ignore = "heavy"]
async fn files_win_every_race_against_swapped_names() {
    use std::sync::atomic::{AtomicBool, Ordering};

    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

    const ROUNDS: usize = 300;
    let files = Files::new();
    files.place.write("ws/d/a", "mine\n");
    files.place.write("outside/a", "S3CRET\n");
    files.place.write("outside/only-there", "S3CRET\n");
    let (dir, link) = (files.place.path("ws/d"), files.place.path("ws/l"));
    symlink(files.place.path("outside"), &link).unwrap();
    let ended = std::sync::Arc::new(AtomicBool::new(false));
    let stop = std::sync::Arc::clone(&ended);
    let swapper = std::thread::spawn(move || {
        let mut swaps = 0;
        while !stop.load(Ordering::Relaxed) {
            let flags = RenameFlags::RENAME_EXCHANGE;
            renameat2(AT_FDCWD, &dir, AT_FDCWD, &link, flags).unwrap();
            swaps += 1;
        }
        swaps
    });
    for _ in 0..ROUNDS {
        for (tool, arguments) in [
            ("read", json!({ "path": "d/a" })),
            (
                "edit",
                json!({ "path": "d/a", "old": "S3CRET", "new": "gone" }),
            ),
            ("search", json!({ "pattern": "S3C" })),
            ("list", json!({ "depth": 3 })),
            ("write", json!({ "path": "d/only-ours", "content": "x" })),
        ] {
            let said = files.run(tool, arguments).await.output;
            assert!(
                !said.contains("S3CRET\n") && !said.contains("only-there"),
                "{tool}: {said}"
            );
        }
    }
    ended.store(true, Ordering::Relaxed);
    assert!(swapper.join().unwrap() > ROUNDS);
    assert_eq!(files.place.read("outside/a"), "S3CRET\n");
    assert!(!exists(&files.place.path("outside/only-ours")));
}

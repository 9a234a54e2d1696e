//! The file tools on real files.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::json;

use super::*;
use crate::tool::output::{MOST_BYTES, MOST_LINES};
use crate::tool::tests::{AllowedPath, Says};

mod escapes;

struct Files {
    place: AllowedPath,
    tools: Vec<Arc<dyn Tool>>,
}

impl Files {
    fn new() -> Self {
        Self::asking(Says::no())
    }

    fn asking(asker: Arc<Says>) -> Self {
        let place = AllowedPath::new(asker);
        let tools = tools(&Arc::new(place.rules()));
        Self { place, tools }
    }

    async fn run(&self, name: &str, arguments: Value) -> ToolOutcome {
        self.place.run(&self.tools, name, arguments).await
    }

    async fn read(&self, path: &str) -> ToolOutcome {
        self.run("read", json!({ "path": path })).await
    }
}

#[tokio::test]
async fn read_in_parts_says_how_to_go_on() {
    let files = Files::new();
    let text: String = (1..=5000).map(|n| format!("line {n}\n")).collect();
    files.place.write("ws/a/b.txt", &text);
    let (mut offset, mut seen) = (1, String::new());
    for _ in 0..3 {
        let read = files
            .run("read", json!({ "path": "a/b.txt", "offset": offset }))
            .await;
        assert!(read.ok, "{}", read.output);
        let told = read
            .output
            .split_once("[lines")
            .map_or(&*read.output, |(text, _)| text);
        seen.push_str(told);
        offset += MOST_LINES as u64;
        let goes_on = read
            .output
            .contains(&format!("go on with offset {offset}]"));
        assert_eq!(goes_on, read.truncated);
        assert_eq!(goes_on, offset <= 5000, "{offset}");
    }
    assert_eq!(seen, text);
    let one = files
        .run(
            "read",
            json!({ "path": "a/b.txt", "offset": 5000, "limit": 1 }),
        )
        .await;
    assert_eq!((one.output.as_str(), one.truncated), ("line 5000\n", false));
    let beyond = files
        .run("read", json!({ "path": "a/b.txt", "offset": 5001 }))
        .await;
    assert!(
        beyond
            .output
            .contains("has 5000 lines; expected an offset up to that, found 5001")
    );
}

#[tokio::test]
async fn long_lines_and_other_bytes_are_said() {
    let files = Files::new();
    files
        .place
        .write("ws/long", "x".repeat(3 * MOST_BYTES) + "\nnext\n");
    let long = files.read("long").await;
    assert!(long.truncated && long.output.len() < MOST_BYTES + 200);
    assert!(
        long.output.contains("line 1 is longer than 50000 bytes"),
        "{}",
        &long.output[MOST_BYTES..]
    );
    let next = files
        .run("read", json!({ "path": "long", "offset": 2 }))
        .await;
    assert_eq!(next.output, "next\n");
    files
        .place
        .write("ws/wide", ("y".repeat(30_000) + "\n").repeat(3));
    let wide = files.read("wide").await;
    assert!(
        wide.output
            .contains("[lines 1 to 1; there are more: go on with offset 2]")
    );
    files.place.write("ws/binary", b"\x7fELF\0\0");
    let binary = files.read("binary").await;
    assert!(!binary.ok && binary.output.contains("binary is a binary file of 6 bytes"));
    files.place.write("ws/latin", b"caf\xe9\n");
    let latin = files.read("latin").await;
    assert!(latin.ok && latin.output.contains("some bytes are not UTF-8"));
    files.place.write("ws/empty", "");
    assert_eq!(files.read("empty").await.output, "[the file is empty]\n");
    files.place.write("ws/open", "a\nb");
    assert_eq!(files.read("open").await.output, "a\nb");
}

#[tokio::test]
async fn read_of_gigabytes_begins_where_wanted() {
    let files = Files::new();
    files.place.write("ws/huge", "first\n");
    let huge = std::fs::OpenOptions::new()
        .append(true)
        .open(files.place.path("ws/huge"));
    // A hole costs no disk; its bytes are one long line.
    huge.unwrap().set_len(8 << 30).unwrap();
    let read = files
        .run("read", json!({ "path": "huge", "limit": 1 }))
        .await;
    assert!(
        read.output.contains("binary file of 8589934592 bytes"),
        "{}",
        read.output
    );
    let edit = files
        .run(
            "edit",
            json!({ "path": "huge", "old": "first", "new": "x" }),
        )
        .await;
    assert!(
        !edit.ok && edit.output.contains("expected 10485760 at most"),
        "{}",
        edit.output
    );
}

#[tokio::test]
async fn write_keeps_the_mode_and_leaves_nothing_else() {
    let files = Files::new();
    files.place.write("ws/run.sh", "old\n");
    let path = files.place.path("ws/run.sh");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).unwrap();
    let write = json!({ "path": "run.sh", "content": "new\n" });
    let written = files.run("write", write).await;
    assert_eq!(written.output, "wrote 4 bytes to run.sh; it had 4 before\n");
    assert_eq!(
        path.metadata().unwrap().permissions().mode() & 0o7777,
        0o751
    );
    let new = files
        .run("write", json!({ "path": "x/y/z", "content": "" }))
        .await;
    assert_eq!(new.output, "wrote 0 bytes to x/y/z; a new file\n");
    assert_eq!(files.place.read("ws/x/y/z"), "");
    let names = |dir: &str| std::fs::read_dir(files.place.path(dir)).unwrap().count();
    assert_eq!((names("ws"), names("ws/x/y")), (2, 1));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    for (tool, arguments) in [
        ("write", json!({ "path": "run.sh", "content": "x" })),
        (
            "edit",
            json!({ "path": "run.sh", "old": "new", "new": "x" }),
        ),
    ] {
        let refused = files.run(tool, arguments).await;
        assert!(
            refused.output.contains("run.sh is read-only"),
            "{}",
            refused.output
        );
    }
    assert_eq!(files.place.read("ws/run.sh"), "new\n");
}

#[tokio::test]
async fn edit_needs_its_text_once_and_shows_differences() {
    let files = Files::new();
    files
        .place
        .write("ws/a.rs", "fn a() {}\nfn b() {}\nfn c() {}\n");
    let edit = |old: &str, new: &str| json!({ "path": "a.rs", "old": old, "new": new });
    let done = files.run("edit", edit("fn b()", "fn bb()")).await;
    assert_eq!(
        done.output,
        "--- a.rs\n+++ a.rs\n@@ -1,3 +1,3 @@\n fn a() {}\n-fn b() {}\n+fn bb() {}\n fn c() {}\n"
    );
    for (old, new, error) in [
        ("fn x()", "y", "`old` is not in a.rs; expected"),
        (
            "fn  a()",
            "y",
            "`old` is not in a.rs with this white space; expected",
        ),
        (
            "fn ",
            "y",
            "more than once, at the lines 1, 2, 3; expected it once",
        ),
        ("", "y", "`old` is empty"),
        ("fn a", "fn a", "`old` and `new` are the same"),
    ] {
        let refused = files.run("edit", edit(old, new)).await;
        assert!(
            !refused.ok && refused.output.contains(error),
            "{}",
            refused.output
        );
    }
    assert_eq!(
        files.place.read("ws/a.rs"),
        "fn a() {}\nfn bb() {}\nfn c() {}\n"
    );
    let mut all = edit("fn ", "pub fn ");
    all["all"] = true.into();
    assert!(files.run("edit", all).await.ok);
    assert_eq!(files.place.read("ws/a.rs").matches("pub fn").count(), 3);
    files.place.write("ws/a.rs", "a\r\nb\r\n");
    let refused = files.run("edit", edit("a\nb", "c")).await;
    assert!(
        refused.output.contains("whose lines end with \\r\\n"),
        "{}",
        refused.output
    );
}

#[test]
fn edit_of_a_file_changed_meanwhile_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "one").unwrap();
    let opened = Dir::open_ambient_dir(dir.path(), cap_std::ambient_authority()).unwrap();
    let old = opened.symlink_metadata("a").unwrap();
    std::fs::write(dir.path().join("a"), "another").unwrap();
    let refused = replace(&opened, "a".as_ref(), b"mine", Some(&old));
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("somebody else changed it")
    );
    // Nor one that was not there before.
    assert!(replace(&opened, "a".as_ref(), b"mine", None).is_err());
    assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"another");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn edit_that_makes_too_much_is_refused_first() {
    let files = Files::new();
    files.place.write("ws/a.txt", "a".repeat(1 << 20));
    let new = "b".repeat(11);
    let all = json!({ "path": "a.txt", "old": "a", "new": new, "all": true });
    let refused = files.run("edit", all).await;
    assert!(
        !refused.ok
            && refused
                .output
                .contains("would have 11534336 bytes; expected 10485760 at most"),
        "{}",
        refused.output
    );
    assert_eq!(files.place.read("ws/a.txt").len(), 1 << 20);
}

#[tokio::test]
async fn list_is_sorted_bounded_and_without_the_ignored() {
    let files = Files::new();
    for name in [
        "b.rs",
        "a.rs",
        "dir/c.rs",
        "dir/deep/d.txt",
        "target/e.rs",
        ".git/config",
        ".hidden",
    ] {
        files.place.write(&format!("ws/{name}"), "x\n");
    }
    files.place.write("ws/.gitignore", "target/\n");
    let list = |arguments| files.run("list", arguments);
    assert_eq!(
        list(json!({})).await.output,
        ".gitignore\n.hidden\na.rs\nb.rs\ndir/\n"
    );
    assert_eq!(
        list(json!({ "path": "dir", "depth": 2 })).await.output,
        "c.rs\ndeep/\ndeep/d.txt\n"
    );
    assert_eq!(
        list(json!({ "glob": "*.rs" })).await.output,
        "a.rs\nb.rs\ndir/c.rs\n"
    );
    let all = list(json!({ "glob": "*.rs", "all": true })).await;
    assert_eq!(all.output, "a.rs\nb.rs\ndir/c.rs\ntarget/e.rs\n");
    let few = list(json!({ "limit": 2 })).await;
    assert_eq!(
        few.output,
        ".gitignore\n.hidden\n[3 of 5 left out: name a directory or a glob]\n"
    );
    assert!(few.truncated);
    assert_eq!(
        list(json!({ "path": "dir/deep", "glob": "*.zip" }))
            .await
            .output,
        "[nothing in dir/deep]\n"
    );
    for bad in ["!*.rs", "", "a[", "{"] {
        let refused = list(json!({ "glob": bad })).await;
        assert!(
            !refused.ok && refused.output.contains("`glob`: expected a pattern"),
            "{bad}"
        );
    }
    let file = list(json!({ "path": "a.rs" })).await;
    assert!(
        !file.ok && file.output.contains("expected a directory"),
        "{}",
        file.output
    );
}

#[tokio::test]
async fn search_tells_first_lines_and_the_number() {
    let files = Files::new();
    files.place.write("ws/.gitignore", "no\n");
    files.place.write("ws/no/a", "needle\n");
    files.place.write("ws/.git/a", "needle\n");
    files.place.write("ws/b.txt", "x\nneedle one\n");
    files.place.write("ws/a/c.rs", "needle two\nNeedle\n");
    files.place.write("ws/binary", b"needle\0");
    files.place.write("ws/z", "needle\n".repeat(300));
    let search = |arguments| files.run("search", arguments);
    let found = search(json!({ "pattern": "needle \\w+" })).await;
    assert_eq!(
        found.output,
        "a/c.rs\n1: needle two\nb.txt\n2: needle one\n"
    );
    let case = search(json!({ "pattern": "^needle$", "ignore_case": true, "path": "a" })).await;
    assert_eq!(case.output, "a/c.rs\n2: Needle\n");
    let globbed = search(json!({ "pattern": "needle", "glob": "*.rs" })).await;
    assert_eq!(globbed.output, "a/c.rs\n1: needle two\n");
    let names = search(json!({ "pattern": "needle", "files_only": true })).await;
    assert_eq!(names.output, "a/c.rs\nb.txt\nz\n");
    // A file with many hits takes no room of other names.
    files.place.write("ws/a/a", "needle\n".repeat(3));
    let three = json!({ "pattern": "needle", "files_only": true, "limit": 3 });
    let three = search(three).await;
    assert!(
        three.output.starts_with("a/a\na/c.rs\nb.txt\n["),
        "{}",
        three.output
    );
    std::fs::remove_file(files.place.path("ws/a/a")).unwrap();
    let file = search(json!({ "pattern": "one", "path": "b.txt" })).await;
    assert_eq!(file.output, "b.txt\n2: needle one\n");
    let few = search(json!({ "pattern": "needle", "limit": 3 })).await;
    assert!(few.truncated);
    assert_eq!(
        few.output,
        "a/c.rs\n1: needle two\nb.txt\n2: needle one\nz\n1: needle\n[302 lines in 3 files fit; the \
         rest was left out: name a directory, a glob or a narrower pattern]\n"
    );
    assert_eq!(
        search(json!({ "pattern": "nothing" })).await.output,
        "[no line fits]\n"
    );
    for bad in ["(", "a\nb", "[z-a]"] {
        let refused = search(json!({ "pattern": bad })).await;
        assert!(
            !refused.ok && refused.output.contains("`pattern`: expected"),
            "{}",
            refused.output
        );
    }
    files
        .place
        .write("ws/wide", "ä".repeat(100_000) + "needle-far\n");
    let wide = search(json!({ "pattern": "needle-far" })).await;
    assert_eq!(wide.output.chars().count(), "wide\n1: \n".len() + 501);
}

#[tokio::test]
async fn output_left_out_can_be_read_where_kept() {
    let files = Files::new();
    files.place.write("state/spill/call-1.txt", "kept\n");
    let path = files.place.path("state/spill/call-1.txt");
    let path = path.to_str().unwrap();
    assert_eq!(files.read(path).await.output, "kept\n");
    let found = files
        .run("search", json!({ "path": path, "pattern": "k" }))
        .await;
    assert!(found.output.ends_with("1: kept\n"));
    let write = files
        .run("write", json!({ "path": path, "content": "x" }))
        .await;
    assert!(!write.ok, "{}", write.output);
}

#[tokio::test]
async fn a_cancelled_search_ends_and_says_so() {
    let files = Files::new();
    files.place.write("ws/a", "x\n");
    files.place.cancel.cancel();
    let found = files.run("search", json!({ "pattern": "x" })).await;
    assert_eq!(found.output, "[cancelled: not everything was seen]\n");
}

#[tokio::test]
async fn files_of_git_stay_what_they_are() {
    // `git` sees a changed file as changed, not as replaced by one of another mode.
    let files = Files::new();
    let git = |arguments: &[&str]| {
        let done = Command::new("git")
            .args(arguments)
            .current_dir(files.place.path("ws"))
            .env("HOME", files.place.path("user"))
            .output();
        String::from_utf8(done.unwrap().stdout).unwrap()
    };
    files.place.write("ws/a.sh", "one\n");
    let path = files.place.path("ws/a.sh");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    git(&["init", "-q"]);
    git(&["add", "."]);
    files
        .run(
            "edit",
            json!({ "path": "a.sh", "old": "one", "new": "two" }),
        )
        .await;
    assert_eq!(
        git(&["diff", "--stat", "--summary"])
            .matches("mode change")
            .count(),
        0
    );
    assert!(git(&["diff"]).contains("-one\n+two\n"));
}

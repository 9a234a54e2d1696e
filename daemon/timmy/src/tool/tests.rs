//! What the tests of all tools need: places of their own, and somebody to ask.

use std::path::Path;
use std::sync::Mutex;

use super::places::Rules;
use super::*;
use crate::config::Unsandboxed;

/// Says the same to everybody, and remembers what was asked.
#[derive(Debug)]
pub(crate) struct Says {
    answer: Approval,
    asked: Mutex<Vec<(String, String)>>,
}

impl Says {
    pub(crate) fn yes() -> Arc<Self> {
        Self::always(Approval::Granted)
    }

    pub(crate) fn no() -> Arc<Self> {
        Self::always(Approval::Denied("nobody is there".to_owned()))
    }

    fn always(answer: Approval) -> Arc<Self> {
        Arc::new(Self {
            answer,
            asked: Mutex::default(),
        })
    }

    pub(crate) fn asked(&self) -> Vec<(String, String)> {
        self.asked.lock().unwrap().clone()
    }
}

impl Asker for Says {
    fn approve<'a>(
        &'a self,
        _call: Option<&'a str>,
        title: &'a str,
        detail: &'a str,
    ) -> Boxed<'a, Approval> {
        let question = (title.to_owned(), detail.to_owned());
        self.asked.lock().unwrap().push(question);
        Box::pin(async { self.answer.clone() })
    }
}

/// A workspace `ws`, a home `user`, agentd's own `state`, and something `outside`.
pub(crate) struct AllowedPath {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) asker: Arc<Says>,
    pub(crate) cancel: CancellationToken,
    pub(crate) progress: mpsc::Receiver<String>,
    pub(crate) around: Surroundings,
}

impl AllowedPath {
    pub(crate) fn new(asker: Arc<Says>) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("timmy-test-")
            .tempdir_in("/tmp")
            .unwrap();
        for name in ["ws", "user", "state", "outside"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let cancel = CancellationToken::new();
        let (said, progress) = mpsc::channel(10_000);
        let around = Surroundings {
            cwd: dir.path().join("ws"),
            anchors: Arc::default(),
            spill: dir.path().join("state/spill"),
            call: "call".to_owned(),
            job: None,
            cancel: cancel.clone(),
            progress: said,
            asker: Arc::clone(&asker) as Arc<dyn Asker>,
        };
        Self {
            dir,
            asker,
            cancel,
            progress,
            around,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Writes a program that can be run at once. A process of its own does it: one that another test
    /// starts meanwhile would have the file open for writing ("Text file busy").
    pub(crate) fn program(&self, name: &str, script: &str) {
        self.write(name, "");
        let written = std::process::Command::new("sh")
            .args([
                "-c",
                "printf '%s' \"$1\" > \"$0.new\" && chmod 755 \"$0.new\" && mv \"$0.new\" \"$0\"",
            ])
            .arg(self.path(name))
            .arg(script)
            .status();
        assert!(written.unwrap().success());
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn rules(&self) -> Rules {
        Rules {
            home: Some(self.path("user")),
            private: vec![self.path("state")],
            secret: secret::places(Some(&self.path("user")), &[], &[]).into(),
            ..rules()
        }
    }

    /// Runs the tool of that name.
    pub(crate) async fn run(
        &self,
        tools: &[Arc<dyn Tool>],
        name: &str,
        arguments: Value,
    ) -> ToolOutcome {
        let tool = tools.iter().find(|tool| tool.spec().name == name).unwrap();
        let done = tool.run(arguments.as_object().unwrap(), &self.around).await;
        done.unwrap_or_else(ToolOutcome::failed)
    }
}

/// Rules of a machine without anybody's home, with this test's own program.
pub(crate) fn rules() -> Rules {
    Rules {
        home: None,
        private: Vec::new(),
        secret: Vec::new().into(),
        programs: Vec::new(),
        writable: Vec::new(),
        landlock: sandbox::Landlock::ALL,
        network: false,
        unsandboxed: Unsandboxed::Ask,
        program: program(),
        environment: std::env::vars_os().collect(),
    }
}

/// timmy itself, which Cargo builds as an example for its tests. Not when only some are asked for by
/// name: then it is the last one built, and `cargo build --examples` makes it today's.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    deps.parent().unwrap().join("examples/timmy-itself")
}

/// Is there one? Says loudly where the test is skipped.
pub(crate) fn has_sandbox() -> bool {
    let Err(why) = sandbox::available(sandbox::Landlock::ALL) else {
        return true;
    };
    skip(&format!("a sandbox ({why})"));
    false
}

/// Says loudly that this test needs something, or fails where nothing may be missing.
pub(crate) fn skip(needs: &str) {
    crate::skips::say(needs);
    assert!(
        std::env::var_os("AGENTD_TEST_NEEDS").is_none_or(|needs| needs != "all"),
        "CI must have {needs}"
    );
}

pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

#[tokio::test]
async fn question_is_asked_whole_or_not_at_all() {
    let place = AllowedPath::new(Says::yes());
    let rules = Arc::new(place.rules());
    let tools = [file::tools(&rules), terminal::tools(&rules)].concat();
    let (made, old) = (place.path("outside/made"), place.path("outside/old"));
    place.write("outside/old", "old");
    let hidden = |wide: &str| format!("{wide}\ntouch {}\n{wide}", made.display());
    for hidden in [hidden(&": x".repeat(10_000)), hidden(&"\n".repeat(300))] {
        for (name, arguments) in [
            (
                "bash",
                serde_json::json!({"command": hidden, "outside": true, "reason": "a test"}),
            ),
            (
                "write",
                serde_json::json!({"path": made, "content": hidden}),
            ),
            (
                "edit",
                serde_json::json!({"path": old, "old": "old", "new": hidden}),
            ),
        ] {
            let done = place.run(&tools, name, arguments).await;
            assert!(!done.ok && !exists(&made), "{name}: {done:?}");
            assert!(done.output.contains("nobody was asked"), "{name}: {done:?}");
        }
    }
    assert_eq!(place.asker.asked(), []);
    let write = serde_json::json!({"path": made, "content": "one\nin /ws"});
    assert!(place.run(&tools, "write", write).await.ok);
    let edit = serde_json::json!({"path": old, "old": "old", "new": "new", "all": true});
    assert!(place.run(&tools, "edit", edit).await.ok);
    let asked = place.asker.asked();
    let is_shown = |number: usize, text: &str| asked[number].1.ends_with(text);
    assert!(is_shown(0, ":\n| one\n| in /ws"), "{asked:?}");
    assert!(
        is_shown(1, ":\n| old\nbecomes, 1 line, each behind `|`:\n| new"),
        "{asked:?}"
    );
}

/// Is never answered: the turn ends when somebody is asked.
#[derive(Debug)]
struct Leaves(CancellationToken);

impl Asker for Leaves {
    fn approve<'a>(
        &'a self,
        _call: Option<&'a str>,
        _title: &'a str,
        _detail: &'a str,
    ) -> Boxed<'a, Approval> {
        self.0.cancel();
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn leave_that_is_awaited_ends_with_the_turn() {
    let mut place = AllowedPath::new(Says::no());
    place.write("outside/secret", "s");
    let rules = Arc::new(place.rules());
    let tools = [file::tools(&rules), terminal::tools(&rules), web::tools()].concat();
    let outside = place.path("outside/secret");
    let command = serde_json::json!({"command": "true", "outside": true, "reason": "a test"});
    for (name, arguments) in [
        ("read", serde_json::json!({"path": outside})),
        ("write", serde_json::json!({"path": outside, "content": ""})),
        (
            "edit",
            serde_json::json!({"path": outside, "old": "s", "new": "t"}),
        ),
        ("list", serde_json::json!({"path": place.path("outside")})),
        (
            "search",
            serde_json::json!({"path": place.path("outside"), "pattern": "s"}),
        ),
        ("bash", command),
        (
            "fetch",
            serde_json::json!({"url": "http://example.com:8080/"}),
        ),
    ] {
        let cancel = CancellationToken::new();
        place.around.cancel = cancel.clone();
        place.around.asker = Arc::new(Leaves(cancel));
        let done = place.run(&tools, name, arguments);
        let done = tokio::time::timeout(std::time::Duration::from_secs(20), done).await;
        let done = done.unwrap_or_else(|_| panic!("`{name}` still asks"));
        assert!(
            !done.ok && done.output.starts_with("cancelled"),
            "{name}: {done:?}"
        );
    }
    assert_eq!(place.read("outside/secret"), "s");
}

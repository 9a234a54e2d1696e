//! `packaging/install.sh`: what it checks before it changes anything, and what is there when it is
//! cut off.
//!
//! The release it gets has small programs in the place of the real ones: what is tried is the
//! script. `tests/os/packages.sh` installs a real release with it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Finished, Place, copy_program, finish, needs, program};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/install.sh");
const PROGRAMS: [&str; 3] = ["agentctl", "agentd", "timmy"];

struct Release {
    tarball: PathBuf,
    sum: String,
}

/// A place with a home, and a prefix that is not there yet.
struct Target(Place);

impl Target {
    fn new() -> Self {
        Self(Place::new(""))
    }

    fn prefix(&self) -> PathBuf {
        self.0.path("a prefix")
    }

    /// A tarball and its SHA256SUMS in a directory of their own. `more` is a page that only this
    /// version has; `program` is what each program does.
    fn release(&self, version: &str, more: &str, program: &str) -> Release {
        let dir = self.0.path(&format!("release-{version}"));
        let top = dir.join(format!("agentd-{version}-here"));
        for sub in ["bin", "share/man/man1"] {
            fs::create_dir_all(top.join(sub)).unwrap();
        }
        for name in PROGRAMS {
            crate::support::program(&top.join("bin"), name, program);
        }
        for page in ["agentctl", more] {
            fs::write(top.join(format!("share/man/man1/{page}.1")), version).unwrap();
        }
        fs::write(top.join("README.md"), "is not installed").unwrap();
        let tarball = dir.join(format!("agentd-{version}-here.tar.gz"));
        let mut tar = Command::new("tar");
        tar.current_dir(&dir).arg("-czf").arg(&tarball);
        tar.arg(top.file_name().unwrap());
        assert_eq!(finish(tar, b"").code, Some(0));
        let mut sums = Command::new("sha256sum");
        sums.current_dir(&dir).arg(tarball.file_name().unwrap());
        let sums = finish(sums, b"").stdout;
        fs::write(dir.join("SHA256SUMS"), &sums).unwrap();
        let sum = sums.split(' ').next().unwrap().to_owned();
        Release { tarball, sum }
    }

    /// One that works.
    fn good(&self, version: &str) -> Release {
        let only = format!("only-in-{version}");
        self.release(version, &only, &format!("echo agentd {version}"))
    }

    fn script(&self, args: &[&str]) -> Command {
        let mut command = self.0.command("sh");
        command.arg(SCRIPT).arg("--prefix").arg(self.prefix());
        command.args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Finished {
        finish(self.script(args), b"")
    }

    fn install(&self, release: &Release) -> Finished {
        self.run(&[release.tarball.to_str().unwrap()])
    }

    /// Every file below the prefix, with its content.
    fn files(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut left = vec![self.prefix()];
        while let Some(dir) = left.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(self.prefix()).unwrap();
                let name = name.to_str().unwrap().to_owned();
                if path.is_dir() {
                    found.insert(name, String::new());
                    left.push(path);
                } else {
                    found.insert(name, fs::read_to_string(&path).unwrap());
                }
            }
        }
        found
    }

    /// What a program that is installed says.
    fn says(&self, program: &str) -> String {
        let command = self.0.command(self.prefix().join("bin").join(program));
        let done = finish(command, b"");
        assert_eq!(done.code, Some(0), "{program}: {done:?}");
        done.stdout.trim().to_owned()
    }

    fn refused(&self, args: &[&str], why: &str) {
        self.is_refused(self.script(args), why);
    }

    fn is_refused(&self, script: Command, why: &str) {
        let before = self.files();
        let refused = finish(script, b"");
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(why), "{why}: {refused:?}");
        assert_eq!(self.files(), before, "nothing is changed");
    }
}

/// A directory with what the script runs, but for some.
fn tools_without(target: &Target, missing: &[&str]) -> PathBuf {
    let dir = target.0.path(&format!("without-{}", missing.join("-")));
    fs::create_dir(&dir).unwrap();
    for name in [
        "basename",
        "cat",
        "cp",
        "curl",
        "dirname",
        "find",
        "grep",
        "gzip",
        "mkdir",
        "mv",
        "readlink",
        "rm",
        "rmdir",
        "sed",
        "sh",
        "sha256sum",
        "shasum",
        "sort",
        "tar",
        "tr",
        "wget",
    ] {
        let dirs = std::env::var_os("PATH").unwrap();
        let mut places = std::env::split_paths(&dirs).map(|dir| dir.join(name));
        if let Some(program) = places.find(|place| place.is_file())
            && !missing.contains(&name)
        {
            std::os::unix::fs::symlink(program, dir.join(name)).unwrap();
        }
    }
    dir
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_release_is_installed_upgraded_and_removed_again() {
    let target = Target::new();
    let (old, new) = (target.good("1"), target.good("2"));
    let done = target.install(&old);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("installed agentd 1 in "), "{done:?}");
    assert!(
        done.stdout.contains("next: agentctl service install"),
        "{done:?}"
    );
    assert!(done.stdout.contains("bin is not on your PATH"), "{done:?}");
    let once = target.files();
    assert_eq!(target.install(&old).code, Some(0));
    assert_eq!(target.files(), once, "again is the same");

    let done = target.install(&new);
    assert!(
        done.stdout.contains("next: agentctl service restart"),
        "{done:?}"
    );
    for program in PROGRAMS {
        assert_eq!(target.says(program), "agentd 2");
    }
    let files = target.files();
    assert!(
        files.contains_key("share/man/man1/only-in-2.1"),
        "{files:?}"
    );
    assert!(
        !files.contains_key("share/man/man1/only-in-1.1"),
        "{files:?}"
    );
    assert!(!files.contains_key("README.md"), "{files:?}");

    fs::write(target.prefix().join("bin/mine"), "is somebody's").unwrap();
    let done = target.run(&["--uninstall"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let left: Vec<String> = target.files().into_keys().collect();
    assert_eq!(left, ["bin", "bin/mine"]);
    let again = target.run(&["--uninstall"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stdout.contains("nothing of agentd"), "{again:?}");
}

#[test]
fn what_is_not_as_released_is_not_unpacked() {
    let target = Target::new();
    let old = target.good("1");
    assert_eq!(target.install(&old).code, Some(0));
    let new = target.good("2");
    let tarball = text(&new.tarball);
    let wrong = "0".repeat(64);
    target.refused(&["--sha256", &wrong, tarball], "is not what was released");
    let sums = new.tarball.with_file_name("SHA256SUMS");
    fs::write(&sums, format!("{}  other.tar.gz\n", new.sum)).unwrap();
    target.refused(&[tarball], "does not name");
    fs::remove_file(&sums).unwrap();
    target.refused(&[tarball], "no SHA256SUMS");
    target.refused(&["nowhere.tar.gz"], "is not there");
    // The sum by itself is enough, in either case of letters.
    let done = target.run(&["--sha256", &new.sum.to_uppercase(), tarball]);
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn what_would_not_work_here_replaces_nothing() {
    let target = Target::new();
    let foreign = target.prefix().join("bin/timmy");
    fs::create_dir_all(foreign.parent().unwrap()).unwrap();
    fs::write(&foreign, "somebody's").unwrap();
    let old = target.good("1");
    target.refused(&[text(&old.tarball)], "is not of a release");
    fs::remove_file(&foreign).unwrap();
    assert_eq!(target.install(&old).code, Some(0));
    let broken = target.release("2", "only-in-2", "echo no such library >&2; exit 127");
    target.refused(
        &[text(&broken.tarball)],
        "does not run here: no such library",
    );
    assert_eq!(target.says("agentd"), "agentd 1");
}

#[test]
fn install_cut_anywhere_goes_on_with_whole_programs() {
    let target = Target::new();
    let (old, new) = (target.good("1"), target.good("2"));
    // Kills the script instead of its nth `mv`.
    let shims = target.0.path("shims");
    let mv = needs("mv").unwrap();
    let shim = format!(
        "echo x >>\"$COUNTED\"\n\
         [ \"$(wc -l <\"$COUNTED\")\" -lt \"$KILL_AT\" ] || kill -9 $PPID\nexec {} \"$@\"",
        mv.display()
    );
    program(&shims, "mv", &shim);
    let path = format!("{}:{}", shims.display(), std::env::var("PATH").unwrap());
    let complete = {
        assert_eq!(target.install(&new).code, Some(0));
        target.files()
    };
    let mut cuts = 0;
    for kill_at in 1..100 {
        fs::remove_dir_all(target.prefix()).unwrap();
        assert_eq!(target.install(&old).code, Some(0));
        let counted = target.0.path("counted");
        let _none = fs::remove_file(&counted);
        let mut script = target.script(&[text(&new.tarball)]);
        script.env("PATH", &path).env("COUNTED", &counted);
        script.env("KILL_AT", kill_at.to_string());
        let done = finish(script, b"");
        if done.code == Some(0) {
            break;
        }
        assert_eq!(done.code, None, "killed: {done:?}");
        cuts += 1;
        for program in PROGRAMS {
            let said = target.says(program);
            assert!(["agentd 1", "agentd 2"].contains(&said.as_str()), "{said}");
        }
        let again = target.install(&new);
        assert_eq!(again.code, Some(0), "after {kill_at}: {again:?}");
        assert_eq!(target.files(), complete, "after {kill_at}");
    }
    assert!(cuts > 5, "only {cuts} cuts");
}

/// Answers `GET /NAME` from a directory until it is dropped; `cut` is the name of a file that it
/// sends only half of.
fn serve(dir: &Path, cut: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (dir, cut) = (dir.to_owned(), cut.to_owned());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(first)) = lines.next() else {
                continue;
            };
            for line in lines.by_ref() {
                if line.is_ok_and(|line| line.is_empty()) {
                    break;
                }
            }
            let name = first.split(' ').nth(1).unwrap().trim_start_matches('/');
            let Ok(file) = fs::read(dir.join(name)) else {
                continue;
            };
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                file.len()
            );
            let sent = if name == cut {
                &file[..file.len() / 2]
            } else {
                &file[..]
            };
            let _left = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(sent));
        }
    });
    url
}

#[test]
fn install_fetches_only_what_is_vouched_for() {
    if needs("curl").is_none() {
        return;
    }
    let target = Target::new();
    let release = target.good("1");
    let dir = release.tarball.parent().unwrap();
    let name = release.tarball.file_name().unwrap().to_str().unwrap();
    let url = format!("{}/{name}", serve(dir, ""));
    fs::create_dir(target.prefix()).unwrap();
    target.refused(&[&url], "is not encrypted");
    let cut = format!("{}/{name}", serve(dir, name));
    target.refused(&["--sha256", &release.sum, &cut], "can't fetch");
    let done = target.run(&["--sha256", &release.sum, &url]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(target.says("agentctl"), "agentd 1");
}

#[test]
fn install_needs_what_keeps_it_safe() {
    let target = Target::new();
    fs::create_dir(target.prefix()).unwrap();
    let release = target.good("1");
    let with = |missing: &[&str], args: &[&str]| {
        let mut script = target.script(args);
        script.env("PATH", tools_without(&target, missing));
        script
    };
    let url = "https://agentd.invalid/agentd-1-here.tar.gz";
    if needs("wget").is_some() {
        target.is_refused(with(&["curl"], &[url]), "install curl, or give --sha256");
    }
    let none = with(&["wget", "curl"], &["--sha256", &release.sum, url]);
    target.is_refused(none, "neither curl nor wget");
    let none = with(&["sha256sum", "shasum"], &[text(&release.tarball)]);
    target.is_refused(none, "neither sha256sum nor shasum");
}

#[test]
fn install_neither_replaces_nor_removes_changed_files() {
    let target = Target::new();
    let (old, new) = (target.good("1"), target.good("2"));
    assert_eq!(target.install(&old).code, Some(0));
    let (timmy, agentctl) = (
        target.prefix().join("bin/timmy"),
        target.prefix().join("bin/agentctl"),
    );
    let mine = target.0.path("mine");
    copy_program(&agentctl, &mine);
    fs::remove_file(&agentctl).unwrap();
    std::os::unix::fs::symlink(&mine, &agentctl).unwrap();
    target.refused(&[text(&new.tarball)], "bin/agentctl` is there and is not");
    fs::write(&timmy, "mine").unwrap();
    target.refused(&[text(&new.tarball)], "bin/timmy` is there and is not");
    // As is a page that the next release doesn't have.
    fs::remove_file(&timmy).unwrap();
    fs::remove_file(&agentctl).unwrap();
    fs::write(target.prefix().join("share/man/man1/only-in-1.1"), "mine").unwrap();
    let done = target.install(&new);
    assert!(done.stdout.contains("only-in-1.1` was changed"), "{done:?}");
    fs::write(&timmy, "mine").unwrap();
    let done = target.run(&["--uninstall"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("bin/timmy` was changed"), "{done:?}");
    let left: Vec<String> = target.files().into_keys().collect();
    let page = "share/man/man1/only-in-1.1";
    assert_eq!(
        left,
        [
            "bin",
            "bin/timmy",
            "share",
            "share/man",
            "share/man/man1",
            page
        ]
    );
}

#[test]
fn install_removes_services_before_their_programs() {
    let target = Target::new();
    let real = target.0.path("real");
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, target.prefix()).unwrap();
    assert_eq!(target.install(&target.good("1")).code, Some(0));
    let home = target.0.path("home");
    let (units, agents) = (
        home.join(".config/systemd/user"),
        home.join("Library/LaunchAgents"),
    );
    for dir in [&units, &agents, &units.join("timers.target.wants")] {
        fs::create_dir_all(dir).unwrap();
    }
    let prefix = target.prefix();
    // Under the name that was given, and under that where it is.
    for dir in [&prefix, &real] {
        let dir = text(dir);
        let unit = format!("[Service]\nExecStart=\"{dir}/bin/agentd\"\n");
        let list = format!(
            "<string>/state/agentd</string>\n\t\t<string>{dir}/bin/agentd</string>\n\t<string>/x</string>\n"
        );
        for (file, text) in [
            (units.join("agentd.service"), unit),
            (agents.join("local.agentd.plist"), list),
        ] {
            fs::write(&file, text).unwrap();
            target.refused(&["--uninstall"], "first: agentctl service uninstall");
            fs::remove_file(file).unwrap();
        }
    }
    fs::create_dir_all(prefix.join("share/systemd/user")).unwrap();
    for (wanted, name) in [
        ("timers.target.wants", "agentd-voice-flush.timer"),
        ("default.target.wants", "agentd-http.service"),
    ] {
        let link = units.join(wanted).join(name);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(real.join("share/systemd/user").join(name), &link).unwrap();
        target.refused(&["--uninstall"], &format!("disable --now {name}"));
        fs::remove_file(link).unwrap();
    }
    // Another prefix's is no obstacle.
    fs::write(units.join("agentd.service"), "ExecStart=/usr/bin/agentd\n").unwrap();
    let done = target.run(&["--uninstall"]);
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn install_keeps_directories_and_finds_obstacles_first() {
    let target = Target::new();
    let man = target.prefix().join("share/man");
    fs::create_dir_all(&man).unwrap();
    let before = target.files();
    for version in ["1", "2"] {
        assert_eq!(target.install(&target.good(version)).code, Some(0));
    }
    assert_eq!(target.run(&["--uninstall"]).code, Some(0));
    assert_eq!(target.files(), before);
    // An empty list is the end of it, too.
    let list = target.prefix().join("share/agentd/installed");
    fs::create_dir(list.parent().unwrap()).unwrap();
    fs::write(&list, "").unwrap();
    let done = target.run(&["--uninstall"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!list.exists());

    fs::write(man.join("man1"), "a file").unwrap();
    target.refused(&[text(&target.good("3").tarball)], "is no directory");
}

#[test]
fn install_reads_any_sums_and_clears_leftovers() {
    let target = Target::new();
    let release = target.good("1");
    let name = release.tarball.file_name().unwrap().to_str().unwrap();
    let sums = release.tarball.with_file_name("SHA256SUMS");
    fs::write(sums, format!("{} *{name}", release.sum.to_uppercase())).unwrap();
    // As if an earlier run had had the same number.
    let mut script = target.0.command("sh");
    let text_of = "mkdir -p \"$1/.agentd-install.$$\" && exec sh \"$0\" --prefix \"$1\" \"$2\"";
    script.args(["-c", text_of, SCRIPT]);
    script.arg(target.prefix()).arg(&release.tarball);
    let done = finish(script, b"");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(target.says("agentd"), "agentd 1");

    let mut help = target.0.command("sh");
    help.args(["-s", "--", "--help"]);
    let done = finish(help, &fs::read(SCRIPT).unwrap());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("--uninstall"), "{done:?}");
}

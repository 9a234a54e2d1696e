//! `config`: the settings, read and changed.
//!
//! Owns the editor, and what is told of a daemon that runs. What is in the file is the daemon's to
//! read, check and write: its own program does. Must not know any setting.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use agentd_base::{settings, trusted};

use super::args::{ConfigArgs, ConfigCommand};
use super::exit::Exit;
use super::{agents, become_agentd, config_check, outcome, output, terminal};
use agentd_client::oneshot;
use agentd_terminal::style::{Style, Tone};
use agentd_terminal::table::{Cell, Column, table};

pub(super) async fn config(args: ConfigArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let words: Vec<String> = match args.command {
        ConfigCommand::Show(args) if !args.json && output::out_is_terminal() => return show(),
        ConfigCommand::Show(args) => {
            let json = args.json.then_some("--json");
            return become_agentd(["config", "show"].into_iter().chain(json));
        }
        ConfigCommand::Path => return become_agentd(["config", "path"]),
        ConfigCommand::Get(args) => return become_agentd(["config", "get", "--", &args.key]),
        ConfigCommand::Check => {
            let exit = agents::of_program("config", &["check"]);
            if exit == Exit::Done {
                output::out_line("it can be used")?;
            }
            return Ok(exit);
        }
        ConfigCommand::Init => return become_agentd(["config", "init"]),
        ConfigCommand::Set(args) => ["set", "--", &args.key, &args.value]
            .map(str::to_owned)
            .to_vec(),
        ConfigCommand::Unset(args) => ["unset", "--", &args.key].map(str::to_owned).to_vec(),
        ConfigCommand::Edit => return edit(socket).await,
    };
    let exit = agents::of_program("config", &words);
    if exit == Exit::Done {
        agents::tell_running(socket).await;
    }
    Ok(exit)
}

/// Has the daemon's program written what these words of its say? It says why not.
pub(super) fn is_kept(words: &[&str]) -> bool {
    let mut program = Command::new(oneshot::program());
    program
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    program.status().is_ok_and(|status| status.success())
}

/// What is in force, in the width of the terminal.
fn show() -> io::Result<Exit> {
    let program = oneshot::program();
    let asked = Command::new(&program)
        .args(["config", "show"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let said = match asked {
        Ok(said) => said,
        Err(error) => return Ok(agents::tell_missing(&program, &error)),
    };
    let exit = agents::exit_of(said.status.code());
    let text = String::from_utf8_lossy(&said.stdout);
    if exit == Exit::Done {
        output::out(&shown(&text, &Style::of_stdout()))?;
    }
    Ok(exit)
}

/// The lines `KEY = VALUE  # SOURCE` of the daemon's program as a table.
fn shown(text: &str, style: &Style) -> String {
    let rows: Vec<Vec<Cell>> = text
        .lines()
        .map(|line| {
            let (key, rest) = line.split_once(" = ").unwrap_or((line, ""));
            let (value, source) = rest.rsplit_once("  # ").unwrap_or((rest, ""));
            let source = match source {
                "default" => Cell::toned(source, Tone::Faint),
                _ => source.into(),
            };
            vec![key.into(), value.into(), source]
        })
        .collect();
    let columns = [
        Column::cut("KEY", 14).that_stays(),
        Column::cut("VALUE", 10),
        Column::new("SOURCE"),
    ];
    table(&columns, &rows, style)
}

/// A copy for the editor, and what it was made from, in a directory of their own.
struct Copies {
    dir: PathBuf,
    edited: PathBuf,
    before: PathBuf,
}

impl Copies {
    /// The error says where they can't be.
    fn make(text: &str) -> Result<Self, String> {
        let name = format!("agentd-config-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let copies = Self {
            edited: dir.join("config.toml"),
            before: dir.join("before.toml"),
            dir,
        };
        let failed = |place: &Path, error: io::Error| {
            let place = place.display();
            format!("can't write a copy to `{place}`: {error}; nothing was changed")
        };
        let made = fs::DirBuilder::new().mode(0o700).create(&copies.dir);
        made.map_err(|error| failed(&copies.dir, error))?;
        for file in [&copies.edited, &copies.before] {
            let mut options = fs::OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            let opened = options.open(file);
            if let Err(error) = opened.and_then(|mut out| out.write_all(text.as_bytes())) {
                copies.remove();
                return Err(failed(file, error));
            }
        }
        Ok(copies)
    }

    fn remove(&self) {
        // What is left lies in a directory for such things.
        let _left = fs::remove_dir_all(&self.dir);
    }
}

/// What is there where nobody says which; it needs somebody at a terminal.
fn vi() -> Option<OsString> {
    let is_seen = io::stdin().is_terminal() && output::out_is_terminal();
    is_seen.then(|| OsString::from("vi"))
}

async fn edit(socket: Option<&Path>) -> io::Result<Exit> {
    let editor = ["VISUAL", "EDITOR"]
        .iter()
        .filter_map(std::env::var_os)
        .find(|editor| !editor.is_empty());
    let Some(file) = path() else {
        // It has said why.
        return Ok(Exit::Configuration);
    };
    // Nobody types long at what can't be kept.
    if let Err(why) = trusted::check(&file) {
        output::error(&why.to_string(), None);
        return Ok(Exit::Configuration);
    }
    let Some(editor) = editor.or_else(vi) else {
        let hint = "`agentctl config set KEY VALUE` changes one value; `EDITOR` may name a program";
        output::error("there is no terminal for an editor", Some(hint));
        return Ok(Exit::Usage);
    };
    let text = settings::read(&file).map_err(|error| {
        let error = format!("can't read `{}`: {error}", file.display());
        outcome::ends(Exit::Configuration, &error, None)
    })?;
    let copies = match Copies::make(&text) {
        Ok(copies) => copies,
        Err(why) => {
            let hint = "make room there, or name another directory in `TMPDIR`";
            output::error(&why, Some(hint));
            return Ok(Exit::Refused);
        }
    };
    loop {
        if let Err(why) = opened(&editor, &copies.edited) {
            copies.remove();
            output::error(
                &format!("{why}; nothing was changed"),
                Some("set `EDITOR` to the editor you use"),
            );
            return Ok(Exit::Failed);
        }
        if !copies.edited.exists() {
            copies.remove();
            let shown = editor.to_string_lossy();
            output::error(
                &format!("the editor `{shown}` left no file; nothing was changed"),
                Some("`agentctl config unset KEY` makes a setting the default again"),
            );
            return Ok(Exit::Failed);
        }
        if settings::read(&copies.edited).is_ok_and(|edited| edited == text) {
            copies.remove();
            output::out_line("nothing was changed")?;
            return Ok(match config_check::of_program() {
                // It warns of what keeps no daemon down.
                None => agents::of_program("config", &["check".to_owned()]),
                Some(still) => {
                    let error = format!("no daemon starts with it as it is: {}", still.why);
                    outcome::ends(Exit::Configuration, &error, Some(&still.hint))
                }
            });
        }
        let words = [
            OsStr::new("replace"),
            OsStr::new("--before"),
            copies.before.as_os_str(),
            OsStr::new("--"),
            copies.edited.as_os_str(),
        ];
        let exit = agents::of_program("config", &words);
        if exit == Exit::Done {
            copies.remove();
            agents::tell_running(socket).await;
            return Ok(exit);
        }
        if !again()? {
            let kept = copies.edited.display();
            output::note(&format!(
                "nothing was changed; what you wrote is in `{kept}`"
            ));
            return Ok(exit);
        }
    }
}

/// Does whoever sits there want to mend it?
fn again() -> io::Result<bool> {
    if !io::stdin().is_terminal() || !output::err_is_terminal() {
        return Ok(false);
    }
    let line = terminal::ask_line("Edit it again? [Y/n] ")?;
    let line = line.map(|line| line.trim().to_lowercase());
    Ok(matches!(line.as_deref(), Some("" | "y" | "yes")))
}

/// Opens a file in an editor, which may have arguments, and waits for its end.
fn opened(editor: &OsStr, file: &Path) -> Result<(), String> {
    // As git does: the shell splits the words.
    let mut words = editor.to_owned();
    words.push(" \"$@\"");
    let status = Command::new("/bin/sh")
        .arg("-c")
        .arg(&words)
        .arg(editor)
        .arg(file)
        .status();
    let shown = editor.to_string_lossy();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the editor `{shown}` ended with {status}")),
        Err(error) => Err(format!("the editor `{shown}` can't be started: {error}")),
    }
}

/// Where the file is, as the daemon's program says.
fn path() -> Option<PathBuf> {
    let program = oneshot::program();
    let asked = Command::new(&program)
        .args(["config", "path"])
        .stderr(Stdio::inherit())
        .output();
    match asked {
        Ok(said) if said.status.success() => {
            let mut path = said.stdout;
            path.pop();
            Some(PathBuf::from(OsString::from_vec(path)))
        }
        Ok(_) => None,
        Err(error) => {
            agents::tell_missing(&program, &error);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_shown_fits_its_terminal() {
        let text = "client.start = \"never\"  # /home/me/.config/agentd/config.toml:12\n\
                    agents.reviewer.command = [\"/usr/local/bin/agent\", \"--yes\"]  # default\n";
        for columns in [80, 60, 40, 20] {
            let style = Style {
                columns: Some(columns),
                ..Style::PLAIN
            };
            let shown = shown(text, &style);
            assert_eq!(shown.lines().count(), 3, "{shown}");
            let widest = shown.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(columns), "{columns}: {shown}");
            assert!(shown.starts_with("KEY"), "{shown}");
        }
        let whole = shown(text, &Style::PLAIN);
        assert!(whole.contains("config.toml:12"), "{whole}");
    }
}

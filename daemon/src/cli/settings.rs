//! `agentd config`: the words that `agentctl config` passes on.
//!
//! Owns their arguments, the file that `init` writes, and what is said when it is done. Must not
//! know how a value gets into the text, nor what the built-in agent makes of one: its own program says.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use agentd_base::replace::PRIVATE;
use agentd_base::settings::{self, MEND_IT};
use agentd_protocol::nearest::nearest;
use anyhow::anyhow;
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::json;

use super::{
    CONFIGURATION, CliFailure, FAILED, UNWRITABLE, USAGE, broken, edit_failure, in_force,
    judged_config, tell, tell_warnings, with,
};
use crate::config::{self, Config, ConfigError, Edit, HostEnv, Warning, check_ours, edit};
use crate::platform::paths::Paths;

/// What `init` writes: every line of it that is no sentence is a setting, with its default.
const TEMPLATE: &str = include_str!("template.toml");

/// What about the configuration.
#[derive(Subcommand, Debug)]
pub(super) enum ConfigCommand {
    /// Print each value with where it came from
    Show {
        /// As one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Print one value, or all of a table
    Get {
        /// Its dotted key
        key: String,
    },
    /// Fail with the reason where the next daemon, or the built-in agent, could not use it
    Check {
        /// Say so as one JSON object instead: `refused`, null where it could
        #[arg(long)]
        json: bool,
    },
    /// Change one value
    Set(SetArgs),
    /// Make one value the default again
    Unset {
        /// Its dotted key
        key: String,
    },
    /// Put another text in the place of config.toml, if it can be read
    Replace {
        /// The file as it was when it was copied
        #[arg(long, value_name = "FILE")]
        before: PathBuf,
        /// The new text
        file: PathBuf,
    },
    /// Write a config.toml with every setting as a comment
    Init,
    /// Print where config.toml is
    Path,
}

#[derive(Args, Debug)]
pub(super) struct SetArgs {
    /// Its dotted key
    key: String,
    /// The value, as TOML or as a plain word
    #[arg(allow_hyphen_values = true)]
    value: String,
}

/// Does it, and says so.
pub(super) fn run(command: ConfigCommand, paths: &Paths) -> Result<(), CliFailure> {
    let file = paths.config.display();
    let mut changed = None;
    let (done, said) = match command {
        ConfigCommand::Show { json } => {
            return answer(&shown(&in_force(paths)?, json));
        }
        ConfigCommand::Get { key } => return get(&key, &in_force(paths)?),
        ConfigCommand::Check { json: false } => return check(paths),
        ConfigCommand::Check { json: true } => {
            let refused = in_force(paths).err();
            let refused = refused.as_ref().map(|refused| refused.error.to_string());
            return answer(&json!({ "refused": refused }).to_string());
        }
        ConfigCommand::Path => return answer(&file.to_string()),
        ConfigCommand::Init => {
            init(&paths.config)?;
            return say(&format!("made {file}: every setting is there as a comment"));
        }
        ConfigCommand::Set(SetArgs { key, value }) => {
            let said = format!("set `{key}` in {file}");
            changed = Some(key.clone());
            (Edit::Set { key, value }, said)
        }
        ConfigCommand::Unset { key } => {
            let said = format!("`{key}` is the default again in {file}");
            changed = Some(key.clone());
            (Edit::Unset { key }, said)
        }
        ConfigCommand::Replace { before, file: new } => {
            let read = |file: &Path| {
                settings::read(file).map_err(|error| {
                    with(USAGE)(anyhow!("can't read `{}`: {error}", file.display()))
                })
            };
            let (before, text) = (read(&before)?, read(&new)?);
            (Edit::Replace { before, text }, format!("changed {file}"))
        }
    };
    let look = HostEnv::here();
    let judge = |text: &str| judged(text, &paths.config, &look);
    edit(&paths.config, &look, &done, &judge).map_err(edit_failure)?;
    say(&said)?;
    if let Some(note) = changed.and_then(|key| outdone(&key, paths, &look)) {
        tell(&note);
    }
    Ok(())
}

/// A daemon would start with what only the built-in agent can't read, but its turns would fail.
fn check(paths: &Paths) -> Result<(), CliFailure> {
    let mut config = judged_config(paths)?;
    let unread = config.unread.take();
    tell_warnings(&config);
    match unread {
        Some(Warning { what, hint }) => Err(broken(format!("{what}; hint: {hint}"))),
        None => Ok(()),
    }
}

/// Which variable goes before what is in the file.
fn outdone(key: &str, paths: &Paths, look: &HostEnv) -> Option<String> {
    let text = settings::read(&paths.config).ok()?;
    let config = Config::parse(&text, &paths.config, look).ok()?;
    let source = config.given.get(key)?;
    let in_file = source.starts_with(&*paths.config.to_string_lossy());
    (!in_file).then(|| {
        format!(
            "`{source}` is set here and goes before the file: a daemon that is started with it takes \
             `{key}` from there"
        )
    })
}

/// What the built-in agent's program says of a text that it can't read.
#[derive(Deserialize)]
struct Fault {
    line: usize,
    what: String,
    hint: Option<String>,
}

/// What the built-in agent can't read of what is in force: its turns refuse it, nobody else needs it.
pub(super) fn unread_by_timmy(config: &Config) -> Option<Warning> {
    if config.of_timmy.is_empty() {
        return None;
    }
    let text = settings::read(&config.file).ok()?;
    match judged(&text, &config.file, &HostEnv::here()).err()? {
        ConfigError::Wrong {
            file,
            line,
            what,
            hint,
        } => Some(Warning {
            what: format!("{}:{line}: {what}", file.display()),
            hint: hint.unwrap_or_else(|| MEND_IT.to_owned()),
        }),
        // Those are the daemon's own to tell.
        _ => None,
    }
}

/// Asks the built-in agent's program whether it could read a text. Where there is none, nobody will.
fn judged(text: &str, file: &Path, look: &HostEnv) -> Result<(), ConfigError> {
    let Some(program) = look.exe_dir.as_ref().map(|dir| dir.join("timmy")) else {
        return Ok(());
    };
    let mut command = Command::new(program);
    command.args(["check-config", "--"]).arg(file);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let asked = command.spawn().and_then(|mut child| {
        if let Some(mut words) = child.stdin.take() {
            // It ends before it has read all of them only when it fails.
            let _gone = words.write_all(text.as_bytes());
        }
        child.wait_with_output()
    });
    let fault = asked.ok().and_then(|said| {
        let said = serde_json::from_slice::<Option<Fault>>(&said.stdout);
        said.ok().flatten()
    });
    fault.map_or(Ok(()), |Fault { line, what, hint }| {
        Err(ConfigError::Wrong {
            file: file.to_owned(),
            line,
            what,
            hint,
        })
    })
}

fn get(key: &str, config: &Config) -> Result<(), CliFailure> {
    let shown = config.show();
    if let Some(row) = shown.iter().find(|row| row.key == key) {
        return match row.value.as_str() {
            "(none)" => Err(with(FAILED)(anyhow!(
                "`{key}` is not set, and has no default"
            ))),
            value => answer(&plain(value)),
        };
    }
    let below = format!("{key}.");
    let rows: Vec<_> = shown
        .iter()
        .filter(|row| row.key.starts_with(&below))
        .collect();
    if rows.is_empty() {
        if let Some(unset) = unset_of_timmy(key, config) {
            return Err(unset);
        }
        let hint = match nearest(key, shown.iter().map(|row| row.key.as_str())) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`agentctl config show` lists all".to_owned(),
        };
        return Err(with(USAGE)(anyhow!(
            "there is no setting `{key}`; hint: {hint}"
        )));
    }
    let lines: Vec<String> = rows
        .iter()
        .map(|row| format!("{} = {}", row.key, row.value))
        .collect();
    answer(&lines.join("\n"))
}

/// What is said of a key of the built-in agent's that isn't in the file. It knows which there are.
fn unset_of_timmy(key: &str, config: &Config) -> Option<CliFailure> {
    if !config::is_of_timmy(key) {
        return None;
    }
    // No value fits everywhere: one that doesn't fit has a key, too.
    let asked = match key.contains('.') {
        true => judged(&format!("{key} = 0\n"), &config.file, &HostEnv::here()),
        false => Ok(()),
    };
    match asked {
        Err(ConfigError::Wrong { what, hint, .. }) if what.starts_with("unknown key ") => {
            let hint = hint.unwrap_or_else(|| "`agentctl config show` lists all".to_owned());
            Some(with(USAGE)(anyhow!(
                "there is no setting `{key}`; hint: {hint}"
            )))
        }
        _ => Some(with(FAILED)(anyhow!(
            "`{key}` is not set; hint: the built-in agent's defaults are in \
             docs/src/configuration.md"
        ))),
    }
}

/// A string without its quotation marks; anything else as it is written.
fn plain(value: &str) -> String {
    match value.parse::<toml_edit::Value>() {
        Ok(toml_edit::Value::String(text)) => text.into_value(),
        Ok(_) | Err(_) => value.to_owned(),
    }
}

fn shown(config: &Config, json: bool) -> String {
    let shown = config.show();
    if json {
        let rows: Vec<_> = shown
            .iter()
            .map(|row| json!({"key": row.key, "value": row.json(), "source": row.source}))
            .collect();
        return config::seen_json(&rows.into());
    }
    let line = |row: config::Shown| format!("{} = {}  # {}", row.key, row.value, row.source);
    let lines: Vec<String> = shown.into_iter().map(line).collect();
    lines.join("\n")
}

fn init(file: &Path) -> Result<(), CliFailure> {
    let shown = file.display();
    let unwritable = |error: io::Error| with(UNWRITABLE)(anyhow!("can't write `{shown}`: {error}"));
    check_ours(file).map_err(with(CONFIGURATION))?;
    if let Some(dir) = file.parent() {
        let mut made = DirBuilder::new();
        made.recursive(true).mode(0o700);
        made.create(dir).map_err(unwritable)?;
    }
    let mut made = OpenOptions::new();
    // A link that leads nowhere is something, too.
    made.write(true).create_new(true).mode(PRIVATE);
    match made.open(file) {
        Ok(mut made) => made.write_all(TEMPLATE.as_bytes()).map_err(unwritable),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(with(CONFIGURATION)(anyhow!(
                "`{shown}` is there already; hint: `agentctl config edit` opens it, \
                 `agentctl config show` prints what is in force"
            )))
        }
        Err(error) => Err(unwritable(error)),
    }
}

/// What was asked for: without it nothing was done.
fn answer(text: &str) -> Result<(), CliFailure> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(with(FAILED)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// It is done, whoever reads it.
fn say(text: &str) -> Result<(), CliFailure> {
    let _closed = writeln!(io::stdout(), "{text}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_template_holds_every_setting_as_comment() {
        let look = HostEnv::default();
        let parsed = |text: &str| Config::parse(text, "config.toml".as_ref(), &look);
        assert!(parsed(TEMPLATE).unwrap().given.is_empty());
        // Without the marks it is a configuration; sentences have a second one.
        let lines = TEMPLATE.lines().map(|line| match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with([' ', '#']) => setting,
            _ => line,
        });
        let all = lines.collect::<Vec<_>>().join("\n");
        let config = parsed(&all).unwrap_or_else(|why| panic!("{why}\n{all}"));
        for key in ["default_agent", "alias", "client.start", "retention.days"] {
            assert!(config.given.contains_key(key), "{key}");
        }
    }
}

//! `timmy provider` and `timmy models`: what people do about models without a turn.
//!
//! Owns the words of these commands, what they print and their exit codes. Changes are `config`'s
//! work, requests those of `model`.

mod models;
mod provider;
mod show;
mod status;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use agentd_base::hinted;
use agentd_base::settings::MEND_IT;
use agentd_terminal::output;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use serde_json::json;

use crate::config::Config;
use crate::config::edit::EditError;
use crate::config::no_model::CalledAs;
use crate::config::read::{ConfigError, Places};
use crate::config::secrets::SecretsError;
use crate::provider::Provider;
use crate::provider::keys::{Keys, KeysError};

/// The commands that this module takes.
pub(crate) const COMMANDS: &[&str] = &["provider", "models", "completions", "check-config"];

#[derive(Parser, Debug)]
#[command(version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Who serves models: store a key, add a server, try one
    Provider {
        #[command(subcommand)]
        command: provider::Command,
    },
    /// Which models are asked, in which order, and how they are
    Models {
        #[command(subcommand)]
        command: models::Command,
    },
    /// Print a script that completes commands in your shell
    #[command(hide = true)]
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print as JSON what couldn't be read of a config.toml that comes by standard input, or `null`
    #[command(hide = true)]
    CheckConfig {
        /// Where it is to be
        file: PathBuf,
    },
}

/// `--json`.
#[derive(Args, Clone, Copy, Debug)]
struct Form {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How a command ended, as its exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    /// The system says no.
    Io = 74,
    /// Something has to be configured first.
    Config = 78,
}

/// Why a command failed.
struct Failed {
    exit: Exit,
    error: String,
    hint: Option<String>,
}

impl Failed {
    fn new(exit: Exit, error: impl Into<String>) -> Self {
        Self {
            exit,
            error: error.into(),
            hint: None,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<ConfigError> for Failed {
    fn from(error: ConfigError) -> Self {
        let why = error.to_string();
        let failed = Self::new(Exit::Config, &*why);
        match hinted::split(&why) {
            (_, Some(_)) => failed,
            (_, None) => failed.hint(MEND_IT),
        }
    }
}

impl From<KeysError> for Failed {
    fn from(error: KeysError) -> Self {
        Self::new(Exit::Config, error.to_string())
    }
}

impl From<SecretsError> for Failed {
    fn from(error: SecretsError) -> Self {
        let exit = match error {
            SecretsError::Readable { .. } => Exit::Config,
            SecretsError::NotAKey(_) => Exit::Usage,
            SecretsError::Io { .. } => Exit::Io,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<EditError> for Failed {
    fn from(error: EditError) -> Self {
        match error {
            EditError::Refused { what, hint } => Self::new(Exit::Usage, what).hint(hint),
            EditError::Broken(error) => error.into(),
            EditError::Io { .. } => Self::new(Exit::Io, error.to_string()),
        }
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Io, error.to_string())
    }
}

/// Where a command is run, and what is configured there.
struct Setting {
    places: Places,
    config: Config,
    keys: Keys,
    called: CalledAs,
}

impl Setting {
    fn read(called: CalledAs) -> Result<Self, Failed> {
        let places = Places::here().map_err(|why| Failed::new(Exit::Config, why))?;
        Ok(Self {
            config: Config::load(&places.config)?,
            keys: Keys::read(places.dir())?,
            places,
            called,
        })
    }

    /// What a variable says, in the environment or in the file `env`.
    fn lookup(&self, name: &str) -> Option<String> {
        self.keys.get(name)
    }

    /// What to do where a provider's key is missing.
    fn how_to_store_a_key(&self, provider: &Provider) -> String {
        let add = self.command(&format!("provider add {}", provider.id));
        let variables = provider.key_variables.join("` or `");
        format!(
            "{add} stores one, or set `{variables}`, in the environment or in the file `env` beside config.toml"
        )
    }

    /// A command as people type it here.
    fn command(&self, words: &str) -> String {
        format!("`{} {words}`", self.called.name())
    }
}

/// Says what can't be read of a text that is to be the file's.
fn check_config(file: &Path) -> Result<Exit, Failed> {
    let text = std::io::read_to_string(std::io::stdin())?;
    let said = match Config::parse(&text, file) {
        Err(ConfigError::Wrong {
            line, what, hint, ..
        }) => json!({"line": line, "what": what, "hint": hint}),
        Ok(_) | Err(ConfigError::Io { .. } | ConfigError::Untrusted(_)) => json!(null),
    };
    output::out_line(&said.to_string())?;
    Ok(Exit::Done)
}

/// Of the commands here and of `alone`, what the program takes without any.
fn completions(shell: Shell, alone: clap::Command) -> ExitCode {
    let commands = Arguments::command();
    let mut whole = alone.subcommands(commands.get_subcommands().cloned());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut whole, "timmy", &mut script);
    // Whoever closed standard output doesn't want to read it.
    let _closed = output::out(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

/// Runs a command line, from the program's name on. `alone` is what the program takes without a
/// command.
pub(crate) fn run(words: Vec<OsString>, alone: clap::Command) -> ExitCode {
    // `agentctl provider` becomes this program under its own name, so that hints name what was
    // typed.
    let called = match words.first().and_then(|name| Path::new(name).file_name()) {
        Some(name) if name == "agentctl" => CalledAs::Agentctl,
        _ => CalledAs::Timmy,
    };
    let words = match Arguments::try_parse_from(words) {
        Ok(words) => words,
        Err(error) => {
            let _nobody_reads = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    if let Command::Completions { shell } = words.command {
        return completions(shell, alone);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ended = runtime.map_err(Failed::from).and_then(|runtime| {
        if let Command::CheckConfig { file } = &words.command {
            return check_config(file);
        }
        let setting = Setting::read(called)?;
        let ended = runtime.block_on(async {
            match words.command {
                Command::Provider { command } => provider::run(setting, command).await,
                Command::Models { command } => models::run(setting, command).await,
                Command::Completions { .. } | Command::CheckConfig { .. } => Ok(Exit::Done),
            }
        });
        // A read of standard input must not keep the process.
        runtime.shutdown_background();
        ended
    });
    match ended {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(failed) => {
            output::error(&failed.error, failed.hint.as_deref());
            ExitCode::from(failed.exit as u8)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_parses_and_none_takes_a_key() {
        Arguments::command().debug_assert();
        for words in [
            "timmy provider list",
            "timmy provider add gemini",
            "timmy provider add own --base-url http://127.0.0.1:1/v1 --wire openai --key-env OWN",
            "timmy provider remove gemini",
            "timmy provider test gemini gemini-2.5-flash --json",
            "timmy models list",
            "timmy models list ollama --json",
            "timmy models status",
            "timmy models default",
            "timmy models default gemini/x",
            "timmy models default --unset",
            "timmy models default --clear",
            "timmy models fallbacks list",
            "timmy models fallbacks add openrouter/openai/gpt-4.1-mini --at 1",
            "timmy models fallbacks remove a/b",
            "timmy models fallbacks clear",
            "timmy models fallbacks reorder a/b c/d",
            "timmy models aliases add fast gemini/x",
            "timmy models aliases remove fast",
            "timmy models aliases list --json",
        ] {
            let parsed = Arguments::try_parse_from(words.split(' '));
            assert!(parsed.is_ok(), "{words}: {:?}", parsed.err());
        }
        for words in [
            "timmy provider add",
            "timmy provider add gemini sk-1",
            "timmy provider add gemini --key sk-1",
            "timmy models fallbacks add",
            "timmy models default a/b --unset",
        ] {
            assert!(
                Arguments::try_parse_from(words.split(' ')).is_err(),
                "{words}"
            );
        }
    }
}

//! Completion of words in a shell: commands, options, and the names that they take.
//!
//! Owns where names come from: a daemon that runs, config.toml, ssh's configuration. It is asked at
//! each press of a key, so it starts nothing, and a daemon that doesn't answer at once isn't waited
//! for. Must not know what a command does.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use agentd_base::settings;
use agentd_protocol::routed::AUTO;
use agentd_protocol::work::{Jobs, SessionList};
use agentd_protocol::{Line, RequestKind};
use clap::{Arg, Command, CommandFactory as _};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{EnvCompleter, Shells};

use super::args::{Cli, Shell};
use super::exit::Exit;
use super::{bench, built_in, first_use, output};
use agentd_client::asked::RequestError;
use agentd_client::client::Client;
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::fallback::Lock;
use agentd_client::places::Environment;
use agentd_client::sessions::SessionPages;
use agentd_client::wire::Nothing;

/// Says that a shell asks, and which.
const VARIABLE: &str = "_AGENTCTL_COMPLETE";
/// The whole answer takes no longer than a person notices; starting and printing take 10 ms of it.
const WITHIN: Duration = Duration::from_millis(30);
/// The newest of them: a longer list helps nobody who presses a key.
const MOST: usize = 50;

/// Answers a shell, if it is one that asks.
pub(super) fn answered(words: &[OsString]) -> Option<Exit> {
    std::env::var_os(VARIABLE)?;
    let here = std::env::current_dir().ok();
    let builtins = Shells::builtins();
    let shells = ["bash", "zsh", "fish"].map(|name| builtins.completer(name).map(NamesFirst));
    let shells: Vec<&dyn EnvCompleter> = (shells.iter().flatten())
        .map(|shell| shell as &dyn EnvCompleter)
        .collect();
    let answering = CompleteEnv::with_factory(whole)
        .var(VARIABLE)
        .bin("agentctl")
        .completer("agentctl")
        .shells(Shells(&shells));
    match answering.try_complete(words.to_vec(), here.as_deref()) {
        Ok(true) => Some(Exit::Done),
        Ok(false) => None,
        // A shell shows what is printed as if it had been typed: nothing is said.
        Err(_) => Some(Exit::Failed),
    }
}

/// A shell to which options are offered once a dash is typed, and names and commands before.
struct NamesFirst<'a>(&'a dyn EnvCompleter);

impl EnvCompleter for NamesFirst<'_> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn is(&self, name: &str) -> bool {
        self.0.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn io::Write,
    ) -> io::Result<()> {
        self.0.write_registration(var, name, bin, completer, buf)
    }

    fn write_complete(
        &self,
        cmd: &mut Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn io::Write,
    ) -> io::Result<()> {
        // As the scripts of the shells say which word it is, and what stands between two offers.
        let (index, between) = match self.name() {
            "fish" => (None, None),
            _ => (
                std::env::var("_CLAP_COMPLETE_INDEX").ok(),
                std::env::var("_CLAP_IFS").ok(),
            ),
        };
        let index = index.and_then(|index| index.parse().ok());
        let word = match index {
            Some(index) => args.get::<usize>(index),
            None => args.last(),
        };
        let has_dash = word.is_some_and(|word| word.as_encoded_bytes().starts_with(b"-"));
        let mut offers = Vec::new();
        self.0.write_complete(cmd, args, current_dir, &mut offers)?;
        if has_dash {
            return buf.write_all(&offers);
        }
        let between = between.unwrap_or_else(|| "\n".to_owned());
        let offers = String::from_utf8_lossy(&offers).into_owned();
        let names = offers.split(between.as_str());
        let names: Vec<&str> = names.filter(|offer| !offer.starts_with('-')).collect();
        buf.write_all(names.join(&between).as_bytes())
    }
}

/// Prints the script by which a shell asks.
pub(super) fn script(shell: Shell) -> io::Result<Exit> {
    let name = match shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(name) {
        shell.write_registration(VARIABLE, "agentctl", "agentctl", "agentctl", &mut script)?;
    }
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Zsh {
        // As a file of `fpath` it is the body of its own function, which is called the first time.
        script = script.trim_end().to_owned();
        script.push_str("\n[[ ${funcstack[1]} = _agentctl ]] && _clap_dynamic_completer_agentctl \"$@\"\ntrue\n");
    }
    output::out(&script)?;
    Ok(Exit::Done)
}

/// All commands, with the names that their arguments take.
fn whole() -> Command {
    let mut command = Cli::command();
    for (name, words) in built_in::COMMANDS {
        let words = words.iter().map(|word| Command::new(*word));
        command = command.mut_subcommand(name, |command| command.subcommands(words));
    }
    // What is put off until a command is used is done now.
    command.build();
    named(command)
}

fn named(command: Command) -> Command {
    // What only reads takes closed sessions, too.
    let reads = matches!(
        command.get_name(),
        "history" | "show" | "search" | "jobs" | "attach"
    );
    let command = command.mut_args(|argument| match sessions_of(&argument) {
        true if reads => argument.add(ArgValueCandidates::new(all_sessions)),
        true => argument.add(ArgValueCandidates::new(sessions)),
        false => named_argument(argument),
    });
    let inner: Vec<String> = command
        .get_subcommands()
        .map(|inner| inner.get_name().to_owned())
        .collect();
    inner
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, named))
}

/// Does it take a session?
fn sessions_of(argument: &Arg) -> bool {
    let mut values = argument.get_value_names().unwrap_or_default().iter();
    matches!(argument.get_id().as_str(), "session" | "sessions")
        || values.next().is_some_and(|value| value == "SESSION")
}

fn named_argument(argument: Arg) -> Arg {
    let value = argument.get_value_names().and_then(<[_]>::first);
    let value = value.map_or("", |value| value.as_str());
    let candidates = match (argument.get_id().as_str(), value) {
        ("agent" | "agents", _) | ("name", "AGENT") => agents,
        (_, "JOB" | "JOB|SESSION") => jobs,
        ("model" | "fallbacks", _) => models,
        ("question_id", _) => questions,
        ("host", _) | ("to", "[USER@]HOST[:PORT]") => hosts,
        ("key", "KEY") => keys,
        _ => return argument,
    };
    argument.add(ArgValueCandidates::new(candidates))
}

/// Each name once, in this order.
fn candidates(names: impl IntoIterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let mut seen = BTreeSet::new();
    let names = names.into_iter();
    let plain = names.filter(|(name, _)| !name.is_empty() && !name.contains(char::is_control));
    plain
        .filter(|(name, _)| seen.insert(name.clone()))
        .take(MOST)
        .map(|(name, help)| {
            let help = output::safe_line(&help).into();
            CompletionCandidate::new(name).help(Some(help))
        })
        .collect()
}

fn agents() -> Vec<CompletionCandidate> {
    let rows = asked(async |client: &mut Client| {
        let received = client.answer(RequestKind::Agents, &Nothing {}).await?;
        Ok(match received.line {
            Some(Line::Agents { agents, .. }) => agents,
            _ => Vec::new(),
        })
    });
    let usable = rows.into_iter().flatten().filter(|row| row.usable);
    let usable = usable.map(|row| (row.name, row.kind));
    let configured = configured(&["agents"]).into_iter();
    let others = [("timmy", "comes with agentd"), (AUTO, "the routes choose")];
    let others = others.map(|(name, help)| (name.to_owned(), help.to_owned()));
    candidates(usable.chain(configured).chain(others))
}

fn sessions() -> Vec<CompletionCandidate> {
    let names = asked(async |client: &mut Client| names_of(client, newest(MOST)).await);
    candidates(names.unwrap_or_default())
}

/// Those that are there, and behind them those that were closed, as `main#12`.
fn all_sessions() -> Vec<CompletionCandidate> {
    let names = asked(async |client: &mut Client| {
        let mut names = names_of(client, newest(MOST / 2)).await?;
        let closed = SessionList {
            closed: true,
            ..newest(MOST / 2)
        };
        names.extend(names_of(client, closed).await?);
        Ok(names)
    });
    candidates(names.unwrap_or_default())
}

fn newest(limit: usize) -> SessionList {
    SessionList {
        newest: true,
        limit: Some(limit),
        ..SessionList::default()
    }
}

async fn names_of(
    client: &mut Client,
    list: SessionList,
) -> Result<Vec<(String, String)>, RequestError> {
    let page = SessionPages::of(list).next(client).await?;
    let rows = page.into_iter().flat_map(|page| page.value);
    let rows = rows.filter(|row| !bench::is_of_bench(&row.session));
    Ok(rows.map(|row| (row.name().to_owned(), row.agent)).collect())
}

fn recent() -> Jobs {
    Jobs {
        limit: Some(MOST),
        ..Jobs::default()
    }
}

fn jobs() -> Vec<CompletionCandidate> {
    let rows = asked(async |client: &mut Client| client.jobs(recent()).await);
    let rows = rows.unwrap_or_default().into_iter();
    let rows = rows.filter(|row| !bench::is_of_bench(&row.session));
    candidates(rows.map(|row| (row.job.to_string(), row.preview)))
}

fn models() -> Vec<CompletionCandidate> {
    let configured = configured(&["models", "agents"]);
    let words = configured
        .into_iter()
        .filter(|(name, _)| name.contains('/'));
    candidates(words.chain(models_of_agents()))
}

fn questions() -> Vec<CompletionCandidate> {
    let rows = asked(async |client: &mut Client| client.questions(None).await);
    let rows = rows
        .map(|reply| reply.value)
        .unwrap_or_default()
        .into_iter();
    candidates(rows.map(|row| (row.question_id, row.title)))
}

/// Asks a daemon that runs. One that starts, or that a service manager would start, isn't asked.
fn asked<T>(ask: impl AsyncFnOnce(&mut Client) -> Result<T, RequestError>) -> Option<T> {
    let endpoint = LocalEndpoint::find(None, &Environment::of_process());
    if endpoint.lock() != Lock::Running {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .ok()?;
    let answer = async {
        let mut client = super::ask::connect(None).await.ok()?;
        ask(&mut client).await.ok()
    };
    let within = async { tokio::time::timeout(WITHIN, answer).await.ok()? };
    runtime.block_on(within)
}

/// The configuration, if it can be read at once.
pub(super) fn table() -> Option<toml::Table> {
    settings::read(&first_use::file()?).ok()?.parse().ok()
}

/// The names in a table of the configuration, and the strings of one that has but values.
fn configured(tables: &[&str]) -> Vec<(String, String)> {
    let Some(all) = table() else {
        return Vec::new();
    };
    let found = tables.iter().filter_map(|name| all.get(*name)?.as_table());
    let names = found.flat_map(|table| {
        table.iter().flat_map(|(key, value)| match value {
            toml::Value::String(text) => vec![text.clone()],
            toml::Value::Array(items) => {
                let texts = items.iter().filter_map(toml::Value::as_str);
                texts.map(str::to_owned).collect()
            }
            _ => vec![key.clone()],
        })
    });
    let place = "from config.toml".to_owned();
    names.map(|name| (name, place.clone())).collect()
}

fn models_of_agents() -> Vec<(String, String)> {
    let all = table().unwrap_or_default();
    let agents = all.get("agents").and_then(toml::Value::as_table);
    let models = agents.into_iter().flatten().filter_map(|(agent, table)| {
        let model = table.get("model")?.as_str()?;
        Some((model.to_owned(), format!("of {agent}")))
    });
    models.collect()
}

fn keys() -> Vec<CompletionCandidate> {
    const USUAL: [(&str, &str); 5] = [
        ("default_agent", "who answers when nobody is named"),
        ("client.start", "ask, always or never"),
        ("retention.days", "how long ended jobs are kept"),
        ("retention.size", "how large the store may be"),
        ("alias", "a link to the socket"),
    ];
    let usual = USUAL.iter();
    let usual = usual.map(|(key, help)| ((*key).to_owned(), (*help).to_owned()));
    let agents = configured(&["agents"]).into_iter();
    let of_agents = agents.flat_map(|(name, place)| {
        [
            "model",
            "provider",
            "thinking",
            "mode",
            "warm",
            "idle_timeout",
        ]
        .map(|key| (format!("agents.{name}.{key}"), place.clone()))
    });
    candidates(usual.chain(of_agents))
}

/// The machines that ssh's configuration of this user names.
fn hosts() -> Vec<CompletionCandidate> {
    let home = Environment::of_process().home;
    let text = home.and_then(|home| settings::read(&home.join(".ssh/config")).ok());
    candidates(hosts_of(&text.unwrap_or_default()))
}

fn hosts_of(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter_map(|line| {
        let line = line.trim_start();
        let (word, names) = line.split_once([' ', '\t', '='])?;
        word.eq_ignore_ascii_case("host").then_some(names)
    });
    let names = lines.flat_map(|names| names.split([' ', '\t', '=', '"']));
    let plain = names.filter(|name| !name.is_empty() && !name.contains(['*', '?', '!']));
    let place = "from ~/.ssh/config".to_owned();
    plain.map(|name| (name.to_owned(), place.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_knows_the_hosts_of_ssh() {
        let text =
            "Host mac work\n  HostName 10.0.0.1\nhost=\"box\"\nHost *.lan !x\nMatch host y\n";
        let names: Vec<String> = hosts_of(text).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["mac", "work", "box"]);
    }

    #[test]
    fn completion_knows_what_each_argument_takes() {
        let command = whole();
        let takes = |path: &[&str], id: &str| {
            let found = path.iter().fold(&command, |at, name| {
                at.find_subcommand(name).unwrap_or_else(|| panic!("{name}"))
            });
            let mut arguments = found.get_arguments();
            let argument = arguments.find(|argument| argument.get_id() == id);
            let argument = argument.unwrap_or_else(|| panic!("{path:?} {id}"));
            argument.get::<ArgValueCandidates>().is_some()
        };
        for (path, id) in [
            (&["send"][..], "agent"),
            (&["send"], "session"),
            (&["send"], "model"),
            (&["send"], "host"),
            (&["collect"], "jobs"),
            (&["abort"], "session"),
            (&["agents", "default"], "name"),
            (&["history"], "session"),
            (&["answer"], "question_id"),
            (&["voice", "check"], "to"),
            (&["config", "set"], "key"),
        ] {
            assert!(takes(path, id), "{path:?} {id}");
        }
        assert!(!takes(&["send"], "text"));
    }
}

//! `serve pi`, also by a link that is called `pi`.
//!
//! Owns what pi's words mean here. Must not know the protocol.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use agentd_client::client::Attended;
use agentd_client::key;
use agentd_client::places::Environment;
use agentd_faces::pi;
use agentd_terminal::output;

use super::{here, options, pi_models, text, until_signalled};
use crate::args::PiArgs;
use crate::exit::Exit;

/// The pi whose commands and words these are. Hosts read it as a version, so nothing is with it.
const VERSION: &str = "1.5.2";

/// What stands behind the model's name and `:`. Other names have a colon, too.
const LEVELS: &[&str] = &["off", "minimal", "low", "medium", "high", "xhigh", "max"];

/// pi's short options of several letters.
const SHORT: &[(&str, &str)] = &[
    ("-nt", "--no-tools"),
    ("-nbt", "--no-builtin-tools"),
    ("-xt", "--exclude-tools"),
    ("-ne", "--no-extensions"),
    ("-ns", "--no-skills"),
    ("-np", "--no-prompt-templates"),
    ("-nc", "--no-context-files"),
    ("-na", "--no-approve"),
];

/// The words of a link that is called `pi`, or of `serve pi`, as our own.
pub(crate) fn words(words: &[OsString]) -> Option<Vec<OsString>> {
    let (program, rest) = words.split_first()?;
    let (begin, rest) = if Path::new(program).file_name()? == "pi" {
        let ours = ["agentctl", "serve", "pi"];
        (ours.map(OsString::from).to_vec(), rest)
    } else {
        let is_it = |two: &[OsString]| two[0] == "serve" && two[1] == "pi";
        let at = words.windows(2).position(is_it)? + 2;
        (words[..at].to_vec(), &words[at..])
    };
    let ours = |word: &OsString| {
        let long = SHORT.iter().find(|(short, _)| word == short);
        long.map_or_else(|| word.clone(), |(_, long)| long.into())
    };
    Some(begin.into_iter().chain(rest.iter().map(ours)).collect())
}

/// pi's RPC on standard input and output, until the client leaves.
pub(crate) async fn pi(args: PiArgs, socket: Option<&Path>) -> io::Result<Exit> {
    if args.version {
        output::out_line(VERSION)?;
        return Ok(Exit::Done);
    }
    if let Some(search) = args.list_models {
        return pi_models::list(args.agent, &search.unwrap_or_default(), socket).await;
    }
    let (provider, model, level) = model(args.provider, args.model);
    let options = options(socket, args.no_fallback, "agentd-pi", Attended::Yes);
    let state = Environment::of_process().state_dir();
    let sessions = state
        .unwrap_or_else(|| PathBuf::from("/"))
        .join("pi-sessions");
    let tools = args.tools.as_deref().map(toolsets);
    let settings = pi::Settings {
        agent: args.agent,
        provider,
        model,
        thinking: args.thinking.or(level),
        toolsets: if args.no_tools {
            Some(Vec::new())
        } else {
            tools
        },
        system: system(&args.system_prompt),
        name: args.name,
        here: here(socket),
        begins: match (args.session, args.fork, args.continue_last) {
            (Some(session), ..) => pi::Begins::Named(session),
            (None, Some(session), _) => pi::Begins::Copy(session),
            (None, None, true) => pi::Begins::Latest,
            (None, None, false) => pi::Begins::New,
        },
        sessions: text(sessions),
        nonce: key::random()?,
        clock: SystemTime::now,
    };
    until_signalled(pi::Pi::new(settings), &options).await
}

/// The texts, or what is in the files of these names: pi takes either.
fn system(words: &[String]) -> Option<String> {
    let text = |word: &String| std::fs::read_to_string(word).unwrap_or_else(|_| word.clone());
    let texts: Vec<String> = words.iter().map(text).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

/// Provider, model and thinking level, which may stand in one word.
fn model(
    provider: Option<String>,
    named: Option<String>,
) -> (Option<String>, Option<String>, Option<String>) {
    let Some(named) = named else {
        return (provider, None, None);
    };
    let (named, level) = match named.rsplit_once(':') {
        Some((named, level)) if LEVELS.contains(&level) => {
            (named.to_owned(), Some(level.to_owned()))
        }
        _ => (named, None),
    };
    match (provider, named.split_once('/')) {
        (None, Some((provider, model))) => {
            (Some(provider.to_owned()), Some(model.to_owned()), level)
        }
        (provider, _) => (provider, Some(named), level),
    }
}

/// What holds these tools of pi's; other names are agentd's own.
fn toolsets(names: &[String]) -> Vec<String> {
    let mut sets = Vec::new();
    for name in names {
        let set = match name.as_str() {
            "bash" => "terminal",
            "read" | "grep" | "find" | "ls" => "file-read",
            "edit" | "write" => "file",
            other => other,
        };
        if !sets.iter().any(|one| one == set) {
            sets.push(set.to_owned());
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pi_link_and_its_model_are_understood() {
        let said = |line: &str| words(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        let ours = |line: &str| Some(line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(
            said("/bin/pi --mode rpc"),
            ours("agentctl serve pi --mode rpc")
        );
        assert_eq!(said("pi -v"), ours("agentctl serve pi -v"));
        assert_eq!(said("/bin/agentctl pi"), None);
        assert_eq!(
            said("agentctl --socket s serve pi -ne -n x -nc"),
            ours("agentctl --socket s serve pi --no-extensions -n x --no-context-files")
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "from a file").unwrap();
        let named = file.path().to_str().unwrap().to_owned();
        let both = system(&["a text".to_owned(), named]);
        assert_eq!(both.as_deref(), Some("a text\n\nfrom a file"));
        let tools = ["read", "ls", "web", "bash"].map(str::to_owned);
        assert_eq!(toolsets(&tools), ["file-read", "web", "terminal"]);
        for (provider, named, expected) in [
            (None, "p/m:high", (Some("p"), "m", Some("high"))),
            (None, "qwen:7b", (None, "qwen:7b", None)),
            (Some("p"), "x/y", (Some("p"), "x/y", None)),
        ] {
            let (p, m, level) = model(provider.map(str::to_owned), Some(named.to_owned()));
            assert_eq!(
                (p.as_deref(), m.as_deref().unwrap(), level.as_deref()),
                expected
            );
        }
    }
}

//! `ssh-key`: the line of `authorized_keys` that lets an ssh key send, and nothing else.
//!
//! Owns that line. Must not write it anywhere: whose machine it is decides.

use std::io;
use std::path::{Path, PathBuf};

use super::args::SshKeyArgs;
use super::exit::Exit;
use super::{outcome, output};
use agentd_base::settings;
use agentd_client::ssh::Target;

/// A public ssh key is one short line.
const MAX_SSH_KEY: usize = 16 * 1024;

pub(super) async fn ssh_key(args: SshKeyArgs) -> io::Result<Exit> {
    let file = match args.key {
        Some(file) => public(file),
        None => match first_ssh_key(&args.to).await? {
            Some(file) => file,
            None => {
                output::error(
                    &format!(
                        "there is no public key that ssh would use for `{}`",
                        args.to
                    ),
                    Some(
                        "make one with `ssh-keygen -t ed25519 -f FILE`, and name it with `--key FILE.pub`",
                    ),
                );
                return Ok(Exit::Configuration);
            }
        },
    };
    let shown = file.display();
    let text = settings::open(&file)
        .and_then(|opened| settings::read_from(&opened))
        .map_err(|error| {
            outcome::ends(
                Exit::Usage,
                &format!("cannot read the public key `{shown}`: {error}"),
                None,
            )
        })?;
    let program = args.program.as_deref().unwrap_or("agentctl");
    let Some(line) = line(program, &args.rules.words(), &text) else {
        output::error(
            &format!(
                "`{shown}` is no public key: expected one line as in `ssh-ed25519 AAAA… comment`"
            ),
            None,
        );
        return Ok(Exit::Usage);
    };
    output::out_line(&line)?;
    output::note(&format!(
        "this line goes into ~/.ssh/authorized_keys on `{}`, for {shown}; the same key must not stand there a second time",
        args.to
    ));
    Ok(Exit::Done)
}

/// The public half, whichever was named: a private key is never read.
fn public(file: PathBuf) -> PathBuf {
    if file.extension().is_some_and(|end| end == "pub") {
        return file;
    }
    let mut name = file.into_os_string();
    name.push(".pub");
    PathBuf::from(name)
}

/// `restrict` denies terminals, all forwarding and the user's own `rc`; the command is what runs,
/// whatever the client asks for.
fn line(program: &str, rules: &str, ssh_key: &str) -> Option<String> {
    let ssh_key = ssh_key.trim_end();
    if ssh_key.len() > MAX_SSH_KEY || ssh_key.chars().any(char::is_control) {
        return None;
    }
    let mut words = ssh_key.split(' ');
    let (kind, data) = (words.next()?, words.next()?);
    let named = |c: char| c.is_ascii_alphanumeric() || "-@.".contains(c);
    let base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    // The data says its kind itself: every such key begins with the length of that.
    let known = data.starts_with("AAAA") && data.chars().all(base64);
    if !known || !kind.starts_with(|c: char| c.is_ascii_lowercase()) || !kind.chars().all(named) {
        return None;
    }
    Some(format!(
        "restrict,command=\"{program} stdio --send-only{rules}\" {ssh_key}"
    ))
}

/// The first ssh key of those that ssh would try whose public half is there.
async fn first_ssh_key(target: &Target) -> io::Result<Option<PathBuf>> {
    let said = target.configuration().output().await;
    let said =
        said.map_err(|why| io::Error::new(why.kind(), format!("cannot start `ssh`: {why}")))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let home = std::env::home_dir();
    let files = said
        .lines()
        .filter_map(|line| line.strip_prefix("identityfile "));
    let files = files.map(|file| match (file.strip_prefix("~/"), &home) {
        (Some(below), Some(home)) => home.join(below),
        _ => Path::new(file).to_owned(),
    });
    Ok(files.map(public).find(|file| file.is_file()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn the_line_restricts_the_key_to_sends() {
        let ssh_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGk0 me@laptop voice\n";
        assert_eq!(
            line("agentctl", "", ssh_key).as_deref(),
            Some(
                "restrict,command=\"agentctl stdio --send-only\" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGk0 me@laptop voice"
            )
        );
    }

    #[test]
    fn ssh_key_line_says_what_may_be_sent() {
        let words = [
            "agentctl",
            "ssh-key",
            "mac",
            "--agents",
            "pi,timmy",
            "--no-tools",
        ];
        let words = words.into_iter().chain(["--cwd-root", "/srv/a"]);
        let Command::SshKey(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("another command")
        };
        let line = line("agentctl", &args.rules.words(), "ssh-ed25519 AAAAk").unwrap();
        let said = line.split('"').nth(1).unwrap();
        let Command::Stdio(there) = Cli::try_parse_from(said.split(' ')).unwrap().command else {
            panic!("another command: {said}")
        };
        assert!(there.send_only);
        assert_eq!(there.rules.send_only(), args.rules.send_only());
        for wrong in ["a b", "a;b", "\"", "$x", ""] {
            let words = ["agentctl", "ssh-key", "mac", "--agents", wrong];
            assert!(Cli::try_parse_from(words).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_public_key_makes_no_line() {
        for text in [
            "",
            "-----BEGIN OPENSSH PRIVATE KEY-----",
            "ssh-ed25519",
            "ssh-ed25519 nonsense",
            "ssh-ed25519 AAAA\nssh-ed25519 AAAA",
            "command=\"id\" ssh-ed25519 AAAA",
            "environment=\"A=b\",ssh-ed25519 AAAA",
        ] {
            assert_eq!(line("agentctl", "", text), None, "{text}");
        }
        assert_eq!(public("/k".into()), Path::new("/k.pub"));
        assert_eq!(public("/k.pub".into()), Path::new("/k.pub"));
    }
}

//! `voice`: what was said goes to a session; what waits is delivered; a machine is checked.
//!
//! Owns what is printed and the exit codes. Must not know how anything is kept or delivered
//! (`voice`).

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, Instant};

use agentd_protocol::Line;
use agentd_protocol::line::HelloAnswer;
use agentd_protocol::request::{Hello, Send};
use serde_json::json;

use super::args::{VoiceArgs, VoiceCheckArgs, VoiceCommand, VoiceFlushArgs, VoiceForwardArgs};
use super::exit::{self, Exit};
use super::{outcome, output};
use agentd_client::fallback::Fallback;
use agentd_client::key;
use agentd_client::places::Environment;
use agentd_client::remote::{Remote, RemoteError, Stage, clipped};
use agentd_client::ssh::Target;
use agentd_voice::age::Moment;
use agentd_voice::deliver::{Delivery, Flushed, Forwarded, Notes, Outcome};
use agentd_voice::spool::Spool;
use agentd_voice::{MAX_TRANSCRIPT, Utterance, rate};

/// A machine that takes longer isn't fit for speech.
const CHECKED_WITHIN: Duration = Duration::from_secs(20);
/// In the daemon's log and in `hello`.
const NAME: &str = "agentctl voice";

pub(super) async fn voice(args: VoiceArgs, socket: Option<&Path>) -> io::Result<Exit> {
    match args.command {
        VoiceCommand::Forward(args) => forward(args, socket).await,
        VoiceCommand::Flush(args) => flush(args, socket).await,
        VoiceCommand::Forget(args) => forget(&args.to).await,
        VoiceCommand::Check(args) => check(args).await,
    }
}

async fn forward(args: VoiceForwardArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut said = Vec::new();
    let most = u64::try_from(MAX_TRANSCRIPT).unwrap_or(u64::MAX);
    io::stdin().lock().take(most + 1).read_to_end(&mut said)?;
    let transcript = match agentd_voice::transcript(&said) {
        Ok(transcript) => transcript,
        Err(why) => {
            output::error(
                &why,
                Some("nothing was sent; expected text on standard input"),
            );
            return Ok(Exit::Usage);
        }
    };
    // Whoever speaks may take longer than that.
    let delivery = delivery(to(socket)?, args.deadline, args.max_age)?;
    let calling = delivery.begin().await;
    let spool = spool();
    let utterance = utterance(&args, transcript, &delivery.to, spool.as_ref().ok())?;
    if let Ok(spool) = &spool
        && !is_allowed(spool, &utterance, args.per_minute)
    {
        return Ok(Exit::Refused);
    }
    let mut notes = Notes::new();
    let spool = spool
        .as_ref()
        .map_err(|why| io::Error::new(why.kind(), why.to_string()));
    let mut forwarded = delivery
        .forward(calling, spool, &utterance, &mut notes)
        .await;
    let client = forwarded.client.take();
    tell(&notes);
    let exit = concluded(forwarded, &utterance, &args, socket);
    if let Some(client) = client {
        client.close().await;
    }
    exit
}

/// Says so when too much was said within a minute.
fn is_allowed(spool: &Spool, utterance: &Utterance, most: usize) -> bool {
    let allowed = rate::allows(spool.dir(), &utterance.id, most, utterance.said_at);
    // Where nothing can be counted, as on a full disk, it is sent all the same.
    if allowed.unwrap_or(true) {
        return true;
    }
    output::error(
        &format!("{most} utterances were said within a minute: nothing was sent"),
        Some("look at what wakes the recogniser; `--per-minute` allows more"),
    );
    false
}

/// Prints what became of it.
fn concluded(
    forwarded: Forwarded,
    utterance: &Utterance,
    args: &VoiceForwardArgs,
    socket: Option<&Path>,
) -> io::Result<Exit> {
    let Forwarded {
        outcome,
        lost,
        alone,
        ..
    } = forwarded;
    if let Some(why) = &lost {
        let why = clipped(why);
        output::note(&format!("voice: it can't be kept on disk: {why}"));
    }
    match outcome {
        Outcome::Ended(last) => {
            if args.json {
                output::out_json(&last.text)?;
            }
            Ok(match &last.line {
                Some(line @ Line::MessageEnd(end)) => {
                    if !args.json {
                        output::out_line(&shown(&end.turn.text))?;
                    }
                    exit::of_line(line)
                }
                Some(line @ Line::Error(error)) => {
                    output::error(&clipped(&error.error), error.hint.as_deref());
                    exit::of_line(line)
                }
                _ => Exit::Failed,
            })
        }
        Outcome::Accepted(job, first) => {
            if args.json {
                output::out_json(&first.text)?;
            } else {
                output::out_line(&format!("accepted, still working: {job}"))?;
                let needs = if alone { "; that needs a daemon" } else { "" };
                output::note(&format!(
                    "`agentctl {}collect {job}` has its answer later{needs}",
                    option(socket)
                ));
            }
            Ok(Exit::Done)
        }
        Outcome::Waits { why, .. } if lost.is_none() => {
            let why = clipped(&why);
            if args.json {
                let line = json!({"type": "queued", "utterance": utterance.id, "error": why});
                output::out_json(&line.to_string())?;
            } else {
                output::out_line("queued on disk, not delivered yet")?;
            }
            output::note(&format!("voice: {why}"));
            Ok(Exit::Done)
        }
        Outcome::Waits { why, asked } => {
            let (what, exit) = neither(asked);
            output::error(
                &format!("{what}: {}", clipped(&why)),
                Some(&format!(
                    "say it again; with `--utterance {}` it can't run twice",
                    utterance.id
                )),
            );
            Ok(exit)
        }
    }
}

/// What is known of an utterance that isn't on the disk and has no answer.
fn neither(asked: bool) -> (&'static str, Exit) {
    match asked {
        true => ("not kept, and not known whether it arrived", Exit::Unknown),
        false => ("neither sent nor kept", Exit::Unreachable),
    }
}

/// The words that lead another command to the same daemon, with a space behind them.
fn option(socket: Option<&Path>) -> String {
    let Some(socket) = socket else {
        return String::new();
    };
    let socket = socket.to_string_lossy();
    match socket.strip_prefix("ssh://") {
        Some(host) => format!("--host {host} "),
        None => format!("--socket '{socket}' "),
    }
}

fn shown(text: &str) -> String {
    if output::out_is_terminal() {
        output::safe(text).into_owned()
    } else {
        text.to_owned()
    }
}

fn utterance(
    args: &VoiceForwardArgs,
    transcript: String,
    to: &str,
    spool: Option<&Spool>,
) -> io::Result<Utterance> {
    let machine = agentd_voice::machine();
    let text = if args.no_prefix {
        transcript
    } else {
        agentd_voice::prefixed(&machine, &transcript)
    };
    let id = match &args.utterance {
        Some(id) => id.clone(),
        None => key::random()?,
    };
    // Without a place to keep one, any name will do that is the same the next time.
    let device = spool.and_then(|spool| spool.device().ok());
    let device = device.unwrap_or_else(|| machine.chars().take(64).collect());
    Ok(Utterance {
        to: to.to_owned(),
        said_at: super::value::now_ms(),
        moment: Moment::now(),
        send: Send {
            text,
            session: Some(args.session.clone()),
            agent: args.agent.clone(),
            idempotency_key: Some(agentd_voice::key(&device, &id)),
            stream: Some(false),
            ..Send::default()
        },
        id,
    })
}

async fn flush(args: VoiceFlushArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let spool = spool().map_err(|why| outcome::ends(Exit::Refused, &why.to_string(), None))?;
    spool.sweep();
    let waiting = spool
        .waiting()
        .map_err(|why| outcome::ends(Exit::Refused, &why.to_string(), None))?;
    let known = waiting.iter().filter_map(|(_, one)| one.as_ref().ok());
    let mut destinations: BTreeSet<String> = known.map(|one| one.to.clone()).collect();
    if destinations.is_empty() && !waiting.is_empty() {
        // What can't be read belongs to nobody: whoever looks puts it aside.
        destinations.insert(String::new());
    }
    if socket.is_some() {
        let only = to(socket)?;
        destinations.retain(|to| *to == only);
    }
    let mut exit = Exit::Done;
    for to in destinations {
        let delivery = delivery(to, args.deadline, args.max_age)?;
        let mut notes = Notes::new();
        let flushed = delivery.flush(&spool, &mut notes).await;
        tell(&notes);
        output::out_line(&flushed_text(&delivery.to, &flushed))?;
        if let Some((_, why)) = &flushed.left {
            output::note(&format!("voice: {}", clipped(why)));
            exit = Exit::Unreachable;
        }
    }
    Ok(exit)
}

/// Nothing goes there any more, and nothing is lost.
async fn forget(to: &Target) -> io::Result<Exit> {
    let told = |why: &dyn std::fmt::Display| {
        output::error(&why.to_string(), None);
        Ok(Exit::Refused)
    };
    let spool = match spool() {
        Ok(spool) => spool,
        Err(why) => return told(&why),
    };
    let name = to.as_socket().to_string_lossy().into_owned();
    let lock = spool.lock(&name);
    let known = lock.exists();
    // Whoever delivers there right now ends first.
    let held = spool.hold(&name).await?;
    let waiting = match spool.waiting() {
        Ok(waiting) => waiting,
        Err(why) => return told(&why),
    };
    let mut aside = 0;
    for (utterance, one) in waiting {
        if one.is_ok_and(|one| one.to == name) {
            spool.put_aside(&utterance)?;
            aside += 1;
        }
    }
    std::fs::remove_file(lock)?;
    drop(held);
    if aside == 0 && !known {
        output::note(&format!("nothing was ever said to `{to}`"));
    } else {
        let utterances = output::counted(aside, "utterance");
        output::out_line(&format!("{to} is forgotten: {utterances} put aside"))?;
    }
    Ok(Exit::Done)
}

fn flushed_text(to: &str, flushed: &Flushed) -> String {
    let to = match to {
        "" => "this machine",
        to => to.trim_start_matches("ssh://"),
    };
    let mut text = format!("{to}: {} delivered", flushed.delivered);
    if flushed.aside > 0 {
        text.push_str(&format!(", {} put aside", flushed.aside));
    }
    if let Some((count, _)) = &flushed.left {
        text.push_str(&format!(", {count} waiting"));
    }
    text
}

/// How far a call to another machine gets.
pub(super) struct Reached {
    pub(super) ms: u64,
    /// Does ssh get there?
    pub(super) ssh: bool,
    /// The daemon there, or why none serves.
    pub(super) daemon: Result<Box<HelloAnswer>, String>,
}

/// First whether ssh gets there, then whether `agentctl` is there and a daemon serves.
pub(super) async fn reached(to: &Target) -> Reached {
    let hello = Hello {
        client: Some(NAME.to_owned()),
        protocol: Some(1),
        ..Hello::default()
    };
    let begun = Instant::now();
    let opening = Remote::open(to, &hello, Fallback::Forbidden);
    let opened = tokio::time::timeout(CHECKED_WITHIN, opening).await;
    let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (ssh, daemon) = match opened {
        Ok(Ok((_, _, hello))) if hello.served_by.as_deref() == Some("oneshot") => (
            true,
            Err("no daemon runs there: each turn would start one of its own".to_owned()),
        ),
        Ok(Ok((_, _, hello))) => (true, Ok(hello)),
        Ok(Err(error)) => (error.stage != Stage::Ssh, Err(told(&error))),
        Err(_late) => {
            let error = format!("nobody answered within {} s", CHECKED_WITHIN.as_secs());
            (false, Err(error))
        }
    };
    Reached { ms, ssh, daemon }
}

async fn check(args: VoiceCheckArgs) -> io::Result<Exit> {
    let Reached { ms, ssh, daemon } = reached(&args.to).await;
    let exit = match &daemon {
        Ok(_) => Exit::Done,
        Err(_) => Exit::Unreachable,
    };
    if args.json {
        let (version, pid) = match &daemon {
            Ok(hello) => (Some(&hello.version), Some(hello.pid)),
            Err(_) => (None, None),
        };
        let line = json!({
            "type": "voice.check", "host": args.to.to_string(), "ms": ms, "ssh": ssh,
            "daemon": daemon.is_ok(), "version": version, "pid": pid,
            "error": daemon.as_ref().err(),
        });
        output::out_json(&line.to_string())?;
        return Ok(exit);
    }
    let (first, second) = match (&daemon, ssh) {
        (Ok(hello), _) => (
            format!("ok, {ms} ms"),
            format!(
                "ok, agentd {} with pid {}",
                output::safe(&hello.version),
                hello.pid
            ),
        ),
        (Err(why), true) => ("ok".to_owned(), format!("failed: {}", output::safe(why))),
        (Err(why), false) => (
            format!("failed: {}", output::safe(why)),
            "not tried".to_owned(),
        ),
    };
    output::out(&format!("ssh     {first}\ndaemon  {second}\n"))?;
    Ok(exit)
}

fn told(error: &RemoteError) -> String {
    match &error.hint {
        Some(hint) => clipped(&format!("{}; {hint}", error.error)),
        None => clipped(&error.error),
    }
}

fn tell(notes: &Notes) {
    for note in notes {
        output::note(&format!("voice: {}", clipped(note)));
    }
}

/// A destination as it is kept: whoever delivers later may be elsewhere.
fn to(socket: Option<&Path>) -> io::Result<String> {
    let named = Environment::of_process().agentd_socket;
    let Some(socket) = socket.or(named.as_deref()) else {
        return Ok(String::new());
    };
    if Target::of_socket(socket).is_some() {
        return Ok(socket.to_string_lossy().into_owned());
    }
    let socket = std::path::absolute(socket)?;
    Ok(socket.to_string_lossy().into_owned())
}

fn delivery(to: String, deadline: f64, max_age: Duration) -> Result<Delivery, Exit> {
    let until = Duration::try_from_secs_f64(deadline)
        .ok()
        .and_then(|deadline| tokio::time::Instant::now().checked_add(deadline));
    let Some(until) = until else {
        output::error("`--deadline` is longer than time is measured", None);
        return Err(Exit::Usage);
    };
    Ok(Delivery {
        to,
        max_age,
        until,
        name: NAME.to_owned(),
    })
}

fn spool() -> io::Result<Spool> {
    let state = Environment::of_process().state_dir().ok_or_else(|| {
        let error = "there is no home directory: set `AGENTD_STATE_DIR`";
        io::Error::new(io::ErrorKind::NotFound, error)
    })?;
    Spool::open(&state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_leads_to_the_daemon_that_was_asked() {
        assert_eq!(option(None), "");
        assert_eq!(option(Some(Path::new("ssh://me@mac"))), "--host me@mac ");
        assert_eq!(option(Some(Path::new("/a b/s"))), "--socket '/a b/s' ");
    }

    #[test]
    fn only_what_was_handed_in_may_have_arrived() {
        assert_eq!(neither(false).1, Exit::Unreachable);
        assert_eq!(neither(true).1, Exit::Unknown);
    }

    #[test]
    fn a_flush_says_what_it_came_to() {
        let mut flushed = Flushed {
            delivered: 2,
            ..Flushed::default()
        };
        assert_eq!(
            flushed_text("ssh://me@mac", &flushed),
            "me@mac: 2 delivered"
        );
        flushed.aside = 1;
        flushed.left = Some((3, "down".to_owned()));
        assert_eq!(
            flushed_text("", &flushed),
            "this machine: 2 delivered, 1 put aside, 3 waiting"
        );
    }
}

//! HTTP for agentd: the protocol's requests, for programs that speak nothing else.
//!
//! A translator and a guard. It keeps no state: what was asked is in the daemon, and a request that
//! is asked again finds it there by its key. It owns HTTP, who may ask, and the document; it must
//! not know the daemon's insides, nor run anything without it.

mod api;
mod app;
mod body;
mod cors;
mod daemon;
mod dispatch;
mod document;
mod events;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gateway;
mod guard;
mod head;
mod health;
mod jobs;
mod listen;
mod log;
mod mcp;
mod models;
mod openai;
mod peer;
mod places;
mod problem;
#[cfg(test)]
#[path = "../../../tests/fuzz/replay.rs"]
mod replay;
mod result;
mod sessions;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentd_client::places::Environment;
use agentd_client::signals::{self, Stops};
use agentd_client::ssh::Target;
use agentd_client::token;
use agentd_terminal::output;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::app::App;
use crate::daemon::Daemon;
use crate::guard::Guard;
use crate::log::Log;
pub use crate::openai::OnLeave;

/// Where is listened, and who may ask.
#[derive(Clone, Debug)]
pub struct Options {
    /// An address of this machine; port 0 takes a free one.
    pub listen: SocketAddr,
    /// More names that requests may give as their host: `NAME` or `NAME:PORT`.
    pub hosts: Vec<String>,
    /// Origins of pages that may ask: `SCHEME://NAME` or with `:PORT`.
    pub origins: Vec<String>,
    /// May the address be one that other machines reach? Something in front has to speak TLS.
    pub behind_tls_proxy: bool,
    /// What becomes of the turn of a chat whose stream is closed.
    pub on_leave: OnLeave,
    /// Models by the names that OpenAI's clients have for them.
    pub models: BTreeMap<String, String>,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The options ask for what can't be.
    #[error("{error}")]
    Options {
        /// What is wrong.
        error: String,
        /// What to do about it.
        hint: Option<&'static str>,
    },
    /// This machine doesn't allow it as it is.
    #[error("{error}")]
    Machine {
        /// What is wrong.
        error: String,
        /// What to do about it.
        hint: Option<&'static str>,
    },
    /// Somebody else listens there.
    #[error("somebody listens on `{0}` already")]
    Taken(SocketAddr),
    /// Standard output can't be written, or the system gives no runtime.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ServeError {
    /// What to do about it.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Options { hint, .. } | Self::Machine { hint, .. } => *hint,
            Self::Taken(_) => Some("name another port with `--listen`"),
            Self::Io(_) => None,
        }
    }
}

/// Serves until Ctrl-C, SIGTERM or another signal that asks for a stop.
///
/// # Errors
/// When nothing can be served, or standard output can't be written.
pub fn run(args: &Options, socket: Option<&Path>) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let served = runtime.block_on(serve(args, socket));
    // A connection to a daemon that hangs is not waited for.
    runtime.shutdown_background();
    served
}

async fn serve(args: &Options, socket: Option<&Path>) -> Result<(), ServeError> {
    let token = prepare(args, socket)?;
    let listener = bind(args.listen).await?;
    raise_file_limit();
    let at = listener.local_addr()?;
    signals::serve_on();
    let mut stops = Stops::listen()?;
    let (stop, stopping) = watch::channel(false);
    let log = Arc::new(Log::start());
    let app = Arc::new(App {
        daemon: Daemon::new(socket.map(Path::to_owned)),
        openai: openai::Settings::of(&token, args.on_leave, args.models.clone()),
        guard: Guard::new(at, &args.hosts, &args.origins, token, Arc::clone(&log)),
        room: Arc::new(Semaphore::new(body::TOGETHER_KIB)),
        stopping,
        document: document::document(),
    });
    let router = api::router(Arc::clone(&app));
    // Not before it listens: whoever reads this may ask.
    output::out_line(&format!(
        "http://{at} until Ctrl-C; `agentctl token` prints the token"
    ))?;
    let serving = listen::serve(listener, listen::PATIENCE, app, router, log);
    let stopped = async {
        stops.next().await;
        let _over = stop.send(true);
        // Serving ends by that.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = serving => {}
        () = stopped => {}
    }
    Ok(())
}

/// Looks at what was asked for, and gives the token's file.
fn prepare(args: &Options, socket: Option<&Path>) -> Result<PathBuf, ServeError> {
    let refused = |error, hint| Err(ServeError::Options { error, hint });
    let not_here = |error, hint| Err(ServeError::Machine { error, hint });
    if socket.and_then(Target::of_socket).is_some() {
        let error = "the daemon of another machine can't be served".to_owned();
        let hint = "run `agentctl serve http` there";
        return refused(error, Some(hint));
    }
    if !args.listen.ip().is_loopback() && !args.behind_tls_proxy {
        let error = format!(
            "other machines reach `{}`, and would send the token unencrypted",
            args.listen
        );
        let hint = "listen on 127.0.0.1; or with something in front that speaks TLS, say `--behind-tls-proxy`";
        return not_here(error, Some(hint));
    }
    if let Some(host) = args.hosts.iter().find(|host| !is_host(host)) {
        let error = format!("`{host}` is no host: expected `NAME` or `NAME:PORT`");
        return refused(error, None);
    }
    let is_origin = |origin: &str| {
        let origin = origin.to_ascii_lowercase();
        let scheme = ["http://", "https://"].into_iter();
        let mut rest = scheme.filter_map(|scheme| origin.strip_prefix(scheme));
        rest.next().is_some_and(is_host)
    };
    if let Some(origin) = args.origins.iter().find(|origin| !is_origin(origin)) {
        let error =
            format!("`{origin}` is no origin: expected `https://NAME` or `https://NAME:PORT`");
        return refused(error, None);
    }
    let path = token::path(&Environment::of_process());
    let made = path.and_then(|path| token::ensure(&path).map(|_| path));
    made.or_else(|error| not_here(error.to_string(), None))
}

/// Is it a name or an address, with a port or without?
fn is_host(text: &str) -> bool {
    let is_name = |name: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        !name.is_empty() && name.bytes().all(known)
    };
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if address.parse::<Ipv6Addr>().is_ok() => (true, port),
        Some(_) => return false,
        None => {
            let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (is_name(name), port)
        }
    };
    let is_port =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    host && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// Each request may need two open files, and not everybody is given so many. What can't be raised
/// stays as it is.
fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _refused = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

async fn bind(at: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(at)
        .await
        .map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => ServeError::Taken(at),
            _ => ServeError::Machine {
                error: format!("cannot listen on `{at}`: {error}"),
                hint: None,
            },
        })
}

//! Connections that ask nothing, by the thousand: whoever has the token is served all the same.
//!
//! Owns the flood. Must not know what is asked well (`asked`).

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use nix::unistd::Uid;

use super::{Answer, Http, rest, served};
use crate::support::{DEADLINE, wait_for};

/// Connections of a flood, at least. All of their heads at once would be half as much again as the
/// memory that is allowed.
const MANY: usize = 1500;
/// That each of its threads keeps open.
const KEPT: usize = 200;
/// Somebody else: nobody, on every system that knows a nobody.
const NOBODY: u32 = 65534;
/// Requests with the token meanwhile.
const ASKED: usize = 25;

/// Opens connections, writes half a head on each, and leaves them open.
struct Flood {
    opened: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    /// Of another user's connections, if one is named.
    fn start(at: SocketAddr, user: Option<u32>) -> Self {
        let opened = Arc::new(AtomicUsize::new(0));
        let over = Arc::new(AtomicBool::new(false));
        let half = format!("GET / HTTP/1.1\r\nX: {}", "z".repeat(16 * 1024));
        let threads = (0..2).map(|_| {
            let (opened, over, half) = (Arc::clone(&opened), Arc::clone(&over), half.clone());
            std::thread::spawn(move || {
                if let Some(user) = user {
                    become_user(user);
                }
                let mut open = VecDeque::new();
                while !over.load(Ordering::Relaxed) {
                    let Ok(mut stream) = TcpStream::connect_timeout(&at, DEADLINE) else {
                        continue;
                    };
                    stream.set_write_timeout(Some(DEADLINE)).unwrap();
                    let _refused = stream.write_all(half.as_bytes());
                    open.push_back(stream);
                    if open.len() > KEPT {
                        open.pop_front();
                    }
                    opened.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let threads = threads.collect();
        Self {
            opened,
            over,
            threads,
        }
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    fn end(self) -> usize {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        self.opened.load(Ordering::Relaxed)
    }
}

/// Of this thread only: the kernel takes a socket's owner from it.
fn become_user(user: u32) {
    #[cfg(target_os = "linux")]
    nix::unistd::setfsuid(Uid::from_raw(user));
    #[cfg(not(target_os = "linux"))]
    panic!("no thread can be of {user} here");
}

/// The most memory the server ever had, in KiB.
fn peak(http: &Http) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", http.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.unwrap().parse().unwrap()
}

/// Asks on a connection of its own, as each `curl` has one.
fn status(http: &Http) -> u16 {
    let mut stream = http.connect();
    let request = http.head("GET /v1/jobs?limit=1") + "Connection: close\r\n\r\n";
    let _refused = stream.write_all(request.as_bytes());
    let said = rest(&mut stream);
    match said.is_empty() {
        true => 0,
        false => Answer::parse(&said).status,
    }
}

fn served_during_a_flood(user: Option<u32>) {
    let Some((_daemon, http)) = served() else {
        return;
    };
    assert_eq!(status(&http), 200);
    let before = peak(&http);
    let flood = Flood::start(http.at, user);
    wait_for("every place has been taken", || {
        (flood.opened() > 512).then_some(())
    });
    let mut answers = Vec::new();
    while answers.len() < ASKED || flood.opened() < MANY {
        answers.push(status(&http));
    }
    let opened = flood.end();
    let refused = answers.iter().filter(|status| **status != 200).count();
    let asked = answers.len();
    assert_eq!(refused, 0, "of {asked} during {opened} connections");
    let grown = peak(&http) - before;
    assert!(grown < 16 * 1024, "{grown} KiB more");
}

#[test]
fn http_flood_of_half_heads_leaves_room() {
    served_during_a_flood(None);
}

#[test]
fn http_flood_of_another_user_leaves_room() {
    if !Uid::effective().is_root() || !cfg!(target_os = "linux") {
        eprintln!("left out: only root can connect as somebody else");
        return;
    }
    served_during_a_flood(Some(NOBODY));
}

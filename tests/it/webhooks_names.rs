//! Webhooks to names, through this system's own resolver: a name server that changes its mind, one
//! that is silent, and addresses to which nothing leads.
//!
//! All of it is in a network of its own, where this machine has the addresses that the tests need:
//! the test runs itself once more in there.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::{Daemon, Place, finish, needs, skipped};
use crate::webhooks::{Hook, until};

/// An address of the public internet, which is this machine's in there.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
/// Set in there.
const INSIDE: &str = "AGENTD_TEST_INSIDE";

/// Makes the network and runs the test in it; false where that can't be done.
fn run_inside(test: &str) -> bool {
    let (Some(unshare), Some(_ip)) = (needs("unshare"), needs("ip")) else {
        return false;
    };
    let place = Place::new("");
    // The C library waits for no one, asks once, and asks nobody else.
    let files = [
        (
            "resolv.conf",
            "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        ),
        ("nsswitch.conf", "hosts: files dns\n"),
        ("hosts", "127.0.0.1 localhost\n"),
    ];
    for (name, text) in files {
        std::fs::write(place.path(name), text).unwrap();
    }
    let make = format!(
        "for file in resolv.conf nsswitch.conf hosts; do mount --bind \"$1/$file\" \"/etc/$file\" || exit 1; done
        ip link set lo up && ip addr add {PUBLIC}/32 dev lo"
    );
    let command = |how: &[&str], script: &str| {
        let mut command = Command::new(&unshare);
        command.args(how).args(["--net", "--mount", "sh", "-c"]);
        command.args([script, "sh"]).arg(place.dir.path());
        command
    };
    let possible = [&[][..], &["--map-root-user"]]
        .into_iter()
        .find(|how| finish(command(how, &make), b"").code == Some(0));
    let Some(how) = possible else {
        skipped("a network and mounts of its own: root, or user namespaces");
        return false;
    };
    let mut command = command(how, &format!("{make}\nshift; exec \"$@\""));
    command.arg(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1");
    let ran = finish(command, b"");
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("1 passed"), "{}", ran.stdout);
    true
}

/// What is asked about a name, and the answers to it.
#[derive(Default)]
struct Names {
    /// By name: one address for each question, the last one stands. A name that isn't here is met
    /// with silence.
    v4: Vec<(&'static str, Vec<Ipv4Addr>)>,
    v6: Vec<(&'static str, Ipv6Addr)>,
    asked: Vec<String>,
}

/// Answers questions about names until the test is over.
fn serve(names: &Arc<Mutex<Names>>) {
    let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
    let names = Arc::clone(names);
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            if let Some(answer) = answer(&packet[..length], &mut names.lock().unwrap()) {
                socket.send_to(&answer, from).unwrap();
            }
        }
    });
}

/// The answer to a packet with one question, as RFC 1035 has it.
fn answer(packet: &[u8], names: &mut Names) -> Option<Vec<u8>> {
    let (mut name, mut at) = (String::new(), 12);
    while packet[at] > 0 {
        let label = &packet[at + 1..=at + usize::from(packet[at])];
        name.push_str(std::str::from_utf8(label).unwrap());
        name.push('.');
        at += 1 + label.len();
    }
    let (name, kind) = (name.trim_end_matches('.'), packet[at + 2]);
    let question = &packet[12..at + 5];
    let address = match kind {
        1 => {
            names.asked.push(name.to_owned());
            let (_, left) = names.v4.iter_mut().find(|(known, _)| *known == name)?;
            let next = if left.len() > 1 {
                left.remove(0)
            } else {
                left[0]
            };
            Some(next.octets().to_vec())
        }
        _ => {
            names.v4.iter().find(|(known, _)| *known == name)?;
            let found = names
                .v6
                .iter()
                .find(|(known, _)| kind == 28 && *known == name);
            found.map(|(_, address)| address.octets().to_vec())
        }
    };
    let mut answer = packet[..2].to_vec();
    // An answer without errors, to one question.
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0]);
    answer.extend(question);
    if let Some(address) = address {
        // The name above, its kind, IN, to be kept for 0 s.
        answer.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 0, 0]);
        answer.push(u8::try_from(address.len()).unwrap());
        answer.extend(address);
    }
    Some(answer)
}

#[test]
fn webhook_name_is_resolved_once_checked_and_kept() {
    if std::env::var_os(INSIDE).is_none() {
        run_inside("webhooks_names::webhook_name_is_resolved_once_checked_and_kept");
        return;
    }
    let here = Ipv4Addr::LOCALHOST;
    let names = Arc::new(Mutex::new(Names {
        v4: vec![
            ("turns.example", vec![PUBLIC, here]),
            ("returns.example", vec![here, PUBLIC]),
            ("refuses.example", vec![PUBLIC]),
            ("far.example", vec![Ipv4Addr::new(8, 8, 8, 8)]),
        ],
        v6: vec![("refuses.example", "2606:4700::1111".parse().unwrap())],
        asked: Vec::new(),
    }));
    serve(&names);
    let public = Hook::on(TcpListener::bind((PUBLIC, 0)).unwrap());
    let private = Hook::on(TcpListener::bind((here, public.port)).unwrap());
    let daemon = Daemon::start();
    let send = |name: &str, port: u16| -> Value {
        let url = format!("http://{name}:{port}/hook");
        let added = daemon.agentctl(&["webhook", "add", &url]);
        assert_eq!(added.code, Some(0), "{added:?}");
        let sent = daemon.agentctl(&["send", name, "--callback", &url]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        until(&daemon.place, name, |row| {
            row["url"] == url && row["last_at"].is_string()
        })
    };
    let asked = |name: &str| {
        let names = names.lock().unwrap();
        names.asked.iter().filter(|one| *one == name).count()
    };
    // Public when it is checked; whoever asked again would come to this machine.
    let row = send("turns.example", public.port);
    assert_eq!(row["state"], "delivered", "{row:#}");
    assert_eq!(public.next().id(), row["webhook"]);
    assert_eq!(asked("turns.example"), 1);
    // Now it leads to this machine, and by the time of a second question that would be fine.
    for name in ["turns.example", "returns.example"] {
        let row = send(name, public.port);
        assert_eq!(
            (&row["state"], &row["attempts"]),
            (&json!("pending"), &json!(1))
        );
        let error = row["error"].as_str().unwrap();
        assert!(error.contains("private network"), "{row:#}");
    }
    assert_eq!((asked("turns.example"), asked("returns.example")), (2, 1));
    public.quiet();
    private.quiet();
    // It has an address that can't be reached from here, and one where nobody listens.
    let row = send("refuses.example", 1);
    let error = row["error"].as_str().unwrap();
    assert!(error.contains("refused"), "{row:#}");
    assert_eq!(row["attempts"], 1);
    // No way leads there, and no name server answers: neither counts.
    for (name, expected) in [
        ("far.example", "unreachable"),
        ("silent.example", "Temporary failure"),
    ] {
        let row = send(name, 80);
        let error = row["error"].as_str().unwrap();
        assert!(error.contains(expected), "{row:#}");
        assert_eq!(
            (&row["state"], &row["attempts"]),
            (&json!("pending"), &json!(0))
        );
    }
}

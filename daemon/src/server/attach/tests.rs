//! What is read, and what is refused, from real files.

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use agentd_protocol::work::{Dispatch, Dispatched};
use tempfile::TempDir;

use super::*;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nnot much of a picture";

fn send(attachments: Vec<Attachment>) -> Send {
    Send {
        text: "look".to_owned(),
        attachments,
        ..Send::default()
    }
}

fn decoded(request: Request) -> Decoded {
    Decoded {
        request,
        ignored: Vec::new(),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// Reads in a thread of its own, which has to come back.
fn reads(send: Send) -> Result<(Send, Vec<Content>), Rejected> {
    let (told, answer) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let runtime = runtime();
        let _in_it = runtime.enter();
        let mut decoded = decoded(Request::Send(Box::new(send)));
        let read = read(&mut decoded);
        let Request::Send(send) = decoded.request else {
            unreachable!()
        };
        let _gone = told.send(read.map(|mut all| (*send, all.remove(0))));
    });
    let within = Duration::from_secs(20);
    answer.recv_timeout(within).expect("it hangs")
}

fn data(mime: &str, data: &str) -> Attachment {
    Attachment {
        mime: Some(mime.to_owned()),
        data: Some(data.to_owned()),
        ..Attachment::default()
    }
}

fn file(path: &Path) -> Attachment {
    Attachment::of_path(path.to_str().unwrap())
}

fn refused(attachment: Attachment) -> String {
    let rejected = reads(send(vec![attachment])).unwrap_err();
    assert_eq!(rejected.code, Code::InvalidRequest, "{}", rejected.error);
    rejected.error
}

#[test]
fn attached_file_is_known_by_its_content() {
    let dir = TempDir::new().unwrap();
    let png = dir.path().join("notes.txt");
    std::fs::write(&png, PNG).unwrap();
    let link = dir.path().join("latest");
    symlink(&png, &link).unwrap();
    let text = Attachment {
        mime: Some("text/markdown".to_owned()),
        name: Some("given".to_owned()),
        ..data("", "aGk=")
    };
    let (send, contents) = reads(send(vec![file(&png), file(&link), text])).unwrap();
    let known: Vec<_> = send
        .attachments
        .iter()
        .map(|of| {
            (
                of.name.as_deref().unwrap(),
                of.mime.as_deref().unwrap(),
                of.bytes.unwrap(),
            )
        })
        .collect();
    let size = PNG.len() as u64;
    assert_eq!(
        known,
        [
            ("notes.txt", "image/png", size),
            ("latest", "image/png", size),
            ("given", "text/markdown", 2)
        ]
    );
    let bytes: Vec<&[u8]> = contents.iter().map(Content::bytes).collect();
    assert_eq!(bytes, [PNG, PNG, b"hi"]);
    assert!(
        send.attachments
            .iter()
            .all(|of| of.path.is_none() && of.data.is_none())
    );
    let digest = send.attachments[2].sha256.as_deref().unwrap();
    assert!(
        digest.starts_with("8f434346648f6b96df89dda901c5176b"),
        "{digest}"
    );
}

#[test]
fn each_type_is_known_by_its_first_bytes() {
    for (bytes, expected) in [
        (PNG, Some("image/png")),
        (b"\xff\xd8\xff\xe0 JFIF", Some("image/jpeg")),
        (b"GIF89a", Some("image/gif")),
        (b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp")),
        (b"RIFF\0\0\0\0WAVEfmt ", None),
        (b"%PDF-1.7", Some(PDF)),
        ("größer".as_bytes(), Some(TEXT)),
        (b"a\0b", None),
        (b"\xff\xfe", None),
    ] {
        assert_eq!(type_of(bytes), expected, "{bytes:?}");
    }
}

#[test]
fn attached_file_must_be_regular() {
    let dir = TempDir::new().unwrap();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, why) in [
        (fifo.as_path(), "is a device, pipe or socket"),
        (&empty, "is empty"),
        (&socket, "is a device, pipe or socket"),
        (dir.path(), "is a directory"),
        (Path::new("/dev/zero"), "is a device, pipe or socket"),
        (Path::new("/no/such/file"), "can't be read"),
    ] {
        let found = refused(file(path));
        assert!(found.contains(why), "{}: {found}", path.display());
        assert!(found.contains("`attachments[0]`"), "{found}");
    }
}

#[test]
fn attached_file_that_changes_meanwhile_is_refused() {
    let runtime = runtime();
    let _in_it = runtime.enter();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("log");
    // More than what waits between the child that reads it and us.
    std::fs::write(&path, vec![b'x'; 4 * 1024 * 1024]).unwrap();
    let content = content::open(path.to_str().unwrap()).unwrap();
    let mut writer = std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap();
    writer.write_all(b" two").unwrap();
    assert_eq!(content.read().unwrap(), None);
    let content = content::open(path.to_str().unwrap()).unwrap();
    let whole = content.read().unwrap().unwrap();
    assert!(whole.starts_with(b"xx") && whole.ends_with(b"x two"));
}

#[test]
fn attached_content_that_lies_is_refused() {
    let png = STANDARD.encode(PNG);
    for (mime, content, why) in [
        (
            "image/jpeg",
            png.as_str(),
            "is called `image/jpeg`, but its content is `image/png`",
        ),
        ("text/plain", png.as_str(), "but its content is `image/png`"),
        ("image/png", "aGVsbG8=", "but its content is `text/plain`"),
        (PDF, "AAAA", "is of a type that can't be attached"),
        ("text/plain", "aGVsbG8", "isn't base64"),
        ("text/plain", "aGVs bG8=", "isn't base64"),
        ("text/plain", "", "is empty"),
    ] {
        let found = refused(data(mime, content));
        assert!(found.contains(why), "{mime} {content:?}: {found}");
    }
}

#[test]
fn attached_bytes_have_limits_each_and_together() {
    let dir = TempDir::new().unwrap();
    let of = |size: usize| {
        let path = dir.path().join(size.to_string());
        std::fs::write(&path, vec![b'a'; size]).unwrap();
        file(&path)
    };
    let found = refused(of(MAX_ATTACHMENT + 1));
    assert!(found.contains("the limit is 5242880"), "{found}");
    let found = refused(data("text/plain", &"YWFh".repeat(MAX_ATTACHMENT / 3 + 1)));
    assert!(found.contains("the limit is 5242880"), "{found}");
    let rest = MAX_ATTACHED - MAX_ATTACHMENT;
    let (_, contents) = reads(send(vec![of(MAX_ATTACHMENT), of(rest)])).unwrap();
    assert_eq!(contents[1].bytes().len(), rest);
    let both = vec![of(MAX_ATTACHMENT), of(rest + 1)];
    let rejected = reads(send(both)).unwrap_err();
    assert!(
        rejected.error.contains("`attachments[1]`"),
        "{}",
        rejected.error
    );
    assert!(rejected.error.contains("8388608"), "{}", rejected.error);
    // The jobs of a dispatch are one request.
    let runtime = runtime();
    let _in_it = runtime.enter();
    let jobs = vec![of(MAX_ATTACHMENT), of(rest + 1)].into_iter();
    let jobs = jobs.map(|one| Dispatched {
        send: send(vec![one]),
        ignored: Vec::new(),
    });
    let dispatch = Dispatch {
        jobs: jobs.collect(),
    };
    let rejected = read(&mut decoded(Request::Dispatch(dispatch))).unwrap_err();
    assert!(
        rejected.error.starts_with("`jobs[1]`: `attachments[0]`"),
        "{}",
        rejected.error
    );
    // With a long text it would not fit into a worker's line.
    let mut long = send(vec![of(MAX_ATTACHMENT), of(rest)]);
    long.text = "\n".repeat(3 * 1024 * 1024);
    let rejected = reads(long).unwrap_err();
    assert!(
        rejected.error.contains("make a line of"),
        "{}",
        rejected.error
    );
}

#[test]
fn what_is_held_is_bounded_and_given_back() {
    let all = Hold::of(UNSTORED - HELD.load(Ordering::Relaxed));
    // Another test may have taken some between the two.
    let Ok(all) = all else { return };
    let told = held();
    assert_eq!(told.limit, UNSTORED as u64);
    assert!(told.bytes > told.limit / 2, "{told:?}");
    let rejected = Hold::of(UNSTORED).map(|_| ()).unwrap_err();
    assert_eq!(rejected.code, Code::QueueFull);
    drop(all);
    let held = HeldBytes {
        bytes: Vec::new(),
        _hold: Hold::of(1).unwrap(),
    };
    drop(Content::new(held));
}

//! Real sockets in directories of their own.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use std::os::fd::AsFd as _;

use super::*;

const SOON: Duration = Duration::from_secs(10);

fn private(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

type Ours = Binding<(), fn(&Path) -> io::Result<()>>;

fn new(path: &Path) -> io::Result<(Ours, UnixListener)> {
    Binding::new(path.to_owned(), SocketLock(()), private as fn(&Path) -> _)
}

struct Accepting {
    replacements: mpsc::Sender<UnixListener>,
    accepted: mpsc::Receiver<(UnixStream, Option<PeerProcess>, Slot)>,
    unheard: Arc<Unheard>,
    stop: CancellationToken,
    tracker: TaskTracker,
}

fn accepting(listener: UnixListener, files: u64) -> Accepting {
    let (replacements, next) = mpsc::channel(1);
    let (sender, accepted) = mpsc::channel(64);
    let (unheard, stop) = (Arc::default(), CancellationToken::new());
    let tracker = TaskTracker::new();
    let on_conn = move |stream, pid, slot| sender.try_send((stream, pid, slot)).unwrap();
    tracker.spawn(accept_loop(
        listener,
        next,
        slots(files),
        Arc::clone(&unheard),
        on_conn,
        stop.clone(),
    ));
    tracker.close();
    Accepting {
        replacements,
        accepted,
        unheard,
        stop,
        tracker,
    }
}

impl Accepting {
    async fn next(&mut self) -> (UnixStream, Option<PeerProcess>, Slot) {
        timeout(SOON, self.accepted.recv()).await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn socket_is_private_and_knows_its_peer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/agentd.sock");
    let listener = {
        let before = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
        let bound = new(&path);
        nix::sys::stat::umask(before);
        bound.unwrap().1
    };
    let mode = fs::symlink_metadata(&path).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let mut accepting = accepting(listener, 1024);
    let _client = UnixStream::connect(&path).await.unwrap();
    let (_, peer, _) = accepting.next().await;
    let pid = std::process::id();
    let started = process::start_time(pid);
    assert_eq!(peer, Some(PeerProcess { pid, started }));
    accepting.stop.cancel();
    timeout(SOON, accepting.tracker.wait()).await.unwrap();
}

/// A socket that nobody listens on. One that is closed after listening may live on for a moment: in a
/// process that another test is just starting.
pub(in crate::server) fn stale(path: &Path) {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, socket};
    let flags = SockFlag::empty();
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
    bind(socket.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
}

#[tokio::test]
async fn socket_that_is_stale_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agentd.sock");
    stale(&path);
    let (binding, listener) = new(&path).unwrap();
    let mut accepting = accepting(listener, 1024);
    let _client = UnixStream::connect(&path).await.unwrap();
    let _accepted = accepting.next().await;
    binding.unlink();
    assert!(!path.exists());

    fs::write(&path, "mine").unwrap();
    let error = new(&path).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[tokio::test]
async fn socket_that_was_taken_away_is_bound_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in/agentd.sock");
    let (mut binding, listener) = new(&path).unwrap();
    let mut accepting = accepting(listener, 1024);
    assert!(binding.check().unwrap().is_none());
    for whole_directory in [false, true] {
        if whole_directory {
            fs::remove_dir_all(path.parent().unwrap()).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        let again = binding.check().unwrap().expect("it was gone");
        accepting.replacements.send(again).await.unwrap();
        let _client = UnixStream::connect(&path).await.unwrap();
        let _accepted = accepting.next().await;
        assert!(binding.check().unwrap().is_none());
    }
}

#[tokio::test]
async fn another_daemons_socket_is_not_unlinked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agentd.sock");
    let (binding, _listener) = new(&path).unwrap();
    fs::rename(&path, dir.path().join("old")).unwrap();
    let _other = StdListener::bind(&path).unwrap();
    binding.unlink();
    assert!(path.exists());
}

#[tokio::test]
async fn connection_too_many_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agentd.sock");
    let (_binding, listener) = new(&path).unwrap();
    let mut accepting = accepting(listener, 2 * LEAST_PART as u64);
    let _one = UnixStream::connect(&path).await.unwrap();
    let _two = UnixStream::connect(&path).await.unwrap();
    let held = (accepting.next().await, accepting.next().await);
    let mut three = UnixStream::connect(&path).await.unwrap();
    // It may be closed already.
    let _closed = three.write_all(b"{\"type\":\"ping\"}\n").await;
    let mut line = String::new();
    let _reset = timeout(SOON, three.read_to_string(&mut line))
        .await
        .unwrap();
    assert!(
        line.contains("too-many-connections") && line.ends_with('\n'),
        "{line:?}"
    );
    assert_eq!(accepting.unheard.too_many.load(Ordering::Relaxed), 1);
    drop(held);
    let _four = UnixStream::connect(&path).await.unwrap();
    let _accepted = accepting.next().await;
}

#[test]
fn connections_leave_the_files_that_everything_else_needs() {
    assert_eq!(connections(1 << 20), CONNECTIONS);
    let reserved = RESERVED_FILES as u64;
    for files in [2 * reserved, 4 * reserved, CONNECTIONS as u64] {
        let most = connections(files) as u64;
        assert_eq!(files - most, reserved, "{files}");
    }
    // Where there are few, everybody has to do with fewer.
    assert_eq!((connections(256), connections(1)), (64, 1));
}

#[test]
fn another_user_is_not_ours() {
    assert!(is_ours(geteuid().as_raw()));
    assert!(!is_ours(geteuid().as_raw() + 1));
}

#[tokio::test]
async fn socket_handed_in_must_listen_for_streams() {
    let dir = tempfile::tempdir().unwrap();
    let good = StdListener::bind(dir.path().join("a")).unwrap();
    assert!(check_listening(good.as_fd()).is_ok());
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let datagram = std::os::unix::net::UnixDatagram::unbound().unwrap();
    let (pair, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    for (fd, says) in [
        (OwnedFd::from(tcp), "not a Unix socket"),
        (datagram.into(), "not a stream"),
        (pair.into(), "does not listen"),
    ] {
        let error = check_listening(fd.as_fd()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(
        from_service_manager().unwrap().is_none(),
        "nobody handed one over"
    );
}

#[test]
fn socket_path_too_long_says_both_lengths() {
    let path = PathBuf::from(format!("/{}", "x".repeat(LONGEST_PATH)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let error = new(&path).unwrap_err().to_string();
    let (found, limit) = ((LONGEST_PATH + 1).to_string(), LONGEST_PATH.to_string());
    assert!(error.contains(&found) && error.contains(&limit), "{error}");
}

#[test]
fn raising_the_file_limit_tells_what_it_was() {
    let (before, now) = raise_file_limit().unwrap();
    assert!(before.soft <= now && now <= before.hard);
    let all = slots(now).available_permits();
    assert!(all <= CONNECTIONS && all as u64 <= now);
}

//! Whom nothing is sent to: names that lead where nobody may be reached, servers that nobody vouches
//! for.

use std::net::{IpAddr, SocketAddr};

use super::*;

/// A server with a certificate of an authority that nobody knows.
fn serve_tls() -> String {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let chain = include_bytes!("../../../../tests/fixtures/tls/server.pem");
    let key = include_bytes!("../../../../tests/fixtures/tls/server.key");
    let chain = vec![CertificateDer::from_pem_slice(chain).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut tcp in listener.incoming().map_while(Result::ok) {
            let mut session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::Stream::new(&mut session, &mut tcp);
            let answered = stream
                .read(&mut [0; 4096])
                .and_then(|_| stream.write_all(ok().as_bytes()));
            let _refused = answered;
        }
    });
    url
}

#[test]
fn a_certificate_of_nobody_is_never_accepted() {
    let url = serve_tls();
    let mut post = Post::new(post::system());
    post.allow(&url, true);
    post.send(&url);
    let row = post.until("failed", |row| row.attempts == 1);
    assert_eq!(row.state, DeliveryState::Pending);
    let error = row.error.unwrap();
    assert!(error.contains("certificate"), "{error}");
}

/// A system where every name leads to these addresses.
fn names(lead_to: &[&str], port: u16) -> (LookUp, Arc<AtomicUsize>) {
    let addresses = lead_to.iter().map(|text| text.parse::<IpAddr>().unwrap());
    let found: Vec<_> = addresses.map(|ip| SocketAddr::new(ip, port)).collect();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let look_up: LookUp = Arc::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        let found = found.clone();
        Box::pin(async move { Ok(found) })
    });
    (look_up, asked)
}

#[test]
fn name_is_looked_up_once_and_checked() {
    let receiver = Receiving::saying(ok());
    let port = receiver.url.rsplit(':').next().unwrap().parse().unwrap();
    let url = format!("http://ci.example:{port}/");
    for (lead_to, allow_private, expected) in [
        (&["127.0.0.1"][..], false, Err("private network")),
        (&["127.0.0.1"], true, Ok(())),
        (&["1.1.1.1", "127.0.0.1"], false, Err("private network")),
        (
            &["127.0.0.1", "169.254.169.254"],
            true,
            Err("nothing is ever delivered"),
        ),
        (
            &["::ffff:169.254.169.254"],
            true,
            Err("nothing is ever delivered"),
        ),
        (&["fd00:ec2::254"], true, Err("nothing is ever delivered")),
        (&[], true, Err("")),
    ] {
        let (look_up, asked) = names(lead_to, port);
        let mut post = Post::new(look_up);
        post.allow(&url, allow_private);
        post.send(&url);
        let row = post.until("tried", |row| row.attempts == 1);
        match expected {
            Ok(()) => {
                receiver.next();
                assert_eq!(row.state, DeliveryState::Delivered);
            }
            Err(why) => {
                let error = row.error.unwrap();
                assert!(error.contains(why), "{lead_to:?}: {error}");
                receiver.none();
            }
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1, "{lead_to:?}");
    }
}

#[test]
fn name_that_changes_its_address_connects_nobody() {
    let receiver = Receiving::saying(ok());
    let port: u16 = receiver.url.rsplit(':').next().unwrap().parse().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // Nothing listens at the first answer: TEST-NET would be refused, this one can't be reached.
    let look_up: LookUp = Arc::new(move |_| {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        let ip = if first {
            [127, 0, 0, 2]
        } else {
            [127, 0, 0, 1]
        };
        let port = if first { 1 } else { port };
        Box::pin(async move { Ok(vec![SocketAddr::from((ip, port))]) })
    });
    let mut post = Post::new(look_up);
    let url = format!("http://ci.example:{port}/");
    post.allow(&url, true);
    post.send(&url);
    post.until("failed", |row| row.attempts == 1 && row.error.is_some());
    receiver.none();
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

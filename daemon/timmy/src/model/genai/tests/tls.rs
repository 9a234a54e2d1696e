//! Whose certificates are trusted.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;
use crate::model::FailedAt;

const AUTHORITY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/tls/ca.pem"
);
const SERVER: &[u8] = include_bytes!("../../../../../../tests/fixtures/tls/server.pem");
const SERVER_KEY: &[u8] = include_bytes!("../../../../../../tests/fixtures/tls/server.key");
/// Set in the process that trusts the authority.
const TRUSTING: &str = "TIMMY_TEST_TRUSTS";

/// A server with a certificate of an authority that nobody knows; answers one request.
fn serve() -> String {
    let chain = vec![CertificateDer::from_pem_slice(SERVER).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(SERVER_KEY).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || -> std::io::Result<()> {
        let (mut tcp, _) = listener.accept()?;
        let mut session = rustls::ServerConnection::new(config).map_err(std::io::Error::other)?;
        let mut stream = rustls::Stream::new(&mut session, &mut tcp);
        let _some = stream.read(&mut [0; 4096])?;
        let body = "data: {\"choices\":[{\"delta\":{\"content\":\"safe\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    });
    base
}

#[tokio::test]
async fn certificate_unknown_is_told_from_a_broken_connection() {
    let mut request = at(serve(), Wire::OpenAi, "mock-1");
    request.messages.push(user("hi"));
    let failure = ask(&request).await.unwrap_err();
    assert_eq!(failure.at, FailedAt::Certificate, "{failure:?}");
}

#[tokio::test]
async fn an_authority_of_the_users_own_is_trusted() {
    if std::env::var_os(TRUSTING).is_some() {
        let mut request = at(serve(), Wire::OpenAi, "mock-1");
        request.messages.push(user("hi"));
        let reply = ask(&request).await.unwrap();
        assert_eq!(reply.message.text, "safe");
        return;
    }
    // The variable is read by the process itself, so it takes another one.
    let test = "model::genai::tests::tls::an_authority_of_the_users_own_is_trusted";
    let ran = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env("SSL_CERT_FILE", AUTHORITY)
        .env(TRUSTING, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

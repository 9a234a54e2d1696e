//! Signatures of Standard Webhooks, version 1.
//!
//! Owns what is signed and how that is written. Must not know where it goes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::config::Secret;

/// The value of `webhook-signature`: one signature for each secret, with blanks between them.
/// `seconds` is the time of the attempt, since 1970.
pub(super) fn signatures(secrets: &[Secret], id: &str, seconds: i64, body: &str) -> String {
    let signed = format!("{id}.{seconds}.{body}");
    let one = |secret: &Secret| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.bytes());
        let tag = hmac::sign(&key, signed.as_bytes());
        format!("v1,{}", STANDARD.encode(tag))
    };
    let all: Vec<String> = secrets.iter().map(one).collect();
    all.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Vector {
        name: String,
        secrets: Vec<String>,
        id: String,
        timestamp: i64,
        body: String,
        signature: String,
    }

    #[test]
    fn signature_agrees_with_the_receivers_vectors() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/fixtures/webhooks/signatures.json"
        );
        let text = std::fs::read_to_string(file).unwrap();
        let vectors: Vec<Vector> = serde_json::from_str(&text).unwrap();
        assert!(vectors.len() >= 4);
        for vector in vectors {
            let secrets: Vec<Secret> = vector
                .secrets
                .iter()
                .map(|secret| Secret::parse(secret).unwrap())
                .collect();
            let signed = signatures(&secrets, &vector.id, vector.timestamp, &vector.body);
            assert_eq!(signed, vector.signature, "{}", vector.name);
        }
    }
}

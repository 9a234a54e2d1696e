//! Idempotency keys, and what a send of this library always says.
//!
//! Owns random keys and the list of fields that restrict. Must not know how a send travels.

use std::borrow::Cow;
use std::io;

use agentd_protocol::request::Send;

/// 128 random bits in hex.
///
/// # Errors
/// When the system has no random numbers to give.
pub fn random() -> io::Result<String> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bits)))
}

/// The send with a key, and with `must` naming each field that restricts: a daemon that doesn't
/// know such a field refuses rather than ignores it.
///
/// # Errors
/// When there is no key and none can be made.
pub fn completed(send: &Send) -> io::Result<Cow<'_, Send>> {
    let restricting = [
        ("toolsets", send.toolsets.is_some()),
        ("on_question", send.on_question.is_some()),
        ("fallback_chain", send.fallback_chain.is_some()),
    ];
    let missing: Vec<&str> = restricting
        .into_iter()
        .filter(|(name, given)| *given && !send.must.iter().any(|must| must == name))
        .map(|(name, _)| name)
        .collect();
    if send.idempotency_key.is_some() && missing.is_empty() {
        return Ok(Cow::Borrowed(send));
    }
    let mut send = send.clone();
    send.must.extend(missing.into_iter().map(str::to_owned));
    if send.idempotency_key.is_none() {
        send.idempotency_key = Some(random()?);
    }
    Ok(Cow::Owned(send))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::request::OnQuestion;

    #[test]
    fn a_key_is_128_random_bits() {
        let (one, other) = (random().unwrap(), random().unwrap());
        assert_eq!((one.len(), other.len()), (32, 32));
        assert_ne!(one, other);
    }

    #[test]
    fn key_completes_a_send_and_insists_on_restrictions() {
        let bare = Send::default();
        assert_eq!(
            completed(&bare)
                .unwrap()
                .idempotency_key
                .as_ref()
                .map(String::len),
            Some(32)
        );
        let restricted = Send {
            idempotency_key: Some("k".to_owned()),
            toolsets: Some(Vec::new()),
            on_question: Some(OnQuestion::Deny),
            must: vec!["toolsets".to_owned()],
            ..Send::default()
        };
        let completed = completed(&restricted).unwrap();
        assert_eq!(completed.idempotency_key.as_deref(), Some("k"));
        assert_eq!(completed.must, ["toolsets", "on_question"]);
    }
}

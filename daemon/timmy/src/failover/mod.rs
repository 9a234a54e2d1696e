//! What a failed request means, and what to do about it.
//!
//! Owns the classes of failure and the rules between them. Pure: no clock, no network. Must not
//! know any wire.

pub(crate) mod class;
pub(crate) mod cooldown;
pub(crate) mod policy;

use serde::{Deserialize, Serialize};

/// What kind of failure it was. The order is that of the checks: the first that fits counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    /// We were told to stop.
    Cancelled,
    /// The model or its provider would not.
    Refusal,
    /// The conversation is longer than the model takes.
    ContextOverflow,
    /// Money or a plan has run out.
    Billing,
    /// The key is missing, wrong, or not meant for this.
    Auth,
    /// There is no key, or nobody listens.
    NotConfigured,
    /// There is no such model.
    ModelNotFound,
    /// Too much was asked in too little time.
    RateLimit,
    /// The provider has too much to do.
    Overloaded,
    /// The provider is broken.
    ServerError,
    /// Nothing came, or the connection broke.
    Timeout,
    /// The certificate isn't to be trusted.
    Certificate,
    /// What came makes no sense.
    MalformedResponse,
    /// The request makes no sense to the provider.
    BadRequest,
    /// None of these.
    Unknown,
}

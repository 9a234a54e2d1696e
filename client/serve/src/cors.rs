//! What a browser is told before and beside an answer to a page that may ask: CORS.
//!
//! Owns these headers. Must not know which pages may ask: the guard does.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

/// As pages of public addresses have to ask before they ask one on this machine.
const ASKS_PRIVATE: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOWS_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// How long a browser needn't ask again, in seconds: no longer than an origin counts that isn't
/// allowed any more.
const KNOWN_FOR: HeaderValue = HeaderValue::from_static("600");

/// Is it what a browser asks before it asks?
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// What it is told then. Which headers it may send is no secret: the token decides.
pub(crate) fn preflight(asked: &HeaderMap) -> Response {
    let mut response = (StatusCode::NO_CONTENT, Body::empty()).into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, KNOWN_FOR);
    // Clients send many of their own; a `*` would leave `Authorization` out.
    if let Some(wanted) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    if asked.contains_key(ASKS_PRIVATE) {
        headers.insert(ALLOWS_PRIVATE, HeaderValue::from_static("true"));
    }
    response
}

/// Lets the page read an answer.
pub(crate) fn allow(headers: &mut HeaderMap, page: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, page);
    let all = HeaderValue::from_static("*");
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, all);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

//! Who may ask at all: decided from the head of a request, before anything of it is used.
//!
//! Owns the checks and their order. A web page reaches this port, with the name of another host or
//! by a form, and so can every user of this machine: neither knows the token, and the first isn't
//! even asked for it. Must not know what is asked.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use agentd_client::token::Token;
use agentd_terminal::output::safe;
use axum::extract::Query;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use subtle::ConstantTimeEq as _;

use crate::cors;
use crate::gateway;
use crate::log::Log;
use crate::problem::Problem;

/// Only browsers send it, whatever a page does.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What the configuration allows.
pub(crate) struct Guard {
    /// Every spelling of `Host` that is us.
    hosts: Vec<String>,
    origins: Vec<String>,
    token: Mutex<KnownToken>,
    log: Arc<Log>,
}

/// The token: looked at for each request, as another one counts at once.
struct KnownToken {
    token: Token,
    /// Why it can't be read, as it was last told.
    told: String,
}

/// The token can't be read. Who asks isn't told why: anybody may ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unreadable;

impl Guard {
    pub(crate) fn new(
        at: SocketAddr,
        hosts: &[String],
        origins: &[String],
        token: PathBuf,
        log: Arc<Log>,
    ) -> Self {
        let port = at.port();
        let mut names = vec![
            "127.0.0.1".to_owned(),
            "localhost".to_owned(),
            "[::1]".to_owned(),
        ];
        if !at.ip().is_unspecified() {
            names.push(
                at.to_string()
                    .trim_end_matches(&format!(":{port}"))
                    .to_owned(),
            );
        }
        let mut allowed: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
        // The scheme's own port isn't said in `Host`.
        if port == 80 {
            allowed.extend(names);
        }
        allowed.extend(hosts.iter().map(|host| host.to_ascii_lowercase()));
        Self {
            hosts: allowed,
            origins: origins.iter().map(|one| one.to_ascii_lowercase()).collect(),
            token: Mutex::new(KnownToken {
                token: Token::new(token),
                told: String::new(),
            }),
            log,
        }
    }

    /// Lets a request pass, or says why not.
    pub(crate) fn check(&self, head: &Parts) -> Result<(), Problem> {
        self.check_host(head)?;
        self.check_origin(&head.headers)?;
        // What a browser asks before it asks has no token: the page's origin decides.
        if head.method == Method::OPTIONS {
            let is_allowed = self.page(&head.headers).is_some();
            if is_allowed && cors::is_preflight(&head.method, &head.headers) {
                return Ok(());
            }
            let why = "only a browser asks by this method, for a page that may ask";
            let hint = "a page that may ask is named with `--allow-origin`";
            let problem = Problem::new(StatusCode::FORBIDDEN, "forbidden-origin", why);
            return Err(problem.hint(hint));
        }
        check_type(head)?;
        // Behind what keeps pages out: they aren't told either whether somebody is here.
        if head.uri.path() == "/health" {
            return Ok(());
        }
        self.check_token(head)
    }

    /// The origin of the page that asks, if it is an allowed one.
    pub(crate) fn page(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut given = headers.get_all(header::ORIGIN).iter();
        let (Some(origin), None) = (given.next(), given.next()) else {
            return None;
        };
        let is_allowed = origin.to_str().is_ok_and(|origin| self.allows(origin));
        is_allowed.then(|| origin.clone())
    }

    /// May any page ask?
    pub(crate) fn lets_pages_ask(&self) -> bool {
        !self.origins.is_empty()
    }

    fn allows(&self, origin: &str) -> bool {
        self.origins.contains(&origin.to_ascii_lowercase())
    }

    fn check_host(&self, head: &Parts) -> Result<(), Problem> {
        let given: Vec<_> = head.headers.get_all(header::HOST).iter().collect();
        // Of two, whoever is in front of us may have believed the other one.
        let [host] = given.as_slice() else {
            let why = format!(
                "the request has {} `Host` headers, expected one",
                given.len()
            );
            return Err(Problem::new(StatusCode::BAD_REQUEST, "bad-host", why));
        };
        let is_us = |name: &str| self.hosts.contains(&name.to_ascii_lowercase());
        let authority = head.uri.authority().is_none_or(|name| is_us(name.as_str()));
        if authority && host.to_str().is_ok_and(is_us) {
            return Ok(());
        }
        let why = "the request is for another host: this one answers to its own address and port";
        let hint = "ask 127.0.0.1, or name the host with `--allow-host`";
        Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "wrong-host", why).hint(hint))
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let is_allowed = |origin: &str| self.allows(origin);
        let every = |name: HeaderName, fits: &dyn Fn(&str) -> bool| {
            let mut values = headers.get_all(name).iter();
            // Without any it is no browser.
            values.all(|value| value.to_str().is_ok_and(fits))
        };
        let origin = every(header::ORIGIN, &is_allowed);
        let referer = every(header::REFERER, &|page| is_allowed(origin_of(page)));
        let is_page = self.page(headers).is_some();
        let fits = |site: &str| match site {
            // The host was looked at: the same site is an allowed one.
            "same-origin" => self.lets_pages_ask(),
            // Only what names its origin can be told from any other page.
            "same-site" | "cross-site" => is_page,
            _ => false,
        };
        let site = every(SEC_FETCH_SITE, &fits);
        if origin && referer && site {
            return Ok(());
        }
        let why = "the request comes from a web page (`Origin`, `Referer` or `Sec-Fetch-Site`)";
        let hint = "a page that may ask is named with `--allow-origin`";
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden-origin", why).hint(hint))
    }

    fn check_token(&self, head: &Parts) -> Result<(), Problem> {
        let unauthorized = |why: &str| {
            Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", why)
                .hint("send `Authorization: Bearer` with what `agentctl token` prints")
                .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
        };
        let Some(token) = shown(&head.uri, &head.headers) else {
            return Err(unauthorized("the request has no token, or more than one"));
        };
        match self.is_token(&token) {
            Ok(true) => Ok(()),
            Ok(false) => Err(unauthorized("the token is not this server's")),
            Err(Unreadable) => {
                let why = "this server can't read its token";
                let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no-token", why);
                let hint = "its standard error says why";
                Err(problem.hint(hint).later())
            }
        }
    }

    /// Is it the token that counts now? Why that isn't known is logged, once.
    pub(crate) fn is_token(&self, given: &[u8]) -> Result<bool, Unreadable> {
        let mut known = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let KnownToken { token, told } = &mut *known;
        let found = token.now();
        let why = found.as_ref().err().map(ToString::to_string);
        let why = why.unwrap_or_default();
        if *told != why {
            if !why.is_empty() {
                self.log.say(safe(&why));
            }
            *told = why;
        }
        let token = found.map_err(|_| Unreadable)?;
        // In a time that doesn't tell how much of a guess was right.
        Ok(token.as_bytes().ct_eq(given).into())
    }
}

/// The token of a request. Of two, whoever is in front of us may have looked at the other one.
///
/// It stands in the query where a WebSocket is asked for: whoever does that is mostly given nothing but
/// an address.
pub(crate) fn shown(uri: &Uri, headers: &HeaderMap) -> Option<Vec<u8>> {
    let headers = headers.get_all(header::AUTHORIZATION).iter();
    let mut all: Vec<_> = headers
        .map(|value| bearer(value).map(<[u8]>::to_vec))
        .collect();
    if uri.path() == gateway::PATH
        && let Ok(Query(words)) = Query::<Vec<(String, String)>>::try_from_uri(uri)
    {
        let words = words.into_iter().filter(|(name, _)| name == "token");
        all.extend(words.map(|(_, token)| Some(token.into_bytes())));
    }
    match all.len() {
        1 => all.pop().flatten(),
        _ => None,
    }
}

/// What stands behind `Bearer`.
pub(crate) fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

/// The scheme, host and port that a page's address begins with.
fn origin_of(page: &str) -> &str {
    let host = page.find("://").map_or(0, |at| at + 3);
    let rest = page.get(host..).unwrap_or_default();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    page.get(..host + end).unwrap_or_default()
}

/// What has a body says what it is: a form of a page can't say this. It is that as it comes.
fn check_type(head: &Parts) -> Result<(), Problem> {
    if head.method != Method::POST {
        return Ok(());
    }
    let is_plain = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"identity");
    let codings = head.headers.get_all(header::CONTENT_ENCODING);
    if !codings.iter().all(is_plain) {
        let why = "the request has a `Content-Encoding`, and bodies are read as they are: send it \
                   uncompressed, without that header";
        return Err(
            Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "wrong-encoding", why).header(
                header::ACCEPT_ENCODING,
                HeaderValue::from_static("identity"),
            ),
        );
    }
    let mut given = head.headers.get_all(header::CONTENT_TYPE).iter();
    let kind = match (given.next(), given.next()) {
        (Some(value), None) => value.to_str().unwrap_or_default(),
        (None, _) if has_no_body(&head.headers) => return Ok(()),
        _ => "",
    };
    let (essence, parameters) = kind.split_once(';').unwrap_or((kind, ""));
    let parameters = parameters.trim().to_ascii_lowercase();
    let is_utf8 = matches!(
        parameters.as_str(),
        "" | "charset=utf-8" | "charset=\"utf-8\""
    );
    if essence.trim().eq_ignore_ascii_case("application/json") && is_utf8 {
        return Ok(());
    }
    let why = "the request's `Content-Type` is not `application/json`";
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "wrong-type",
        why,
    ))
}

fn has_no_body(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH);
    !headers.contains_key(header::TRANSFER_ENCODING) && length.is_none_or(|length| length == "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn guard(dir: &tempfile::TempDir, origins: &[&str]) -> Guard {
        let token = dir.path().join("http.token");
        std::fs::write(&token, TOKEN).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&token, mode).unwrap();
        let at = "127.0.0.1:7878".parse().unwrap();
        let origins: Vec<String> = origins.iter().map(|one| (*one).to_owned()).collect();
        let log = Arc::new(Log::start());
        Guard::new(at, &["agents.example".to_owned()], &origins, token, log)
    }

    fn status(guard: &Guard, method: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().method(method).uri("/v1/jobs");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let found = guard.check(&head);
        found.map_or_else(|problem| problem.status, |()| 200)
    }

    #[test]
    fn only_its_own_names_are_its_host() {
        let dir = tempfile::tempdir().unwrap();
        let guard = guard(&dir, &[]);
        let bearer = format!("Bearer {TOKEN}");
        let asked =
            |host: &str| status(&guard, "GET", &[("host", host), ("authorization", &bearer)]);
        for host in [
            "127.0.0.1:7878",
            "localhost:7878",
            "LOCALHOST:7878",
            "[::1]:7878",
            "agents.example",
        ] {
            assert_eq!(asked(host), 200, "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:7878",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.0.0.1:78780",
            "127.0.0.1:07878",
            "127.0.0.1:7878.",
            "127.0.0.1:7878:7878",
            "127.0.0.1.:7878",
            "127.0.0.2:7878",
            "127.1:7878",
            "127.0.1:7878",
            "0127.0.0.1:7878",
            "0x7f.0.0.1:7878",
            "0x7f000001:7878",
            "2130706433:7878",
            "0.0.0.0:7878",
            "0:7878",
            "[::]:7878",
            "[::ffff:127.0.0.1]:7878",
            "[::ffff:7f00:1]:7878",
            "[0:0:0:0:0:0:0:1]:7878",
            "::1:7878",
            "[::1%lo]:7878",
            "localhost",
            "localhost.:7878",
            "localhost.localdomain:7878",
            "localhost.evil.example:7878",
            "evil.example#localhost:7878",
            "evil.example@127.0.0.1:7878",
            "127.0.0.1:7878@evil.example",
            "127.evil.example:7878",
            "127.0.0.1.evil.example:7878",
            "evil-127.0.0.1:7878",
            "127.0.0.1:7878/",
            "127.0.0.1:7878, evil.example",
            "http://127.0.0.1:7878",
            "agents.example:7878",
            "agents.example.",
            "xagents.example",
        ] {
            assert_eq!(asked(host), 421, "{host}");
        }
        assert_eq!(status(&guard, "GET", &[]), 400);
        let twice = [("host", "127.0.0.1:7878"), ("host", "127.0.0.1:7878")];
        assert_eq!(status(&guard, "GET", &twice), 400);
    }

    #[test]
    fn pages_are_refused_unless_their_origin_is_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let bearer = format!("Bearer {TOKEN}");
        let asked = |allowed: &[&str], name: &str, value: &str| {
            let headers = [
                ("host", "127.0.0.1:7878"),
                ("authorization", bearer.as_str()),
                (name, value),
            ];
            status(&guard(&dir, allowed), "GET", &headers)
        };
        let page = "https://agents.example";
        for (name, value) in [
            ("origin", "http://127.0.0.1:7878"),
            ("origin", "null"),
            ("origin", page),
            ("referer", "https://agents.example/a"),
            ("sec-fetch-site", "none"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "cross-site"),
        ] {
            assert_eq!(asked(&[], name, value), 403, "{name}: {value}");
        }
        for (name, value, expected) in [
            ("origin", page, 200),
            ("origin", "https://agents.example.evil.example", 403),
            ("origin", "http://agents.example", 403),
            ("origin", "https://agents.example:444", 403),
            ("referer", "https://agents.example/a?b=c", 200),
            ("referer", "https://agents.example", 200),
            ("referer", "https://agents.example.evil.example/", 403),
            ("referer", "https://agents.example@evil.example/", 403),
            ("sec-fetch-site", "same-origin", 200),
            ("sec-fetch-site", "cross-site", 403),
        ] {
            assert_eq!(asked(&[page], name, value), expected, "{name}: {value}");
        }
    }

    #[test]
    fn browsers_ask_first_for_allowed_pages_only() {
        let dir = tempfile::tempdir().unwrap();
        let page = ("origin", "https://agents.example");
        let guard = guard(&dir, &[page.1]);
        let wants = ("access-control-request-method", "POST");
        let cross = ("sec-fetch-site", "cross-site");
        let bearer = format!("Bearer {TOKEN}");
        let asked = |method: &str, more: &[(&str, &str)]| {
            let mut headers = vec![("host", "127.0.0.1:7878")];
            headers.extend(more);
            status(&guard, method, &headers)
        };
        assert_eq!(asked("OPTIONS", &[page, wants, cross]), 200);
        for more in [
            &[wants][..],
            &[wants, cross],
            &[page],
            &[page, page, wants],
            &[("origin", "https://evil.example"), wants],
            &[page, ("origin", "https://evil.example"), wants],
            &[page, wants, ("sec-fetch-site", "none")],
        ] {
            assert_eq!(asked("OPTIONS", more), 403, "{more:?}");
        }
        let token = ("authorization", bearer.as_str());
        assert_eq!(asked("GET", &[page, cross, token]), 200);
        assert_eq!(asked("GET", &[page, cross]), 401);
        assert_eq!(asked("GET", &[cross, token]), 403);
    }

    #[test]
    fn guard_compares_the_token_with_the_file_now() {
        let dir = tempfile::tempdir().unwrap();
        let guard = guard(&dir, &[]);
        let asked = |value: &str| {
            let headers = [("host", "127.0.0.1:7878"), ("authorization", value)];
            status(&guard, "GET", &headers)
        };
        let right = format!("Bearer {TOKEN}");
        for (value, expected) in [
            (right.as_str(), 200),
            (&format!("bearer {TOKEN}"), 200),
            (TOKEN, 401),
            (&format!("Basic {TOKEN}"), 401),
            ("Bearer", 401),
            ("Bearer ", 401),
            (&format!("Bearer {TOKEN}0"), 401),
            (&right[..right.len() - 1], 401),
            (&right.to_uppercase(), 401),
            ("é", 401),
        ] {
            assert_eq!(asked(value), expected, "{value}");
        }
        assert_eq!(status(&guard, "GET", &[("host", "[::1]:7878")]), 401);
        let token = dir.path().join("http.token");
        agentd_client::token::renew(&token).unwrap();
        assert_eq!(asked(&right), 401);
        std::fs::remove_file(&token).unwrap();
        assert_eq!(asked(&right), 503);
    }

    #[test]
    fn guard_takes_the_token_in_one_query() {
        let dir = tempfile::tempdir().unwrap();
        let guard = guard(&dir, &[]);
        let bearer = format!("Bearer {TOKEN}");
        let header = ("authorization", bearer.as_str());
        for (uri, more, expected) in [
            (format!("/api/ws?token={TOKEN}"), None, 200),
            (format!("/api/ws?agent=pi&token={TOKEN}"), None, 200),
            ("/api/ws".to_owned(), Some(header), 200),
            ("/api/ws".to_owned(), None, 401),
            (format!("/api/ws?token={TOKEN}"), Some(header), 401),
            (format!("/api/ws?token={TOKEN}&token={TOKEN}"), None, 401),
            (format!("/api/ws?token={TOKEN}0"), None, 401),
            (format!("/api/ws?Token={TOKEN}"), None, 401),
            (format!("/api/ws/?token={TOKEN}"), None, 401),
            (format!("/v1/jobs?token={TOKEN}"), None, 401),
            (format!("/mcp?token={TOKEN}"), None, 401),
        ] {
            let host = ("host", "127.0.0.1:7878");
            let mut request = Request::builder().uri(&uri);
            for (name, value) in [Some(host), more].into_iter().flatten() {
                request = request.header(name, value);
            }
            let (head, ()) = request.body(()).unwrap().into_parts();
            let found = guard.check(&head);
            let status = found.map_or_else(|problem| problem.status, |()| 200);
            assert_eq!(status, expected, "{uri} {more:?}");
        }
    }

    #[test]
    fn guard_wants_json_before_the_token_counts() {
        let dir = tempfile::tempdir().unwrap();
        let guard = guard(&dir, &[]);
        for (kind, expected) in [
            ("application/json", 401),
            ("application/json; charset=utf-8", 401),
            ("application/json; charset=latin1", 415),
            ("application/jsonp", 415),
            ("text/plain", 415),
            ("text/plain; application/json", 415),
            ("application/x-www-form-urlencoded", 415),
            ("multipart/form-data; boundary=x", 415),
        ] {
            let headers = [("host", "127.0.0.1:7878"), ("content-type", kind)];
            assert_eq!(status(&guard, "POST", &headers), expected, "{kind}");
        }
        for (coding, expected) in [("identity", 401), ("gzip", 415), ("gzip, identity", 415)] {
            let headers = [
                ("host", "127.0.0.1:7878"),
                ("content-type", "application/json"),
                ("content-encoding", coding),
            ];
            assert_eq!(status(&guard, "POST", &headers), expected, "{coding}");
        }
        let untyped = [("host", "127.0.0.1:7878"), ("content-length", "2")];
        assert_eq!(status(&guard, "POST", &untyped), 415);
        assert_eq!(status(&guard, "POST", &untyped[..1]), 401);
    }
}

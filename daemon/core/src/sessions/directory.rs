//! Working directories: what is refused, and when two paths are one.
//!
//! Owns what the facts about a directory mean. Must not look at any itself.

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;

use crate::event::{Directory, RequestContext};
use crate::sessions::session::Session;

/// Refuses a directory that isn't there, or doesn't say so.
pub(crate) fn is_there(
    field: &str,
    cwd: Option<&String>,
    facts: &RequestContext,
) -> Result<(), Rejected> {
    let Some((cwd, found)) = cwd.and_then(|cwd| facts.directories.get_key_value(cwd)) else {
        return Ok(());
    };
    let refused = |why: &str| {
        let error = format!("`{field}` is `{cwd}`: {why}");
        Rejected::new(Code::InvalidRequest, error)
    };
    match found {
        Directory::There(_) => Ok(()),
        Directory::Missing => Err(refused("there is no such directory")),
        Directory::Silent => Err(refused("the directory does not answer")
            .hint("nothing was run; ask again when its file system answers, or name another one")),
    }
}

/// Where a directory leads, if that is elsewhere.
pub(crate) fn real(cwd: &str, facts: &RequestContext) -> Option<String> {
    match facts.directories.get(cwd) {
        Some(Directory::There(Some(real))) => Some(real.clone()).filter(|real| real != cwd),
        _ => None,
    }
}

/// Remembers where a session's directory leads, from a request that writes it as the session does.
pub(crate) fn learn(session: &mut Session, cwd: Option<&String>, facts: &RequestContext) {
    // From a path that is written in another way nothing is learnt: whether that is the session's
    // is what is to be found out.
    if let Some(cwd) = cwd.filter(|cwd| plain(cwd).eq(plain(&session.cwd)))
        && let Some(Directory::There(Some(_))) = facts.directories.get(cwd)
    {
        session.real_cwd = real(cwd, facts).map(Into::into);
    }
}

/// Is it the session's directory, however it is written?
pub(crate) fn is_of(session: &Session, cwd: &str, facts: &RequestContext) -> bool {
    if plain(cwd).eq(plain(&session.cwd)) {
        return true;
    }
    let Some(Directory::There(Some(real))) = facts.directories.get(cwd) else {
        return false;
    };
    let of_session = session.real_cwd.as_deref().unwrap_or(&session.cwd);
    plain(real).eq(plain(of_session))
}

/// The parts of an absolute path that lead anywhere. What `..` leads to, a link before it decides.
fn plain(path: &str) -> impl Iterator<Item = &str> {
    let parts = path.split('/');
    parts.filter(|part| !part.is_empty() && *part != ".")
}

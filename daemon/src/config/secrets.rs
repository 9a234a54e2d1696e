//! The `env` file: keys for agents, as a service has no shell to set them.
//!
//! Owns the mode that any file with secrets has to have. A value never appears in a message.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use agentd_base::{env_file, settings, trusted};

use super::ConfigError;

/// Reads `KEY=VALUE` lines; blank ones and those that start with `#` are skipped.
pub(super) fn load(file: &Path) -> Result<BTreeMap<String, String>, ConfigError> {
    parse(&read_private(file)?, file)
}

/// The text of a file that holds secrets; a missing one is an empty one.
///
/// # Errors
/// When it can't be read, or others can read it.
pub(super) fn read_private(file: &Path) -> Result<String, ConfigError> {
    let io = |source| ConfigError::Io {
        file: file.to_owned(),
        source,
    };
    trusted::check(file)?;
    let opened = match settings::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(io(error)),
    };
    let mode = opened.metadata().map_err(io)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(ConfigError::Readable {
            file: file.to_owned(),
            mode,
        });
    }
    settings::read_from(&opened).map_err(io)
}

pub(super) fn parse(text: &str, file: &Path) -> Result<BTreeMap<String, String>, ConfigError> {
    env_file::parse(text).map_err(|line| ConfigError::Wrong {
        file: file.to_owned(),
        line,
        what: "this line is not `KEY=VALUE`".to_owned(),
        hint: None,
    })
}

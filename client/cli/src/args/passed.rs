//! Words that are passed on.
//!
//! Owns which of them are not. Must not know whose they are.

use std::ffi::OsString;

use clap::Args;

// Words that are for another program.
#[derive(Args, Clone, Debug)]
pub struct PassedArgs {
    /// What about them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORDS"
    )]
    pub words: Vec<OsString>,
}

impl PassedArgs {
    /// Are models listed of an agent or a session that is named? The words that name them aren't
    /// another program's.
    #[must_use]
    pub fn lists_of_agent(&self) -> bool {
        let is_own = |word: &OsString| {
            let name = word.to_str().and_then(|word| word.split('=').next());
            name.is_some_and(|name| matches!(name, "--agent" | "--session"))
        };
        let [first, rest @ ..] = &self.words[..] else {
            return false;
        };
        first == "list" && rest.iter().any(is_own)
    }
}

//! The names of toolsets, which mean the same for every agent.
//!
//! Owns that several names are one. Must not know what an agent has of them.

/// The toolset that asks other agents.
pub const DELEGATE: &str = "delegate";
/// Other names of the same: those of programs that were written for Hermes.
const ALIASES: &[(&str, &str)] = &[("file_tools", "file"), ("delegation", DELEGATE)];

/// The name that a toolset has here.
#[must_use]
pub fn plain(name: &str) -> &str {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    alias.map_or(name, |(_, plain)| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolset_aliases_are_no_names_of_their_own() {
        assert_eq!(plain("delegation"), DELEGATE);
        assert_eq!(plain("file_tools"), "file");
        assert_eq!(plain("web"), "web");
    }
}

//! Which tools an agent can be restricted to, by names that mean the same for every agent.
//!
//! Owns the meaning of those names for an agent, and the refusal of any other: with a name that it
//! doesn't know an agent has no tools, and says nothing.

use std::collections::BTreeSet;

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::toolset::plain;

/// What an agent does with toolsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Toolsets {
    /// It can't restrict its tools.
    None,
    /// It judges the names itself, if its handshake says that it takes any.
    Own,
    /// It has these tools.
    Tools(&'static Tools),
    /// Its tools can't be told apart: any of these groups of names may be asked for together.
    Groups(&'static [Group]),
}

/// The tools of an agent.
#[derive(PartialEq, Eq, Debug)]
pub struct Tools {
    /// What each toolset is for it.
    pub sets: &'static [(&'static str, &'static [&'static str])],
    /// Tools that are in no toolset; all can be named by themselves.
    pub others: &'static [&'static str],
    /// Names that begin so are tools, too.
    pub prefix: Option<&'static str>,
}

/// Toolsets that go together.
#[derive(PartialEq, Eq, Debug)]
pub struct Group {
    /// Their names, in their order.
    pub names: &'static [&'static str],
    /// What the agent calls that; `None` is what it has anyway.
    pub own: Option<&'static str>,
}

impl Toolsets {
    /// Can it be restricted at all, as far as is known before it runs?
    #[must_use]
    pub fn any(self) -> bool {
        self != Self::None
    }

    /// Can the agent `name` be restricted to these?
    ///
    /// # Errors
    /// `unsupported`, with the names that it has.
    pub fn check(self, name: &str, asked: &[String]) -> Result<(), Rejected> {
        let unknown = match self {
            Self::None => {
                let error = format!(
                    "`toolsets` was given, but the agent `{name}` can't restrict its tools"
                );
                return Err(Rejected::new(Code::Unsupported, error));
            }
            Self::Own => None,
            Self::Tools(tools) => asked.iter().find(|asked| !tools.has(asked)).cloned(),
            Self::Groups(_) => self.group(asked).is_none().then(|| asked.join("`, `")),
        };
        let Some(unknown) = unknown else {
            return Ok(());
        };
        let error = format!(
            "`toolsets` has `{unknown}`, but the agent `{name}` has {}",
            self.names()
        );
        let hint = "leave `toolsets` out to give it all its tools";
        Err(Rejected::new(Code::Unsupported, error).hint(hint))
    }

    /// The agent's own names of what was asked for; what it doesn't know stays as it is.
    #[must_use]
    pub fn own(self, asked: &[String]) -> Vec<String> {
        let Self::Tools(tools) = self else {
            return asked.to_vec();
        };
        let mut own: Vec<String> = Vec::new();
        for asked in asked {
            let set = tools.sets.iter().find(|(set, _)| *set == plain(asked));
            let one = [asked.as_str()];
            for tool in set.map_or(&one[..], |(_, tools)| tools) {
                if !own.iter().any(|had| had == tool) {
                    own.push((*tool).to_owned());
                }
            }
        }
        own
    }

    /// The group that was asked for.
    #[must_use]
    pub fn group(self, asked: &[String]) -> Option<&'static Group> {
        let Self::Groups(groups) = self else {
            return None;
        };
        let asked: BTreeSet<&str> = asked.iter().map(|name| plain(name)).collect();
        let names = |group: &&Group| group.names.iter().copied().collect::<BTreeSet<_>>() == asked;
        groups.iter().find(names)
    }

    /// The names that it has, for people.
    #[must_use]
    pub fn names(self) -> String {
        let quoted = |names: &[&str], between: &str| {
            let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            quoted.join(between)
        };
        match self {
            Self::None => "none".to_owned(),
            Self::Own => "its own".to_owned(),
            Self::Tools(tools) => {
                let sets: Vec<&str> = tools.sets.iter().map(|(set, _)| *set).collect();
                let mut each: Vec<&str> = Vec::new();
                let in_sets = tools.sets.iter().flat_map(|(_, tools)| tools.iter());
                for tool in in_sets.chain(tools.others) {
                    if !each.contains(tool) {
                        each.push(tool);
                    }
                }
                let prefix = tools.prefix.map(|prefix| format!(", `{prefix}…`"));
                format!(
                    "{}; and by themselves {}{}",
                    quoted(&sets, ", "),
                    quoted(&each, ", "),
                    prefix.unwrap_or_default()
                )
            }
            Self::Groups(groups) => {
                let groups = groups.iter().map(|group| quoted(group.names, " with "));
                groups.collect::<Vec<_>>().join(", or ")
            }
        }
    }
}

impl Tools {
    fn has(&self, name: &str) -> bool {
        let prefixed = |prefix: &str| name.len() > prefix.len() && name.starts_with(prefix);
        self.sets
            .iter()
            .any(|(set, tools)| *set == plain(name) || tools.contains(&name))
            || self.others.contains(&name)
            || self.prefix.is_some_and(prefixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS: Toolsets = Toolsets::Tools(&Tools {
        sets: &[
            ("terminal", &["bash"]),
            ("file", &["read", "write"]),
            ("file-read", &["read"]),
        ],
        others: &["think"],
        prefix: Some("mcp__"),
    });
    const GROUPS: Toolsets = Toolsets::Groups(&[
        Group {
            names: &["terminal", "file"],
            own: None,
        },
        Group {
            names: &["file-read"],
            own: Some("read-only"),
        },
    ]);

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn toolsets_are_an_agents_own_tools_once() {
        for (asked, own) in [
            (&["terminal", "file"][..], &["bash", "read", "write"][..]),
            (&["file_tools", "read", "file-read"], &["read", "write"]),
            (&["think", "mcp__x__y"], &["think", "mcp__x__y"]),
            (&[], &[]),
        ] {
            assert_eq!(TOOLS.check("a", &names(asked)), Ok(()), "{asked:?}");
            assert_eq!(TOOLS.own(&names(asked)), names(own), "{asked:?}");
        }
    }

    #[test]
    fn toolsets_that_are_lacking_are_refused_by_name() {
        for asked in ["bogus", "web", "Read", "mcp__", ""] {
            let refused = TOOLS.check("a", &names(&["file", asked])).unwrap_err();
            assert_eq!(refused.code, Code::Unsupported);
            for part in [&format!("`{asked}`"), "`file-read`", "`think`", "`mcp__…`"] {
                assert!(refused.error.contains(part), "{}", refused.error);
            }
        }
        assert!(Toolsets::None.check("a", &[]).is_err());
        assert!(Toolsets::Own.check("a", &names(&["anything"])).is_ok());
    }

    #[test]
    fn toolsets_that_go_together_are_asked_together() {
        let own = |asked: &[&str]| GROUPS.group(&names(asked)).map(|group| group.own);
        assert_eq!(own(&["file_tools", "terminal"]), Some(None));
        assert_eq!(own(&["file-read"]), Some(Some("read-only")));
        for asked in [&["file"][..], &[], &["terminal", "file", "web"]] {
            let refused = GROUPS.check("a", &names(asked)).unwrap_err().error;
            assert!(refused.contains("`terminal` with `file`"), "{refused}");
        }
    }
}

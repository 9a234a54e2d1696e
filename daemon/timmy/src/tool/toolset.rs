//! Toolsets by name.
//!
//! Owns which names there are, and which tools of this process belong to each. The
//! tools of `mcp` are made by who keeps its servers; here they only have a name.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::places::Rules;
use super::{Tool, delegate, file, terminal, web};

/// A group of tools that is given or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Toolset {
    /// Reading and writing files.
    File,
    /// Reading files only.
    FileRead,
    /// Running commands.
    Terminal,
    /// Reading pages.
    Web,
    /// What MCP servers offer.
    Mcp,
    /// Other agents of the same daemon.
    Delegate,
}

impl Toolset {
    /// Each, with its name.
    pub(crate) const ALL: &[(&str, Self)] = &[
        ("file", Self::File),
        ("file-read", Self::FileRead),
        ("terminal", Self::Terminal),
        ("web", Self::Web),
        ("mcp", Self::Mcp),
        ("delegate", Self::Delegate),
    ];

    /// What a turn has that names none.
    pub(crate) const USUAL: &[Self] = &[Self::File, Self::Terminal];

    /// What programs that were written for Hermes call the same.
    const HERMES: &[(&str, Self)] = &[("file_tools", Self::File), ("delegation", Self::Delegate)];

    /// Those of these names.
    ///
    /// # Errors
    /// The name that is none, and those that are.
    pub(crate) fn named(names: &[impl AsRef<str>]) -> Result<BTreeSet<Self>, UnknownToolset> {
        let known = |name: &str| {
            let mut all = Self::ALL.iter().chain(Self::HERMES);
            let found = all.find(|(known, _)| *known == name);
            found
                .map(|(_, toolset)| *toolset)
                .ok_or_else(|| UnknownToolset(name.to_owned()))
        };
        names.iter().map(AsRef::as_ref).map(known).collect()
    }
}

/// A name that no toolset has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no toolset `{0}`; expected {names}", names = names())]
pub(crate) struct UnknownToolset(String);

fn names() -> String {
    let names: Vec<_> = Toolset::ALL
        .iter()
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    names.join(", ")
}

/// The tools that belong to some toolsets. `Mcp` has none here: whoever keeps its servers adds them.
pub(crate) fn tools(sets: &BTreeSet<Toolset>, rules: &Arc<Rules>) -> Vec<Arc<dyn Tool>> {
    let mut tools = Vec::new();
    for set in sets {
        tools.extend(match set {
            Toolset::File => file::tools(rules),
            Toolset::FileRead if sets.contains(&Toolset::File) => Vec::new(),
            Toolset::FileRead => {
                let mut tools = file::tools(rules);
                tools.retain(|tool| tool.is_read_only());
                tools
            }
            Toolset::Terminal => terminal::tools(rules),
            Toolset::Web => web::tools(),
            Toolset::Delegate => delegate::tools(),
            Toolset::Mcp => Vec::new(),
        });
    }
    tools
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::tests::rules;

    fn names(sets: &[&str]) -> Vec<String> {
        let sets = Toolset::named(sets).unwrap();
        let tools = tools(&sets, &Arc::new(rules()));
        tools.iter().map(|tool| tool.spec().name).collect()
    }

    #[test]
    fn a_toolset_is_its_tools_once() {
        let file = ["read", "list", "search", "write", "edit"];
        assert_eq!(names(&["file"]), file);
        assert_eq!(names(&["file-read", "file", "file"]), file);
        assert_eq!(names(&["file-read"]), ["read", "list", "search"]);
        assert_eq!(names(&["web", "terminal"]), ["bash", "fetch"]);
        assert_eq!(names(&["mcp", "delegate"]), ["delegate", "collect"]);
    }

    #[test]
    fn an_unknown_toolset_is_an_error_that_names_the_known_ones() {
        let error = Toolset::named(&["file", "fiel"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no toolset `fiel`; expected `file`, `file-read`, `terminal`, `web`, `mcp`, \
             `delegate`"
        );
    }

    #[test]
    fn toolset_names_of_hermes_are_taken_where_they_mean_something() {
        let named = Toolset::named(&["terminal", "file_tools", "delegation"]).unwrap();
        let expected = [Toolset::File, Toolset::Terminal, Toolset::Delegate];
        assert_eq!(named, BTreeSet::from(expected));
        for name in ["memory", "git_tools"] {
            let refused = Toolset::named(&["file", name]).unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }

    #[test]
    fn names_and_schemas_are_what_providers_take() {
        let all: Vec<_> = Toolset::ALL.iter().map(|(_, set)| *set).collect();
        let tools = tools(&all.into_iter().collect(), &Arc::new(rules()));
        let mut names = BTreeSet::new();
        for tool in tools {
            let spec = tool.spec();
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            assert!(
                spec.name.len() <= 64 && spec.name.chars().all(fits),
                "{spec:?}"
            );
            assert!(spec.description.len() <= 400, "{spec:?}");
            assert_eq!(spec.schema["type"], "object", "{spec:?}");
            assert_eq!(spec.schema["additionalProperties"], false, "{spec:?}");
            assert!(names.insert(spec.name.clone()), "{spec:?}");
        }
    }
}

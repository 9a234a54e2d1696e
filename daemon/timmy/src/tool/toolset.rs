//! Toolsets by name.
//!
//! Owns which names there are, and which tools of this process belong to each. The
//! tools of `mcp` are made by who keeps its servers; here they only have a name.

use std::collections::BTreeSet;
use std::sync::Arc;

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::toolset::{DELEGATE, plain};

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
        (DELEGATE, Self::Delegate),
    ];

    /// What a turn has that names none.
    pub(crate) const USUAL: &[Self] = &[Self::File, Self::Terminal];

    /// Toolsets of Hermes without a counterpart. A send restricts by its toolsets, so that to leave
    /// one out gives nothing that wasn't asked for.
    const HERMES_ONLY: &[&str] = &[
        "browser",
        "code_execution",
        "cronjob",
        "git_tools",
        "image_gen",
        "memory",
        "search",
        "session_search",
        "skills",
        "todo",
        "tts",
        "vision",
    ];

    /// Those of these names.
    ///
    /// # Errors
    /// The name that is none, and those that are.
    pub(crate) fn named(names: &[impl AsRef<str>]) -> Result<NamedToolsets, UnknownToolset> {
        let mut named = NamedToolsets::default();
        for name in names.iter().map(AsRef::as_ref) {
            let mut all = Self::ALL.iter();
            if let Some((_, toolset)) = all.find(|(known, _)| *known == plain(name)) {
                named.sets.insert(*toolset);
            } else if Self::HERMES_ONLY.contains(&name) {
                let note = format!(
                    "the toolset `{name}` isn't there, and is left out; expected {}",
                    self::names()
                );
                named.notes.push(note);
            } else {
                return Err(UnknownToolset(name.to_owned()));
            }
        }
        // Nobody asks for no tools by the names of some.
        match names.first() {
            Some(first) if named.sets.is_empty() => Err(UnknownToolset(first.as_ref().to_owned())),
            _ => Ok(named),
        }
    }
}

/// The toolsets of some names.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct NamedToolsets {
    pub(crate) sets: BTreeSet<Toolset>,
    /// What was left out.
    pub(crate) notes: Vec<String>,
}

/// A name that no toolset has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no toolset `{0}`; expected {names}", names = names())]
pub(crate) struct UnknownToolset(String);

impl From<UnknownToolset> for Rejected {
    fn from(why: UnknownToolset) -> Self {
        Self::new(Code::Unsupported, why.to_string())
    }
}

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
            // Both have the same names, of which a turn takes one.
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
        let sets = Toolset::named(sets).unwrap().sets;
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
    fn toolset_that_is_unknown_names_the_known() {
        let error = Toolset::named(&["file", "fiel"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no toolset `fiel`; expected `file`, `file-read`, `terminal`, `web`, `mcp`, \
             `delegate`"
        );
    }

    #[test]
    fn toolset_names_of_hermes_give_nothing_more() {
        let named = Toolset::named(&["git_tools", "file_tools"]).unwrap();
        assert_eq!(named.sets, BTreeSet::from([Toolset::File]));
        assert_eq!(named.notes.len(), 1);
        assert!(named.notes[0].contains("`git_tools`"), "{named:?}");
        let refused = Toolset::named(&["memory"]).unwrap_err().to_string();
        assert!(refused.contains("memory"), "{refused}");
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

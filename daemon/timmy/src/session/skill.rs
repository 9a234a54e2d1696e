//! The tool by which a model reads a skill.
//!
//! Owns its name and arguments. Must not know what a skill says, or do it.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::context::{self, MOST_TEXT};
use super::files;
use crate::model::{Boxed, ToolSpec};
use crate::tool::{Surroundings, Tool, ToolOutcome};

/// Reads one of the user's skills.
pub(crate) struct ReadSkill {
    own: PathBuf,
}

impl ReadSkill {
    /// The tool, if there are skills in the directory `timmy` beside `config.toml`.
    pub(crate) fn new(own: &Path) -> Option<Self> {
        let none = context::skills(own).is_empty();
        // Without any it isn't offered: a tool that finds nothing costs words in each request.
        (!none).then(|| Self {
            own: own.to_owned(),
        })
    }
}

impl Tool for ReadSkill {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "skill".to_owned(),
            description: "Reads the instructions of one of the skills listed in the system prompt."
                .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {"name": {"type": "string", "description": "The skill's name"}},
                "required": ["name"],
                "additionalProperties": false,
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn run<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        _around: &'a Surroundings,
    ) -> Boxed<'a, Result<ToolOutcome, String>> {
        let name = arguments.get("name").and_then(Value::as_str);
        let (own, name) = (self.own.clone(), name.map(str::to_owned));
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || read(&own, name.as_deref()));
            read.await
                .unwrap_or_else(|why| Err(format!("the skill can't be read: {why}")))
        })
    }
}

fn read(own: &Path, name: Option<&str>) -> Result<ToolOutcome, String> {
    let skills = context::skills(own);
    // Looked up in the list, so that a name is never a path.
    let Some(skill) = skills
        .iter()
        .find(|skill| Some(skill.name.as_str()) == name)
    else {
        let known: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
        return Err(format!(
            "there is no skill {name:?}; there are: {}",
            known.join(", ")
        ));
    };
    match files::own(&skill.file, MOST_TEXT) {
        Ok(found) => Ok(ToolOutcome {
            ok: true,
            output: found.text,
            truncated: found.cut,
            sandbox: None,
        }),
        Err(why) => Err(format!("`{}` can't be read: {why}", skill.file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skill_is_read_by_its_name_only() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ReadSkill::new(dir.path()).is_none());
        let skill = dir.path().join("skills/release");
        std::fs::create_dir_all(&skill).unwrap();
        std::fs::write(skill.join("SKILL.md"), "Steps.").unwrap();
        std::fs::write(dir.path().join("secret"), "key").unwrap();
        assert!(ReadSkill::new(dir.path()).is_some());
        assert_eq!(read(dir.path(), Some("release")).unwrap().output, "Steps.");
        for name in [None, Some(""), Some("../secret"), Some("release/SKILL.md")] {
            let refused = read(dir.path(), name).unwrap_err();
            assert!(refused.contains("release"), "{name:?}");
        }
    }
}

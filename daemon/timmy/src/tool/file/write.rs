//! The tool `write`.
//!
//! Owns putting a whole file in place.

use std::io;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Here, Wants, at, refuse_others, replace, short};
use crate::model::{Boxed, ToolSpec};
use crate::tool::places::{Access, Rules};
use crate::tool::schema::arguments;
use crate::tool::{Surroundings, Tool, ToolOutcome};

arguments! {
    /// What `write` takes.
    Wanted {
        path: String = "The file: absolute, or relative to the workspace.",
        content: String = "All that it is to have.",
    }
}

impl Wants for Wanted {
    fn path(&self) -> &str {
        &self.path
    }

    fn texts(&self) -> Vec<(&str, &str)> {
        vec![("all that the file is to have", &self.content)]
    }
}

/// Writes a file.
pub(super) struct Write(pub(super) Arc<Rules>);

impl Tool for Write {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write".to_owned(),
            description: "Writes a file, in the place of what it was before; directories that are \
                          missing are made. Use `edit` to change a part."
                .to_owned(),
            schema: Wanted::schema(),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn run<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        around: &'a Surroundings,
    ) -> Boxed<'a, ToolOutcome> {
        let wanted = Wanted::parse(arguments);
        Box::pin(at((&self.0, Access::Write), around, wanted, write))
    }
}

fn write(here: &Here, wanted: &Wanted) -> Result<ToolOutcome, String> {
    let Here { place, around, .. } = here;
    let content = wanted.content.as_bytes();
    let name = short(&place.path, around).display();
    let said = |error: io::Error| format!("can't write {name}: {error}");
    let (dir, file) = place.parent_made().map_err(said)?;
    let old = match dir.symlink_metadata(&file) {
        Ok(found) => Some(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(said(error)),
    };
    if let Some(old) = &old {
        refuse_others(place, old.file_type())?;
        if old.permissions().readonly() {
            return Err(format!(
                "{name} is read-only; change its mode first, if that is meant"
            ));
        }
    }
    replace(&dir, &file, content, old.as_ref()).map_err(said)?;
    let before = old.map_or("a new file".to_owned(), |old| {
        format!("it had {} before", old.len())
    });
    Ok(ToolOutcome::done(format!(
        "wrote {} bytes to {name}; {before}\n",
        content.len()
    )))
}

//! The tool `write`.
//!
//! Owns putting a whole file in place.

use std::io;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{aside, refuse_others, replace, short};
use crate::model::{Boxed, ToolSpec};
use crate::tool::places::{self, Access, Place, Rules};
use crate::tool::schema::arguments;
use crate::tool::{Outcome, Surroundings, Tool};

arguments! {
    /// What `write` takes.
    Wanted {
        path: String = "The file: absolute, or relative to the workspace.",
        content: String = "All that it is to have.",
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
    ) -> Boxed<'a, Outcome> {
        Box::pin(async move {
            let wanted = match Wanted::parse(arguments) {
                Ok(wanted) => wanted,
                Err(why) => return Outcome::failed(why),
            };
            match places::find(&self.0, around, &wanted.path, Access::Write).await {
                Err(why) => Outcome::failed(why),
                Ok(place) => {
                    let around = around.clone();
                    aside(move || write(&place, &wanted.content, &around)).await
                }
            }
        })
    }
}

fn write(place: &Place, content: &str, around: &Surroundings) -> Result<Outcome, String> {
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
    replace(&dir, &file, content.as_bytes(), old.as_ref()).map_err(said)?;
    let before = old.map_or("a new file".to_owned(), |old| {
        format!("it had {} before", old.len())
    });
    Ok(Outcome::done(format!(
        "wrote {} bytes to {name}; {before}\n",
        content.len()
    )))
}

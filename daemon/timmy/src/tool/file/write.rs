//! The tool `write`.
//!
//! Owns putting a whole file in place.

use std::io;

use super::{Here, Wants, refuse_others, replace, short};
use crate::tool::ToolOutcome;
use crate::tool::places::Access;
use crate::tool::schema::arguments;

arguments! {
    /// What `write` takes.
    pub(super) Wanted {
        path: String = "The file: absolute, or relative to the workspace.",
        content: String = "All that it is to have.",
    }
}

impl Wants for Wanted {
    const NAME: &'static str = "write";
    const DESCRIPTION: &'static str = "Writes a file, in the place of what it was before; directories that are missing are made. \
        Use `edit` to change a part.";
    const ACCESS: Access = Access::Write;

    fn path(&self) -> &str {
        &self.path
    }

    fn texts(&self) -> Vec<(&str, &str)> {
        vec![("all that the file is to have", &self.content)]
    }

    fn done(&self, here: &Here) -> Result<ToolOutcome, String> {
        write(here, self)
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

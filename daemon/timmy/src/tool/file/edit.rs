//! The tool `edit`.
//!
//! Owns what may be replaced by what: text that is there exactly as the model says, and once,
//! unless it says otherwise. Nothing is guessed.

use std::io::{self, Read as _};
use std::time::Duration;

use similar::TextDiff;

use super::{Here, MOST_EDITED, Wants, open, replace, short};
use crate::tool::ToolOutcome;
use crate::tool::output;
use crate::tool::places::Access;
use crate::tool::schema::arguments;

/// A diff that takes longer is a worse one, not a later one.
const DIFF_WITHIN: Duration = Duration::from_secs(1);
/// Places that an error names.
const MOST_NAMED: usize = 10;

arguments! {
    /// What `edit` takes.
    pub(super) Wanted {
        path: String = "The file: absolute, or relative to the workspace.",
        old: String = "The text to replace, exactly as it is in the file, white space and all; \
                       with enough around it to be there only once.",
        new: String = "The text in its place.",
        all: Option<bool> = "Replace it everywhere?",
    }
}

impl Wants for Wanted {
    const NAME: &'static str = "edit";
    const DESCRIPTION: &'static str = "Replaces text in a file and shows the difference. The text has to be there exactly, and \
        once, or `all` be true.";
    const ACCESS: Access = Access::Write;

    fn path(&self) -> &str {
        &self.path
    }

    fn texts(&self) -> Vec<(&str, &str)> {
        let old = match self.all {
            Some(true) => "everywhere, this text",
            _ => "this text",
        };
        vec![(old, &self.old), ("becomes", &self.new)]
    }

    fn done(&self, here: &Here) -> Result<ToolOutcome, String> {
        edit(here, self)
    }
}

fn edit(here: &Here, wanted: &Wanted) -> Result<ToolOutcome, String> {
    let Here { place, around, .. } = here;
    let name = short(&place.path, around).display().to_string();
    let said = |error: io::Error| format!("can't edit {name}: {error}");
    let (file, found) = open(place)?;
    if found.len() > MOST_EDITED {
        return Err(format!(
            "{name} has {} bytes; expected {MOST_EDITED} at most",
            found.len()
        ));
    }
    if found.permissions().readonly() {
        return Err(format!(
            "{name} is read-only; change its mode first, if that is meant"
        ));
    }
    let mut before = Vec::new();
    // It may have grown since the look.
    file.take(MOST_EDITED)
        .read_to_end(&mut before)
        .map_err(said)?;
    let before = String::from_utf8(before)
        .map_err(|_| format!("{name} is not UTF-8 text; expected text"))?;
    let after = replaced(&before, wanted, &name)?;
    let (dir, file) = place.parent().map_err(said)?;
    replace(&dir, &file, after.as_bytes(), Some(&found)).map_err(said)?;
    let mut config = TextDiff::configure();
    let diff = config.timeout(DIFF_WITHIN).diff_lines(&before, &after);
    let diff = diff.unified_diff().header(&name, &name).to_string();
    Ok(ToolOutcome::shown(
        true,
        output::shown(&diff, &around.spill, &around.call),
    ))
}

fn replaced(before: &str, wanted: &Wanted, name: &str) -> Result<String, String> {
    let Wanted { old, new, all, .. } = wanted;
    if old.is_empty() {
        return Err("`old` is empty; expected text of the file, or use `write`".to_owned());
    }
    if old == new {
        return Err("`old` and `new` are the same; expected a change".to_owned());
    }
    let fits = |count: usize| {
        // Places don't overlap, so that this is never less than nothing.
        let length = before.len() - count * old.len() + count.saturating_mul(new.len());
        if length as u64 <= MOST_EDITED {
            return Ok(());
        }
        Err(format!(
            "{name} would have {length} bytes; expected {MOST_EDITED} at most"
        ))
    };
    let lines: Vec<_> = before
        .match_indices(old.as_str())
        .map(|(at, _)| before[..at].matches('\n').count() + 1)
        .take(MOST_NAMED + 1)
        .collect();
    match lines.as_slice() {
        [] => Err(format!(
            "`old` is not in {name}{}; expected text exactly as it is there: read the file again",
            hint(before, old)
        )),
        [_] => fits(1).map(|()| before.replacen(old.as_str(), new, 1)),
        _ if *all == Some(true) => {
            let count = before.matches(old.as_str()).count();
            fits(count).map(|()| before.replace(old.as_str(), new))
        }
        lines => {
            let named: Vec<_> = lines
                .iter()
                .take(MOST_NAMED)
                .map(usize::to_string)
                .collect();
            let more = if lines.len() > MOST_NAMED {
                ", …"
            } else {
                ""
            };
            Err(format!(
                "`old` is in {name} more than once, at the lines {}{more}; expected it once: give \
                 more of what is around it, or `all`",
                named.join(", ")
            ))
        }
    }
}

/// The usual reasons why a text isn't found.
fn hint(before: &str, old: &str) -> &'static str {
    let bare = |text: &str| -> String { text.chars().filter(|c| !c.is_whitespace()).collect() };
    if before.contains("\r\n") && before.replace("\r\n", "\n").contains(old) {
        ", whose lines end with \\r\\n"
    } else if bare(before).contains(&bare(old)) {
        " with this white space"
    } else {
        ""
    }
}

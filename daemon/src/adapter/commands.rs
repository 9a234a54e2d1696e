//! Slash commands as agents list them.
//!
//! Owns how leniently a list is read. Must not know how an agent is asked for it.

use agentd_core::worker::CommandList;
use agentd_protocol::commands::CommandRow;

use super::object::Object;

/// More are not read.
pub(super) const MOST: usize = 2000;

/// A list, in which a hint is what `hint` finds in a row; one without a name is left out.
pub(super) fn listed(
    rows: Vec<Object<'_>>,
    hint: impl Fn(&Object<'_>) -> Option<String>,
) -> CommandList {
    let row = |row: Object<'_>| {
        CommandRow {
            name: row.string("name")?,
            description: row.string("description"),
            hint: hint(&row),
        }
        .fitting()
    };
    CommandList {
        rows: rows.into_iter().filter_map(row).take(MOST).collect(),
        note: None,
    }
}

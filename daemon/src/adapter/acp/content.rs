//! ACP's content blocks as text.
//!
//! Owns how a block that isn't text is shown. Must not know where it came from.

use agentd_core::limits::{NAME_BYTES, TOOL_LOCATIONS};
use agentd_protocol::limits::MAX_TOOL_OUTPUT;
use agentd_protocol::line::{FileChange, ToolLocation};

use crate::adapter::object::Object;

/// The blocks that there are.
const BLOCKS: &[&str] = &["audio", "image", "resource", "resource_link", "text"];

/// One block of a message or of a tool's output.
pub(super) fn block(block: &Object<'_>) -> Option<String> {
    match block.string("type").as_deref() {
        Some("text") => block.string("text"),
        Some("resource_link") => block.string("uri"),
        Some("resource") => {
            let resource = block.object("resource")?;
            resource.string("text").or_else(|| resource.string("uri"))
        }
        Some("image") => Some("[image]".to_owned()),
        Some("audio") => Some("[audio]".to_owned()),
        _ => None,
    }
}

/// The kind of the first part of an update that is not known, if there is one.
pub(super) fn unknown(update: &Object<'_>) -> Option<String> {
    let kind = |part: &Object<'_>| part.string("type").unwrap_or_default();
    let of_block =
        |block: &Object<'_>| Some(kind(block)).filter(|of| !BLOCKS.contains(&of.as_str()));
    let parts = update.objects("content");
    let mut of_parts = parts.iter().filter_map(|part| match kind(part).as_str() {
        "content" => of_block(&part.object("content")?),
        "diff" | "terminal" => None,
        other => Some(other.to_owned()),
    });
    let one = update.object("content");
    one.and_then(|one| of_block(&one))
        .or_else(|| of_parts.next())
}

/// All that a tool call shows; `None` if nothing is said of it.
pub(super) fn outputs(call: &Object<'_>) -> Option<String> {
    // An empty list says that there is no output; none at all that it stays as it was.
    call.raw("content")?;
    let parts = call.objects("content");
    let texts = parts
        .iter()
        .filter_map(|part| match part.string("type").as_deref() {
            Some("content") => part.object("content").and_then(|inner| block(&inner)),
            Some("diff") => Some(diff(part)),
            // A terminal of the client's: none are offered.
            _ => None,
        });
    Some(texts.collect::<Vec<_>>().join("\n"))
}

/// What a tool call changes. All that is kept of it is what a line has room for.
pub(super) fn changes(call: &Object<'_>) -> Vec<FileChange> {
    let parts = call.objects("content");
    let diffs = parts
        .iter()
        .filter(|part| part.string("type").as_deref() == Some("diff"));
    let change = |part: &Object<'_>| {
        Some(FileChange {
            path: part.string("path")?,
            old: part.string("oldText"),
            new: Some(part.string("newText")?),
            diff: None,
        })
    };
    let changes: Vec<FileChange> = diffs.filter_map(change).collect();
    match changes.iter().map(FileChange::bytes).sum::<usize>() <= MAX_TOOL_OUTPUT {
        true => changes,
        false => Vec::new(),
    }
}

/// The files that a tool call is about: as many as a line tells.
pub(super) fn locations(call: &Object<'_>) -> Vec<ToolLocation> {
    let all = call.objects("locations");
    let location = |location: &Object<'_>| {
        Some(ToolLocation {
            path: location
                .string("path")
                .filter(|path| path.len() <= NAME_BYTES)?,
            line: location.get("line"),
        })
    };
    let all = all.iter().filter_map(location);
    all.take(TOOL_LOCATIONS).collect()
}

/// The old lines and the new ones, as the agent gives them: it names what it changes.
fn diff(part: &Object<'_>) -> String {
    let path = part.string("path").unwrap_or_default();
    let mut text = format!("--- {path}\n+++ {path}\n");
    for (sign, field) in [('-', "oldText"), ('+', "newText")] {
        for line in part.string(field).unwrap_or_default().lines() {
            text.push(sign);
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

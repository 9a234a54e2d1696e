//! ACP's content blocks as text.
//!
//! Owns how a block that isn't text is shown. Must not know where it came from.

use crate::adapter::object::Object;

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

/// All that a tool call shows; `None` if nothing is said of it.
pub(super) fn outputs(call: &Object<'_>) -> Option<String> {
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

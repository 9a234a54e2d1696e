//! What goes with a prompt besides its text, as the model gets it.
//!
//! Owns the three files that are attached, and what of each is seen again.

use serde_json::json;

use super::{Driven, Scene, text};
use crate::mock_model::Asked;

/// The model gets all that the agent takes, whatever the agent makes of it on the way.
pub fn looks_at_what_is_attached(driven: &Driven) {
    let scene = Scene::of(driven, "");
    // Each with what the model's request holds of it: what every PNG and PDF begins with, in base64.
    for (name, content, held) in [
        ("pixel.png", PIXEL, "iVBORw0KGgo"),
        ("letter.pdf", PAPER, "JVBERi0xLj"),
        (
            "notes.txt",
            b"a needle in the notes",
            "a needle in the notes",
        ),
    ] {
        let path = scene.daemon.path(name);
        std::fs::write(&path, content).unwrap();
        let prompt = format!("what is {name}");
        let line = json!({"prompt": prompt, "session": name, "attachments": [{"path": path}]});
        let last = scene.daemon.ask(&line.to_string()).pop().unwrap();
        if !driven.can.attached.contains(&name) {
            assert_eq!(
                last["code"], "unsupported",
                "{} {name}: {last:#}",
                driven.label
            );
            continue;
        }
        text(driven, &last);
        let asked = scene.model.asked();
        // Hermes asks for the description of a picture by itself first.
        for part in [held, &prompt] {
            let has = |asked: &Asked| asked.body.to_string().contains(part);
            assert!(
                asked.iter().any(has),
                "{} {name}: {part} is not in {:#?}",
                driven.label,
                asked.last()
            );
        }
    }
    if !driven.can.attached.is_empty() {
        scene.was_understood(driven);
    }
}

/// The shortest document that a reader may take for one.
const PAPER: &[u8] = b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n";

/// A picture of one pixel.
const PIXEL: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\
\0\0\0\rIDATx\xdacd`\xf8_\x0f\0\x02\x87\x01\x80\xebG\xba\x92\0\0\0\0IEND\xaeB`\x82";

//! `cargo xtask schema`: what is made of the table of requests and its types.
//!
//! Owns which files these are: the JSON Schema of every line, the types of the TypeScript package, and
//! what the packages written by hand lack. Must not know how each is made.

mod lacking;
mod typescript;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::root;

const SCHEMA: &str = "client/protocol/schema.json";
const TYPESCRIPT: &str = "client/typescript/src/protocol.ts";
const LACKING: &str = "client/protocol/lacking.txt";

/// Each file, by its path below the workspace's directory.
fn files() -> anyhow::Result<Vec<(&'static str, String)>> {
    let document = agentd_protocol::schema::document();
    let schema = serde_json::to_string_pretty(&document)? + "\n";
    Ok(vec![
        (SCHEMA, schema),
        (TYPESCRIPT, typescript::types(&document)),
        (LACKING, lacking::list(&document)?),
    ])
}

pub(crate) fn run() -> anyhow::Result<()> {
    for (path, text) in files()? {
        let place = root().join(path);
        let before = std::fs::read_to_string(&place).unwrap_or_default();
        if before == text {
            println!("{path} is as it was");
            continue;
        }
        std::fs::write(&place, text).with_context(|| format!("can't write `{path}`"))?;
        println!("{path} is new: look at it before it is committed");
    }
    let strange = lacking::strange(&agentd_protocol::schema::document())?;
    ensure!(strange.is_empty(), "not in the protocol: {strange:?}");
    Ok(())
}

/// The members of an object's schema.
fn members<'a>(document: &'a Value, name: &str) -> Vec<&'a str> {
    let all = document["$defs"][name]["properties"].as_object();
    let all = all.into_iter().flatten();
    // Another name of a member is no member of its own.
    let own = all.filter(|(_, says)| says.get("alias_of").is_none());
    own.map(|(name, _)| name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_files_are_what_the_code_says() {
        for (path, text) in files().unwrap() {
            let found = std::fs::read_to_string(root().join(path)).unwrap_or_default();
            let line = text
                .lines()
                .zip(found.lines())
                .position(|(new, old)| new != old);
            let line = line.unwrap_or(text.lines().count().min(found.lines().count())) + 1;
            assert!(
                text == found,
                "{path} is not what the code says, from line {line} on: run `cargo xtask schema`"
            );
        }
    }

    #[test]
    fn packages_have_no_member_of_their_own() {
        let document = agentd_protocol::schema::document();
        let strange = lacking::strange(&document).unwrap();
        assert!(strange.is_empty(), "not in the protocol: {strange:#?}");
    }
}

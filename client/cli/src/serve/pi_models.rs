//! `serve pi --list-models`: an agent's models as pi's command line prints its own.
//!
//! Owns the table, which programs read. Must not know the protocol of a client.

use std::io;
use std::path::Path;

use agentd_client::asked::RequestError;
use agentd_client::client::START_IT;
use agentd_client::fallback::Fallback;
use agentd_protocol::Code;
use agentd_protocol::models::{ModelRow, Models};

use crate::exit::Exit;
use crate::output::safe;
use crate::{ask, output};

const HEAD: [&str; 6] = [
    "provider", "model", "context", "max-out", "thinking", "images",
];
/// What nobody says.
const UNKNOWN: &str = "-";

/// Those of an agent, or of the default one, that match.
pub(super) async fn list(
    agent: Option<String>,
    search: &str,
    socket: Option<&Path>,
) -> io::Result<Exit> {
    let mut client = match ask::connected(socket, Fallback::Allowed, START_IT).await {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    let asked = Models {
        agent,
        ..Models::default()
    };
    let answer = client.models(asked).await;
    client.close().await;
    let told = match answer {
        Ok(models) => told(&models.models, models.note.as_deref(), search),
        // As `get_available_models` has it: none to choose from.
        Err(RequestError::Refused(error)) if error.code == Code::Unsupported => {
            told(&[], Some(&error.error), search)
        }
        Err(error) => return Ok(ask::tell(&error)),
    };
    output::out(&safe(&told))?;
    Ok(Exit::Done)
}

fn told(models: &[ModelRow], note: Option<&str>, search: &str) -> String {
    if models.is_empty() {
        let note = note.unwrap_or("The agent names none.");
        return format!("No models available. {note}\n");
    }
    let is_meant = |model: &&ModelRow| {
        let text = format!("{} {}", provider(model), model.model).to_lowercase();
        search.split_whitespace().all(|word| matches(word, &text))
    };
    let mut meant: Vec<&ModelRow> = models.iter().filter(is_meant).collect();
    if meant.is_empty() {
        return format!("No models matching \"{search}\"\n");
    }
    meant.sort_by_key(|model| (provider(model).to_lowercase(), model.model.to_lowercase()));
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(meant.into_iter().map(row));
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut table = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        table.push_str(&cells.join("  "));
        table.push('\n');
    }
    table
}

fn provider(model: &ModelRow) -> &str {
    model.provider.as_deref().unwrap_or("unknown")
}

fn row(model: &ModelRow) -> [String; 6] {
    let has = |list: &Option<Vec<String>>, is_it: fn(&str) -> bool| {
        let any = list.iter().flatten().any(|one| is_it(one));
        if any { "yes" } else { "no" }.to_owned()
    };
    let window = model.context_window.map(tokens);
    [
        provider(model).to_owned(),
        model.model.clone(),
        window.unwrap_or_else(|| UNKNOWN.to_owned()),
        UNKNOWN.to_owned(),
        has(&model.thinking, |level| level != "off"),
        has(&model.input, |kind| kind == "image"),
    ]
}

/// As pi has it: `200K`, `1M`, `1.5M`.
fn tokens(count: u64) -> String {
    let (unit, name) = match count {
        1_000_000.. => (1_000_000, "M"),
        1_000.. => (1_000, "K"),
        _ => return count.to_string(),
    };
    match count % unit {
        0 => format!("{}{name}", count / unit),
        _ => format!("{:.1}{name}", count as f64 / unit as f64),
    }
}

/// Are the letters of a word in the text, in this order? `gpt5` finds `5gpt`, too, as in pi.
fn matches(word: &str, text: &str) -> bool {
    let word = word.to_lowercase();
    let is_in = |word: &str| {
        let mut text = text.chars();
        word.chars().all(|letter| text.any(|one| one == letter))
    };
    let turn = |first: fn(char) -> bool, then: fn(char) -> bool| {
        let at = word.find(then)?;
        let (left, right) = word.split_at(at);
        let fits = !left.is_empty() && left.chars().all(first) && right.chars().all(then);
        fits.then(|| format!("{right}{left}"))
    };
    let letter = |one: char| one.is_ascii_lowercase();
    let digit = |one: char| one.is_ascii_digit();
    let turned = turn(letter, digit).or_else(|| turn(digit, letter));
    is_in(&word) || turned.is_some_and(|word| is_in(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pi_models_are_listed_as_by_pi() {
        let model = |provider: &str, name: &str| ModelRow {
            provider: Some(provider.to_owned()),
            ..ModelRow::named(name)
        };
        let models = [
            ModelRow {
                context_window: Some(200_000),
                thinking: Some(vec!["off".to_owned(), "high".to_owned()]),
                input: Some(vec!["text".to_owned(), "image".to_owned()]),
                ..model("openai", "codex-52")
            },
            ModelRow {
                context_window: Some(1_048_576),
                ..model("anthropic", "sonnet")
            },
        ];
        let table = told(&models, None, "");
        let expected = [
            "provider   model     context  max-out  thinking  images",
            "anthropic  sonnet    1.0M     -        no        no",
            "openai     codex-52  200K     -        yes       yes",
        ];
        assert!(table.lines().map(str::trim_end).eq(expected), "{table}");
        for (search, found) in [
            ("anso", "sonnet"),
            ("52codex", "codex-52"),
            ("open 52", "codex-52"),
        ] {
            let table = told(&models, None, search);
            assert!(
                table.lines().count() == 2 && table.contains(found),
                "{search}: {table}"
            );
        }
        assert_eq!(told(&models, None, "x y"), "No models matching \"x y\"\n");
        assert_eq!(told(&[], Some("Why."), ""), "No models available. Why.\n");
    }
}

//! `timmy models status`: the chain as a turn would find it now.
//!
//! Owns the table. Cool-downs are read from where turns write them, and never written.

use std::path::Path;
use std::time::Duration;

use agentd_terminal::output;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use super::{Exit, Failed, Form, Setting, show};
use crate::config::chain::{self, ModelRequest, Unchosen};
use crate::failover::Class;
use crate::failover::cooldown::Cooldown;
use crate::model::Usage;
use crate::model::known;
use crate::price::{self, CostSource};
use crate::provider::Target;
use crate::session::rows;
use crate::session::store::wall_ms;
use crate::turn;

/// A price is said for this many tokens.
const MILLION: u64 = 1_000_000;

pub(super) async fn run(setting: &Setting, form: Form) -> Result<Exit, Failed> {
    let lookup = |name: &str| setting.lookup(name);
    let chosen = chain::choose(&setting.config, &lookup, &ModelRequest::default()).await;
    let chosen = match chosen {
        Ok(chosen) => chosen,
        Err(Unchosen::Wrong(rejected)) => {
            let failed = Failed::new(Exit::Config, rejected.error);
            let hint = rejected.hint;
            return Err(Failed { hint, ..failed });
        }
        Err(Unchosen::Nothing(looked)) if form.json => {
            let mut line = looked.machine(&setting.places, setting.called);
            line["chain"] = json!([]);
            show::json(&line)?;
            return Ok(Exit::Config);
        }
        Err(Unchosen::Nothing(looked)) => {
            let rejected = looked.rejected(&setting.places, setting.called);
            let failed = Failed::new(Exit::Config, rejected.error);
            let hint = rejected.hint;
            return Err(Failed { hint, ..failed });
        }
    };
    let cooldowns = cooldowns(&setting.places.state.join("timmy/timmy.db"));
    let (now, company) = (wall_ms(), turn::company(&chosen.chain));
    let row = |target| {
        let resting = turn::resting(target, &cooldowns, now, company);
        row(target, resting)
    };
    let rows: Vec<Value> = chosen.chain.iter().map(row).collect();
    if form.json {
        show::json(&json!({"chain": rows, "note": chosen.announced}))?;
    } else {
        let shown: Vec<Vec<String>> = rows.iter().enumerate().map(in_words).collect();
        show::table(&["", "MODEL", "STATE", "WINDOW", "USD PER MILLION"], &shown)?;
        if let Some(note) = &chosen.announced {
            output::note(note);
        }
    }
    if rows.iter().any(|row| row["usable"] == true) {
        return Ok(Exit::Done);
    }
    match chosen.chain.first() {
        Some(first) if !form.json => {
            let error = "none of these can be asked: there is no key for any of them";
            let failed = Failed::new(Exit::Config, error);
            Err(failed.hint(setting.how_to_store_a_key(&first.provider)))
        }
        Some(_) | None => Ok(Exit::Config),
    }
}

fn row(target: &Target, resting: Option<(Duration, Class)>) -> Value {
    let provider = &target.provider;
    let window = target.window().unwrap_or(known::DEFAULT_WINDOW);
    let price = |usage: Usage| price::cost(provider, &target.model, &usage, None);
    // Asked for a million tokens of each, so that plans and lists of prices answer alike.
    let input = price(Usage {
        input: MILLION,
        ..Usage::default()
    });
    let output = price(Usage {
        output: MILLION,
        ..Usage::default()
    });
    let resting = resting.map(|(left, class)| {
        let seconds = left.as_millis().div_ceil(1000);
        json!({"class": class, "seconds": u64::try_from(seconds).unwrap_or(u64::MAX)})
    });
    json!({
        "model": format!("{}/{}", provider.id, target.model),
        "provider": provider.id,
        "usable": target.key.is_some() || provider.local,
        "local": provider.local,
        "key_variables": provider.key_variables,
        "window": window,
        "price": {"input": input.usd, "output": output.usd, "source": input.source},
        "cooling": resting,
    })
}

fn in_words((place, row): (usize, &Value)) -> Vec<String> {
    let state = if row["usable"] == false {
        let variables = row["key_variables"].as_array().into_iter().flatten();
        let first = variables.filter_map(Value::as_str).next();
        format!("no key ({})", first.unwrap_or_default())
    } else if let Some(cooling) = row["cooling"].as_object() {
        let class = cooling["class"].as_str().unwrap_or_default();
        format!(
            "left alone for {} s: {}",
            cooling["seconds"],
            class.replace('_', " ")
        )
    } else if row["local"] == true {
        "local".to_owned()
    } else {
        "ready".to_owned()
    };
    let price = &row["price"];
    let price = match (price["input"].as_f64(), price["output"].as_f64()) {
        (Some(input), Some(output)) if input > 0.0 || output > 0.0 => {
            format!("{input:.2} in, {output:.2} out")
        }
        (Some(_), Some(_)) => "nothing".to_owned(),
        _ if price["source"] == json!(CostSource::Plan) => "by a plan".to_owned(),
        _ => "unknown".to_owned(),
    };
    let name = match place {
        0 => "first".to_owned(),
        place => format!("then {place}"),
    };
    let model = output::safe(row["model"].as_str().unwrap_or_default()).into_owned();
    vec![name, model, state, row["window"].to_string(), price]
}

/// What turns have noted. Nobody had a turn yet: nothing; and a table of another version says
/// nothing either.
fn cooldowns(file: &Path) -> Vec<Cooldown> {
    // A look waits for no lock of a turn's, and makes no table of a newer version.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let read = || rows::cooldowns(&Connection::open_with_flags(file, flags)?);
    read().unwrap_or_default()
}

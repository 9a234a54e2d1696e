//! `timmy models status`: the chain as a turn would find it now.
//!
//! Owns the table. Cool-downs are read from where turns write them, and never written.

use std::path::Path;
use std::time::SystemTime;

use agentd_client::cli::output;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use super::{Exit, Failed, Form, Setting, show};
use crate::config::chain::{self, Asked, Unchosen};
use crate::model::Usage;
use crate::model::known;
use crate::price::{self, CostSource};
use crate::provider::Target;

/// A price is said for this many tokens.
const MILLION: u64 = 1_000_000;

/// Something that is left alone for now.
struct Cooling {
    provider: String,
    /// Empty for the whole provider.
    model: String,
    class: String,
    until: u64,
}

pub(super) async fn run(setting: &Setting, form: Form) -> Result<Exit, Failed> {
    let lookup = |name: &str| setting.lookup(name);
    let chosen = chain::choose(&setting.config, &lookup, &Asked::default()).await;
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
    let cooling = cooling(&setting.places.state.join("timmy/timmy.db"));
    let now = wall_ms();
    let rows: Vec<Value> = chosen
        .chain
        .iter()
        .map(|target| row(target, &cooling, now))
        .collect();
    if form.json {
        show::json(&json!({"chain": rows, "note": chosen.announced}))?;
    } else {
        let shown: Vec<Vec<String>> = rows.iter().enumerate().map(in_words).collect();
        show::table(&["", "MODEL", "STATE", "WINDOW", "USD PER MILLION"], &shown)?;
        if let Some(note) = &chosen.announced {
            output::note(note);
        }
    }
    let usable = rows.iter().any(|row| row["usable"] == true);
    Ok(if usable { Exit::Done } else { Exit::Config })
}

fn row(target: &Target, cooling: &[Cooling], now: u64) -> Value {
    let provider = &target.provider;
    let window = target.window().unwrap_or(known::DEFAULT_WINDOW);
    let price = |usage: Usage| price::cost(provider, &target.model, &usage, None);
    let input = price(Usage {
        input: MILLION,
        ..Usage::default()
    });
    let output = price(Usage {
        output: MILLION,
        ..Usage::default()
    });
    let left = cooling.iter().find(|one| {
        let of_it = one.model.is_empty() || one.model == target.model;
        one.provider == provider.id && of_it && one.until > now
    });
    let left =
        left.map(|one| json!({"class": one.class, "seconds": (one.until - now).div_ceil(1000)}));
    json!({
        "model": format!("{}/{}", provider.id, target.model),
        "provider": provider.id,
        "usable": target.key.is_some() || provider.local,
        "local": provider.local,
        "key_variables": provider.key_variables,
        "window": window,
        "price": {"input": input.usd, "output": output.usd, "source": input.source},
        "cooling": left,
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
fn cooling(file: &Path) -> Vec<Cooling> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let read = || -> rusqlite::Result<Vec<Cooling>> {
        let conn = Connection::open_with_flags(file, flags)?;
        let mut statement =
            conn.prepare("SELECT provider, coalesce(model, ''), class, until FROM cooldowns")?;
        let rows = statement.query_map([], |row| {
            let until: i64 = row.get(3)?;
            Ok(Cooling {
                provider: row.get(0)?,
                model: row.get(1)?,
                class: row.get::<_, String>(2)?.trim_matches('"').to_owned(),
                until: u64::try_from(until).unwrap_or(0),
            })
        })?;
        rows.collect()
    };
    read().unwrap_or_default()
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

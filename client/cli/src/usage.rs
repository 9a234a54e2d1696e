//! `usage`: what turns used, added up, as a table, JSON or CSV.
//!
//! Owns how sums look. Must not know how they are made (`usage` of the library).

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use serde_json::json;

use super::args::{UsageArgs, UsageBy};
use super::exit::Exit;
use super::output::safe;
use super::value::took;
use super::{ask, bench, output};
use agentd_client::usage::{By, NamedSum, Sum, UNKNOWN};
use agentd_terminal::style::{Style, Tone};
use agentd_terminal::table::{Cell, Column, table, wrapped};

/// Characters of the longest bar.
const BAR: u64 = 20;

type Sums = Vec<(Option<String>, Sum)>;

pub(super) async fn usage(args: UsageArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = ask::past(socket, args.past).await?;
    let asked = client.usage_sums(args.since, &by(&args.by)).await;
    client.close().await;
    let (total, by) = asked.map_err(|error| ask::tell(&error))?;
    let by = in_order(by, &args.by);
    if args.json {
        output::out_json(&as_json(&total, &by, &args.by))?;
    } else if args.csv {
        output::out(&as_csv(&by, &args.by)?)?;
    } else {
        let all = by.len();
        let by = without_benches(by, &args.by);
        output::out(&as_text(&total, &by, &args.by, &Style::of_stdout()))?;
        if by.len() < all {
            output::note("turns of `agentctl bench` count in the total, and are not in the list");
        }
    }
    Ok(Exit::Done)
}

fn by(by: &[UsageBy]) -> Vec<By> {
    let one = |by: &UsageBy| match by {
        UsageBy::Agent => By::Agent,
        UsageBy::Provider => By::Provider,
        UsageBy::Model => By::Model,
        UsageBy::Day => By::Day,
        UsageBy::Session => By::Session,
    };
    by.iter().map(one).collect()
}

fn word(by: &[UsageBy]) -> String {
    let one = |by: &UsageBy| match by {
        UsageBy::Agent => "agent",
        UsageBy::Provider => "provider",
        UsageBy::Model => "model",
        UsageBy::Day => "day",
        UsageBy::Session => "session",
    };
    by.iter().map(one).collect::<Vec<_>>().join(",")
}

/// Days as they follow each other, everything else by how many turns it had.
fn in_order(by: Vec<NamedSum>, how: &[UsageBy]) -> Sums {
    let mut sums: Sums = by.into_iter().map(|by| (by.name, by.sum)).collect();
    if how.first() != Some(&UsageBy::Day) {
        sums.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.turns));
    }
    sums
}

/// Each bench has sessions of its own, which say nothing to anybody.
fn without_benches(mut by: Sums, how: &[UsageBy]) -> Sums {
    if how == [UsageBy::Session] {
        by.retain(|(name, _)| name.as_deref().is_none_or(|name| !bench::is_of_bench(name)));
    }
    by
}

fn as_json(total: &Sum, by: &Sums, how: &[UsageBy]) -> String {
    let sums: Vec<_> = by
        .iter()
        .map(|(name, sum)| json!({"name": name, "sum": sum}))
        .collect();
    json!({"by": word(how), "total": total, "sums": sums}).to_string()
}

/// As it is read by spreadsheets. It is written to memory, so it has no error in practice.
fn as_csv(by: &Sums, how: &[UsageBy]) -> io::Result<String> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record([
        word(how).as_str(),
        "turns",
        "failed",
        "cancelled",
        "local",
        "hosted",
        "input_tokens",
        "output_tokens",
        "local_tokens",
        "hosted_tokens",
        "usd",
        "cost_unknown",
        "mean_ms",
        "p95_ms",
    ])?;
    for (name, sum) in by {
        csv.write_record([
            no_formula(name.as_deref().unwrap_or_default()),
            sum.turns.to_string(),
            sum.failed.to_string(),
            sum.cancelled.to_string(),
            sum.local.to_string(),
            sum.hosted.to_string(),
            sum.input_tokens.to_string(),
            sum.output_tokens.to_string(),
            sum.local_tokens.to_string(),
            sum.hosted_tokens.to_string(),
            format!("{:.6}", sum.usd),
            sum.cost_unknown.to_string(),
            sum.mean_ms.to_string(),
            sum.p95_ms.to_string(),
        ])?;
    }
    let written = csv
        .into_inner()
        .map_err(|error| io::Error::other(error.to_string()))?;
    String::from_utf8(written).map_err(io::Error::other)
}

/// A name as a field. What a spreadsheet would take for a formula is shown to be text: some leave
/// blanks at its beginning out first.
fn no_formula(name: &str) -> String {
    let blank = name.starts_with(['\t', '\r', '\n']);
    let formula = blank || name.trim_start().starts_with(['=', '+', '-', '@']);
    let name = safe(name);
    if formula {
        format!("'{name}")
    } else {
        name.into_owned()
    }
}

fn as_text(total: &Sum, by: &Sums, how: &[UsageBy], style: &Style) -> String {
    if total.turns == 0 {
        return "no turn has ended\n".to_owned();
    }
    let head = format!(
        "{}, {} failed, {} tokens in, {} out, {}",
        output::counted(total.turns, "turn"),
        total.failed,
        short(total.input_tokens),
        short(total.output_tokens),
        cost(total),
    );
    let mut text = String::new();
    let answered = total.local + total.hosted;
    if answered == 0 {
        text.push_str("served by local models: not known of any turn");
    } else {
        let share = percent(total.local, answered);
        let _ = write!(
            text,
            "served by local models: {share} of {}",
            output::counted(answered, "turn")
        );
        let tokens = total.local_tokens.saturating_add(total.hosted_tokens);
        if tokens > 0 {
            let share = percent(total.local_tokens, tokens);
            let _ = write!(text, ", {share} of their tokens");
        }
        let rest = total.turns - answered;
        if rest > 0 {
            let _ = write!(text, "; {rest} more had no model, or none that is known");
        }
    }
    let (head, text) = (wrapped(&head, "  ", style), wrapped(&text, "  ", style));
    let mut text = format!("{}\n{text}\n\n", style.paint(Tone::Head, &head));
    let most = by.iter().map(|(_, sum)| sum.turns).max().unwrap_or(1);
    let head = word(how).to_uppercase();
    let rows: Vec<Vec<Cell>> = by
        .iter()
        .map(|(name, sum)| {
            vec![
                name.as_deref().unwrap_or(UNKNOWN).into(),
                sum.turns.to_string().into(),
                failed(sum.failed),
                cost(sum).into(),
                short(sum.input_tokens).into(),
                short(sum.output_tokens).into(),
                took(sum.mean_ms).into(),
                took(sum.p95_ms).into(),
                percent(sum.local, sum.local + sum.hosted).into(),
                bar(sum.turns, most, style).into(),
            ]
        })
        .collect();
    let columns = [
        Column::cut(&head, 10).that_stays(),
        Column::new("TURNS").that_stays(),
        Column::new("FAILED"),
        Column::cut("COST", 7).that_stays(),
        Column::new("IN"),
        Column::new("OUT"),
        Column::new("MEAN"),
        Column::new("P95"),
        Column::new("LOCAL"),
        Column::new(""),
    ];
    text.push_str(&table(&columns, &rows, style));
    text
}

fn failed(count: u64) -> Cell {
    let tone = if count > 0 { Tone::Bad } else { Tone::Plain };
    Cell::toned(count.to_string(), tone)
}

/// At least one sign for anything at all.
fn bar(turns: u64, most: u64, style: &Style) -> String {
    let length = (turns * BAR).div_ceil(most.max(1));
    let sign = if style.unicode { "█" } else { "#" };
    sign.repeat(usize::try_from(length).unwrap_or_default())
}

fn percent(part: u64, whole: u64) -> String {
    match (u128::from(part) * 100).checked_div(u128::from(whole)) {
        None => "-".to_owned(),
        Some(percent) => format!("{percent} %"),
    }
}

fn cost(sum: &Sum) -> String {
    let unknown = match sum.cost_unknown {
        0 => String::new(),
        count => format!(" + {} not known", output::counted(count, "turn")),
    };
    // Less than a dollar is told to the hundredth of a cent.
    if sum.usd > 0.0 && sum.usd < 1.0 {
        return format!("${:.4}{unknown}", sum.usd);
    }
    format!("${:.2}{unknown}", sum.usd)
}

/// A count in few signs.
pub(super) fn short(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{}.{}M", count / 1_000_000, count / 100_000 % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_csv_names_are_fields_and_no_formulas() {
        for (name, field) in [
            ("ollama", "ollama"),
            ("a,\"b\"", "\"a,\"\"b\"\"\""),
            ("a\nb", "\"a\nb\""),
            ("=1+1", "'=1+1"),
            (" =1+1", "' =1+1"),
            ("\t=1", "'\t=1"),
            ("a\u{1b}]0;", "a\\u{1b}]0;"),
        ] {
            let by = vec![(Some(name.to_owned()), Sum::default())];
            let csv = as_csv(&by, &[UsageBy::Model]).unwrap();
            let (head, row) = csv.split_once('\n').unwrap();
            assert!(head.starts_with("model,turns,failed,"), "{head}");
            let rest = row.strip_prefix(field).unwrap();
            assert_eq!(rest, ",0,0,0,0,0,0,0,0,0,0.000000,0,0,0\n");
        }
    }

    #[test]
    fn usage_shows_small_costs_and_unknown_ones() {
        let sum = |usd, cost_unknown| Sum {
            usd,
            cost_unknown,
            ..Sum::default()
        };
        assert_eq!(cost(&sum(0.0, 0)), "$0.00");
        assert_eq!(cost(&sum(0.000_38, 2)), "$0.0004 + 2 turns not known");
        assert_eq!(cost(&sum(12.5, 0)), "$12.50");
    }

    #[test]
    fn usage_narrow_keeps_the_cost() {
        let style = Style {
            columns: Some(40),
            ..Style::PLAIN
        };
        let sum = Sum {
            turns: 3,
            usd: 0.5,
            ..Sum::default()
        };
        let by = vec![(Some("anthropic".to_owned()), sum.clone())];
        let shown = as_text(&sum, &by, &[UsageBy::Provider], &style);
        let head = shown.lines().find(|line| line.starts_with("PROVIDER"));
        assert!(head.is_some_and(|head| head.contains("COST")), "{shown}");
        assert!(
            shown.contains("$0.5000\n") || shown.contains("$0.5000 "),
            "{shown}"
        );
    }

    #[test]
    fn bars_and_shares_are_of_the_whole() {
        assert_eq!(bar(10, 10, &Style::PLAIN).chars().count(), 20);
        assert_eq!(bar(1, 1000, &Style::PLAIN).chars().count(), 1);
        assert_eq!(
            [percent(1, 3), percent(0, 0), percent(u64::MAX, u64::MAX)],
            ["33 %", "-", "100 %"]
        );
        assert_eq!(
            (short(9_999), short(12_345), short(2_540_000)),
            ("9999".into(), "12k".into(), "2.5M".into())
        );
    }
}

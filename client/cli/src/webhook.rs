//! `webhook`: endpoints, deliveries, and a try.
//!
//! Owns how they look. The endpoints are the daemon's to change: its own program does. Must not know
//! where they are kept.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use agentd_protocol::webhook::{DeliveryRow, DeliveryState, EndpointRow, Webhooks};

use super::args::{DeliveryArg, ReplayWebhookArgs, WebhookArgs, WebhookCommand, WebhookListArgs};
use super::exit::Exit;
use super::output::safe;
use super::{agents, ask, output, value};
use agentd_client::asked::{Reply, RequestError};
use agentd_client::client::Client;
use agentd_client::webhooks::DeliveryPages;
use agentd_terminal::style::{Style, Tone};
use agentd_terminal::table::{Cell, Column, table};

/// An attempt takes 15 s at most, and may have to wait for others.
const TRY_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks at how it goes.
const LOOK: Duration = Duration::from_millis(100);

pub(super) async fn webhook(args: WebhookArgs, socket: Option<&Path>) -> io::Result<Exit> {
    match args.command {
        WebhookCommand::Add(args) => {
            let private = args.allow_private.then_some("--allow-private");
            Ok(change("add", private, args.json, &args.url))
        }
        WebhookCommand::Remove(args) => Ok(change("remove", None, args.json, &args.url)),
        WebhookCommand::Rotate(args) => {
            let finish = args.finish.then_some("--finish");
            Ok(change("rotate", finish, args.json, &args.url))
        }
        WebhookCommand::List(args) => list(args, socket).await,
        WebhookCommand::Replay(args) => replay(args, socket).await,
        WebhookCommand::Test(args) => test(&args.url, socket).await,
    }
}

fn change(what: &str, option: Option<&str>, json: bool, url: &str) -> Exit {
    let mut words = vec![what.to_owned()];
    words.extend(option.map(str::to_owned));
    words.extend(json.then(|| "--json".to_owned()));
    words.extend(["--".to_owned(), url.to_owned()]);
    agents::of_program("webhook", &words)
}

async fn list(args: WebhookListArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = ask::daemon(socket).await?;
    let mut pages = DeliveryPages::new(Webhooks {
        state: args.state.map(|state| match state {
            DeliveryArg::Pending => DeliveryState::Pending,
            DeliveryArg::Delivered => DeliveryState::Delivered,
            DeliveryArg::Dead => DeliveryState::Dead,
        }),
        limit: Some(args.limit),
        before: args.before,
        ..Webhooks::default()
    });
    let (mut endpoints, mut deliveries) = (Vec::new(), Vec::new());
    loop {
        match pages.next(&mut client).await {
            Ok(Some(page)) if args.json => output::out_json(&page.line)?,
            Ok(Some(Reply { value, .. })) => {
                endpoints = value.endpoints;
                deliveries.extend(value.deliveries);
            }
            Ok(None) => break,
            Err(error) => return Ok(ask::tell(&error)),
        }
    }
    if !args.json {
        let style = Style::of_stdout();
        output::out(&as_text(&endpoints, &deliveries, value::now_ms(), &style))?;
    }
    if let Some(before) = pages.next_before().filter(|_| !args.json) {
        output::note(&format!(
            "there are more: see them with `--before {before}`"
        ));
    }
    Ok(Exit::Done)
}

fn as_text(
    endpoints: &[EndpointRow],
    deliveries: &[DeliveryRow],
    now: i64,
    style: &Style,
) -> String {
    if endpoints.is_empty() && deliveries.is_empty() {
        return "no endpoint is configured: `agentctl webhook add URL`\n".to_owned();
    }
    let mut text = String::new();
    let rows: Vec<_> = endpoints.iter().map(endpoint).collect();
    let columns = [
        Column::cut("ENDPOINT", 16).that_stays(),
        Column::new("NETWORK"),
        Column::new("SECRETS"),
    ];
    text.push_str(&table(&columns, &rows, style));
    if !deliveries.is_empty() {
        let columns = [
            Column::new("DELIVERY").that_stays(),
            Column::new("STATE").that_stays(),
            Column::new("JOB"),
            Column::new("NEXT"),
            Column::new("ATTEMPTS"),
            Column::cut("URL", 16),
        ];
        let rows: Vec<_> = deliveries.iter().map(|row| delivery(row, now)).collect();
        let _ = write!(text, "\n{}", table(&columns, &rows, style));
        for row in deliveries {
            if let Some(error) = row
                .error
                .as_ref()
                .filter(|_| row.state != DeliveryState::Delivered)
            {
                let _ = writeln!(text, "{}: {}", safe(&row.webhook), safe(error));
            }
        }
    }
    text
}

fn endpoint(row: &EndpointRow) -> Vec<Cell> {
    let network = if row.allow_private { "any" } else { "public" };
    vec![
        row.url.as_str().into(),
        network.into(),
        row.secrets.to_string().into(),
    ]
}

fn delivery(row: &DeliveryRow, now: i64) -> Vec<Cell> {
    let tone = match row.state {
        DeliveryState::Pending => Tone::Waits,
        DeliveryState::Delivered => Tone::Good,
        DeliveryState::Dead => Tone::Bad,
    };
    let next = row.next_at.as_deref();
    vec![
        row.webhook.as_str().into(),
        Cell::toned(row.state.name(), tone),
        row.job.map_or("-".to_owned(), |job| job.to_string()).into(),
        next.map_or_else(|| "-".to_owned(), |at| value::relative(at, now))
            .into(),
        row.attempts.to_string().into(),
        row.url.as_str().into(),
    ]
}

async fn replay(args: ReplayWebhookArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = ask::daemon(socket).await?;
    let Some(webhook) = args.webhook else {
        let (count, ended) = replay_dead(&mut client, args.url.as_deref().unwrap_or("")).await;
        output::out_line(&match count {
            1 => "1 delivery goes out again now".to_owned(),
            count => format!("{count} deliveries go out again now"),
        })?;
        return Ok(ended.map_or_else(|error| ask::tell(&error), |()| Exit::Done));
    };
    ask::print(client.webhook_replay(&webhook).await, false, |webhook| {
        format!("{} goes out again now\n", safe(webhook))
    })
}

/// Sends again what was given up, to URLs that begin so; says how many, however it ended. One that is
/// given up once more meanwhile is not sent a second time.
async fn replay_dead(client: &mut Client, prefix: &str) -> (usize, Result<(), RequestError>) {
    let mut pages = DeliveryPages::new(Webhooks {
        state: Some(DeliveryState::Dead),
        ..Webhooks::default()
    });
    let mut count = 0;
    loop {
        let page = match pages.next(client).await {
            Ok(Some(page)) => page.value.deliveries,
            Ok(None) => return (count, Ok(())),
            Err(error) => return (count, Err(error)),
        };
        // A try has nothing to tell.
        let meant = |row: &&DeliveryRow| row.job.is_some() && row.url.starts_with(prefix);
        for row in page.iter().filter(meant) {
            if let Err(error) = client.webhook_replay(&row.webhook).await {
                return (count, Err(error));
            }
            count += 1;
        }
    }
}

async fn test(url: &str, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = ask::daemon(socket).await?;
    let webhook = client
        .webhook_test(url)
        .await
        .map_err(|error| ask::tell(&error))?
        .value;
    let asked = Webhooks {
        webhook: Some(webhook),
        ..Webhooks::default()
    };
    let begun = Instant::now();
    loop {
        let told = client
            .webhooks(&asked)
            .await
            .map_err(|error| ask::tell(&error))?
            .value;
        let row = told.deliveries.first();
        match row.map(|row| row.state) {
            Some(DeliveryState::Delivered) => {
                let status = row.and_then(|row| row.status).unwrap_or_default();
                output::out_line(&format!("it was taken: the receiver answered {status}"))?;
                return Ok(Exit::Done);
            }
            Some(DeliveryState::Dead) => {
                let why = row.and_then(|row| row.error.as_deref());
                let why = format!("it was not taken: {}", why.unwrap_or("nobody knows why"));
                output::error(&why, None);
                return Ok(Exit::Failed);
            }
            Some(DeliveryState::Pending) | None if begun.elapsed() < TRY_WITHIN => {
                tokio::time::sleep(LOOK).await;
            }
            Some(DeliveryState::Pending) | None => {
                let hint = "`agentctl webhook list` and `agentctl logs` say more";
                output::error("it is not known yet what came of it", Some(hint));
                return Ok(Exit::Failed);
            }
        }
    }
}

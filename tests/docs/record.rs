//! Recordings: the commands of `docs/recordings`, run, and what they printed as a picture.
//!
//! Owns how a recording is run and drawn, and what of it has to be the same the next time. A picture is
//! written with `AGENTD_RECORD=1` only, as by `cargo xtask record`; else it is compared.

use std::fmt::Write as _;
use std::path::Path;

use crate::chapter::{plain, shell};
use crate::root;
use crate::support::{Place, needs};

const LINE: usize = 20;
const LETTER: f64 = 8.0;
const COLUMNS: usize = 96;
/// At the end of a command's line.
const TIME: usize = 9;
/// Where the first line stands.
const TOP: usize = 52;

/// A command, what it printed, and how long it took.
struct Step {
    command: String,
    printed: String,
    took: String,
}

/// What is wrong with the pictures, if they aren't to be written.
pub fn all() -> Vec<String> {
    let writes = std::env::var_os("AGENTD_RECORD").is_some();
    let mut wrong = Vec::new();
    let mut scripts: Vec<_> = std::fs::read_dir(root().join("docs/recordings"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    scripts.sort();
    assert!(!scripts.is_empty(), "there are no recordings");
    for script in scripts {
        let name = script.file_stem().unwrap().to_str().unwrap().to_owned();
        let picture = root().join(format!("docs/src/images/{name}.svg"));
        let text = std::fs::read_to_string(&script).unwrap();
        if text.contains("python3") && needs("python3").is_none() {
            continue;
        }
        let done = record(&text).and_then(|steps| {
            let title = text
                .lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches("# ");
            let drawn = draw(title, &steps)?;
            if writes {
                std::fs::write(&picture, drawn).map_err(|error| error.to_string())?;
                return Ok(());
            }
            same(&drawn, &picture)
        });
        wrong.extend(done.err().map(|why| format!("{name}: {why}")));
    }
    wrong
}

/// The commands of a script: a line each, after a title; what stands behind `#: ` is done and not shown.
fn record(script: &str) -> Result<Vec<Step>, String> {
    let place = Place::new("");
    let mut shown = Vec::new();
    let mut whole = format!("set +x; ROOT='{}'\n", root().display());
    for (number, line) in script.lines().skip(1).enumerate() {
        if let Some(hidden) = line.strip_prefix("#: ") {
            whole.push_str(hidden);
        } else if !line.is_empty() {
            let file = place.path(&format!("step-{number}"));
            let file = file.display();
            let _written = write!(
                whole,
                "begun=$EPOCHREALTIME; {{ {line}\n}} >'{file}' 2>&1 || :; echo \"$begun $EPOCHREALTIME\" >'{file}.took'"
            );
            shown.push((line, number));
        }
        whole.push('\n');
    }
    shell(&place, &whole)?;
    let read = |name: String| std::fs::read_to_string(place.path(&name)).unwrap_or_default();
    Ok(shown
        .into_iter()
        .map(|(line, number)| Step {
            command: line.to_owned(),
            printed: read(format!("step-{number}")),
            took: between(&read(format!("step-{number}.took"))),
        })
        .collect())
}

/// From two times as bash writes them.
fn between(times: &str) -> String {
    let times: Vec<f64> = times
        .split_whitespace()
        .filter_map(|time| time.parse().ok())
        .collect();
    let [begun, ended] = times[..] else {
        return String::new();
    };
    match (ended - begun) * 1000.0 {
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1000.0),
    }
}

fn draw(title: &str, steps: &[Step]) -> Result<String, String> {
    let mut lines = String::new();
    let (mut row, mut at) = (0, 0.0);
    for step in steps {
        at += 0.7;
        let end = COLUMNS as f64 * LETTER;
        if step.command.chars().count() + TIME > COLUMNS {
            return Err(format!("leaves no room for its time: {}", step.command));
        }
        text(&mut lines, row, at, "c", &format!("$ {}", step.command))?;
        let _written = writeln!(
            lines,
            "<text class=\"t\" x=\"{end}\" y=\"{}\" text-anchor=\"end\" style=\"animation-delay:{:.1}s\">{}</text>",
            TOP + row * LINE,
            at + 0.3,
            step.took
        );
        row += 1;
        at += 0.3;
        for printed in step.printed.lines() {
            text(&mut lines, row, at, "o", printed)?;
            row += 1;
        }
    }
    let (width, height) = (COLUMNS as f64 * LETTER + 2.0 * 16.0, TOP + row * LINE);
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" xml:space=\"preserve\">
<title>{title}</title>
<style>
rect {{ fill: #16181d }}
text {{ font: 13px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #d6d8dd; white-space: pre; animation: shown 0.01s both }}
.c {{ fill: #8fd18f }}
.t, .n {{ fill: #7d828c }}
@keyframes shown {{ from {{ opacity: 0 }} to {{ opacity: 1 }} }}
@media (prefers-reduced-motion: reduce) {{ text {{ animation: none }} }}
</style>
<rect width=\"{width}\" height=\"{height}\" rx=\"8\"/>
<text class=\"n\" x=\"16\" y=\"24\">{title}</text>
{lines}</svg>
"
    ))
}

fn text(to: &mut String, row: usize, at: f64, class: &str, line: &str) -> Result<(), String> {
    if line.chars().count() > COLUMNS {
        return Err(format!("longer than {COLUMNS} columns: {line}"));
    }
    let escaped = line
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let _written = writeln!(
        to,
        "<text class=\"{class}\" x=\"16\" y=\"{}\" style=\"animation-delay:{at:.1}s\">{escaped}</text>",
        TOP + row * LINE
    );
    Ok(())
}

/// Shows the picture the same, but for times?
fn same(drawn: &str, picture: &Path) -> Result<(), String> {
    let kept = std::fs::read_to_string(picture).map_err(|error| error.to_string())?;
    let (drawn, kept) = (words(drawn), words(&kept));
    match drawn == kept {
        true => Ok(()),
        false => Err(format!(
            "it shows\n{kept}\nand this is printed now:\n{drawn}"
        )),
    }
}

/// What a person reads of it, without times.
fn words(picture: &str) -> String {
    let lines = picture.lines().filter_map(|line| {
        let rest = line.strip_prefix("<text class=\"")?;
        let (class, rest) = rest.split_once('"')?;
        let (_, text) = rest.strip_suffix("</text>")?.split_once('>')?;
        (class != "t").then_some(text)
    });
    plain(&lines.collect::<Vec<_>>().join("\n"))
}

//! A figure: what was measured, what the limit is, whether it holds.
//!
//! Owns arithmetic and layout. Must not know what the numbers are of.

use serde_json::json;

/// What is compared with the limit.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// Ours divided by the control.
    Ratio(f64),
    /// Ours minus the control, in the figure's unit.
    More(f64),
    /// Ours alone, in the figure's unit; the control is shown beside it.
    Alone(f64),
}

pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// One value per repetition.
    pub(crate) control: Vec<f64>,
    /// Measured right after the control of the same repetition.
    pub(crate) ours: Vec<f64>,
    pub(crate) limit: Limit,
    /// More that a reader wants to know.
    pub(crate) aside: String,
}

impl Figure {
    /// The median over the repetitions of what is compared.
    fn judged(&self) -> f64 {
        let pairs = self.ours.iter().zip(&self.control);
        let judged: Vec<f64> = pairs
            .map(|(ours, control)| match self.limit {
                Limit::Ratio(_) => ours / control,
                Limit::More(_) => ours - control,
                Limit::Alone(_) => *ours,
            })
            .collect();
        median(&judged)
    }

    pub(crate) fn holds(&self) -> bool {
        let (Limit::Ratio(limit) | Limit::More(limit) | Limit::Alone(limit)) = self.limit;
        self.judged() <= limit
    }

    fn verdict(&self) -> &'static str {
        if self.holds() { "PASS" } else { "FAIL" }
    }

    pub(crate) fn line(&self) -> String {
        let unit = self.unit;
        let judged = self.judged();
        let (found, limit) = match self.limit {
            Limit::Ratio(limit) => (format!("× {judged:.2}"), format!("≤ × {limit:.2}")),
            Limit::More(limit) => (
                format!("+ {judged:.2} {unit}"),
                format!("≤ + {limit:.2} {unit}"),
            ),
            Limit::Alone(limit) => (
                format!("{judged:.2} {unit}"),
                format!("≤ {limit:.2} {unit}"),
            ),
        };
        let (low, high) = range(&self.ours);
        let control = format!("{:.2} {unit}", median(&self.control));
        let ours = format!("{:.2} [{low:.2}–{high:.2}] {unit}", median(&self.ours));
        let (name, verdict, aside) = (self.name, self.verdict(), &self.aside);
        format!(
            "{name:<21} {control:>12}  {ours:>28}  {found:>12}  {limit:>14}  {verdict}  {aside}"
        )
        .trim_end()
        .to_owned()
    }

    pub(crate) fn json(&self) -> String {
        let (kind, limit) = match self.limit {
            Limit::Ratio(limit) => ("ratio", limit),
            Limit::More(limit) => ("more", limit),
            Limit::Alone(limit) => ("alone", limit),
        };
        json!({
            "figure": self.name, "unit": self.unit, "control": self.control, "ours": self.ours,
            "judged": self.judged(), "kind": kind, "limit": limit, "holds": self.holds(),
            "aside": self.aside,
        })
        .to_string()
    }
}

pub(crate) fn head() -> String {
    format!(
        "{:<21} {:>12}  {:>28}  {:>12}  {:>14}",
        "figure", "control", "ours, median [range]", "judged", "limit"
    )
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low, high)
}

pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let profile = if cfg!(debug_assertions) {
        "debug: figures of a debug build mean nothing"
    } else {
        "release"
    };
    format!(
        "{cores} cores, kernel {}, {profile}, load average {}",
        kernel.trim(),
        load()
    )
}

pub(crate) fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

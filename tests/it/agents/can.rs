//! What is expected of an agent, where agents differ: data, which each agent's own file fills in.

use std::time::Duration;

use agentd_daemon::adapter::Kind;
use serde_json::json;

/// What is expected of an agent, where agents differ.
pub struct Can {
    /// Where its turns run.
    pub turns: Turns,
    /// Its shell tool, as the trace names it; `None` of an agent that tells of no tools.
    pub tool: Option<&'static str>,
    /// Before which commands it asks.
    pub asks: Asks,
    /// What the model hears of a denied command contains this.
    pub denied: &'static str,
    /// The code for each HTTP status of the provider.
    pub errors: &'static [(u16, &'static str)],
    /// The code for a prompt that is too long; `None` where it is told as an answer.
    pub overflow: Option<&'static str>,
    /// Does a session go on that was killed in the minute in which it began?
    pub keeps_young: bool,
    /// What the provider refuses that is told as an answer: the model's directive, and what the
    /// answer contains.
    pub told: &'static [(&'static str, &'static str)],
    /// The `stop` or `code` of a turn whose model ends it so by its directives. Some agents go on by
    /// themselves, some don't tell.
    pub stops: &'static [(&'static str, &'static str)],
    /// What it takes besides text: `pixel.png`, `letter.pdf`, `notes.txt`.
    pub attached: &'static [&'static str],
    /// How its model hears of a tool `tides_low_water` of an MCP server `harbour`: by its name, where it
    /// doesn't have to search for it first.
    pub hears_of_tools: &'static str,
    /// Two models by which the agent may be told apart, as `provider` and `model`.
    pub models: [(Option<&'static str>, &'static str); 2],
    /// Does its process take another model between turns, though none with a turn?
    pub switches: bool,
    /// A mode of its own, and what its model is told in it.
    pub mode: Option<(&'static str, &'static str)>,
    /// The code of a turn beside another one of another session; `None` where both run.
    pub beside: Option<&'static str>,
    /// The HTTP statuses of the provider that it tries again for longer than anybody waits.
    pub tries_again: &'static [u16],
    /// The code of the next turns after a refusal, for a while; `None` where it goes on as if nothing
    /// had been.
    pub refusal_lasts: Option<&'static str>,
    /// The longest that one turn takes on a busy machine.
    pub patience: Duration,
}

impl Can {
    /// What its kind says of itself is what the suite expects of the agent.
    #[track_caller]
    pub fn agrees_with(&self, table: &str, label: &str) -> &'static Kind {
        let of_table = |kind: &&Kind| table.contains(&format!("kind = \"{}\"\n", kind.name()));
        let kind = Kind::ALL.iter().find(of_table).expect("a kind");
        let says = kind.describe(&[]);
        assert_eq!(self.tool.is_some(), says.tells.tools, "{label}: tools");
        let approves = says
            .tells
            .questions
            .iter()
            .any(|of| of.name() == "approval");
        assert!(self.asks == Asks::Never || approves, "{label}: questions");
        let takes: &[&str] = match format!("{:?}", says.attachments).as_str() {
            "Nothing" => &[],
            "Images" => &["pixel.png"],
            "Texts" => &["pixel.png", "notes.txt"],
            _ => &["pixel.png", "letter.pdf", "notes.txt"],
        };
        let more = self.attached.iter().find(|file| !takes.contains(file));
        assert_eq!(more, None, "{label}: attachments");
        assert!(says.tells.usage, "{label}: usage, which each scenario sees");
        let tells = |word: &str| {
            says.tells
                .stops
                .iter()
                .any(|stop| json!(stop) == json!(word))
        };
        let ends = self.stops.iter().map(|(_, word)| *word);
        let ends = ends.filter(|word| !word.contains('-'));
        for word in ends.chain(["end_turn", "cancelled"]) {
            assert!(tells(word), "{label}: {word}");
        }
        kind
    }
}

/// Before which commands an agent asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asks {
    /// Before each.
    Always,
    /// Before none.
    Never,
    /// Only before what it takes for dangerous, as this, which removes the directory named behind it.
    Before(&'static str),
}

/// What a process is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turns {
    /// One process goes from turn to turn, and tells what happens while it does.
    InOneProcess,
    /// Each turn is a process, which says everything when it ends.
    InOneEach,
}

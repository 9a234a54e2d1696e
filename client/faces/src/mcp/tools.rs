//! The tools: their names, what they say of themselves, and what they take.
//!
//! Owns their schemas. Each costs tokens in every conversation of a client, so they are short. Must
//! not know how a call is carried out.

use agentd_protocol::limits::MAX_DISPATCH;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::peer::{Peer, Revision};

/// Seconds that a tool waits when nobody says how long: clients give up after 60.
pub(super) const WAIT_S: f64 = 45.0;
/// More than anybody waits for a tool.
pub(super) const LONGEST_WAIT_S: f64 = 3600.0;

/// What can be called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tool {
    Ask,
    Dispatch,
    Collect,
    Steer,
    Cancel,
    Sessions,
    Agents,
    Jobs,
    History,
    Questions,
    Answer,
}

/// The work that a turn is.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Job {
    pub(super) prompt: String,
    pub(super) agent: Option<String>,
    pub(super) session: Option<String>,
    pub(super) provider: Option<String>,
    pub(super) model: Option<String>,
    pub(super) cwd: Option<String>,
}

/// `ask`: a job, and how long to wait.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ask {
    prompt: String,
    agent: Option<String>,
    session: Option<String>,
    provider: Option<String>,
    model: Option<String>,
    cwd: Option<String>,
    pub(super) wait_s: Option<f64>,
}

impl Ask {
    pub(super) fn job(self) -> Job {
        Job {
            prompt: self.prompt,
            agent: self.agent,
            session: self.session,
            provider: self.provider,
            model: self.model,
            cwd: self.cwd,
        }
    }
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dispatch {
    pub(super) jobs: Vec<Job>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Collect {
    pub(super) jobs: Vec<String>,
    pub(super) wait_s: Option<f64>,
    #[serde(default)]
    pub(super) any: bool,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct History {
    pub(super) session: String,
    pub(super) job: Option<String>,
    pub(super) after: Option<u64>,
}

/// The arguments of a call, as its tool takes them.
pub(super) fn arguments<T: DeserializeOwned>(given: &Map<String, Value>) -> Result<T, String> {
    // What a model leaves empty it often says as null.
    let given = given.iter().filter(|(_, value)| !value.is_null());
    let given: Map<String, Value> = given.map(|(k, v)| (k.clone(), v.clone())).collect();
    serde_json::from_value(Value::Object(given))
        .map_err(|why| format!("the arguments are wrong: {why}"))
}

impl Tool {
    const ALL: [Self; 11] = [
        Self::Ask,
        Self::Dispatch,
        Self::Collect,
        Self::Steer,
        Self::Cancel,
        Self::Sessions,
        Self::Agents,
        Self::Jobs,
        Self::History,
        Self::Questions,
        Self::Answer,
    ];

    /// Those that are offered. A model that answers what its own helper asks leave for is a hole: that
    /// is only for whoever wants it.
    pub(super) fn offered(answers: bool) -> impl Iterator<Item = Self> {
        let hidden = move |tool: &Self| !answers && matches!(tool, Self::Questions | Self::Answer);
        Self::ALL.into_iter().filter(move |tool| !hidden(tool))
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Dispatch => "dispatch",
            Self::Collect => "collect",
            Self::Steer => "steer",
            Self::Cancel => "cancel",
            Self::Sessions => "sessions",
            Self::Agents => "agents",
            Self::Jobs => "jobs",
            Self::History => "history",
            Self::Questions => "questions",
            Self::Answer => "answer",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Ask => "Ask an agent",
            Self::Dispatch => "Give work to agents",
            Self::Collect => "Collect results",
            Self::Steer => "Steer a running job",
            Self::Cancel => "Cancel a job",
            Self::Sessions => "List sessions",
            Self::Agents => "List agents",
            Self::Jobs => "List jobs",
            Self::History => "Read a session",
            Self::Questions => "List questions",
            Self::Answer => "Answer a question",
        }
    }

    // The first sentence is what clients search that load tools late.
    const fn description(self) -> &'static str {
        match self {
            Self::Ask => {
                "Asks another AI agent (Claude Code, Codex, pi and others) and returns its answer. Give \
                 `session` to go on with a conversation. After `wait_s` the job goes on, and `collect` \
                 has its result."
            }
            Self::Dispatch => {
                "Starts work of other AI agents in parallel and returns at once. `collect` has the results."
            }
            Self::Collect => {
                "Returns the results of jobs, waiting up to `wait_s` for them. Those in `pending` go on: \
                 collect them again."
            }
            Self::Steer => "Says a word to an agent amid its running job.",
            Self::Cancel => "Ends a job of an agent that runs or waits.",
            Self::Sessions => "Lists conversations with agents, those used last first.",
            Self::Agents => "Lists the AI agents that can be asked, and which one is the default.",
            Self::Jobs => "Lists jobs of agents and their states, newest first.",
            Self::History => {
                "Reads what was said in a session, oldest first. `next` of the answer is the `after` of \
                 the next page."
            }
            Self::Questions => "Lists what agents ask and nobody answered yet.",
            Self::Answer => "Answers a question of an agent, with one of the fields.",
        }
    }

    fn input(self) -> Value {
        let string = |what: &str| json!({"type": "string", "description": what});
        let job = json!({
            "prompt": string("What to do; it sees nothing else of this conversation"),
            "agent": string("Name from `agents`; else the default"),
            "session": string("Conversation to begin or go on with"),
            "provider": string("Model provider"),
            "model": string("Model"),
            "cwd": string("Directory to work in; else the project's"),
        });
        let wait = json!({"type": "number", "minimum": 0, "maximum": LONGEST_WAIT_S, "default": WAIT_S, "description": "Seconds to wait"});
        let id = || json!({"type": "string", "pattern": "^j[1-9][0-9]*$"});
        let (properties, required) = match self {
            Self::Ask => {
                let mut properties = job;
                properties["wait_s"] = wait;
                (properties, vec!["prompt"])
            }
            Self::Dispatch => {
                let one = object(&job, &["prompt"]);
                let jobs =
                    json!({"type": "array", "minItems": 1, "maxItems": MAX_DISPATCH, "items": one});
                (json!({"jobs": jobs}), vec!["jobs"])
            }
            Self::Collect => {
                let jobs = json!({"type": "array", "minItems": 1, "maxItems": MAX_DISPATCH, "items": id()});
                let any =
                    json!({"type": "boolean", "description": "Return when the first is done"});
                (
                    json!({"jobs": jobs, "wait_s": wait, "any": any}),
                    vec!["jobs"],
                )
            }
            Self::Steer => {
                let text = string("What to tell it");
                (json!({"job": id(), "text": text}), vec!["job", "text"])
            }
            Self::Cancel => (json!({"job": id()}), vec!["job"]),
            Self::Sessions => {
                let limit = json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 20});
                (
                    json!({"agent": {"type": "string"}, "cwd": {"type": "string"}, "limit": limit}),
                    vec![],
                )
            }
            Self::Agents => (json!({}), vec![]),
            Self::Jobs => {
                let states = [
                    "queued",
                    "held",
                    "running",
                    "completed",
                    "cancelled",
                    "failed",
                    "interrupted",
                ];
                let limit = json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 20});
                (
                    json!({"session": {"type": "string"}, "agent": {"type": "string"}, "state": {"type": "string", "enum": states}, "limit": limit}),
                    vec![],
                )
            }
            Self::History => (
                json!({"session": {"type": "string"}, "job": id(), "after": {"type": "integer"}}),
                vec!["session"],
            ),
            Self::Questions => (json!({"session": {"type": "string"}}), vec![]),
            Self::Answer => (
                json!({"question_id": {"type": "string"}, "approve": {"type": "boolean"}, "choice": {"type": "string"}, "text": {"type": "string"}}),
                vec!["question_id"],
            ),
        };
        object(&properties, &required)
    }

    // Enough for a client that checks, and for a model that reads it: each member says what it is.
    fn output(self) -> Value {
        let rows = |name: &str| json!({"type": "object", "properties": {name: {"type": "array", "items": {"type": "object"}}}});
        let page = |name: &str, next: &str| {
            let mut page = rows(name);
            page["properties"]["next"] = json!({"type": next});
            page
        };
        match self {
            Self::Ask => json!({"type": "object", "properties": ended(), "required": ["state"]}),
            Self::Dispatch => rows("jobs"),
            Self::Collect => json!({"type": "object", "properties": {
                "results": {"type": "array", "items": {"type": "object", "properties": ended()}},
                "pending": {"type": "array", "items": {"type": "string"}},
                "hint": {"type": "string"},
            }}),
            Self::Steer => json!({"type": "object", "properties": {"job": {"type": "string"}}}),
            Self::Cancel => {
                json!({"type": "object", "properties": {"jobs": {"type": "array", "items": {"type": "string"}}}})
            }
            Self::Sessions => rows("sessions"),
            Self::Agents => rows("agents"),
            Self::Jobs => page("jobs", "string"),
            Self::History => page("turns", "integer"),
            Self::Questions => rows("questions"),
            Self::Answer => {
                json!({"type": "object", "properties": {"question_id": {"type": "string"}}})
            }
        }
    }

    fn annotations(self) -> Value {
        match self {
            Self::Ask | Self::Dispatch => {
                json!({"readOnlyHint": false, "destructiveHint": false, "openWorldHint": true})
            }
            Self::Steer | Self::Cancel | Self::Answer => {
                json!({"readOnlyHint": false, "destructiveHint": false, "openWorldHint": false})
            }
            Self::Collect
            | Self::Sessions
            | Self::Agents
            | Self::Jobs
            | Self::History
            | Self::Questions => {
                json!({"readOnlyHint": true, "openWorldHint": false})
            }
        }
    }

    /// As `tools/list` has it.
    pub(super) fn definition(self, peer: &Peer) -> Value {
        let mut definition = json!({
            "name": self.name(),
            "title": self.title(),
            "description": self.description(),
            "inputSchema": self.input(),
            "outputSchema": self.output(),
            "annotations": self.annotations(),
        });
        if self == Self::Ask && peer.revision == Revision::November2025 {
            definition["execution"] = json!({"taskSupport": "optional"});
        }
        definition
    }
}

fn object(properties: &Value, required: &[&str]) -> Value {
    let mut object =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

/// What is told of a turn.
fn ended() -> Value {
    let string = || json!({"type": "string"});
    json!({
        "state": string(),
        "text": string(),
        "job": string(),
        "session": string(),
        "agent": string(),
        "model": string(),
        "stop": string(),
        "cost_usd": {"type": "number"},
        "usage": {"type": "object"},
        "code": string(),
        "error": string(),
        "hint": string(),
        "question": {"type": "object"},
        "truncated": {"type": "boolean"},
        "notes": {"type": "array", "items": string()},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mcp_tools_are_few_and_short() {
        let offered: Vec<&str> = Tool::offered(false).map(Tool::name).collect();
        let expected = "ask dispatch collect steer cancel sessions agents jobs history";
        assert_eq!(offered.join(" "), expected);
        assert_eq!(Tool::offered(true).count(), 11);
        let peer = Peer::default();
        let list: Vec<Value> = Tool::offered(false)
            .map(|tool| tool.definition(&peer))
            .collect();
        let bytes = json!(list).to_string().len();
        // Some four bytes a token, in every conversation of whoever has it.
        assert!(bytes < 9_000, "{bytes}");
    }

    #[test]
    fn mcp_arguments_are_what_the_schema_says() {
        let given = |value: Value| value.as_object().cloned().unwrap_or_default();
        for (value, why) in [
            (json!({}), "missing field `prompt`"),
            (json!({"prompt": 5}), "expected a string"),
            (json!({"prompt": "x", "wait_s": "soon"}), "expected f64"),
            (
                json!({"prompt": "x", "sesion": "y"}),
                "unknown field `sesion`",
            ),
        ] {
            let refused = arguments::<Ask>(&given(value)).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let empty = json!({"prompt": "x", "session": null, "wait_s": null});
        let read = arguments::<Ask>(&given(empty)).unwrap();
        assert_eq!((read.wait_s, read.job().session), (None, None));
    }
}

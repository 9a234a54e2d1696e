//! What an ssh key may do that may only send: which requests pass, and with which fields.
//!
//! Owns these rules; whoever has such a key is a stranger with a microphone. Must not know how lines
//! travel.

use std::path::{Path, PathBuf};

use agentd_protocol::envelope::Rejected;
use agentd_protocol::request::Send;
use agentd_protocol::request_table::SendOnlySshKey;
use agentd_protocol::toolset::{DELEGATE, plain};
use agentd_protocol::{Code, Envelope, Id, Request, RequestKind};
use serde_json::value::RawValue;

use crate::wire::encode_as;

/// The session that a key may name unless its line names others: the one that `voice` talks to.
pub const SESSION: &str = "main";

/// What sends may say that pass; everything else of a send passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SendOnly {
    /// The sessions that may be named, usually the one that `voice` talks to: what was said in others
    /// is not for whoever has the key. A send that names none begins one of its own.
    pub sessions: Vec<String>,
    /// The agents that may be named, the first where none is; any, without a list.
    pub agents: Vec<String>,
    /// The toolsets that may be named, all of them where none are; any, without a list.
    pub tools: Option<Vec<String>>,
    /// Directories in which a turn may work, and below; only the daemon's own choice, without any.
    pub cwd_roots: Vec<PathBuf>,
}

impl Default for SendOnly {
    fn default() -> Self {
        Self {
            sessions: vec![SESSION.to_owned()],
            agents: Vec::new(),
            tools: None,
            cwd_roots: Vec::new(),
        }
    }
}

impl SendOnly {
    /// The line to pass on in place of this one, without its newline.
    ///
    /// A send is written anew, of what was read of it: a field that is not known here may mean
    /// something to the daemon.
    ///
    /// # Errors
    /// What is answered in its place, to which `id`. What can't be read doesn't pass.
    pub fn pass(&self, line: &[u8]) -> Result<Vec<u8>, (Option<Id>, Rejected)> {
        let envelope = Envelope::parse(line)?;
        let kind = RequestKind::named(&envelope.kind);
        match kind.map_or(SendOnlySshKey::Refused, |kind| kind.rules().send_only) {
            SendOnlySshKey::Passes => return Ok(line.to_vec()),
            SendOnlySshKey::Checked => {}
            SendOnlySshKey::Refused => {
                let other = &envelope.kind;
                let error = format!("`{other}` is not allowed here: this way is for `send` only");
                return Err((envelope.id, Rejected::new(Code::Forbidden, error)));
            }
        }
        let passed = Request::decode(&envelope).and_then(|decoded| match decoded.request {
            Request::Send(mut send) => {
                self.restrict(&mut send)?;
                render(envelope.id.as_ref(), &send)
            }
            _ => Err(forbidden("this way is for `send` only".to_owned())),
        });
        passed.map_err(|rejected| (envelope.id, rejected))
    }

    fn restrict(&self, send: &mut Send) -> Result<(), Rejected> {
        if send.callback.is_some() {
            let error = "`callback` is not allowed here: this way is for `send` only";
            return Err(forbidden(error.to_owned()));
        }
        if send.mcp_servers.is_some() {
            let error = "`mcp_servers` is not allowed here: each is a program or an address";
            return Err(forbidden(error.to_owned()));
        }
        if send.attachments.iter().any(|one| one.path.is_some()) {
            let error = "`attachments`: a `path` of this machine is not allowed here";
            return Err(forbidden(error.to_owned()).hint("send the content as `data`"));
        }
        // Both lead to conversations by other names.
        if send.native.is_some() || send.parent.is_some() {
            return Err(forbidden(
                "`native` and `parent` are not allowed here".to_owned(),
            ));
        }
        if let Some(session) = &send.session
            && !self.sessions.contains(session)
        {
            let known = self.sessions.join("`, `");
            let error = format!("session {session:?} is not allowed here: expected `{known}`");
            return Err(forbidden(error));
        }
        for (name, cwd) in [("cwd", &send.cwd), ("cwd_if_new", &send.cwd_if_new)] {
            if let Some(cwd) = cwd
                && !self.is_within(Path::new(cwd))
            {
                return Err(forbidden(format!("`{name}` {cwd:?} is not allowed here")));
            }
        }
        self.restrict_agent(send)?;
        self.restrict_tools(send)
    }

    /// Is it a directory within one of those allowed, links followed?
    fn is_within(&self, cwd: &Path) -> bool {
        // Both anew each time: links may lead elsewhere by now.
        let Ok(real) = cwd.canonicalize() else {
            return false;
        };
        let mut roots = self.cwd_roots.iter();
        roots.any(|root| root.canonicalize().is_ok_and(|root| real.starts_with(root)))
    }

    fn restrict_agent(&self, send: &mut Send) -> Result<(), Rejected> {
        let Some(first) = self.agents.first() else {
            return Ok(());
        };
        let agent = send.agent.get_or_insert_with(|| first.clone());
        if self.agents.contains(agent) {
            return Ok(());
        }
        let known = self.agents.join("`, `");
        let error = format!("agent {agent:?} is not allowed here: expected `{known}`");
        Err(forbidden(error))
    }

    fn restrict_tools(&self, send: &mut Send) -> Result<(), Rejected> {
        let Some(tools) = &self.tools else {
            return self.restrict_delegation(send);
        };
        let named = send.toolsets.get_or_insert_with(|| tools.clone());
        match named.iter().find(|named| !tools.contains(named)) {
            None => Ok(()),
            Some(other) if tools.is_empty() => Err(forbidden(format!(
                "toolset {other:?} is not allowed here: turns run without tools"
            ))),
            Some(other) => Err(forbidden(format!(
                "toolset {other:?} is not allowed here: expected `{}`",
                tools.join("`, `")
            ))),
        }
    }

    /// With a list of agents and none of tools: what asks other agents leads around the first.
    fn restrict_delegation(&self, send: &Send) -> Result<(), Rejected> {
        let mut named = send.toolsets.iter().flatten();
        match named.find(|named| plain(named) == DELEGATE) {
            Some(named) if !self.agents.is_empty() => Err(forbidden(format!(
                "toolset {named:?} is not allowed here: it asks other agents"
            ))
            .hint("`--tools` on the key's line can list it")),
            _ => Ok(()),
        }
    }
}

fn forbidden(error: String) -> Rejected {
    Rejected::new(Code::Forbidden, error)
}

/// The send with its `id` as it came.
fn render(id: Option<&Id>, send: &Send) -> Result<Vec<u8>, Rejected> {
    let id = id.map(|id| RawValue::from_string(id.as_json().to_owned()));
    let line = id
        .transpose()
        .and_then(|id| encode_as("send", id, send))
        .map_err(|error| Rejected::new(Code::InvalidRequest, error.to_string()))?;
    Ok(line.into_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn passed(rules: &SendOnly, line: &Value) -> Result<Value, String> {
        let passed = rules.pass(line.to_string().as_bytes());
        passed
            .map(|line| serde_json::from_slice(&line).unwrap())
            .map_err(|(id, rejected)| {
                assert_eq!(rejected.code, Code::Forbidden, "{rejected:?}");
                assert_eq!(id.map(|id| id.as_json().to_owned()).as_deref(), Some("7"));
                rejected.error
            })
    }

    fn send(fields: Value) -> Value {
        let mut line = json!({"type": "send", "id": 7, "text": "hi"});
        for (name, value) in fields.as_object().unwrap() {
            line[name] = value.clone();
        }
        line
    }

    #[test]
    fn send_only_keeps_what_is_said() {
        let full = send(
            json!({"session": "main", "agent": "pi", "toolsets": ["web"],
            "attachments": [{"mime": "text/plain", "data": "aGk="}], "new_field": 1}),
        );
        let kept = passed(&SendOnly::default(), &full).unwrap();
        for (name, value) in full.as_object().unwrap() {
            let expected = (name != "new_field").then_some(value);
            assert_eq!(kept.get(name), expected, "{name}");
        }
        let ping = json!({"type": "ping", "id": 7});
        assert_eq!(passed(&SendOnly::default(), &ping), Ok(ping));
    }

    #[test]
    fn send_only_reads_no_file() {
        let with = |path| {
            send(json!({"attachments": [{"data": "aGk=", "mime": "text/plain"}, {"path": path}]}))
        };
        let error = passed(&SendOnly::default(), &with("/etc/passwd")).unwrap_err();
        assert!(error.contains("`path`"), "{error}");
        for path in ["relative", ""] {
            let line = with(path).to_string();
            assert!(SendOnly::default().pass(line.as_bytes()).is_err(), "{path}");
        }
    }

    #[test]
    fn send_only_works_within_its_roots() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("in")).unwrap();
        std::fs::create_dir(dir.path().join("root2")).unwrap();
        std::os::unix::fs::symlink(dir.path(), root.join("out")).unwrap();
        let rules = SendOnly {
            cwd_roots: vec![root.clone()],
            ..SendOnly::default()
        };
        let cases = [
            ("", true),
            ("in/", true),
            ("in/../in", true),
            ("..", false),
            ("in/../../root2", false),
            ("out", false),
            ("missing", false),
        ];
        for (cwd, allowed) in cases {
            for name in ["cwd", "cwd_if_new"] {
                let line = send(json!({name: root.join(cwd)}));
                assert_eq!(passed(&rules, &line).is_ok(), allowed, "{cwd}");
                assert!(passed(&SendOnly::default(), &line).is_err(), "{cwd}");
            }
        }
        let beside = send(json!({"cwd": dir.path().join("root2")}));
        assert!(passed(&rules, &beside).is_err());
    }

    #[test]
    fn send_only_names_its_sessions() {
        for session in ["private", "s1", "", "main "] {
            let line = send(json!({"session": session})).to_string();
            assert!(SendOnly::default().pass(line.as_bytes()).is_err());
        }
        let rules = SendOnly {
            sessions: vec!["kitchen".to_owned()],
            ..SendOnly::default()
        };
        assert!(passed(&rules, &send(json!({"session": "kitchen"}))).is_ok());
        assert!(passed(&rules, &send(json!({}))).is_ok());
        let error = passed(&rules, &send(json!({"session": "main"}))).unwrap_err();
        assert!(error.contains("expected `kitchen`"), "{error}");
        for other in [json!({"native": "x"}), json!({"parent": "j1"})] {
            assert!(passed(&rules, &send(other)).is_err());
        }
    }

    #[test]
    fn send_only_names_agents_and_tools() {
        let rules = SendOnly {
            agents: vec!["pi".to_owned(), "timmy".to_owned()],
            tools: Some(vec!["web".to_owned()]),
            ..SendOnly::default()
        };
        let silent = passed(&rules, &send(json!({}))).unwrap();
        assert_eq!(
            (&silent["agent"], &silent["toolsets"]),
            (&json!("pi"), &json!(["web"]))
        );
        let named = passed(&rules, &send(json!({"agent": "timmy", "toolsets": []}))).unwrap();
        assert_eq!(
            (&named["agent"], &named["toolsets"]),
            (&json!("timmy"), &json!([]))
        );
        assert!(passed(&rules, &send(json!({"agent": "claude"}))).is_err());
        for tools in [json!(["terminal"]), json!(["web", "file"])] {
            assert!(passed(&rules, &send(json!({"toolsets": tools}))).is_err());
            assert!(passed(&rules, &send(json!({"tools": tools}))).is_err());
        }
        let none = SendOnly {
            tools: Some(Vec::new()),
            ..SendOnly::default()
        };
        let silent = passed(&none, &send(json!({}))).unwrap();
        assert_eq!(silent["toolsets"], json!([]));
        assert!(passed(&none, &send(json!({"toolsets": ["web"]}))).is_err());
    }

    #[test]
    fn send_only_agents_have_no_way_to_delegate() {
        let delegating = send(json!({"agent": "timmy", "toolsets": ["file", "delegation"]}));
        let agents = vec!["timmy".to_owned()];
        let rules = |tools: Option<&str>| SendOnly {
            agents: agents.clone(),
            tools: tools.map(|tools| tools.split(',').map(str::to_owned).collect()),
            ..SendOnly::default()
        };
        let refused = passed(&rules(None), &delegating).unwrap_err();
        assert!(refused.contains("asks other agents"), "{refused}");
        assert!(passed(&rules(Some("file,delegation")), &delegating).is_ok());
        assert!(passed(&SendOnly::default(), &delegating).is_ok());
    }

    #[test]
    fn send_only_passes_nothing_unread() {
        let rules = SendOnly::default();
        for line in [
            &b"nonsense"[..],
            b"[]",
            b"{\"type\":\"send\",\"id\":7}",
            b"{\"type\":\"send\",\"id\":7,\"text\":\"a\",\"text\":\"b\"}",
            b"{\"type\":\"send\",\"id\":7,\"text\":\"a\",\"attachments\":7}",
            b"{\"type\":\"s\\u0074atus\",\"id\":7}",
        ] {
            assert!(rules.pass(line).is_err(), "{line:?}");
        }
        let callback = send(json!({"callback": {"url": "https://a.example/"}}));
        assert!(passed(&rules, &callback).is_err());
        let servers =
            send(json!({"mcp_servers": [{"type": "stdio", "name": "x", "command": "sh"}]}));
        assert!(passed(&rules, &servers).is_err());
    }
}

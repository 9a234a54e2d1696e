//! What stands in an editor's settings to have it start the face.
//!
//! Owns the entry of each editor. Must not read or write anybody's settings.

use std::fmt::Write as _;

use serde_json::json;

/// The entries of all editors that are known, for a program and its arguments.
#[must_use]
pub fn entries(program: &str, arguments: &[String]) -> String {
    let mut text = String::new();
    let zed = json!({"agent_servers": {"agentd": {"type": "custom", "command": program, "args": arguments, "env": {}}}});
    let jetbrains =
        json!({"agent_servers": {"agentd": {"command": program, "args": arguments, "env": {}}}});
    for (editor, place, entry) in [
        (
            "Zed",
            "settings.json (the action `zed: open settings file`)",
            pretty(&zed),
        ),
        (
            "JetBrains",
            "~/.jetbrains/acp.json (AI Chat, Configure ACP Agents)",
            pretty(&jetbrains),
        ),
        (
            "Neovim, with CodeCompanion",
            "its setup",
            neovim(program, arguments),
        ),
        (
            "Emacs, with agent-shell",
            "init.el",
            emacs(program, arguments),
        ),
    ] {
        let _infallible = write!(text, "{editor}: {place}\n\n{entry}\n\n");
    }
    text.truncate(text.trim_end().len());
    text
}

fn pretty(entry: &serde_json::Value) -> String {
    // A value of ours: nothing of it can't be written.
    serde_json::to_string_pretty(entry).unwrap_or_default()
}

/// A text as Lua, Emacs Lisp and JSON write it.
fn quoted(text: &str) -> String {
    json!(text).to_string()
}

fn neovim(program: &str, arguments: &[String]) -> String {
    let words = [program]
        .into_iter()
        .chain(arguments.iter().map(String::as_str));
    let words: Vec<String> = words.map(quoted).collect();
    format!(
        r#"require("codecompanion").setup({{
  adapters = {{
    acp = {{
      agentd = function()
        return require("codecompanion.adapters").extend("opencode", {{
          name = "agentd",
          formatted_name = "agentd",
          commands = {{ default = {{ {} }} }},
        }})
      end,
    }},
  }},
  interactions = {{ chat = {{ adapter = "agentd" }} }},
}})"#,
        words.join(", ")
    )
}

fn emacs(program: &str, arguments: &[String]) -> String {
    let program = quoted(program);
    let arguments: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
    format!(
        r#"(with-eval-after-load 'agent-shell
  (add-to-list
   'agent-shell-agent-configs
   (agent-shell-make-agent-config
    :identifier 'agentd
    :mode-line-name "agentd"
    :buffer-name "agentd"
    :shell-prompt "agentd> "
    :shell-prompt-regexp "agentd> "
    :client-maker
    (lambda (buffer)
      (agent-shell--make-acp-client
       :command {program}
       :command-params '({})
       :context-buffer buffer)))))"#,
        arguments.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acp_bootstrap_quotes_what_it_is_given() {
        let arguments = ["serve", "acp", "--agent", "a\"b"].map(str::to_owned);
        let text = entries("/opt/a b/agentctl", &arguments);
        assert_eq!(text.matches(r#""a\"b""#).count(), 4, "{text}");
        assert_eq!(text.matches(r#""/opt/a b/agentctl""#).count(), 4, "{text}");
        let zed = &text[text.find('{').unwrap()..text.find("\n\nJetBrains").unwrap()];
        let zed: serde_json::Value = serde_json::from_str(zed).unwrap();
        assert_eq!(zed["agent_servers"]["agentd"]["args"][1], "acp");
    }
}

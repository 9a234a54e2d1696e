//! Codex by its app-server.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Measured, Own, Pipe, words};
use crate::mock_model::MockModel;
use crate::place::Place;

pub(crate) const CODEX: Measured = Measured {
    name: "codex",
    prepare,
    program: "target/ci/codex/bin/codex",
    rest: Duration::ZERO,
};

fn prepare(program: &Path, place: &Place, model: &MockModel) -> (Own, String) {
    let dir = place.path("codex");
    std::fs::create_dir(&dir).unwrap();
    let config = format!(
        "model = \"mock-1\"\nmodel_provider = \"mock\"\ncheck_for_update_on_startup = false\n\
         [analytics]\nenabled = false\n[model_providers.mock]\nname = \"mock\"\nbase_url = \"{}\"\n\
         wire_api = \"responses\"\nrequest_max_retries = 0\nstream_max_retries = 0\n",
        model.url
    );
    std::fs::write(dir.join("config.toml"), config).unwrap();
    let (program, dir) = (program.to_str().unwrap(), dir.to_str().unwrap());
    let env = [("CODEX_HOME", dir)];
    let own = Own {
        argv: words(program, "app-server"),
        exec_form: Some(words(program, "exec --skip-git-repo-check")),
        env: super::owned(&env),
        open,
        prompt: |thread, number, text| {
            let input = json!([{"type": "text", "text": text}]);
            json!({"id": number + 10, "method": "turn/start", "params": {"threadId": thread, "input": input}})
                .to_string()
        },
        abort: |thread, said| {
            let params = json!({"threadId": thread, "turnId": said["params"]["turnId"]});
            json!({"id": 9, "method": "turn/interrupt", "params": params}).to_string()
        },
        says: |line| line["method"] == "item/agentMessage/delta",
        ends: |line| line["method"] == "turn/completed",
    };
    let table = super::table(
        "codex",
        &[program],
        "provider = \"mock\"\nmodel = \"mock-1\"",
        &env,
    );
    (own, table)
}

fn open(pipe: &mut Pipe) -> String {
    let client = json!({"name": "bench", "title": "bench", "version": "0"});
    let hello = json!({"id": 1, "method": "initialize", "params": {"clientInfo": client}});
    pipe.send(&hello.to_string());
    pipe.until(|line: &Value| line["id"] == 1);
    pipe.send(r#"{"method":"initialized"}"#);
    pipe.send(r#"{"id":2,"method":"thread/start","params":{}}"#);
    let started = pipe.until(|line: &Value| line["id"] == 2);
    started["result"]["thread"]["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

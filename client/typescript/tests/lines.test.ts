// The JSON Schema, held against a real daemon: each line is what it says, and has nothing else.

import assert from "node:assert/strict";
import { test } from "node:test";

import { AgentdError, type Askable, REQUESTS } from "../src/index.js";
import { sendFields } from "../src/wire.js";
import { DOCUMENT, wrong } from "./schema.js";
import { withDaemon } from "./support.js";

test("schema: it tells what is wrong with a line", () => {
  const pong = { type: "pong", id: 1 };
  assert.equal(wrong(pong, "PongLine"), undefined);
  assert.equal(wrong(pong, "Line"), undefined);
  for (const line of [{ ...pong, more: 1 }, { ...pong, seq: "1" }, { id: 1 }, { type: "ping" }, [], null]) {
    assert.notEqual(wrong(line, "PongLine"), undefined, JSON.stringify(line));
  }
  const answer = { type: "abort", ok: true, jobs: ["j1", "1"] };
  assert.match(String(wrong(answer, "AbortLine")), /jobs\[1\]: 1/);
});

test("schema: each answer of a daemon is what it says", async (t) => {
  const { place, harness } = await withDaemon(t);
  await harness.runSession("one [[tool ls]]", { session: "main", labels: { run: "7" } });
  await assert.rejects(harness.runSession("two [[error=rate-limit]]", { session: "main" }));
  const [later] = await harness.dispatchParallel([{ prompt: "a", start_at: "2099-01-01T00:00:00Z" }]);
  const asked = new Set<string>();
  const ask = async (kind: Askable, fields: object = {}): Promise<void> => {
    asked.add(kind);
    const row = DOCUMENT.requests[kind];
    assert.equal(wrong({ type: kind, id: 1, ...fields }, String(row?.request)), undefined, `what ${kind} asks`);
    const line = await harness.request(kind as "ping", fields as never);
    assert.equal(wrong(line, String(row?.answer)), undefined, JSON.stringify(line));
  };
  await ask("agents");
  await ask("backup", { path: place.path("copy.db") });
  await ask("collect", { jobs: ["j1", "j2", later], timeout: 0 });
  await ask("dispatch", { jobs: [sendFields({ prompt: "a" })] });
  await ask("drain", { deadline: 5, while_connected: true });
  await ask("export");
  await ask("hello", { client: "schema", protocol: 1 });
  await ask("jobs", { label: "run=7", limit: 5 });
  await ask("log_level");
  await ask("commands", { agent: "chaos" });
  await ask("models", { agent: "chaos" });
  await ask("ping");
  await ask("questions");
  await ask("route", { text: "a" });
  await ask("restart_worker", { agent: "chaos" });
  await ask("session.new", { session: "new", agent: "chaos" });
  await ask("set_model", { session: "new", model: "model-1" });
  await ask("session.rename", { session: "new", to: "newer" });
  await ask("session.resume", { session: "newer" });
  await ask("session.fork", { session: "main", to: "copy" });
  await ask("session.title", { session: "copy", title: "a copy" });
  await ask("session.list");
  await ask("session.history", { session: "main", events: true });
  await ask("session.search", { words: ["one"] });
  await ask("session.close", { session: "newer" });
  await ask("status", { workers: true });
  await ask("usage");
  await ask("usage", { by: "agent" });
  await ask("webhooks");
  await ask("cron.add", { name: "mine", cron: "0 9 * * 1-5", tz: "Europe/Berlin", send: { text: "a" } });
  await ask("cron.run", { schedule: "mine" });
  await ask("cron.pause", { schedule: "mine" });
  await ask("cron.edit", { schedule: "mine", set: { every: "30m", max_failures: 3, send: { text: "b" } } });
  await ask("cron.resume", { schedule: "mine" });
  await ask("cron.list");
  await ask("cron.runs", { schedule: "mine" });
  await ask("cron.remove", { schedule: "mine" });
  await ask("abort", { job: later });
  await ask("undrain");
  await ask("unsubscribe");
  await ask("shutdown");
  // What needs a turn that waits is asked below; the rest ends the daemon, or needs an endpoint.
  const others = ["answer", "compact", "daemon.stop", "send", "steer", "subscribe", "webhook.replay", "webhook.test"];
  assert.deepEqual([...asked, ...others].sort(), Object.keys(REQUESTS).sort());
});

test("schema: each line of a turn is what it says", async (t) => {
  const { harness } = await withDaemon(t);
  const kinds = new Set<string>();
  const look = (line: { type: string }): void => {
    kinds.add(line.type);
    assert.equal(wrong(line, "Line"), undefined, JSON.stringify(line));
  };
  for (const [prompt, agent] of [
    ["hello [[tool ls]] world", "timmy"],
    ["chaos:ask approval session", "chaos"],
    ["chaos:say first;steered", "chaos"],
    ["a [[error=rate-limit]]", "timmy"],
    ["chaos:say half;exit 9", "chaos"],
  ] as const) {
    const stream = harness.stream(prompt, { agent, on_question: "wait", session: `of-${agent}` });
    try {
      for await (const event of stream) {
        look(event);
        if (event.type === "question") {
          look(await harness.request("questions"));
          look(await harness.request("answer", { question_id: event.question_id, approve: true }));
        }
        if (event.type === "message_delta" && event.text === "first") {
          look(await harness.request("steer", { text: "left", session: "of-chaos" }));
        }
      }
    } catch (error) {
      // It failed, as it should.
      if (!(error instanceof AgentdError)) throw error;
    }
    look(stream.result?.raw as { type: string });
  }
  await harness.runSession("chaos:say a", { agent: "chaos", session: "long" });
  look(await harness.request("compact", { session: "long" }));
  for await (const event of harness.events({ after: 0 })) {
    look(event);
    if (event.type === "live") break;
  }
  const refusal: unknown = await harness.request("session.close", { session: "nobody" }).catch((error) => error.line);
  look(refusal as { type: string });
  const expected = ["accepted", "running", "message_start", "message_delta", "tool_start", "tool_end", "question"];
  for (const kind of [...expected, "question_closed", "note", "message_end", "error", "live", "compact", "steer"]) {
    assert.ok(kinds.has(kind), kind);
  }
});

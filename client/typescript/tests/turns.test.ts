// Turns, streams, sessions and lists against a real daemon.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as agentd from "../src/index.js";
import { type Event, Harness, type Question } from "../src/index.js";
import { DEADLINE_MS, LONG, withDaemon } from "./support.js";

test("turn: the whole result is there", async (t) => {
  const { harness } = await withDaemon(t);
  const result = await agentd.runSession("hello [[tool ls]]", {
    provider: "echo",
    timeoutMs: 300_000,
    labels: { run: "1" },
  });
  assert.equal(String(result), "hello");
  assert.deepEqual([result.stop, result.job, result.ok], ["end_turn", "j1", true]);
  assert.deepEqual(result.messages, [{ role: "assistant", content: "hello" }]);
  assert.equal(result.tool_trace[0]?.name, "ls");
  assert.deepEqual([result.cost.usd, result.cost.status, result.usage], [0, "actual", undefined]);
  assert.deepEqual([result.agent, result.provider, result.model], ["timmy", "echo", "scripted"]);
  assert.deepEqual([result.served_by, result.replayed, result.context], ["daemon", false, "new"]);
  assert.deepEqual((await harness.jobs({ label: "run=1" })).map((job) => job.job), ["j1"]);
  assert.deepEqual((await harness.status()).rpc.clients, { typescript: 1 });
});

test("turn: a failed one is an error of its code", async (t) => {
  const { harness } = await withDaemon(t);
  await assert.rejects(harness.runSession("a [[error=rate-limit]]"), (error: unknown) => {
    assert.ok(error instanceof agentd.RateLimitError);
    assert.deepEqual([error.job, error.retryable, error.result?.final_response], ["j1", true, "a"]);
    return true;
  });
  await assert.rejects(harness.runSession("a", { agent: "tmmy" }), (error: unknown) => {
    assert.ok(error instanceof agentd.UnknownAgentError);
    assert.equal(error.job, undefined);
    assert.match(String(error), /did you mean `timmy`\?/);
    return true;
  });
  await assert.rejects(harness.dispatch({ prompt: "a", colour: 5 } as agentd.Send), agentd.UnsupportedError);
  await assert.rejects(harness.runSession("   "), agentd.InvalidRequestError);
  await assert.rejects(harness.runSession(LONG, { timeoutMs: 200 }), agentd.TurnTimeoutError);
});

test("turn: the same key is the same job", async (t) => {
  const { harness } = await withDaemon(t);
  const many = Array.from({ length: 50 }, () => harness.runSession("once", { idempotency_key: "k" }));
  assert.deepEqual([...new Set((await Promise.all(many)).map((result) => result.job))], ["j1"]);
  assert.equal((await harness.runSession("once", { idempotency_key: "k" })).replayed, true);
  const other = harness.runSession("twice", { idempotency_key: "k" });
  await assert.rejects(other, agentd.IdempotencyConflictError);
});

test("stream: lines come while the turn runs", async (t) => {
  const { place, harness } = await withDaemon(t);
  const stream = harness.stream(`chaos:say one;wait-file ${place.path("gate")};say two`, { agent: "chaos" });
  const kinds: string[] = [];
  for await (const event of stream) {
    kinds.push(event.type);
    if (event.type === "message_delta" && event.text === "one") place.touch("gate");
  }
  assert.equal(kinds[0], "accepted");
  assert.equal(kinds.filter((kind) => kind === "message_delta").length, 2);
  assert.equal(stream.result?.final_response, "onetwo");
  const pieces: string[] = [];
  const said = harness.stream("a b c");
  for await (const piece of said.text()) pieces.push(piece);
  assert.equal(pieces.join(""), "a b c");
  assert.deepEqual(said.result?.notes.map((note) => note.code), ["echo"]);
});

test("stream: who leaves it early ends its turn", async (t) => {
  const { daemon, harness } = await withDaemon(t);
  const left = harness.stream(LONG);
  for await (const event of left) if (event.type === "message_delta") break;
  const disposed = harness.stream(LONG);
  await disposed.next();
  await disposed[Symbol.asyncDispose]();
  const text = harness.stream(LONG);
  for await (const piece of text.text()) if (piece) break;
  assert.deepEqual(await daemon.states(), ["cancelled", "cancelled", "cancelled"]);
  const [result] = await harness.collect([String(left.job)], { timeoutMs: DEADLINE_MS });
  assert.deepEqual([result?.stop, result?.final_response, result?.ok], ["cancelled", "a", false]);
});

test("stream: it is sent once whatever becomes of it", async (t) => {
  const { daemon, harness } = await withDaemon(t);
  const unsent = harness.stream(LONG);
  await unsent.abort();
  await assert.rejects(unsent.finish(), /was aborted/);
  const begun = harness.stream(LONG);
  await begun.next();
  // While somebody waits for a line.
  const waiting = assert.rejects(begun.finish(), /was aborted/);
  await begun.abort();
  await waiting;
  const failed = harness.stream("[[error=rate-limit]]");
  for (let turn = 0; turn < 2; turn += 1) await assert.rejects(failed.finish(), agentd.RateLimitError);
  const ended = harness.stream("a");
  await ended.finish();
  await ended.abort();
  assert.equal((await ended.finish()).final_response, "a");
  assert.deepEqual(await daemon.states(), ["completed", "failed", "cancelled"]);
});

test("signal: it aborts a turn wherever that is", async (t) => {
  const { daemon, harness } = await withDaemon(t);
  const reason = new Error("enough");
  await assert.rejects(harness.runSession(LONG, { signal: AbortSignal.abort(reason) }), reason);
  assert.deepEqual(await harness.jobs(), []);
  for (const ms of [0, 1, 2, 4, 8, 16, 32, 64]) {
    const signal = AbortSignal.timeout(ms);
    await assert.rejects(harness.runSession(LONG, { signal }), (error: unknown) => error === signal.reason);
  }
  const controller = new AbortController();
  const turn = harness.runSession(LONG, { signal: controller.signal });
  const [job] = await daemon.running();
  controller.abort();
  await assert.rejects(turn, { name: "AbortError" });
  assert.equal((await harness.collect([String(job?.job)]))[0]?.stop, "cancelled");
  assert.ok((await daemon.states()).every((state) => state === "cancelled"));
  const signal = AbortSignal.timeout(DEADLINE_MS);
  assert.equal((await harness.runSession("a", { signal })).final_response, "a");
});

test("signal: jobs go on when their collect is left", async (t) => {
  const { daemon, harness } = await withDaemon(t);
  const jobs = await harness.dispatchParallel([{ prompt: LONG }]);
  await daemon.running();
  const signal = AbortSignal.timeout(100);
  await assert.rejects(harness.collect(jobs, { signal }), (error: unknown) => error === signal.reason);
  assert.equal((await harness.job(String(jobs[0]))).state, "running");
  assert.deepEqual(await harness.abort({ job: String(jobs[0]) }), jobs);
});

test("signal: what a call that is left has handed in is taken back", async (t) => {
  const { daemon, harness } = await withDaemon(t);
  const sends = Array.from({ length: 20 }, () => ({ prompt: LONG }));
  let left = 0;
  for (const ms of [0, 1, 2, 3, 4, 6, 8, 12]) {
    const jobs = harness.dispatchParallel(sends, { signal: AbortSignal.timeout(ms) });
    await jobs.then(
      async (jobs) => void (await Promise.all(jobs.map((job) => harness.abort({ job })))),
      () => void (left += 1),
    );
  }
  assert.ok(left > 0);
  assert.ok((await daemon.states()).every((state) => state === "cancelled"));
});

test("session: its turns know of each other", async (t) => {
  const { harness } = await withDaemon(t);
  const session = await harness.session();
  assert.equal((await session.run("a")).context, "new");
  assert.equal((await session.run("b")).context, "continued");
  assert.deepEqual((await session.history()).map((turn) => turn.text), ["a", "b"]);
  await session[Symbol.asyncDispose]();
  await assert.rejects(session.close(), agentd.UnknownSessionError);
  const main = await harness.session("main", { agent: "chaos", cwd: "." });
  assert.equal((await main.run("chaos:count")).final_response, "1");
  await main[Symbol.asyncDispose]();
  assert.equal((await (await harness.session("main")).run("chaos:count")).final_response, "2");
  const rows = await harness.sessions({ agent: "chaos" });
  assert.deepEqual(rows.map((row) => [row.session, row.cwd]), [["main", process.cwd()]]);
  assert.deepEqual(await harness.sessions({ idleForMs: 3_600_000 }), []);
});

test("session: its model is listed and changed", async (t) => {
  const { harness } = await withDaemon(t);
  const models = await harness.models({ agent: "chaos" });
  assert.deepEqual(models.map((row) => [row.model, row.default]), [["model-0", true], ["model-1", false]]);
  const session = await harness.session("main", { agent: "chaos" });
  await session.run("chaos:say a");
  await session.setModel("model-1", { provider: "chaos" });
  assert.deepEqual((await session.models()).map((row) => row.default), [false, true]);
  const answer = await harness.request("set_model", { session: "main", model: "large", thinking: "low" });
  assert.deepEqual([answer.model, answer.thinking], ["large", "low"]);
  await assert.rejects(harness.setModel("nobody", "x"), agentd.UnknownSessionError);
  assert.deepEqual(await session.modes(), { modes: [], mode: undefined });
  await assert.rejects(session.setModel(undefined, { mode: "plan" }), agentd.UnsupportedError);
});

test("session: its turn is steered and it is shortened", async (t) => {
  const { daemon, harness } = await withDaemon(t);
  const session = await harness.session("s", { agent: "chaos" });
  const stream = session.stream("chaos:say first;steered");
  for await (const event of stream) {
    if (event.type === "message_delta" && event.text === "first") {
      assert.equal(await session.steer(" left"), stream.job);
    }
  }
  assert.equal(stream.result?.final_response, "first left");
  await assert.rejects(harness.steer("right", { job: "j1" }), agentd.SessionIdleError);
  await assert.rejects(harness.steer("right", {} as never), agentd.InvalidRequestError);
  assert.equal(await session.compact("names"), "short: names");
  const jobs = await harness.dispatchParallel(Array(2).fill({ prompt: LONG, session: "long" }));
  await daemon.running();
  const long = await harness.session("long");
  assert.deepEqual((await long.abort({ queued: true })).sort(), jobs);
});

test("question: it is seen and answered", async (t) => {
  const { harness } = await withDaemon(t);
  const ask = async (what: string, answer: (question: Question) => Promise<void>): Promise<string> => {
    const stream = harness.stream(`chaos:ask ${what}`, { agent: "chaos", on_question: "wait" });
    for await (const event of stream) {
      if (event.type !== "question") continue;
      const [question] = await harness.questions();
      assert.equal(question?.question_id, event.question_id);
      await answer(question as Question);
    }
    return String(stream.result);
  };
  const choice = await ask("choice", async (question) => {
    assert.deepEqual([question.kind, question.options], ["choice", ["left", "right"]]);
    await harness.answer(question, { choice: "left" });
    await assert.rejects(harness.answer(question.question_id, { cancel: true }), agentd.AlreadyAnsweredError);
  });
  assert.equal(choice, 'choice="left"');
  const scope = await ask("approval session", async (question) => {
    assert.deepEqual([question.tool_call_id, question.scopes], ["c1", ["once", "session"]]);
    await assert.rejects(harness.answer(question, { approve: true, scope: "always" }), agentd.InvalidRequestError);
    await harness.answer(question, { approve: true, scope: "session" });
  });
  assert.equal(scope, 'approve=truescope="session"');
});

test("lists: jobs, turns, agents and what was used", async (t) => {
  const { harness } = await withDaemon(t);
  await harness.runSession("one", { session: "main", labels: { run: "7" } });
  await assert.rejects(harness.runSession("two [[error=rate-limit]]", { session: "main" }));
  await harness.runSession("three", { session: "other" });
  assert.deepEqual((await harness.jobs()).map((job) => job.job), ["j3", "j2", "j1"]);
  assert.deepEqual((await harness.jobs({ limit: 2 })).map((job) => job.job), ["j3", "j2"]);
  assert.equal((await harness.jobs({ limit: Infinity, sinceMs: 3_600_000 })).length, 3);
  const job = await harness.job("j2");
  assert.deepEqual([job.state, job.code, job.session], ["failed", "rate-limit", "main"]);
  await assert.rejects(harness.job("j99"), agentd.UnknownJobError);
  await assert.rejects(harness.job("99"), agentd.InvalidRequestError);
  const turns = await harness.history("main");
  assert.deepEqual(turns.map((turn) => turn.final?.text), ["one", "two"]);
  assert.deepEqual((await harness.usage()).map((row) => [row.job, row.cost.usd]), [["j3", 0], ["j2", 0], ["j1", 0]]);
  const timmy = (await harness.agents()).find((agent) => agent.name === "timmy");
  assert.ok(timmy?.usable && timmy.default);
  await assert.rejects(harness.history("nobody"), /`harness\.sessions\(\)`|UnknownSession|no session/);
});

test("request: any has its one answer", async (t) => {
  const { harness } = await withDaemon(t);
  assert.equal((await harness.request("ping")).type, "pong");
  for (const kind of ["send", "subscribe"]) {
    await assert.rejects(harness.request(kind as "ping"), /several lines/);
  }
  await assert.rejects(harness.request("status", { id: 9 } as object), agentd.InvalidRequestError);
  await assert.rejects(harness.request("sing" as "ping"), agentd.UnknownCommandError);
});

test("events: all jobs are told from a cursor on", async (t) => {
  const { harness } = await withDaemon(t);
  await harness.runSession("a");
  const kinds: string[] = [];
  for await (const event of harness.events({ after: 0 })) {
    kinds.push(event.type);
    if (event.type === "live") break;
  }
  assert.equal(kinds[0], "accepted");
  assert.ok(kinds.includes("message_end"));
  await assert.rejects(harness.events({ after: 10_000 }).next(), agentd.CursorInvalidError);
  const signal = AbortSignal.timeout(100);
  const forEver = async (): Promise<void> => {
    for await (const event of harness.events({ signal })) void event;
  };
  await assert.rejects(forEver(), (error: unknown) => error === signal.reason);
});

test("stream: long texts and slow readers lose nothing", async (t) => {
  const { harness } = await withDaemon(t);
  const text = "\u00fc".repeat(200_000);
  assert.equal((await harness.runSession(text)).final_response, text);
  let length = 0;
  let other: Promise<agentd.Result> | undefined;
  for await (const event of harness.stream("chaos:emit 20000", { agent: "chaos" })) {
    if (event.type !== "message_delta") continue;
    length += Buffer.byteLength(event.text);
    // Nobody else waits for it meanwhile.
    other ??= harness.runSession("b");
    if ((await other).final_response !== "b") assert.fail();
  }
  assert.equal(length, Array.from({ length: 20_000 }, (_, n) => `d${n} `).join("").length);
});

test("jobs: several agents work at once and one dies", async (t) => {
  const { harness } = await withDaemon(t);
  const jobs = await harness.dispatchParallel([
    { agent: "timmy", prompt: "one" },
    { agent: "chaos", prompt: "chaos:say half;exit 9" },
    { agent: "chaos", prompt: "three" },
  ]);
  const results = await harness.collect(jobs, { timeoutMs: DEADLINE_MS });
  assert.deepEqual(results.map((result) => [result.job, result.ok]), [[jobs[0], true], [jobs[1], false], [jobs[2], true]]);
  assert.ok(results[1]?.error instanceof agentd.WorkerExitedError);
  assert.equal(results[1]?.final_response, "half");
  assert.throws(() => results[1]?.orThrow(), agentd.WorkerExitedError);
});

test("jobs: all are accepted or none", async (t) => {
  const { harness } = await withDaemon(t);
  const wrong = harness.dispatchParallel([{ prompt: "a" }, { prompt: "b", agent: "tmmy" }]);
  await assert.rejects(wrong, agentd.UnknownAgentError);
  assert.deepEqual(await harness.jobs(), []);
  assert.deepEqual(await harness.dispatchParallel([]), []);
});

test("jobs: more than one line takes are collected in order", async (t) => {
  const { harness } = await withDaemon(t);
  const jobs: string[] = [];
  for (let round = 0; round < 3; round += 1) {
    jobs.push(...(await harness.dispatchParallel(Array(100).fill({ prompt: "a" }))));
  }
  const order = [...jobs].reverse();
  const results = await harness.collect(order, { timeoutMs: DEADLINE_MS });
  assert.deepEqual(results.map((result) => result.job), order);
  const large = await harness.dispatchParallel(Array(5).fill({ prompt: "x".repeat(400_000), include: [] }));
  const whole = await harness.collect([...large, String(large[0])], { timeoutMs: DEADLINE_MS });
  assert.deepEqual(whole.map((result) => result.final_response.length), Array(6).fill(400_000));
});

test("jobs: what isn't done in time is named and goes on", async (t) => {
  const { place, harness } = await withDaemon(t);
  const jobs = await harness.dispatchParallel([
    { prompt: `chaos:wait-file ${place.path("gate")}`, agent: "chaos" },
    { prompt: "b" },
  ]);
  for await (const result of harness.asCompleted(jobs, { timeoutMs: DEADLINE_MS })) {
    assert.equal(result.job, jobs[1]);
    break;
  }
  await assert.rejects(harness.collect(jobs, { timeoutMs: 0 }), (error: unknown) => {
    assert.ok(error instanceof agentd.StillPendingError);
    assert.deepEqual([error.pending, error.results.map((result) => result.job)], [jobs.slice(0, 1), jobs.slice(1)]);
    return true;
  });
  place.touch("gate");
  const done: (string | undefined)[] = [];
  for await (const result of harness.asCompleted(jobs)) done.push(result.job);
  assert.deepEqual(done.sort(), jobs);
  await assert.rejects(harness.collect(["j99"]), agentd.UnknownJobError);
});

test("harness: a socket that is named is the one", async (t) => {
  const { place } = await withDaemon(t);
  process.env.AGENTD_SOCKET = place.path("nobody");
  const named = new Harness({ socket: place.socket, fallback: false });
  assert.equal((await named.runSession({ prompt: "a", agent: "timmy" })).final_response, "a");
  const event: IteratorResult<Event> = await named.stream("b").next();
  assert.equal(event.done, false);
});

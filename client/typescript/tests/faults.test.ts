// Daemons that die, servers that say strange things, and turns without a daemon.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";

import * as agentd from "../src/index.js";
import { Harness } from "../src/index.js";
import { ACCEPTED, type Answer, DEADLINE_MS, END, HELLO, LONG, PROGRAMS, Place, type Scripted, until, withDaemon } from "./support.js";

/** Processes that this one has started, but for the one that looks. */
function children(): string[] {
  const all = execFileSync("ps", ["-A", "-o", "ppid=,comm="], { encoding: "utf8" }).split("\n");
  const ours = all.map((line) => line.trim().split(/\s+/)).filter(([parent]) => parent === String(process.pid));
  return ours.map(([, name]) => String(name)).filter((name) => !/(^|\/)ps$/.test(name));
}

/** What a promise rejects with. */
async function failure<Kind extends Error>(
  promise: Promise<unknown>,
  kind: abstract new (...words: never[]) => Kind,
): Promise<Kind> {
  const error: unknown = await promise.then(
    () => assert.fail("it went well"),
    (error: unknown) => error,
  );
  assert.ok(error instanceof kind, String(error));
  return error;
}

test("kill -9: a stream goes on at the daemon that comes next", async (t) => {
  const { place, daemon, harness } = await withDaemon(t);
  const prompt = `chaos: say one; wait-file ${place.path("gate")}; say two`;
  const whole = harness.runSession(prompt, { agent: "chaos", retry: "auto" });
  const told: string[] = [];
  const stream = harness.stream(prompt, { agent: "chaos", retry: "auto" });
  const streamed = (async () => {
    for await (const piece of stream.text()) told.push(piece);
    return stream.finish();
  })();
  await daemon.running(2);
  await daemon.kill();
  place.touch("gate");
  await daemon.start();
  for (const result of [await whole, await streamed]) assert.equal(result.final_response, "onetwo");
  assert.equal((await harness.jobs()).length, 2);
  assert.equal(told.join(""), "onetwo");
});

test("kill -9: a key finds the turn when no daemon comes", async (t) => {
  const { daemon, harness } = await withDaemon(t);
  const turn = harness.runSession(LONG);
  const lost = failure(turn, agentd.OutcomeUnknownError);
  await daemon.running();
  await daemon.kill();
  const { job, key } = await lost;
  assert.equal(job, "j1");
  await daemon.start();
  const again = await failure(harness.runSession(LONG, { idempotency_key: key }), agentd.TurnInterruptedError);
  assert.deepEqual([again.job, again.result?.replayed], ["j1", true]);
});

test("kill -9: results are waited for over a restart", async (t) => {
  const { place, daemon, harness } = await withDaemon(t);
  const jobs = await harness.dispatchParallel([
    { prompt: "a" },
    { prompt: `chaos:wait-file ${place.path("gate")}`, agent: "chaos", retry: "auto" },
  ]);
  await harness.collect(jobs.slice(0, 1), { timeoutMs: DEADLINE_MS });
  const results = harness.collect(jobs);
  await daemon.running();
  await daemon.kill();
  await daemon.start();
  place.touch("gate");
  assert.deepEqual((await results).map((result) => [result.job, result.ok]), jobs.map((job) => [job, true]));
});

test("a stopped daemon is noticed", async (t) => {
  const { daemon } = await withDaemon(t);
  const harness = new Harness({ fallback: false, patienceMs: 300 });
  const lost = failure(harness.runSession(LONG), agentd.OutcomeUnknownError);
  await daemon.running();
  daemon.signal("SIGSTOP");
  try {
    assert.match((await lost).message, /sign of life/);
    const unanswered = await failure(harness.runSession("b"), agentd.UnreachableError);
    assert.match(unanswered.message, /not answered/);
  } finally {
    daemon.signal("SIGCONT");
  }
});

test("one-shot: without a daemon the turn runs once", async (t) => {
  new Place(t);
  const result = await agentd.runSession("hello", { agent: "timmy", idempotency_key: "k" });
  assert.deepEqual([result.final_response, result.served_by], ["hello", "oneshot"]);
  const raw = result.raw as { fallback_reason?: string };
  assert.equal(raw.fallback_reason, "no-socket");
  const again = await agentd.runSession("hello", { agent: "timmy", idempotency_key: "k" });
  assert.deepEqual([again.job, again.replayed], [result.job, true]);
});

test("one-shot: a turn that is left leaves nothing running", async (t) => {
  new Place(t);
  const harness = new Harness();
  const stream = harness.stream(LONG);
  for await (const event of stream) if (event.type === "message_delta") break;
  const [result] = await harness.collect([String(stream.job)], { timeoutMs: DEADLINE_MS });
  assert.equal(result?.stop, "cancelled");
  for (const ms of [0, 5, 20, 80]) {
    const signal = AbortSignal.timeout(ms);
    await assert.rejects(harness.runSession(LONG, { signal }), (error: unknown) => error === signal.reason);
  }
  await until(() => children().length === 0 || undefined, "the end of all that was started");
});

test("one-shot: without leave for it nothing happens", async (t) => {
  const place = new Place(t);
  const alone = await failure(new Harness({ fallback: false }).runSession("hello"), agentd.UnreachableError);
  assert.match(String(alone), /there is no socket.*`agentctl start`/s);
  const handed = await failure(new Harness().dispatchParallel([{ prompt: "a" }]), agentd.UnreachableError);
  assert.match(handed.message, /`dispatch` needs a daemon: cannot connect/);
  await failure(new Harness().steer("a", { job: "j1" }), agentd.UnreachableError);
  await failure(new Harness().events().next(), agentd.UnreachableError);
  assert.equal(place.hasStore(), false);
});

test("one-shot: why it can't start is passed on", async (t) => {
  const place = new Place(t);
  writeFileSync(place.path("config.toml"), "nonsense = [");
  assert.match((await failure(agentd.runSession("hello"), agentd.UnreachableError)).message, /config\.toml/);
  // Relative: as good as the current directory.
  process.chdir(PROGRAMS);
  process.env.PATH = ":.:";
  assert.match((await failure(agentd.runSession("hello"), agentd.UnreachableError)).message, /not on `PATH`/);
  const nowhere = new Harness({ agentctl: "/nowhere/agentctl" });
  assert.match((await failure(nowhere.runSession("x"), agentd.UnreachableError)).message, /\/nowhere\/agentctl/);
});

test("one-shot: what nobody runs is not waited for", async (t) => {
  const place = new Place(t);
  const done = String((await agentd.runSession("hello", { agent: "timmy" })).job);
  assert.equal(String((await new Harness().collect([done]))[0]), "hello");
  const daemon = await place.daemon();
  const [late] = await daemon.harness.dispatchParallel([{ prompt: "late", start_at: "2099-01-01T00:00:00Z" }]);
  await daemon.kill();
  const nobody = await failure(new Harness().collect([done, String(late)]), agentd.UnreachableError);
  assert.match(nobody.message, new RegExp(`run them: ${late}`));
  const pending = await failure(new Harness().collect([done, String(late)], { timeoutMs: 0 }), agentd.StillPendingError);
  assert.deepEqual(pending.results.map((one) => one.job), [done]);
});

/** A place with a scripted server, asked by a harness that never falls back. */
async function strange(place: Place, ...connections: Answer[][]): Promise<{ server: Scripted; harness: Harness }> {
  rmSync(place.socket, { force: true });
  const server = await place.scripted(...connections);
  return { server, harness: new Harness({ fallback: false, patienceMs: 1_000 }) };
}

test("server: a newer daemon is understood", async (t) => {
  const hello = { ...HELLO, version: "9.9.9", capabilities: ["send", "dream"], mood: "good" };
  const plan = { type: "plan", job: "j1", steps: [1], seq: 2 };
  const end = { ...END, karma: 3, cost: { usd: null, status: "donated" }, usage: { qubits: 1 } };
  const lines: Answer = ['{"type":"weather","sunny":true}\n', { ...ACCEPTED, new: 1 }, plan, end];
  const { harness } = await strange(new Place(t), [hello, lines]);
  const stream = harness.stream("x");
  const kinds: string[] = [];
  for await (const event of stream) kinds.push(event.type);
  assert.deepEqual(kinds, ["accepted", "plan"]);
  assert.deepEqual([(stream.result?.raw as { karma?: number }).karma, stream.result?.cost.status], [3, "donated"]);
});

test("server: another protocol gets no request", async (t) => {
  const { server, harness } = await strange(new Place(t), [{ ...HELLO, protocol: 2 }]);
  const other = await failure(harness.runSession("x"), agentd.UnreachableError);
  assert.match(other.message, /it speaks protocol 2/);
  assert.deepEqual(server.kinds(), ["hello"]);
});

test("server: a refused hello is told", async (t) => {
  const place = new Place(t);
  const full = { type: "error", code: "too-many-connections", error: "full" };
  const { harness } = await strange(place, [full]);
  await failure(harness.runSession("x"), agentd.TooManyConnectionsError);
  const draining = { type: "error", code: "draining", error: "stopping", retryable: true };
  for (const script of [[draining], [HELLO, draining]]) {
    const { harness } = await strange(place, script);
    assert.equal((await failure(harness.runSession("x"), agentd.DrainingError)).job, undefined);
  }
});

test("server: no answer after the request is an unknown outcome", async (t) => {
  const place = new Place(t);
  const lost = { type: "error", code: "outcome-unknown", error: "the daemon went" };
  const truncated = '{"type":"error","code":"truncated","error":"half a line"}\n';
  for (const [answer, job] of [
    [null, undefined],
    [[ACCEPTED, null], "j1"],
    ["nonsense\n", undefined],
    [`${"x".repeat(3_000_000)}\n`, undefined],
    [[ACCEPTED, lost], "j1"],
    [[ACCEPTED, truncated], "j1"],
    [lost, undefined],
  ] as [Answer, string | undefined][]) {
    const { harness } = await strange(place, [HELLO, answer]);
    const unknown = await failure(harness.runSession("x", { idempotency_key: "k" }), agentd.OutcomeUnknownError);
    assert.deepEqual([unknown.key, unknown.job], ["k", job], JSON.stringify(answer)?.slice(0, 40));
  }
  const { harness } = await strange(place, [HELLO, null]);
  const two = await failure(harness.dispatchParallel([{ prompt: "a" }, { prompt: "b" }]), agentd.OutcomeUnknownError);
  assert.deepEqual([two.keys.length, two.key], [2, undefined]);
});

test("server: what was lost is asked again with its keys", async (t) => {
  const place = new Place(t);
  const jobs = { type: "dispatch", ok: true, jobs: [{ job: "j1", session: "s", replayed: true }] };
  const handed = await strange(place, [HELLO, null], [HELLO, jobs]);
  assert.deepEqual(await handed.harness.dispatchParallel([{ prompt: "a" }]), ["j1"]);
  const [first, second] = handed.server.asked.filter((line) => line.type === "dispatch");
  assert.deepEqual(first?.jobs, second?.jobs);
  const sent = await strange(place, [HELLO, [ACCEPTED, null]], [HELLO, [{ ...ACCEPTED, replayed: true }, END]]);
  const stream = sent.harness.stream("x");
  const kinds: string[] = [];
  for await (const event of stream) kinds.push(event.type);
  assert.deepEqual([kinds, String(stream.result)], [["accepted"], "hi"]);
  // Another store knows nothing of it.
  const other = await strange(place, [HELLO, null], [{ ...HELLO, epoch: "other" }]);
  await failure(other.harness.runSession("x"), agentd.OutcomeUnknownError);
  assert.equal(other.server.kinds().filter((kind) => kind === "send").length, 1);
});

test("server: messages are told apart and replaced ones end", async (t) => {
  const delta = (message: number, text: string): object => ({ type: "message_delta", job: "j1", message, text });
  const lines = [
    delta(0, "half "),
    delta(0, "an ans"),
    { type: "message_start", job: "j1", message: 1, replaces: 0 },
    delta(0, "late"),
    delta(1, "whole "),
    delta(1, "answer"),
  ];
  const { harness } = await strange(new Place(t), [HELLO, [ACCEPTED, ...lines, END]]);
  const told: string[] = [];
  for await (const piece of harness.stream("x").text()) told.push(piece);
  assert.equal(told.join(""), "half an ans\n\nwhole answer");
});

test("server: strange answers are errors of this package", async (t) => {
  const place = new Place(t);
  const odd = await strange(place, [HELLO, { type: "dispatch", ok: true, jobs: [{}] }]);
  const unknown = await failure(
    odd.harness.dispatchParallel([{ prompt: "a", idempotency_key: "k" }]),
    agentd.OutcomeUnknownError,
  );
  assert.equal(unknown.key, "k");
  for (const answer of [{ type: "collect", ok: true }, { type: "collect", results: [1] }]) {
    const { harness } = await strange(place, [HELLO, answer]);
    await failure(harness.collect(["j1"]), agentd.UnreachableError);
  }
  for (const jobs of [5, ["j1"]]) {
    const { harness } = await strange(place, [HELLO, { type: "jobs", ok: true, jobs }]);
    assert.match((await failure(harness.jobs(), agentd.UnreachableError)).message, /can't be read/);
  }
  const end = `${JSON.stringify({ ...END, id: 1 })}\nnonsense\n`;
  const both = await strange(place, [HELLO, [ACCEPTED, end]]);
  assert.equal(String(await both.harness.runSession("x")), "hi");
});

test("server: one that always leaves is not asked for ever", async (t) => {
  const script: Answer[][] = Array.from({ length: 9 }, () => [HELLO, null]);
  const { server, harness } = await strange(new Place(t), ...script);
  const gone = await failure(harness.collect(["j1"]), agentd.UnreachableError);
  assert.match(gone.message, /ended before the answer/);
  assert.equal(server.kinds().filter((kind) => kind === "collect").length, 3);
});

test("server: a restart is waited for", async (t) => {
  // Closed before `hello` was answered, then served.
  const { harness } = await strange(new Place(t), [null], [HELLO, [ACCEPTED, END]]);
  assert.equal(String(await harness.runSession("x")), "hi");
});

test("server: a silent one isn't waited for for ever", async (t) => {
  const { harness } = await strange(new Place(t), []);
  const silent = await failure(harness.runSession("x"), agentd.UnreachableError);
  assert.match(silent.message, /`hello` was not answered/);
});

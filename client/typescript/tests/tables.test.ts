// The tables that all clients share: the fallback rule, paths, codes, framing.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync, mkdirSync } from "node:fs";
import { uptime } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { type Came, BadLine, Decoder, MAX_LINE, encode, sendFields } from "../src/wire.js";
import { MAX_SOCKET_PATH, Endpoint, NotConnected, placesOf } from "../src/endpoint.js";
import { type Fact, type Lock, decide } from "../src/fallback.js";
import { BY_CODE, ofLine } from "../src/refusals.js";
import { FrameTooLongError, InvalidRequestError, OutcomeUnknownError, Result, UnknownCodeError, VERSION } from "../src/index.js";
import { Place, REPOSITORY, fixture } from "./support.js";

const PACKAGE = join(REPOSITORY, "client", "typescript");

test("fallback: the rule is the table", () => {
  interface Row {
    fact: Fact;
    lock: Lock;
    waited_ms: number;
    fallback: string;
    decision: string;
    reason?: string;
  }
  const rows = fixture("fallback.json") as Row[];
  assert.ok(rows.length > 100);
  for (const row of rows) {
    const { choice, reason } = decide(row.fact, row.lock, row.waited_ms, row.fallback === "allowed");
    assert.deepEqual([choice, reason], [row.decision, row.reason], JSON.stringify(row));
  }
});

test("paths are found as everywhere", () => {
  interface Row {
    name: string;
    os: string;
    env: Record<string, string>;
    uid: number;
    run_user_is_ours: boolean;
    socket: string;
    state: string | null;
  }
  for (const row of fixture("paths.json") as Row[]) {
    const system = row.os === "macos" ? "darwin" : row.os;
    const places = placesOf(row.env, system, row.uid, row.run_user_is_ours);
    assert.equal(places.stateDir ?? null, row.state, row.name);
    if (!row.env.AGENTD_SOCKET) assert.equal(places.socket, row.socket, row.name);
  }
});

test("errors: each code of the protocol has a class", () => {
  const text = readFileSync(join(REPOSITORY, "client", "PROTOCOL.md"), "utf8").split("## 9. Codes")[1] ?? "";
  const codes = [...text.matchAll(/^\| `([a-z0-9-]+)` \| (?:yes|no) \|/gm)].map((found) => String(found[1]));
  assert.deepEqual(codes.sort(), Object.keys(BY_CODE).sort());
  for (const [code, kind] of Object.entries(BY_CODE)) {
    const error = ofLine({ type: "error", code, error: "no", hint: "yes", job: "j1", retryable: true });
    assert.ok(error instanceof kind);
    assert.deepEqual([error.code, error.hint, error.job, error.retryable], [code, "yes", "j1", true]);
  }
  const newer = ofLine({ type: "error", code: "on-fire", error: "hot" });
  assert.ok(newer instanceof UnknownCodeError);
  assert.deepEqual([newer.code, String(newer)], ["on-fire", "UnknownCodeError: hot"]);
});

test("errors: names that could be meant are told as they are", () => {
  const told = ofLine({ type: "error", code: "unknown-agent", error: "none", hint: "did you mean `status`?" });
  assert.equal(told.hint, "did you mean `status`?");
  const lists = ofLine({ type: "error", code: "unknown-session", error: "none", hint: "`session.list` lists them" });
  assert.equal(lists.hint, "`harness.sessions()` lists them");
  assert.match(String(new OutcomeUnknownError("lost", { keys: ["k"] })), /idempotency_key: error\.key/);
});

test("result: what an older daemon leaves out is empty", () => {
  const result = new Result({ type: "message_end", stop: "refusal", refusal: "no", text: "" });
  assert.deepEqual([result.refusal, result.ok, result.messages, result.usage], ["no", false, [], undefined]);
  assert.deepEqual(Result.of({ type: "message_end", cost: "free" }).cost, { usd: null, status: "unknown" });
});

test("package: version and licences are the repository's", () => {
  const manifest = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8")) as { version: string };
  assert.equal(manifest.version, VERSION);
  for (const name of ["LICENSE-APACHE", "LICENSE-MIT"]) {
    assert.equal(readFileSync(join(PACKAGE, name), "utf8"), readFileSync(join(REPOSITORY, name), "utf8"));
  }
});

test("wire: lines come out however they are cut", () => {
  const data = Buffer.from('{"a":1}\r\n\n{"b":"\u00fc"}\n{"c":3}\n{"d"');
  for (let size = 1; size <= data.length; size += 1) {
    const decoder = new Decoder();
    const lines: Came[] = [];
    for (let at = 0; at < data.length; at += size) lines.push(...decoder.push(data.subarray(at, at + size)));
    assert.deepEqual(lines, [{ a: 1 }, { b: "\u00fc" }, { c: 3 }], String(size));
  }
});

test("wire: what is no line ends the conversation", () => {
  for (const bad of ["nonsense\n", "[1]\n", "null\n", `${"[".repeat(100_000)}\n`]) {
    assert.throws(() => new Decoder().push(Buffer.from(bad)), BadLine);
  }
  assert.throws(() => new Decoder().push(Buffer.from([0xff, 0x0a])), BadLine);
  assert.throws(() => new Decoder().push(Buffer.alloc(MAX_LINE + 1, "x")), /longer/);
  const behind = new Decoder();
  assert.deepEqual(behind.push(Buffer.from('{"a":1}\nnonsense\n{"b":2}\n')), [{ a: 1 }]);
  assert.throws(() => behind.push(Buffer.from('{"c":3}\n')), BadLine);
  const long = Buffer.from(`{"x":"${"y".repeat(MAX_LINE - 100)}"}\n`);
  assert.equal(new Decoder().push(long).length, 1);
});

test("wire: what can't be written down is refused here", () => {
  for (const fields of [{ text: "\ud800" }, { since: NaN }, { a: () => 1 }, { a: 1n }, { id: 1 }, { type: "x" }]) {
    assert.throws(() => encode("send", 1, fields), InvalidRequestError);
  }
  assert.throws(() => encode("send", 1, { text: "x".repeat(16 * 1024 * 1024) }), FrameTooLongError);
  assert.equal(String(encode("ping", 1, { a: undefined, b: "\ud83d\ude00" })), '{"type":"ping","id":1,"b":"\u{1f600}"}\n');
});

test("send: it has a key, all messages, and says what it depends on", () => {
  const send = sendFields({
    prompt: "a",
    tools: ["file"],
    timeoutMs: 1500,
    start_at: new Date(0),
    cwd: "x",
    callback_url: "https://example.com/",
    attachments: [{ path: "plan.pdf" }],
    colour: 5,
    signal: AbortSignal.timeout(1),
  } as never);
  assert.match(send.idempotency_key, /^[0-9a-f]{32}$/);
  assert.deepEqual({ ...send, idempotency_key: "" }, {
    text: "a",
    toolsets: ["file"],
    timeout: 1.5,
    start_at: "1970-01-01T00:00:00.000Z",
    cwd: join(process.cwd(), "x"),
    callback: { url: "https://example.com/" },
    attachments: [{ path: join(process.cwd(), "plan.pdf") }],
    colour: 5,
    must: ["toolsets", "colour"],
    idempotency_key: "",
    include: ["messages"],
  });
  const wrong: object[] = [{}, { prompt: "a", id: 7 }, { prompt: "a", text: "b" }, { prompt: "a", timeoutMs: "5m" }];
  for (const one of wrong) assert.throws(() => sendFields(one as never), InvalidRequestError);
  assert.throws(() => sendFields({ prompt: "a", timeout: 5 } as never), /expected `timeoutMs`, in milliseconds/);
});

test("endpoint: what can't be connected to says why", async (t) => {
  const place = new Place(t);
  const fact = async (path: string): Promise<string> => {
    const error = await new Endpoint(path, undefined).connect().then(
      () => assert.fail("connected"),
      (error: unknown) => error,
    );
    assert.ok(error instanceof NotConnected, String(error));
    return error.fact;
  };
  assert.equal(await fact(place.socket), "no-socket");
  assert.equal(await fact(`/tmp/${"x".repeat(MAX_SOCKET_PATH)}`), "unusable");
  place.touch("file");
  assert.equal(await fact(place.path("file")), "refused");
  if (process.getuid?.() === 0) {
    const { chownSync, chmodSync } = await import("node:fs");
    chownSync(place.path("file"), 65534, 65534);
    assert.equal(await fact(place.path("file")), "foreign-uid");
    chownSync(place.path("file"), 0, 0);
    chmodSync(place.dir, 0o777);
    assert.equal(await fact(place.path("file")), "foreign-uid");
    chmodSync(place.dir, 0o700);
    chownSync(place.dir, 65534, 65534);
    assert.equal(await fact(place.path("file")), "foreign-uid");
  }
});

test("lock: it counts while a living process holds it", async (t) => {
  const place = new Place(t);
  mkdirSync(place.path("state"));
  const path = place.path("state/daemon.lock");
  const endpoint = new Endpoint(place.socket, path);
  const held = { pid: process.pid, socket: place.socket, state: "running" };
  writeFileSync(path, JSON.stringify(held));
  // This process lives, and hasn't locked it.
  assert.equal(endpoint.lock(), "free");
  const now = uptime() * 1000;
  for (const [state, until, found] of [
    ["restarting", now + 30_000, "restarting"],
    ["stopping", now + 30_000, "free"],
    ["restarting", now - 1_000, "free"],
    ["restarting", now + 120_000, "free"],
    ["restarting", null, "free"],
  ]) {
    writeFileSync(path, JSON.stringify({ ...held, pid: 2 ** 31 - 1, state, until_boot_ms: until }));
    assert.equal(endpoint.lock(), found, `${state} ${until}`);
  }
  for (const broken of ["", "[]", "{}", '{"pid":-1,"socket":"s","state":"running"}']) {
    writeFileSync(path, broken);
    assert.equal(endpoint.lock(), "free", broken);
  }
});

test("lock: that of a daemon is seen, and leads to its socket", async (t) => {
  const place = new Place(t);
  const { harness } = await place.daemon();
  const endpoint = Endpoint.find(undefined);
  assert.equal(endpoint.lock(), "running");
  delete process.env.AGENTD_SOCKET;
  assert.equal(Endpoint.find(undefined).path, place.socket);
  assert.equal(Endpoint.find("/given").path, "/given");
  process.env.AGENTD_SOCKET = place.socket;
  assert.equal((await harness.runSession("a")).final_response, "a");
});

// The examples and the README, run as they are, by the package as it is installed.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { type TestContext, test } from "node:test";

import { DEADLINE_MS, Place, REPOSITORY, withDaemon } from "./support.js";

const PACKAGE = join(REPOSITORY, "client", "typescript");
/** Where `agentd` is installed, in `node_modules`. */
const INSTALLED = process.env.AGENTD_INSTALLED ?? "";
/** Where pi is, in both of its dialects. */
const PI = process.env.AGENTD_PI ?? join(REPOSITORY, "target", "ci", "pi");
/** Another one that runs programs. */
const BUN = process.env.AGENTD_BUN;

interface Ran {
  said: string;
  complained: string;
  code: number | null;
}

function run(program: string, words: readonly string[], cwd: string): Promise<Ran> {
  const child = spawn(program, words, { cwd, stdio: ["ignore", "pipe", "pipe"], timeout: DEADLINE_MS });
  const ran: Ran = { said: "", complained: "", code: null };
  child.stdout.on("data", (data: Buffer) => void (ran.said += String(data)));
  child.stderr.on("data", (data: Buffer) => void (ran.complained += String(data)));
  return new Promise((resolve, reject) => {
    child.on("error", reject).on("close", (code) => resolve({ ...ran, code }));
  });
}

/** A project that has the package. */
function project(place: Place): string {
  const dir = place.path("project");
  mkdirSync(join(dir, "node_modules"), { recursive: true });
  symlinkSync(join(INSTALLED, "node_modules", "agentd"), join(dir, "node_modules", "agentd"));
  return dir;
}

function blocks(document: string): string[] {
  const text = readFileSync(join(REPOSITORY, document), "utf8");
  return [...text.matchAll(/^```(?:ts|typescript)\n(.*?)^```$/gms)].map((found) => String(found[1]));
}

const OTHERS = `[agents.claude]
kind = "exec"
command = ["cat"]
[agents.pi]
kind = "exec"
command = ["cat"]
`;

for (const runtime of ["node", "bun"]) {
  const program = runtime === "node" ? process.execPath : BUN;
  const skip = program === undefined && "needs Bun";

  test(`README: its blocks run as they stand, with ${runtime}`, { skip }, async (t) => {
    const place = new Place(t, `default_agent = "timmy"\n[agents.timmy]\nprovider = "echo"\n${OTHERS}`);
    await place.daemon();
    const dir = project(place);
    const all = blocks("client/typescript/README.md");
    assert.ok(all.length >= 5, String(all.length));
    writeFileSync(join(dir, "readme.mjs"), all.join("\n"));
    const ran = await run(String(program), ["readme.mjs"], dir);
    assert.equal(ran.code, 0, ran.complained);
    assert.equal(ran.said.split("\n")[0], "hello", ran.said);
  });

  test(`README: its first block needs nothing at all, with ${runtime}`, { skip }, async (t) => {
    const place = new Place(t, "");
    const dir = project(place);
    const [first] = blocks("client/typescript/README.md");
    writeFileSync(join(dir, "first.mjs"), String(first));
    const ran = await run(String(program), ["first.mjs"], dir);
    assert.deepEqual([ran.said, ran.code], ["hello\n", 0], ran.complained);
  });

  test(`a daemon killed under a stream is followed, with ${runtime}`, { skip }, async (t) => {
    const { place, daemon } = await withDaemon(t);
    const dir = project(place);
    const prompt = `chaos: say one; wait-file ${place.path("gate")}; say two`;
    const script = `import { Harness } from "agentd";
      const stream = new Harness().stream(${JSON.stringify(prompt)}, { agent: "chaos", retry: "auto" });
      for await (const piece of stream.text()) process.stdout.write(piece);`;
    writeFileSync(join(dir, "streams.mjs"), script);
    const ran = run(String(program), ["streams.mjs"], dir);
    await daemon.running();
    await daemon.kill();
    place.touch("gate");
    await daemon.start();
    assert.deepEqual(await ran, { said: "onetwo", complained: "", code: 0 });
  });
}

test("docs: the block of the book runs", async (t) => {
  const place = new Place(t);
  await place.daemon();
  const dir = project(place);
  const all = blocks("docs/src/programs.md");
  assert.ok(all.length >= 1);
  writeFileSync(join(dir, "docs.mjs"), all.join("\n"));
  const ran = await run(process.execPath, ["docs.mjs"], dir);
  assert.deepEqual([ran.said.split("\n")[0], ran.code], ["hello []", 0], ran.complained);
});

interface Task {
  label: string;
  type: string;
  command: string;
  args: string[];
}

/** A task as VS Code runs it: comments are left out, and what stands in `${…}` is put in. */
async function task(label: string, dir: string, values: Record<string, string>): Promise<Ran> {
  const text = readFileSync(join(PACKAGE, "examples", "vscode", ".vscode", "tasks.json"), "utf8");
  const { tasks, inputs } = JSON.parse(text.replace(/^\s*\/\/.*$/gm, "")) as { tasks: Task[]; inputs: { id: string }[] };
  const found = tasks.find((one) => one.label === label);
  assert.equal(found?.type, "process");
  const args = found.args.map((word) =>
    word.replace(/\$\{([^}]+)\}/g, (_, name: string) => {
      if (name.startsWith("input:")) assert.ok(inputs.some((input) => `input:${input.id}` === name), name);
      return values[name] ?? assert.fail(`nothing for ${name}`);
    }),
  );
  return run(found.command, args, dir);
}

test("VS Code: its tasks run", async (t) => {
  const { place, harness } = await withDaemon(t);
  const dir = place.path("shop");
  mkdirSync(dir);
  const file = join(dir, "prices.txt");
  writeFileSync(file, "apples 3\n");
  const values = {
    workspaceFolder: dir,
    workspaceFolderBasename: basename(dir),
    file,
    relativeFile: "prices.txt",
    lineNumber: "1",
    selectedText: "apples $(touch 'x') \"3\"",
    "input:question": "What are these?",
    "input:fix": "a price",
  };
  const asked = await task("agentd: ask about this file", dir, values);
  assert.equal(asked.code, 0, asked.complained);
  assert.match(asked.said, /What are these\?/);
  const explained = await task("agentd: explain the selection", dir, values);
  assert.equal(explained.code, 0, explained.complained);
  // No shell reads it.
  assert.match(explained.said, /apples \$\(touch 'x'\) "3"/);
  assert.equal(existsSync(join(dir, "x")), false);
  const fixed = await task("agentd: fix this", dir, values);
  assert.equal(fixed.code, 0, fixed.complained);
  const [session] = (await harness.sessions()).filter((one) => one.session === "vscode-shop");
  assert.deepEqual([session?.cwd, session?.turns], [dir, 2]);
});

/** A model that asks an agent, and then says what it heard. */
async function model(t: TestContext): Promise<string> {
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    let body = "";
    request.on("data", (data: Buffer) => void (body += String(data)));
    request.on("end", () => {
      const { messages } = JSON.parse(body) as { messages: { role: string; content: unknown }[] };
      const heard = messages.filter((message) => message.role === "tool").pop();
      const call = { name: "ask_agent", arguments: '{"agent":"timmy","prompt":"what is 6 x 7"}' };
      const delta = heard
        ? { content: `it said: ${JSON.stringify(heard.content)}` }
        : { tool_calls: [{ index: 0, id: "c1", type: "function", function: call }] };
      const end = { index: 0, delta: {}, finish_reason: heard ? "stop" : "tool_calls" };
      response.setHeader("content-type", "text/event-stream");
      for (const choice of [{ index: 0, delta, finish_reason: null }, end]) {
        const chunk = { id: "m", object: "chat.completion.chunk", created: 0, model: "mock-1", choices: [choice] };
        response.write(`data: ${JSON.stringify(chunk)}\n\n`);
      }
      response.end("data: [DONE]\n\n");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
}

for (const version of ["0.73.1", "1.5.2"]) {
  const program = join(PI, `pi-${version}`, "bin", "pi");
  const skip = !existsSync(program) && `needs pi ${version}`;

  test(`pi ${version}: its extension asks another agent`, { skip }, async (t) => {
    const { place, harness } = await withDaemon(t);
    const extension = place.path("extension");
    cpSync(join(PACKAGE, "examples", "pi"), extension, { recursive: true });
    mkdirSync(join(extension, "node_modules"));
    cpSync(join(INSTALLED, "node_modules", "agentd"), join(extension, "node_modules", "agentd"), { recursive: true });
    mkdirSync(place.path("pi"));
    const provider = { baseUrl: await model(t), api: "openai-completions", apiKey: "none", models: [{ id: "mock-1" }] };
    writeFileSync(place.path("pi/models.json"), JSON.stringify({ providers: { mock: provider } }));
    const words = ["--mode", "rpc", "--no-session", "--provider", "mock", "--model", "mock-1", "-e", join(extension, "index.ts")];
    const modules = join(PI, "pi-0.73.1", "node_modules");
    const env = { ...process.env, PI_CODING_AGENT_DIR: place.path("pi"), PI_OFFLINE: "1", NODE_PATH: modules };
    const child = spawn(program, words, { cwd: place.dir, env, stdio: ["pipe", "pipe", "pipe"] });
    t.after(() => void child.kill("SIGKILL"));
    let complained = "";
    child.stderr.on("data", (data: Buffer) => void (complained += String(data)));
    const lines: Record<string, unknown>[] = [];
    let woken = (): void => undefined;
    createInterface(child.stdout).on("line", (line) => {
      lines.push(JSON.parse(line) as Record<string, unknown>);
      woken();
    });
    /** The first line that is so, from now on or before. */
    const line = async (what: string, is: (line: Record<string, unknown>) => boolean): Promise<Record<string, unknown>> => {
      const timeout = AbortSignal.timeout(DEADLINE_MS);
      for (;;) {
        const found = lines.find(is);
        if (found) return found;
        if (timeout.aborted || child.exitCode !== null) {
          assert.fail(`no ${what}: ${complained} ${JSON.stringify(lines.slice(-5))}`);
        }
        await new Promise<void>((resolve) => {
          woken = resolve;
          setTimeout(resolve, 100);
        });
      }
    };
    child.stdin.write('{"id":"1","type":"prompt","message":"ask timmy"}\n');
    await line("end", (one) => one.type === "agent_end");
    const said = JSON.stringify(lines.filter((one) => one.type === "message_end"));
    assert.match(said, /it said: .*what is 6 x 7/);
    const [job] = await harness.jobs();
    assert.deepEqual([job?.agent, job?.state, job?.preview], ["timmy", "completed", "what is 6 x 7"]);
    child.stdin.write('{"id":"2","type":"prompt","message":"/ask timmy hello there"}\n');
    const told = await line("note", (one) => one.type === "extension_ui_request" && one.method === "notify");
    assert.equal(told.message, "hello there");
    child.stdin.write('{"id":"3","type":"prompt","message":"/ask nobody hello"}\n');
    const refused = await line("refusal", (one) => one.type === "extension_ui_request" && one.notifyType === "error");
    assert.match(String(refused.message), /UnknownAgentError: .*`nobody`/);
    assert.equal((await harness.jobs()).length, 2);
    assert.equal((await harness.status()).rpc.clients?.["pi-extension"], 2);
  });
}

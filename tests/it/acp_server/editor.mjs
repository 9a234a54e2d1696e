// An editor made with the protocol's own TypeScript SDK. Every line of the agent is held against the
// SDK's schema, those that the SDK itself takes as they come, too.
//
//   node editor.mjs DIR CWD AGENTCTL ARGUMENT…      DIR: where the SDK is installed
//
// Prints one JSON object: what it was told, in short.

import { spawn } from "node:child_process";
import { pathToFileURL } from "node:url";
import { Readable, Writable } from "node:stream";

const [dir, cwd, program, ...words] = process.argv.slice(2);
const sdk = `${dir}/node_modules/@agentclientprotocol/sdk/dist`;
const acp = await import(pathToFileURL(`${sdk}/v1/unstable/acp.js`));
const zod = await import(pathToFileURL(`${sdk}/v1/unstable/schema/zod.gen.js`));

const RESULTS = {
  initialize: "zInitializeResponse",
  "session/new": "zNewSessionResponse",
  "session/load": "zLoadSessionResponse",
  "session/resume": "zResumeSessionResponse",
  "session/list": "zListSessionsResponse",
  "session/close": "zCloseSessionResponse",
  "session/prompt": "zPromptResponse",
  "session/set_config_option": "zSetSessionConfigOptionResponse",
  "session/set_mode": "zSetSessionModeResponse",
};
const SAID = {
  "session/update": "zSessionNotification",
  "session/request_permission": "zRequestPermissionRequest",
  "$/cancel_request": "zCancelRequestNotification",
};

const child = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });
const asked = new Map();
const invalid = [];
let checked = 0;

function check(name, value, line) {
  const found = zod[name]?.safeParse(value);
  checked += 1;
  if (!found?.success) invalid.push({ name, line, why: found?.error.issues });
}

function heard(line) {
  const message = JSON.parse(line);
  if (message.method) {
    return check(SAID[message.method] ?? message.method, message.params, line);
  }
  if (message.error) return check("zError", message.error, line);
  check(RESULTS[asked.get(message.id)], message.result, line);
}

function watched(stream, each) {
  let rest = "";
  const decoder = new TextDecoder();
  return stream.pipeThrough(
    new TransformStream({
      transform(bytes, out) {
        rest += decoder.decode(bytes, { stream: true });
        const lines = rest.split("\n");
        rest = lines.pop();
        lines.filter(Boolean).forEach(each);
        out.enqueue(bytes);
      },
    }),
  );
}

const toAgent = new TransformStream({
  transform(bytes, out) {
    for (const line of new TextDecoder().decode(bytes).split("\n").filter(Boolean)) {
      const message = JSON.parse(line);
      if (message.method && message.id !== undefined) asked.set(message.id, message.method);
    }
    out.enqueue(bytes);
  },
});
// The SDK ends it by an abort.
toAgent.readable.pipeTo(Writable.toWeb(child.stdin)).catch(() => {});
const stream = acp.ndJsonStream(
  toAgent.writable,
  watched(Readable.toWeb(child.stdout), heard),
);

const told = { text: {}, kinds: [] };
let option = "once";
let onText = () => {};
const { agent, client } = acp.methods;

const app = acp
  .client({ name: "suite" })
  .onRequest(client.session.requestPermission, () => ({
    outcome: { outcome: "selected", optionId: option },
  }))
  .onNotification(client.session.update, ({ params }) => {
    const { sessionId, update } = params;
    if (!told.kinds.includes(update.sessionUpdate)) told.kinds.push(update.sessionUpdate);
    if (update.sessionUpdate === "agent_message_chunk") {
      told.text[sessionId] = (told.text[sessionId] ?? "") + update.content.text;
      onText();
    }
  });

const out = await app.connectWith(stream, async (ctx) => {
  const said = (session) => {
    const text = told.text[session];
    told.text[session] = "";
    return text;
  };
  const opened = await ctx.request(agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: { session: { notices: {} } },
  });
  const place = { cwd, mcpServers: [] };
  const { sessionId, configOptions } = await ctx.request(agent.session.new, place);
  const prompt = (text, session = sessionId) =>
    ctx.request(agent.session.prompt, { sessionId: session, prompt: [{ type: "text", text }] });
  const results = { agent: opened.agentInfo.name, options: configOptions.map((one) => one.id) };

  results.turn = (await prompt("chaos:say one;tool rw;note mind")).stopReason;
  results.said = said(sessionId);
  for (option of ["once", "reject"]) {
    await prompt("chaos:ask approval");
    results[option] = said(sessionId);
  }

  const begun = new Promise((resolve) => (onText = resolve));
  const endless = prompt("chaos:say half;sleep-ms 600000");
  const queued = prompt("chaos:say never");
  await begun;
  await ctx.notify(agent.session.cancel, { sessionId });
  results.cancelled = [(await endless).stopReason, (await queued).stopReason];
  said(sessionId);

  const both = await Promise.all([prompt("chaos:say a"), prompt("chaos:say b")]);
  results.both = [both.map((one) => one.stopReason), said(sessionId)];

  results.failed = await prompt("chaos:exit 9").catch((error) => [error.code, error.data?.code]);
  results.unknown = await prompt("x", "nope").catch((error) => error.code);
  results.method = await ctx.request("_x/y", {}).catch((error) => error.code);
  results.option = await ctx
    .request(agent.session.setConfigOption, { sessionId, configId: "model", value: "no" })
    .catch((error) => error.code);

  said(sessionId);
  await ctx.request(agent.session.load, { sessionId, ...place });
  results.loaded = said(sessionId);
  await ctx.request(agent.session.resume, { sessionId, ...place });
  const { sessions } = await ctx.request(agent.session.list, { cwd });
  results.listed = sessions.map((one) => one.sessionId === sessionId);
  await ctx.request(agent.session.close, { sessionId });
  return results;
});

child.stdin.end();
const code = await new Promise((resolve) => child.on("exit", resolve));
console.log(JSON.stringify({ ...out, kinds: told.kinds.sort(), checked, invalid, code }));

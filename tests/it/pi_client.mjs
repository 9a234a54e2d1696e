// pi's own RpcClient before the face: every method of it, and what came of each, as one line of JSON.
// That of pi 0.73 has some of them only.
// Its "node" is the face: the first of PATH, which is given `CLI --mode rpc …`.
import { pathToFileURL } from "node:url";

const [, , clientPath, cwd, path, agent] = process.argv;
const { RpcClient } = await import(pathToFileURL(clientPath));
const start = async (args = []) => {
    const client = new RpcClient({ cliPath: "cli", cwd, env: { PATH: path }, args: ["--agent", agent, ...args] });
    await client.start();
    return client;
};
const told = {};
const client = await start();
const kinds = [];
client.onEvent((event) => kinds.push(event.type));
const turn = async (message) => {
    const idle = client.waitForIdle();
    const disposition = await client.prompt(message);
    await idle;
    return disposition;
};
told.disposition = await turn("chaos:say one");
told.kinds = [...kinds];
told.text = await client.getLastAssistantText();
const state = await client.getState();
told.idle = state.isStreaming;
told.count = state.messageCount;
const settled = client.waitForIdle();
await client.prompt("chaos:say half;sleep-ms 600000");
await client.steer("left");
await client.followUp("chaos:say next");
told.pending = (await client.getState()).pendingMessageCount;
told.cleared = await client.clearQueue?.();
await client.abort();
await settled;
const messages = await client.getMessages();
told.roles = messages.map((message) => message.role);
told.stops = messages.filter((message) => message.role === "assistant").map((message) => message.stopReason);
told.forks = (await client.getForkMessages()).map((message) => message.text);
told.entries = (await client.getEntries?.())?.entries.length;
told.tree = (await client.getTree?.())?.tree.length;
told.stats = (await client.getSessionStats()).userMessages;
told.models = (await client.getAvailableModels()).length;
told.levels = await client.getAvailableThinkingLevels?.();
told.cycled = [await client.cycleModel(), await client.cycleThinkingLevel()];
await client.setThinkingLevel("low").catch(() => {});
await client.setSteeringMode("all");
await client.setFollowUpMode("one-at-a-time");
await client.setAutoCompaction(true);
await client.setAutoRetry(true);
await client.abortRetry();
await client.abortBash();
await client.setSessionName("a name");
told.name = (await client.getState()).sessionName;
told.commands = await client.getCommands();
const refused = (promise) => promise.then(() => "done", (why) => why.message);
told.refused = [
    await refused(client.bash("ls")),
    await refused(client.exportHtml()),
    await refused(client.setModel("p", "m")),
    await refused(client.switchSession("/no/such.jsonl")),
    await refused(client.fork("none")),
];
told.anew = await client.newSession();
told.empty = (await client.getMessages()).length;
told.back = await client.switchSession(state.sessionFile);
told.again = (await client.getForkMessages()).length;
await client.stop();
const next = await start(["--session", state.sessionFile]);
told.resumed = (await next.getState()).messageCount;
await next.stop();
console.log(JSON.stringify(told));

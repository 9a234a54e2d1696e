// pi asks the other agents of this machine, through agentd: a tool for its model, and `/ask AGENT PROMPT`
// for whoever sits before it.
//
// Install the package first (`npm install` in this directory), then `pi -e ./index.ts`, or copy the
// directory to `~/.pi/agent/extensions/`.

import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import { AgentdError, Harness, type Options } from "agentd";

interface Asked {
  agent: string;
  prompt: string;
  session?: string;
}

const PARAMETERS = {
  type: "object",
  properties: {
    agent: { type: "string", description: "Who is asked, as `claude`, `codex` or `timmy`" },
    prompt: { type: "string", description: "What it is to do; it knows nothing of this conversation" },
    session: { type: "string", description: "A conversation to go on with; by default a new one" },
  },
  required: ["agent", "prompt"],
  additionalProperties: false,
};

export default function (pi: ExtensionAPI): void {
  const harness = new Harness({ name: "pi-extension" });

  pi.registerTool({
    name: "ask_agent",
    label: "Ask an agent",
    description: "Hands a task to another AI agent on this machine, and gives its answer.",
    promptSnippet: "ask_agent: hand a task to another AI agent of this machine",
    // JSON Schema, which pi's own type for it doesn't say.
    parameters: PARAMETERS as never,
    async execute(_call, asked: unknown, signal, onUpdate, ctx) {
      const { agent, prompt, session } = asked as Asked;
      const options: Options = { agent, cwd: ctx.cwd, ...(session && { session }), ...(signal && { signal }) };
      const stream = harness.stream(prompt, options);
      let said = "";
      for await (const piece of stream.text()) {
        said += piece;
        onUpdate?.({ content: [{ type: "text", text: said }], details: { job: stream.job } });
      }
      const result = await stream.finish();
      const details = { job: result.job, session: result.session, model: result.model, cost: result.cost };
      return { content: [{ type: "text", text: result.final_response }], details };
    },
  });

  pi.registerCommand("ask", {
    description: "Ask another agent: /ask AGENT PROMPT",
    async handler(words: string, ctx) {
      const [, agent, prompt] = /^(\S+)\s+(.+)$/s.exec(words.trim()) ?? [];
      if (!agent || !prompt) {
        const usable = (await harness.agents()).filter((one) => one.usable).map((one) => one.name);
        return ctx.ui.notify(`expected /ask AGENT PROMPT, with one of ${usable.join(", ")}`, "warning");
      }
      try {
        const { final_response } = await harness.runSession(prompt, { agent, cwd: ctx.cwd });
        ctx.ui.notify(final_response, "info");
      } catch (error) {
        if (!(error instanceof AgentdError)) throw error;
        ctx.ui.notify(String(error), "error");
      }
    },
  });
}

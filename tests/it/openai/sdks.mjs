// What a program of OpenAI's client for node does; each line printed is what came of one thing.

const { default: OpenAI, APIError } = await import(process.env.OPENAI_MODULE);

const client = new OpenAI();
const tell = (name, value) => console.log(JSON.stringify([name, value]));
const messages = (content) => [{ role: "user", content }];

async function failure(name, call) {
  try {
    await call();
    tell(name, "no error");
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    tell(name, [error.constructor.name, error.status ?? null, error.code]);
  }
}

async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

async function chats() {
  tell("models", (await client.models.list()).data[0].id);
  tell("model", (await client.models.retrieve("timmy")).id);
  await failure("no model", () => client.models.retrieve("gpt-4o"));
  const said = await client.chat.completions.create({ model: "timmy", messages: messages("hello") });
  tell("chat", [said.choices[0].message.content, said.choices[0].finish_reason]);
  let text = "";
  let usage = null;
  const options = { stream: true, stream_options: { include_usage: true } };
  const asked = { model: "timmy", messages: messages("[[tool ls]] in pieces"), ...options };
  for await (const chunk of await client.chat.completions.create(asked)) {
    if (chunk.usage) usage = chunk.usage.total_tokens;
    // Not looked at before: every other chunk has one.
    else text += chunk.choices[0].delta.content ?? "";
  }
  tell("stream", [text.trim(), usage]);
  const helper = client.chat.completions.stream({ model: "timmy", messages: messages("[[tool ls]] helped") });
  tell("helper", (await helper.finalContent()).trim());
}

async function responses() {
  const first = await client.responses.create({ model: "timmy", input: "one" });
  tell("response", first.output_text);
  const second = await client.responses.create({ model: "timmy", input: "two", previous_response_id: first.id });
  tell("goes on", [second.output_text, second.previous_response_id === first.id]);
  tell("retrieve", (await client.responses.retrieve(second.id)).output_text);
  tell("input", (await client.responses.inputItems.list(second.id)).data[0].content[0].text);
  const stream = client.responses.stream({ model: "timmy", input: "[[tool ls]] helped" });
  const kinds = (await all(stream)).map((event) => event.type);
  const final = await stream.finalResponse();
  const calls = final.output.map((item) => item.type);
  const text = final.output_text.trim();
  tell("events", [kinds[0], kinds.at(-1), text, calls.includes("mcp_call"), calls.includes("function_call")]);
  const background = await client.responses.create({ model: "timmy", input: "a [[sleep 600000]]", background: true });
  tell("cancel", (await client.responses.cancel(background.id)).status);
  await client.responses.delete(second.id);
  await failure("deleted", () => client.responses.retrieve(second.id));
  const conversation = await client.conversations.create({});
  const kept = await client.responses.create({ model: "timmy", input: "kept", conversation: conversation.id });
  tell("conversation", [kept.output_text, kept.conversation.id === conversation.id]);
  const unknown = { model: "timmy", input: "x", previous_response_id: "resp_j999" };
  await failure("unknown", () => client.responses.create(unknown));
}

async function failing() {
  const text = "[[error=rate-limit]]";
  const chat = { model: "timmy", messages: messages(text) };
  await failure("chat", () => client.chat.completions.create(chat));
  await failure("stream", async () => all(await client.chat.completions.create({ ...chat, stream: true })));
  await failure("response", () => client.responses.create({ model: "timmy", input: text }));
  const events = await all(await client.responses.create({ model: "timmy", input: text, stream: true }));
  const failed = events.at(-1);
  tell("events", [failed.type, failed.response.error.code]);
}

async function slow() {
  const quick = new OpenAI({ timeout: 700 });
  const said = await quick.chat.completions.create({ model: "timmy", messages: messages("[[sleep 1500]] slow") });
  tell("chat", said.choices[0].message.content.trim());
}

await { chats, responses, failing, slow }[process.argv[2]]();

"""What a program of OpenAI's Python client does; each line printed is what came of one thing."""

import json
import sys

import openai
from openai import OpenAI

client = OpenAI()


def tell(name, value):
    print(json.dumps([name, value]), flush=True)


def failure(name, call):
    try:
        call()
        tell(name, "no error")
    except openai.APIStatusError as error:
        tell(name, [type(error).__name__, error.status_code, error.code])
    except openai.APIError as error:
        tell(name, [type(error).__name__, None, error.code])


def messages(text):
    return [{"role": "user", "content": text}]


def chats():
    tell("models", client.models.list().data[0].id)
    tell("model", client.models.retrieve("timmy").id)
    failure("no model", lambda: client.models.retrieve("gpt-4o"))
    said = client.chat.completions.create(model="timmy", messages=messages("hello"))
    tell("chat", [said.choices[0].message.content, said.choices[0].finish_reason])
    text, usage = "", None
    options = {"include_usage": True}
    for chunk in client.chat.completions.create(
        model="timmy", messages=messages("[[tool ls]] in pieces"), stream=True, stream_options=options
    ):
        if chunk.usage is not None:
            usage = chunk.usage.total_tokens
        else:
            # Not looked at before: every chunk has one.
            text += chunk.choices[0].delta.content or ""
    tell("stream", [text.strip(), usage])
    with client.chat.completions.stream(model="timmy", messages=messages("[[tool ls]] helped")) as stream:
        for _ in stream:
            pass
        tell("helper", stream.get_final_completion().choices[0].message.content.strip())


def responses():
    first = client.responses.create(model="timmy", input="one")
    tell("response", first.output_text)
    second = client.responses.create(model="timmy", input="two", previous_response_id=first.id)
    tell("goes on", [second.output_text, second.previous_response_id == first.id])
    tell("retrieve", client.responses.retrieve(second.id).output_text)
    tell("input", client.responses.input_items.list(second.id).data[0].content[0].text)
    kinds = []
    with client.responses.stream(model="timmy", input="[[tool ls]] helped") as stream:
        for event in stream:
            kinds.append(event.type)
        final = stream.get_final_response()
    calls = [item.type for item in final.output]
    tell("events", [kinds[0], kinds[-1], final.output_text.strip(), "mcp_call" in calls, "function_call" in calls])
    background = client.responses.create(model="timmy", input="a [[sleep 600000]]", background=True)
    tell("cancel", client.responses.cancel(background.id).status)
    client.responses.delete(second.id)
    failure("deleted", lambda: client.responses.retrieve(second.id))
    conversation = client.conversations.create()
    kept = client.responses.create(model="timmy", input="kept", conversation=conversation.id)
    tell("conversation", [kept.output_text, kept.conversation.id == conversation.id])
    failure("unknown", lambda: client.responses.create(model="timmy", input="x", previous_response_id="resp_j999"))


def failing():
    text = "[[error=rate-limit]]"
    failure("chat", lambda: client.chat.completions.create(model="timmy", messages=messages(text)))
    failure("stream", lambda: list(client.chat.completions.create(model="timmy", messages=messages(text), stream=True)))
    failure("response", lambda: client.responses.create(model="timmy", input=text))
    failed = list(client.responses.create(model="timmy", input=text, stream=True))[-1]
    tell("events", [failed.type, failed.response.error.code])


def slow():
    quick = OpenAI(timeout=0.7)
    said = quick.chat.completions.create(model="timmy", messages=messages("[[sleep 1500]] slow"))
    tell("chat", said.choices[0].message.content.strip())


{"chats": chats, "responses": responses, "failing": failing, "slow": slow}[sys.argv[1]]()

"""What a program of OpenAI's Python client does; each line printed is what came of one thing."""

import functools
import json
import os
import sys
import urllib.error
import urllib.request

import openai
from openai import OpenAI
from openai.types import ErrorObject, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.conversations import Conversation
from openai.types.responses import Response, ResponseItemList, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

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


def fetched(method, path, body=None):
    """The answer as it is, which the client's own reading would forgive."""
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
            "Content-Type": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


# What its types don't have, and where it stands. OpenAI answers with `store`, too.
OURS = {
    "ChatCompletionChunk": {"agentd"},
    "ChatCompletionMessage": {"reasoning_content"},
    "ChoiceDelta": {"reasoning_content"},
    "Response": {"store"},
}


def no_more(value):
    """Nothing that is no member of OpenAI's, but for what is ours on purpose."""
    if isinstance(value, BaseModel):
        name = type(value).__name__
        more = set(value.model_extra or {}) - OURS.get(name, set())
        assert not more, f"{name}: {more}"
        for member in value.model_fields_set - set(value.model_extra or {}):
            no_more(getattr(value, member))
    elif isinstance(value, list):
        for one in value:
            no_more(one)


# To make one of a large type takes as long as hundreds of checks.
adapter = functools.cache(TypeAdapter)


def fits(kind, value):
    no_more(adapter(kind).validate_python(value, strict=True))
    return value


def fits_each(kind, text):
    told = []
    for event in text.removesuffix("\n\n").split("\n\n"):
        data = [line.removeprefix("data: ") for line in event.splitlines() if line.startswith("data: ")]
        if data and data != ["[DONE]"]:
            value = json.loads(data[0])
            # An error has a place of its own in a stream.
            told.append(fits(ErrorObject, value["error"]) if "error" in value else fits(kind, value))
    return told


def types():
    chunks, events = [], []
    for model, prompt in [("timmy", "hello [[tool ls]] said"), ("timmy", "[[tool]] [[error=rate-limit]]"), ("thinker", "x")]:
        chat = {"model": model, "messages": messages(prompt)}
        whole = json.loads(fetched("POST", "/chat/completions", chat))
        fits(ErrorObject, whole["error"]) if "error" in whole else fits(ChatCompletion, whole)
        options = {"stream": True, "stream_options": {"include_usage": True}}
        chunks += fits_each(ChatCompletionChunk, fetched("POST", "/chat/completions", {**chat, **options}))
        asked = {"model": model, "input": prompt, "instructions": "be terse"}
        whole = json.loads(fetched("POST", "/responses", asked))
        # One that failed has an error and no response.
        if whole.get("object") == "response":
            fits(Response, whole)
        else:
            fits(ErrorObject, whole["error"])
        told = fits_each(ResponseStreamEvent, fetched("POST", "/responses", {**asked, "stream": True}))
        events += told
        path = "/responses/" + told[0]["response"]["id"]
        fits(Response, json.loads(fetched("GET", path)))
        events += fits_each(ResponseStreamEvent, fetched("GET", path + "?stream=true"))
        fits(ResponseItemList, json.loads(fetched("GET", path + "/input_items")))
    background = {"model": "timmy", "input": "[[sleep 600000]]", "background": True}
    begun = fits(Response, json.loads(fetched("POST", "/responses", background)))
    fits(Response, json.loads(fetched("POST", f"/responses/{begun['id']}/cancel")))
    for model in json.loads(fetched("GET", "/models"))["data"]:
        fits(Model, model)
    fits(Conversation, json.loads(fetched("POST", "/conversations", {})))
    for method, path, body in [
        ("GET", "/responses/resp_j999", None),
        ("POST", "/chat/completions", {}),
        ("POST", "/embeddings", {}),
        ("PUT", "/models", None),
    ]:
        fits(ErrorObject, json.loads(fetched(method, path, body))["error"])
    tell("chunks", sorted({chunk.get("object", "error") for chunk in chunks}))
    tell("of ours", any("agentd" in chunk for chunk in chunks))
    tell("events", sorted({event["type"] for event in events}))


parts = {"chats": chats, "responses": responses, "failing": failing, "slow": slow, "types": types}
parts[sys.argv[1]]()

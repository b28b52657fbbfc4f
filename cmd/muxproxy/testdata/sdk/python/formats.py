"""The checks of text completions and of the Responses API, which checks.py runs with its own."""

import json

import openai
import pytest
from checks import TEXT, Counted, client  # noqa: F401

TOOLS = [{"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}, "strict": False}]
CITIES = [{"city": "Paris"}, {"city": "Oslo <NO>"}]
ANSWER = "Paris is warmer than Oslo."


def complete(client, model, prompt="Hello,", **options):
    return client.sdk.completions.create(model=model, prompt=prompt, **options)


def respond(client, model, **options):
    return client.sdk.responses.create(model=model, **{"input": "Hi", **options})


def test_completions_json(client):
    done = complete(client, "openai", [15339, 11], echo=False, n=1)
    assert (done.choices[0].text, done.choices[0].finish_reason) == (" world.", "stop")
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (2, 3)


def test_completions_stream(client):
    chunks = list(complete(client, "openai", stream=True))
    assert "".join(c.choices[0].text for c in chunks) == " world."
    assert all(c.choices and "usage" not in c.model_fields_set for c in chunks), "usage that was not asked for"


def test_completions_stream_with_usage(client):
    chunks = list(complete(client, "openai", stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == 5


def test_completions_token_ids(client):
    extra = {"return_token_ids": True}
    done = complete(client, "vllm", extra_body=extra)
    assert done.choices[0].token_ids == [4969, 507, 13, 151645] and done.choices[0].prompt_token_ids == [9707, 11]
    chunks = list(complete(client, "vllm", stream=True, extra_body=extra))
    assert [i for c in chunks for i in c.choices[0].token_ids] == [4969, 507, 13, 151645]


def test_completions_broken_stream():
    with pytest.raises(openai.APIError):
        list(complete(Counted(max_retries=0), "stream-abort", stream=True))


def test_responses_json(client):
    done = respond(client, "openai")
    assert (done.output_text, done.status) == (TEXT, "completed")
    assert (done.usage.input_tokens, done.usage.output_tokens) == (19, 6)


def test_responses_stream(client):
    events = list(respond(client, "openai", stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == TEXT
    assert events[-1].type == "response.completed" and events[-1].response.output_text == TEXT


def test_responses_stream_helper(client):
    with client.sdk.responses.stream(model="openai", input="Hi") as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert {"response.output_text.delta", "response.completed"} <= kinds and final.output_text == TEXT


def called(response):
    assert [item.type for item in response.output] == ["reasoning", "function_call", "function_call"]
    assert response.output[0].summary[0].text == "**Comparing** two cities" and response.output[0].encrypted_content
    calls = response.output[1:]
    assert [json.loads(c.arguments) for c in calls] == CITIES
    return [{"type": "function_call_output", "call_id": c.call_id, "output": "18 °C"} for c in calls]


def test_responses_tools_in_two_turns(client):
    first = respond(client, "openai", tools=TOOLS, store=False, include=["reasoning.encrypted_content"])
    results = called(first)
    assert respond(client, "openai", tools=TOOLS, input=[{"role": "user", "content": "Hi"}, *first.output, *results]).output_text == ANSWER
    assert respond(client, "openai", tools=TOOLS, input=results, previous_response_id=first.id).output_text == ANSWER


def test_responses_tools_streamed_in_two_turns(client):
    events = list(respond(client, "openai", tools=TOOLS, stream=True))
    thought = "".join(e.delta for e in events if e.type == "response.reasoning_summary_text.delta")
    assert thought == "**Comparing** two cities"
    results = called(events[-1].response)
    second = list(respond(client, "openai", input=results, previous_response_id=events[-1].response.id, stream=True))
    assert second[-1].response.output_text == ANSWER


def test_responses_incomplete(client):
    done = respond(client, "responses-incomplete")
    assert (done.status, done.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert list(respond(client, "responses-incomplete", stream=True))[-1].type == "response.incomplete"


def test_responses_failed_stream(client):
    assert list(respond(client, "responses-failed", stream=True))[-1].type == "response.failed"


@pytest.mark.parametrize("model", ["responses-abort", "responses-no-terminal"])
def test_responses_broken_stream(client, model):
    kinds = []
    with pytest.raises(openai.APIError) as caught:
        for event in respond(client, model, stream=True):
            kinds.append(event.type)
    assert "response.completed" not in kinds and caught.value.body["code"] == "upstream_invalid"


def test_responses_of_another_session(client):
    known = respond(client, "openai")
    other = Counted("ONE_TURN")
    for param, options in {
        "previous_response_id": {"previous_response_id": known.id},
        "input[0].id": {"input": [{"type": "item_reference", "id": known.output[0].id}]},
        "background": {"background": True},
        "conversation": {"conversation": "conv_1"},
    }.items():
        other.requests = 0
        with pytest.raises(openai.BadRequestError) as caught:
            respond(other, "openai", **options)
        assert (caught.value.param, caught.value.code, other.requests) == (param, "invalid_request", 1)


def test_responses_stopped(client):
    with pytest.raises(openai.BadRequestError) as caught:
        respond(Counted("STOPPED"), "openai", stream=True)
    assert caught.value.code == "session_stopped" and caught.value.body["stop_condition"] == "admin_stop"

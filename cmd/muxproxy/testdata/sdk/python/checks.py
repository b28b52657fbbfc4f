"""Checks the official OpenAI SDK for Python against a running muxproxy.

Environment: OPENAI_BASE_URL, OPENAI_API_KEY and CHECK_KEY_{ENDED,STOPPED,ONE_TURN,CONTEXT,UNKNOWN}. Output: one JSON object a
line for each check, then a summary. Exit status: 0 all passed, 1 one failed, 2 environment incomplete. ../README.md has
the whole contract.
"""

import asyncio
import json
import os
import sys

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

KEYS = ("ENDED", "STOPPED", "ONE_TURN", "CONTEXT", "UNKNOWN")
MESSAGES = [{"role": "user", "content": "Hi"}]
TEXT = "Hello! How can I help?"
ANSWER = "It is 18 °C in Paris and 14 °C in København."
CALLS = [
    ("get_weather", {"city": "Paris"}),
    ("get_weather", {"city": "København"}),
    ("now", {}),
]
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("get_weather", "now")
]


class Counted:
    """An SDK client that counts the HTTP requests it makes."""

    def __init__(self, key="", **options):
        self.requests = 0
        http = openai.DefaultHttpxClient(event_hooks={"request": [self._count]})
        api_key = os.environ["CHECK_KEY_" + key] if key else os.environ["OPENAI_API_KEY"]
        self.sdk = OpenAI(api_key=api_key, http_client=http, **options)

    def _count(self, request):
        self.requests += 1

    def chat(self, model, **options):
        return self.sdk.chat.completions.create(model=model, **{"messages": MESSAGES, **options})


@pytest.fixture
def client():
    c = Counted(max_retries=0)
    yield c
    c.sdk.close()


def text_of(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def test_json(client):
    done = client.chat("openai")
    assert done.choices[0].message.content == TEXT
    assert done.choices[0].finish_reason == "stop"
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (19, 6)
    assert done.service_tier == "default" and done.system_fingerprint


def test_stream(client):
    chunks = list(client.chat("openai", stream=True))
    assert text_of(chunks) == TEXT
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(c.choices and "usage" not in c.model_fields_set for c in chunks), "usage that was not asked for"


def test_stream_with_usage(client):
    chunks = list(client.chat("openai", stream=True, stream_options={"include_usage": True}))
    assert text_of(chunks) == TEXT
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == 25
    assert all(c.usage is None and "usage" in c.model_fields_set for c in chunks[:-1])


def test_stream_helper(client):
    with client.sdk.chat.completions.stream(model="openai", messages=MESSAGES) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content == TEXT


def test_refusal(client):
    want = "I'm sorry, I can't assist with that."
    assert client.chat("openai-refusal").choices[0].message.refusal == want
    chunks = client.chat("openai-refusal", stream=True)
    assert "".join(c.choices[0].delta.refusal or "" for c in chunks) == want


def called(message):
    return [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls]


def merge(chunks):
    """Merges tool call deltas by index, as an agent does."""
    calls = {}
    for chunk in chunks:
        for delta in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            call = calls.setdefault(delta.index, {"type": "function", "function": {"name": "", "arguments": ""}})
            call["id"] = delta.id or call.get("id")
            call["function"]["name"] += delta.function.name or ""
            call["function"]["arguments"] += delta.function.arguments or ""
    return [calls[i] for i in sorted(calls)]


def results(calls):
    return [{"role": "tool", "tool_call_id": call_id, "content": "18 °C"} for call_id in calls]


def test_tools_in_two_turns(client):
    first = client.chat("openai", tools=TOOLS).choices[0]
    assert first.finish_reason == "tool_calls" and called(first.message) == CALLS
    messages = [*MESSAGES, first.message, *results(c.id for c in first.message.tool_calls)]
    assert client.chat("openai", tools=TOOLS, messages=messages).choices[0].message.content == ANSWER


def test_tools_streamed_in_two_turns(client):
    chunks = list(client.chat("openai", tools=TOOLS, stream=True))
    calls = merge(chunks)
    assert [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls] == CALLS
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    messages = [*MESSAGES, {"role": "assistant", "tool_calls": calls}, *results(c["id"] for c in calls)]
    assert text_of(client.chat("openai", tools=TOOLS, messages=messages, stream=True)) == ANSWER


def test_tools_with_the_stream_helper(client):
    with client.sdk.chat.completions.stream(model="openai", messages=MESSAGES, tools=TOOLS) as stream:
        assert called(stream.get_final_completion().choices[0].message) == CALLS


def test_logprobs(client):
    content = client.chat("openai", logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert "".join(t.token for t in content) == TEXT and len(content[0].top_logprobs) == 2
    chunks = client.chat("openai", logprobs=True, stream=True)
    tokens = [t.token for c in chunks for t in (c.choices[0].logprobs.content if c.choices[0].logprobs else [])]
    assert "".join(tokens) == TEXT


def test_two_choices(client):
    done = client.chat("openai", n=2)
    assert [c.message.content for c in done.choices] == ["Heads.", "Tails."]
    texts = ["", ""]
    for chunk in client.chat("openai", n=2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == ["Heads.", "Tails."]


def test_vllm_fields(client):
    done = client.chat("vllm", extra_body={"return_token_ids": True, "chat_template_kwargs": {"enable_thinking": True}})
    choice = done.choices[0]
    assert done.prompt_token_ids[0] == 151644 and done.prompt_logprobs is None and done.kv_transfer_params is None
    assert choice.token_ids[-1] == 151645 and len(choice.token_ids) == done.usage.completion_tokens
    assert choice.stop_reason is None and choice.message.reasoning_content == "The user greets."


def test_vllm_stream(client):
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(client.chat("vllm", stream=True, stream_options=options, extra_body={"return_token_ids": True}))
    assert len(chunks[0].prompt_token_ids) == 9
    ids = [i for c in chunks[1:] for choice in c.choices for i in choice.token_ids]
    assert len(ids) == 12 and ids[-1] == 151645
    deltas = [c.choices[0].delta for c in chunks if c.choices]
    assert "".join(getattr(d, "reasoning_content", "") for d in deltas) == "The user greets."
    assert text_of(chunks) == TEXT and [c.usage.completion_tokens for c in chunks][-2:] == [12, 12]


def test_sglang(client):
    done = client.chat("sglang")
    assert done.choices[0].matched_stop == 151645 and done.metadata["weight_version"] == "default"
    assert done.choices[0].message.reasoning_content is None
    chunks = list(client.chat("sglang", stream=True))
    assert text_of(chunks) == TEXT and chunks[-1].choices[0].matched_stop == 151645


@pytest.mark.parametrize("model", ["crlf", "cr", "mixed", "no-space", "comments", "event-lines", "no-final-blank"])
def test_framing(client, model):
    assert text_of(client.chat("stream-" + model, stream=True)) == TEXT


def test_split_runes(client):
    assert text_of(client.chat("stream-bytewise", stream=True)) == "北京😀👩‍👩‍👧naïve Ω≈ç"


@pytest.mark.parametrize("model", ["no-done", "no-finish-reason"])
def test_ends_that_are_clean(client, model):
    assert text_of(client.chat("stream-" + model, stream=True)) == TEXT


def test_models(client):
    assert "gpt-4.1-mini" in [m.id for m in client.sdk.models.list()]
    assert client.sdk.models.retrieve("gpt-4.1-mini").owned_by == "system"
    with pytest.raises(openai.NotFoundError):
        client.sdk.models.retrieve("gpt-nope")


def test_embeddings(client):
    made = client.sdk.embeddings.create(model="text-embedding-3-small", input="x", encoding_format="float")
    assert len(made.data[0].embedding) == 3


def test_request_id(client):
    raw = client.sdk.chat.completions.with_raw_response.create(
        model="openai", messages=MESSAGES, extra_headers={"X-Request-Id": "check-request-1"}
    )
    assert raw.headers["x-request-id"] == "check-request-1"
    assert client.chat("openai")._request_id


def refused(error, key, status, code):
    """Calls with another key and wants one request, the error type and the code."""
    c = Counted(key)
    with pytest.raises(error) as caught:
        c.chat("openai")
    assert caught.value.status_code == status and caught.value.code == code
    with pytest.raises(error):
        list(c.chat("openai", stream=True))
    assert c.requests == 2, "the SDK retried"
    return caught.value


def test_unknown_key(client):
    refused(openai.AuthenticationError, "UNKNOWN", 401, "invalid_api_key")


def test_ended_session(client):
    assert "ended" in refused(openai.APIStatusError, "ENDED", 410, "session_ended").message


def stop_condition(error):
    """Reads the field beside `error`, the only member of the body that the SDK keeps in `error.body`."""
    return error.response.json()["stop_condition"]


def test_stopped_session(client):
    assert stop_condition(refused(openai.BadRequestError, "STOPPED", 400, "session_stopped")) == "admin_stop"


def test_turn_limit(client):
    c = Counted("ONE_TURN")
    assert text_of(c.chat("openai", stream=True)) == TEXT
    with pytest.raises(openai.BadRequestError) as caught:
        c.chat("openai")
    assert caught.value.code == "session_stopped" and stop_condition(caught.value) == "max_turns" and c.requests == 2


def test_context_overflow(client):
    c = Counted("CONTEXT")
    with pytest.raises(openai.BadRequestError) as caught:
        c.chat("400-context-openai")
    assert caught.value.code == "context_length_exceeded" and caught.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as caught:
        c.chat("openai")
    assert stop_condition(caught.value) == "context_length" and c.requests == 2


def test_rate_limit_is_retried(client):
    c = Counted()
    assert c.chat("429-once").choices[0].message.content == TEXT and c.requests == 2


def test_rate_limit_is_passed_on(client):
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat("429")
    headers = caught.value.response.headers
    assert headers["retry-after"] == "1" and headers["x-ratelimit-remaining-requests"] == "0"
    assert caught.value.code == "rate_limit_exceeded"


@pytest.mark.parametrize(
    ("model", "error", "code"),
    [
        ("404", openai.NotFoundError, "model_not_found"),
        ("403", openai.PermissionDeniedError, "unsupported_country_region_territory"),
        ("500", openai.InternalServerError, None),
        ("401", openai.InternalServerError, "upstream_auth"),
        ("html", openai.InternalServerError, "upstream_invalid"),
        ("302", openai.InternalServerError, "upstream_invalid"),
        ("truncated-length", openai.InternalServerError, "upstream_invalid"),
        ("truncated-chunked", openai.InternalServerError, "upstream_invalid"),
    ],
)
def test_upstream_errors(client, model, error, code):
    with pytest.raises(error) as caught:
        client.chat(model)
    assert caught.value.code == code


@pytest.mark.parametrize("model", ["error-after-text", "error-first", "error-after-text-done"])
def test_error_in_the_stream(client, model):
    with pytest.raises(openai.APIError) as caught:
        list(client.chat("stream-" + model, stream=True))
    assert caught.value.message


@pytest.mark.parametrize("model", ["abort", "reset", "half-event", "no-terminal"])
def test_broken_stream_is_no_clean_end(client, model):
    chunks = []
    with pytest.raises(Exception) as caught:
        chunks.extend(client.chat("stream-" + model, stream=True))
    assert not isinstance(caught.value, json.JSONDecodeError), "events were glued together"


def test_silence_is_filled_with_keepalives(client):
    """Event ids make the SDK dispatch an event at every blank line, so a keepalive must not bring one (R19)."""
    assert text_of(client.chat("stream-ids-slow", stream=True)) == TEXT
    with client.sdk.chat.completions.with_streaming_response.create(
        model="stream-ids-slow", messages=MESSAGES, stream=True
    ) as raw:
        assert any(line.startswith(":") for line in raw.iter_lines()), "no keepalive was sent"


def test_large_bodies(client):
    big = "0123456789abcdef" * (1 << 19)
    assert client.chat("openai", messages=[{"role": "user", "content": big}], user="large").choices
    assert len(text_of(client.chat("stream-8mb-line", stream=True))) == 8 << 20


def test_parallel_calls(client):
    async def ask(sdk, n):
        if n % 2:
            done = await sdk.chat.completions.create(model="openai", messages=MESSAGES)
            return done.choices[0].message.content
        stream = await sdk.chat.completions.create(model="openai", messages=MESSAGES, stream=True)
        return text_of([chunk async for chunk in stream])

    async def main():
        async with AsyncOpenAI(max_retries=0) as sdk:
            return await asyncio.gather(*(ask(sdk, n) for n in range(32)))

    assert asyncio.run(main()) == [TEXT] * 32


def test_cancelled_stream(client):
    with client.chat("stream-hang", stream=True) as stream:
        assert next(iter(stream)).choices

    async def main():
        async with AsyncOpenAI(max_retries=0) as sdk:
            stream = await sdk.chat.completions.create(model="stream-hang", messages=MESSAGES, stream=True)
            reading = asyncio.create_task(anext(aiter(stream)))
            assert (await reading).choices
            reading = asyncio.create_task(anext(aiter(stream)))
            await asyncio.sleep(0.1)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading

    asyncio.run(main())
    assert client.chat("openai").choices, "the session still works"


def test_timeout(client):
    with pytest.raises(openai.APITimeoutError):
        client.sdk.with_options(timeout=0.5).chat.completions.create(model="silent", messages=MESSAGES)
    assert client.chat("openai").choices, "the session still works"


class Lines:
    """Prints the outcome of each check as a line of JSON."""

    checks = failed = 0

    def pytest_runtest_logreport(self, report):
        if report.when != "call" and report.passed:
            return
        self.checks += 1
        line = {"check": report.nodeid.partition("::test_")[2], "ok": report.passed, "seconds": round(report.duration, 3)}
        if not report.passed:
            self.failed += 1
            crash = getattr(report.longrepr, "reprcrash", None)
            line["error"] = f"line {crash.lineno}: {crash.message}" if crash else report.longreprtext
        print(json.dumps(line), flush=True)


def main(names):
    missing = [v for v in ["OPENAI_BASE_URL", "OPENAI_API_KEY", *("CHECK_KEY_" + k for k in KEYS)] if not os.environ.get(v)]
    if missing:
        print(json.dumps({"error": "not set: " + ", ".join(missing)}))
        return 2
    lines = Lines()
    quiet = ["-p", "no:terminal", "-p", "no:cacheprovider"]
    formats = os.path.join(os.path.dirname(os.path.abspath(__file__)), "formats.py")
    pytest.main([__file__, formats, *quiet, "-k", " or ".join(names)], plugins=[lines])
    print(json.dumps({"checks": lines.checks, "failed": lines.failed, "sdk": openai.__version__}))
    return 1 if lines.failed or not lines.checks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

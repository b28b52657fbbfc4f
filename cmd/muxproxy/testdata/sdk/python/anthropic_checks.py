"""Checks the official Anthropic SDK for Python against a running muxproxy.

Environment: ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY and CHECK_KEY_{ENDED,STOPPED,ONE_TURN,CONTEXT,UNKNOWN}. Output and exit
status are those of checks.py; ../README.md has the whole contract.
"""

import asyncio
import json
import os
import sys

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic
from checks import KEYS, Lines

MESSAGES = [{"role": "user", "content": "Hi"}]
TEXT = "Hello! How can I help?"
ANSWER = "It is 18 °C in Paris and 14 °C in København."
CALLS = [
    ("get_weather", {"city": "Paris"}),
    ("get_weather", {"city": "København"}),
    ("now", {}),
]
TOOLS = [{"name": name, "input_schema": {"type": "object", "properties": {}}} for name in ("get_weather", "now")]


class Counted:
    """An SDK client that counts the HTTP requests it makes."""

    def __init__(self, key="", **options):
        self.requests = 0
        http = anthropic.DefaultHttpxClient(event_hooks={"request": [self._count]})
        if "auth_token" not in options:
            options["api_key"] = os.environ["CHECK_KEY_" + key if key else "ANTHROPIC_API_KEY"]
        self.sdk = Anthropic(http_client=http, **options)

    def _count(self, request):
        self.requests += 1

    def ask(self, model, **options):
        return self.sdk.messages.create(model=model, **{"messages": MESSAGES, "max_tokens": 64, **options})

    def stream(self, model, **options):
        return self.sdk.messages.stream(model=model, **{"messages": MESSAGES, "max_tokens": 64, **options})


@pytest.fixture
def client():
    c = Counted(max_retries=0)
    yield c
    c.sdk.close()


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def text_of_events(events):
    deltas = (e.delta for e in events if e.type == "content_block_delta")
    return "".join(d.text for d in deltas if d.type == "text_delta")


def called(message):
    return [(block.name, block.input) for block in message.content if block.type == "tool_use"]


def results(message):
    calls = [block.id for block in message.content if block.type == "tool_use"]
    content = [{"type": "tool_result", "tool_use_id": call, "content": "18 °C"} for call in calls]
    return [*MESSAGES, {"role": "assistant", "content": message.content}, {"role": "user", "content": content}]


def test_json(client):
    done = client.ask("anthropic")
    assert text_of(done) == TEXT and done.stop_reason == "end_turn"
    assert (done.usage.input_tokens, done.usage.output_tokens) == (10, 12)
    assert done._request_id == "req_018EeWyXxfu5pfWkrYcMdjWG"


def test_stream(client):
    events = list(client.ask("anthropic", stream=True))
    assert text_of_events(events) == TEXT
    assert [e.type for e in events].count("message_start") == 1 and events[-1].type == "message_stop"


def test_stream_helper(client):
    with client.stream("anthropic") as stream:
        assert "".join(stream.text_stream) == TEXT
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn" and final.usage.output_tokens == 12


def test_tools_in_two_turns(client):
    first = client.ask("anthropic", tools=TOOLS)
    assert first.stop_reason == "tool_use" and called(first) == CALLS
    assert first.usage.cache_creation_input_tokens == 2051
    second = client.ask("anthropic", tools=TOOLS, messages=results(first))
    assert text_of(second) == ANSWER and second.usage.cache_read_input_tokens == 2463


def test_tools_streamed_in_two_turns(client):
    with client.stream("anthropic", tools=TOOLS) as stream:
        kinds = {event.type for event in stream}
        first = stream.get_final_message()
    assert "input_json" in kinds and called(first) == CALLS
    with client.stream("anthropic", tools=TOOLS, messages=results(first)) as stream:
        assert text_of(stream.get_final_message()) == ANSWER


@pytest.mark.parametrize("name", ["thinking", "max-tokens", "server-tools"])
def test_stream_amounts_to_its_json(client, name):
    done = client.ask("anthropic-" + name)
    with client.stream("anthropic-" + name) as stream:
        final = stream.get_final_message()
    assert [dumped(b) for b in final.content] == [dumped(b) for b in done.content]
    assert (final.stop_reason, final.usage.output_tokens) == (done.stop_reason, done.usage.output_tokens)


def dumped(block):
    return {key: value for key, value in block.to_dict().items() if value not in (None, [])}


def test_thinking(client):
    thinking = {"type": "enabled", "budget_tokens": 1024}
    with client.stream("anthropic-thinking", max_tokens=2048, thinking=thinking) as stream:
        events = list(stream)
        thought, redacted, text = stream.get_final_message().content
    assert "".join(e.thinking for e in events if e.type == "thinking") == thought.thinking
    assert thought.signature.startswith("EqQB") and redacted.data.startswith("EmwK") and text.text == "27 × 453 = 12231"


def test_max_tokens(client):
    assert client.ask("anthropic-max-tokens").stop_reason == "max_tokens"


def test_unknown_fields(client):
    done = client.ask("anthropic-unknown")
    assert text_of(done) == "café <b> & 😀" and done.priority == 7 and done.content[1].angle == 12345678901234567890
    events = list(client.ask("anthropic-unknown", stream=True))
    assert "weather_report" in [e.type for e in events] and events[-1].type == "message_stop"


def test_count_tokens(client):
    assert client.sdk.messages.count_tokens(model="claude", messages=MESSAGES).input_tokens == 10


def test_bearer(client):
    c = Counted(auth_token=os.environ["ANTHROPIC_API_KEY"], api_key=None)
    assert text_of(c.ask("anthropic")) == TEXT


def test_beta(client):
    done = client.sdk.beta.messages.create(
        model="anthropic", max_tokens=64, messages=MESSAGES, betas=["context-1m-2025-08-07"]
    )
    assert text_of(done) == TEXT


def refused(error, key, status, kind, code):
    """Calls with another key and wants one request for each call, the error's class, type and code."""
    c = Counted(key)
    with pytest.raises(error) as caught:
        c.ask("anthropic")
    body = caught.value.body
    assert (caught.value.status_code, body["type"]) == (status, "error")
    assert (body["error"]["type"], body["error"]["code"]) == (kind, code)
    with pytest.raises(error), c.stream("anthropic") as stream:
        stream.get_final_message()
    assert c.requests == 2, "the SDK retried"
    return body


def test_unknown_key(client):
    refused(anthropic.AuthenticationError, "UNKNOWN", 401, "authentication_error", "invalid_api_key")


def test_ended_session(client):
    body = refused(anthropic.APIStatusError, "ENDED", 410, "invalid_request_error", "session_ended")
    assert "ended" in body["error"]["message"]


def test_stopped_session(client):
    body = refused(anthropic.BadRequestError, "STOPPED", 400, "invalid_request_error", "session_stopped")
    assert body["stop_condition"] == "admin_stop"


def test_turn_limit(client):
    c = Counted("ONE_TURN")
    with c.stream("anthropic") as stream:
        assert text_of(stream.get_final_message()) == TEXT
    with pytest.raises(anthropic.BadRequestError) as caught:
        c.ask("anthropic")
    assert caught.value.body["stop_condition"] == "max_turns" and c.requests == 2


def test_context_overflow(client):
    c = Counted("CONTEXT")
    with pytest.raises(anthropic.BadRequestError) as caught:
        c.ask("anthropic-context")
    assert "prompt is too long" in caught.value.body["error"]["message"]
    with pytest.raises(anthropic.BadRequestError) as caught:
        c.ask("anthropic")
    assert caught.value.body["stop_condition"] == "context_length" and c.requests == 2


def test_rate_limit_is_retried(client):
    c = Counted()
    assert text_of(c.ask("anthropic-429-once")) == TEXT and c.requests == 2


@pytest.mark.parametrize(
    ("model", "error", "kind"),
    [
        ("anthropic-429", anthropic.RateLimitError, "rate_limit_error"),
        ("529", anthropic.InternalServerError, "overloaded_error"),
        ("401", anthropic.InternalServerError, "api_error"),
        ("html", anthropic.InternalServerError, "api_error"),
        ("truncated-length", anthropic.InternalServerError, "api_error"),
    ],
)
def test_upstream_errors(client, model, error, kind):
    with pytest.raises(error) as caught:
        client.ask(model)
    assert caught.value.body["error"]["type"] == kind


@pytest.mark.parametrize("model", ["error-first", "error-after-text"])
def test_error_in_the_stream(client, model):
    with pytest.raises(anthropic.APIStatusError) as caught:
        list(client.ask("anthropic-" + model, stream=True))
    assert caught.value.body["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize("model", ["abort", "reset", "no-stop"])
def test_broken_stream_is_no_clean_end(client, model):
    events = []
    with pytest.raises(anthropic.APIStatusError) as caught:
        for event in client.ask("anthropic-" + model, stream=True):
            events.append(event)
    assert caught.value.body["error"]["code"] == "upstream_invalid"
    assert events[0].type == "message_start" and events[-1].type != "message_stop"
    with pytest.raises(anthropic.APIStatusError), client.stream("anthropic-" + model) as stream:
        stream.get_final_message()


def test_silence_is_filled_with_keepalives(client):
    with client.stream("anthropic-slow") as stream:
        assert text_of(stream.get_final_message()) == TEXT
    with client.sdk.messages.with_streaming_response.create(
        model="anthropic-slow", max_tokens=64, messages=MESSAGES, stream=True
    ) as raw:
        assert any(line.startswith(": keepalive") for line in raw.iter_lines()), "no keepalive was sent"


def test_parallel_calls(client):
    async def ask(sdk, n):
        options = {"model": "anthropic", "max_tokens": 64, "messages": MESSAGES}
        if n % 2:
            return text_of(await sdk.messages.create(**options))
        async with sdk.messages.stream(**options) as stream:
            return text_of(await stream.get_final_message())

    async def main():
        async with AsyncAnthropic(max_retries=0) as sdk:
            return await asyncio.gather(*(ask(sdk, n) for n in range(32)))

    assert asyncio.run(main()) == [TEXT] * 32


def test_cancelled_stream(client):
    with client.ask("anthropic-hang", stream=True) as stream:
        assert next(iter(stream)).type == "message_start"
    assert text_of(client.ask("anthropic")) == TEXT, "the session still works"


def test_timeout(client):
    with pytest.raises(anthropic.APITimeoutError):
        client.sdk.with_options(timeout=0.5).messages.create(model="silent", max_tokens=64, messages=MESSAGES)
    assert text_of(client.ask("anthropic")) == TEXT, "the session still works"


def main(names):
    wanted = ["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", *("CHECK_KEY_" + k for k in KEYS)]
    missing = [v for v in wanted if not os.environ.get(v)]
    if missing:
        print(json.dumps({"error": "not set: " + ", ".join(missing)}))
        return 2
    lines = Lines()
    quiet = ["-p", "no:terminal", "-p", "no:cacheprovider"]
    pytest.main([__file__, *quiet, "-k", " or ".join(names)], plugins=[lines])
    print(json.dumps({"checks": lines.checks, "failed": lines.failed, "sdk": anthropic.__version__}))
    return 1 if lines.failed or not lines.checks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Checks that what the official Python SDKs do by themselves when a connection is lost costs nothing.

Environment: OPENAI_BASE_URL and OPENAI_API_KEY, ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY, which lead through something that
loses the first try of a request as its X-Lose header says: "answer" once the answer is there, "call" while the call
runs. Output and exit status are those of checks.py.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import anthropic
import openai

TEXT = "Hello! How can I help?"


def chat(sdk, lose, name):
    options = {"model": "slow", "messages": [{"role": "user", "content": name}], "extra_headers": {"X-Lose": lose}}
    return sdk.chat.completions.create(**options).choices[0].message.content


def chat_stream(sdk, lose, name):
    options = {"model": "slow", "messages": [{"role": "user", "content": name}], "extra_headers": {"X-Lose": lose}}
    chunks = sdk.chat.completions.create(stream=True, **options)
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def responses(sdk, lose, name):
    return sdk.responses.create(model="slow", input=name, extra_headers={"X-Lose": lose}).output_text


def responses_stream(sdk, lose, name):
    events = sdk.responses.create(model="slow", input=name, stream=True, extra_headers={"X-Lose": lose})
    return "".join(e.delta for e in events if e.type == "response.output_text.delta")


def messages(sdk, lose, name):
    options = {"model": "slow", "max_tokens": 99, "messages": [{"role": "user", "content": name}]}
    return sdk.messages.create(**options, extra_headers={"X-Lose": lose}).content[0].text


def messages_stream(sdk, lose, name):
    options = {"model": "slow", "max_tokens": 99, "messages": [{"role": "user", "content": name}]}
    with sdk.messages.stream(**options, extra_headers={"X-Lose": lose}) as stream:
        return stream.get_final_text()


def run(check):
    sdk, ask, lose = check
    name = f"{ask.__name__}_{lose}_lost"
    began = time.monotonic()
    try:
        got = ask(sdk, lose, name)
        error = None if got == TEXT else f"got {got!r}"
    except Exception as e:
        error = repr(e)
    line = {"check": name, "ok": error is None, "seconds": round(time.monotonic() - began, 3)}
    return {**line, **({"error": error} if error else {})}


def main():
    asked = [(openai.OpenAI(), chat, chat_stream, responses, responses_stream), (anthropic.Anthropic(), messages, messages_stream)]
    checks = [(sdk, ask, lose) for sdk, *asks in asked for ask in asks for lose in ("answer", "call")]
    with ThreadPoolExecutor(len(checks)) as pool:
        lines = list(pool.map(run, checks))
    for line in lines:
        print(json.dumps(line))
    failed = sum(not line["ok"] for line in lines)
    print(json.dumps({"checks": len(lines), "failed": failed, "sdk": f"{openai.__version__}, {anthropic.__version__}"}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Serve verifiers' interception server, as a rollout of its own would, until interrupted.

    python serve.py UPSTREAM_URL CONTROL_PORT

Rollouts register with the server in its process alone. So there is a second server, on CONTROL_PORT of loopback:
GET /address answers where the interception server is, POST /sessions?count=N&model=M registers N rollouts and answers
with their secrets, and DELETE /sessions ends all.
"""

import asyncio
import logging
import sys

import verifiers.v1 as vf
from aiohttp import web
from verifiers.v1.interception import InterceptionServer
from verifiers.v1.session import RolloutSession


def session(upstream: str, model: str) -> RolloutSession:
    """A rollout without a task to speak of, whose calls are forwarded as they are."""
    client = vf.EvalClientConfig(base_url=upstream, api_key_var="BENCH_API_KEY")
    trace = vf.Trace(
        task=vf.TraceTask(type="Bench", data=vf.TaskData(idx=0)),
        state=vf.State(),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
    )
    return RolloutSession(ctx=vf.ModelContext(model=model, client=client), trace=trace)


def control(server: InterceptionServer, upstream: str) -> web.Application:
    registered: list[tuple[str, str]] = []

    async def address(_: web.Request) -> web.Response:
        return web.json_response({"address": f"{server.host}:{server.port}"})

    async def register(request: web.Request) -> web.Response:
        count, model = int(request.query["count"]), request.query["model"]
        made = [server.register(session(upstream, model)) for _ in range(count)]
        registered.extend(made)
        return web.json_response({"secrets": [secret for secret, _ in made]})

    async def end(_: web.Request) -> web.Response:
        while registered:
            server.unregister(*registered.pop())
        return web.json_response({})

    app = web.Application()
    app.add_routes(
        [
            web.get("/address", address),
            web.post("/sessions", register),
            web.delete("/sessions", end),
        ]
    )
    return app


async def serve(upstream: str, port: int) -> None:
    async with InterceptionServer() as server:
        runner = web.AppRunner(control(server, upstream))
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    try:
        asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
    except KeyboardInterrupt:
        pass

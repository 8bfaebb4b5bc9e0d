"""A FastAPI application behind uvicorn receives what a real Ringback delivers, and fetches what it missed."""

import asyncio
import json
import os
import socket
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from fastapi import FastAPI

from ringback.client import RingbackClient
from ringback.domain.clock import SystemClock
from ringback.receiver import Callback, ReceiverApp, SQLiteInbox, ToolFailed
from ringback.signing.standard_webhooks import build_signed_headers
from tests.support.application import SECRET, running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.signed_posts import make_event_body
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

EXAMPLES: Final = Path(__file__).parents[3] / "scripts" / "examples"


def make_fastapi_app(receiver: ReceiverApp) -> FastAPI:
    app = FastAPI()
    receiver.add_to(app, "/callbacks")
    return app


async def start_call(agent: RingbackClient, tool: str, correlation_id: str) -> str:
    started = await agent.start_call(
        "stage", tool, {"text": "hello"}, client_session_id="s1", correlation_id=correlation_id
    )
    return started.call.id


@pytest.mark.requirement("R16")
@pytest.mark.requirement("R21")
async def test_a_verified_webhook_brings_the_result_to_the_session_that_waits(tmp_path: Path) -> None:
    receiver = ReceiverApp(SECRET)
    async with (
        asyncio.timeout(WAIT_SECONDS),
        serving(ControlledUpstream().app()) as upstream,
        serving(make_fastapi_app(receiver)) as server,
        running_application(tmp_path, make_http_config(upstream.url), verify_callbacks="always") as ringback,
    ):
        agent = await ringback.create_agent_client("alice")
        url = f"http://127.0.0.1:{server.port}/callbacks"
        await agent.register_webhook(url, secret=SECRET, include_result=True)

        call_id = await start_call(agent, "echo", "c1")
        finished = await receiver.wait_for(correlation_id="c1", client_session_id="s1", timeout_seconds=WAIT_SECONDS)
        await start_call(agent, "fail", "c2")
        failed = await receiver.wait_for(client_session_id="s1", timeout_seconds=WAIT_SECONDS)

    assert (finished.call_id, finished.value_or_raise()) == (call_id, '{"text": "hello"}')
    with pytest.raises(ToolFailed, match="hello"):
        failed.value_or_raise()


@pytest.mark.requirement("R20")
async def test_a_receiver_that_was_down_fetches_what_it_missed_and_its_retried_delivery_changes_nothing(
    tmp_path: Path,
) -> None:
    handled: list[Callback] = []

    async def handle(callback: Callback) -> None:
        handled.append(callback)

    async with (
        asyncio.timeout(WAIT_SECONDS),
        serving(ControlledUpstream().app()) as upstream,
        running_application(tmp_path, make_http_config(upstream.url)) as ringback,
    ):
        agent = await ringback.create_agent_client("alice")

        def create_receiver() -> ReceiverApp:
            return ReceiverApp(
                SECRET,
                on_callback=handle,
                inbox=SQLiteInbox(tmp_path / "inbox.db"),
                fetch_since=lambda cursor: agent.events(cursor=cursor),
            )

        first = create_receiver()
        async with first, serving(first) as server:
            await agent.register_webhook(f"http://127.0.0.1:{server.port}/callbacks", secret=SECRET)
            await start_call(agent, "echo", "c1")
            await first.wait_for(correlation_id="c1", timeout_seconds=WAIT_SECONDS)
        missed_id = await start_call(agent, "echo", "c2")
        await agent.wait(missed_id)

        second = create_receiver()
        async with second, serving(second, port=server.port):
            missed = await second.wait_for(correlation_id="c2", timeout_seconds=WAIT_SECONDS)
            await start_call(agent, "echo", "c3")
            await second.wait_for(correlation_id="c3", timeout_seconds=WAIT_SECONDS)

    assert (missed.call_id, missed.outcome) == (missed_id, "result")
    assert [callback.correlation_id for callback in handled] == ["c1", "c2", "c3"]


async def test_the_example_prints_results_and_failures(tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/callbacks"
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "fastapi_receiver:app",
        "--app-dir",
        str(EXAMPLES),
        "--no-access-log",
        "--fd",
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        str(listener.fileno()),
        pass_fds=[listener.fileno()],
        cwd=tmp_path,
        env=os.environ | {"RINGBACK_WEBHOOK_SECRET": SECRET},
        stdout=PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            finished = make_event_body("evt_1", outcome="result", result={"content": [], "structuredContent": {"n": 7}})
            thin = make_event_body("evt_2", outcome="result", resume_url="https://ringback.example/v1/resume")
            unknown = make_event_body(
                "evt_3", outcome="unknown", error={"code": "unknown", "message": "It may have run."}
            )
            asked = make_event_body("evt_4", name="call.input_required")
            for body in (finished, thin, unknown, asked):
                assert await post_now(url, body) == 204
            lines = [(await process.stdout.readline()).decode().strip() for _ in range(4)]
    finally:
        process.kill()
        await process.communicate()
        listener.close()

    assert lines == [
        "c1 returned {'n': 7}",
        "c1 has a result: POST https://ringback.example/v1/resume",
        "c1 failed: call_1: It may have run. (unknown)",
        "call.input_required call_1",
    ]


async def post_now(url: str, envelope: dict[str, Any]) -> int:
    body = json.dumps(envelope).encode()
    timestamp = int(SystemClock().now().timestamp())
    headers = build_signed_headers([SECRET], message_id=envelope["eventId"], timestamp=timestamp, body=body)
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
        return (await client.post(url, content=body, headers=headers)).status_code

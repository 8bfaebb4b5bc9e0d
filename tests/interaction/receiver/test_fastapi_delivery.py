"""A FastAPI application behind uvicorn receives what a real Ringback delivers, and fetches what it missed."""

import asyncio
from pathlib import Path

import pytest
from fastapi import FastAPI

from ringback.client import RingbackClient
from ringback.receiver import Callback, ReceiverApp, SQLiteInbox, ToolFailed
from tests.support.application import SECRET, running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import ControlledUpstream, make_http_config, serving


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

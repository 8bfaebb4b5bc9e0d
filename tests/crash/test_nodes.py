"""Two nodes on one PostgreSQL as real processes: one is killed while the other lives, or the database is."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.support.crash_checks import wait_for_finished_events, wait_until_final
from tests.support.limits import WAIT_SECONDS
from tests.support.postgres import running_postgres
from tests.support.postgres_instance import SUPERUSER
from tests.support.processes import ServiceProcess, post_unless_killed, running_process
from tests.support.receivers import NO_CONTENT, Receiver, respond_with, serving_receiver
from tests.support.upstreams import ControlledUpstream, serving

pytestmark = [pytest.mark.requirement("R34"), pytest.mark.requirement("R35"), pytest.mark.postgres_only]

OUTAGE_SECONDS_DEEP: Final = 600.0
CALL: dict[str, Any] = {"upstream": "stage", "tool": "echo", "arguments": {"say": "hello"}, "correlation_id": "c1"}


@asynccontextmanager
async def two_nodes(
    folder: Path, stage: ControlledUpstream, **spec: Any
) -> AsyncGenerator[tuple[ServiceProcess, ServiceProcess, Receiver]]:
    async with (
        serving(stage.app()) as upstream,
        serving_receiver(respond_with(NO_CONTENT)) as receiver,
        running_process(folder=str(folder), upstream=upstream.url, **spec) as first,
        running_process(folder=str(folder), upstream=upstream.url, **spec) as second,
    ):
        yield first, second, receiver


async def start_call(node: ServiceProcess, **changes: Any) -> str:
    started = await post_unless_killed(node.url, "/v1/calls", CALL | changes)
    assert started is not None
    return str(started["call"]["id"])


async def test_another_node_ends_the_calls_of_a_killed_node_and_sends_their_callbacks(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    async with two_nodes(tmp_path, stage) as (first, second, receiver):
        await post_unless_killed(second.url, "/v1/webhooks", {"url": receiver.url()})
        call_id = await start_call(first, tool="hold")
        await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)
        await first.kill()

        call = await wait_until_final(second, call_id)
        events = await wait_for_finished_events(second, receiver, call_id)
        stage.release.set()

    assert (call["status"], call["outcome"]) == ("failed", "unknown")
    assert len(events) == 1
    assert len(stage.calls) == 1


@pytest.mark.timeout(2 * OUTAGE_SECONDS_DEEP)
async def test_calls_go_on_after_a_crash_of_the_database(tmp_path: Path, *, deep: bool) -> None:
    """A deep run keeps the database down for ten minutes; `tests/interaction/nodes` advances a clock instead."""
    stage = ControlledUpstream()
    async with running_postgres() as server:
        url = server.address.tcp_url(SUPERUSER)
        async with two_nodes(tmp_path, stage, database_url=url) as (first, second, receiver):
            await post_unless_killed(first.url, "/v1/webhooks", {"url": receiver.url()})
            call_id = await start_call(first, tool="hold")
            await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)
            await asyncio.to_thread(server.stop)
            stage.release.set()
            await asyncio.to_thread(first.process.join, OUTAGE_SECONDS_DEEP if deep else 0)
            assert first.process.exitcode is None
            async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
                refused = [await client.post(f"{node.url}/v1/calls", json=CALL) for node in (first, second)]
            await asyncio.to_thread(server.start)

            call = await wait_until_final(second, call_id)
            events = await wait_for_finished_events(second, receiver, call_id)
            later = await wait_until_final(second, await start_call(second))

    assert {each.status_code for each in refused} == {503}
    assert call["outcome"] in {"result", "unknown"} if deep else call["outcome"] == "result"
    assert len(events) == 1
    assert later["outcome"] == "result"
    assert len(stage.calls) == 2

"""`kill -9` of an MCP server with an embedded Ringback: acknowledged ends get callbacks, lost calls end as `unknown`."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from mcp import Client

from tests.support.extension_servers import callback_meta, verify_callback
from tests.support.limits import WAIT_SECONDS
from tests.support.processes import ServiceProcess, running_process
from tests.support.receivers import NO_CONTENT, AcceptedConnection, Behaviour, serving_receiver

pytestmark = [pytest.mark.requirement("R29"), pytest.mark.requirement("R35")]

SERVER = "tests.crash.extension_server"


def respond_after(awake: asyncio.Event) -> Behaviour:
    """A receiver that takes requests and answers none of those that come before it is awake."""

    async def behave(connection: AcceptedConnection) -> None:
        while await connection.request() is not None:
            if not awake.is_set():
                await connection.reader.read()
                return
            await connection.send(NO_CONTENT)

    return behave


async def test_an_accepted_call_gets_a_callback_although_its_server_was_killed(tmp_path: Path) -> None:
    awake = asyncio.Event()
    async with serving_receiver(respond_after(awake)) as receiver:
        async with running_process(module=SERVER, folder=str(tmp_path)) as doomed, Client(doomed.url) as client:
            result = await client.call_tool("build_report", {"about": "rain"}, meta=callback_meta(receiver))
            await doomed.kill()
        before = len(receiver.requests)
        awake.set()
        async with running_process(module=SERVER, folder=str(tmp_path)) as revived:
            await receiver.wait_for_requests(before + 1, within_seconds=WAIT_SECONDS)
            await stop_and_wait(revived)

    data = verify_callback(receiver.requests[-1])
    assert data["call_id"] == (result.meta or {})["ringback/callId"]
    assert (data["status"], data["outcome"], data["correlation_id"]) == ("completed", "result", "c1")
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1


@pytest.mark.requirement("R33")
async def test_a_call_that_ran_when_its_server_was_killed_ends_as_unknown(tmp_path: Path) -> None:
    awake = asyncio.Event()
    awake.set()
    async with serving_receiver(respond_after(awake)) as receiver:
        async with running_process(module=SERVER, folder=str(tmp_path)) as doomed:
            with suppress(ExceptionGroup):  # the SDK's client fails with its server
                async with Client(doomed.url) as client:
                    calling = asyncio.create_task(client.call_tool("build_slowly", {}, meta=callback_meta(receiver)))
                    await client.call_tool("until_held", {})
                    await doomed.kill()
                    await asyncio.gather(calling, return_exceptions=True)
        async with running_process(module=SERVER, folder=str(tmp_path)) as revived:
            (callback,) = await receiver.wait_for_requests(1, within_seconds=WAIT_SECONDS)
            await stop_and_wait(revived)

    data = verify_callback(callback)
    assert (data["status"], data["outcome"], data["correlation_id"]) == ("failed", "unknown", "c1")


async def stop_and_wait(server: ServiceProcess) -> None:
    """An orderly end: uvicorn shuts down, and then hands the signal on."""
    server.send_signal(signal.SIGTERM)
    assert await server.wait_until_dead() == -signal.SIGTERM

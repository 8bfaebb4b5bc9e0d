"""While nodes cannot use their database, they accept no work and lose none; then everything goes on."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final
from urllib.parse import urlsplit

import pytest

from ringback.bootstrap import Environment
from ringback.client import Problem
from tests.interaction.nodes.conftest import Site
from tests.support.application import start_upstream_call, wait_until_ended
from tests.support.clock import OffsetClock
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.nodes import Node
from tests.support.postgres import shared_postgres
from tests.support.postgres_troubles import (
    Trouble,
    full_disk,
    full_disk_at_commits,
    lost_network,
    no_connections,
)

pytestmark = pytest.mark.requirement("R34")

OUTAGE_SECONDS: Final = 240.0
"""Several times the length of a lease, and less than what a receiver accepts as the difference of two clocks."""
TroubleOf = Callable[[str], AbstractAsyncContextManager[Trouble]]


def find_url(site: Site) -> str:
    """The URL of the site's database through TCP."""
    return shared_postgres().tcp_url(urlsplit(site.cluster.database_url).path.removeprefix("/"))


async def wait_until_ready(node: Node) -> None:
    async def is_ready() -> bool:
        return (await node.get("/readyz")).status_code == 200

    await wait_until(is_ready)


@pytest.mark.parametrize("befall", [lost_network, full_disk, full_disk_at_commits, no_connections])
async def test_a_node_without_its_database_refuses_new_work_and_goes_on_afterwards(
    site: Site, caplog: pytest.LogCaptureFixture, befall: TroubleOf
) -> None:
    url = find_url(site)
    async with befall(url) as trouble:
        node = await site.cluster.start_node(database_url=trouble.url)
        alice = await node.client(await site.cluster.create_key("alice"))
        call = await start_upstream_call(alice, "hold", site.phone)
        await asyncio.wait_for(site.stage.wait_until_held(1), WAIT_SECONDS)

        async with trouble.lasting():
            not_ready = await node.get("/readyz")
            with pytest.raises(Problem) as refusal:
                await start_upstream_call(alice, "echo", site.phone)
            site.stage.release.set()  # the tool ends while its end cannot be stored
            assert (await node.get("/healthz")).status_code == 200

        callback = await asyncio.wait_for(site.phone.wait_for_callback("hold"), WAIT_SECONDS)
        await wait_until_ready(node)
        calls = [each.id async for each in alice.calls()]
        await node.stop()

    assert (not_ready.status_code, set(not_ready.json()["roles"].values())) == (503, {False})
    assert refusal.value.status == 503
    assert (callback.call_id, calls) == (call.id, [call.id])
    assert len(site.stage.calls) == 1
    password = urlsplit(url).password
    assert password is None or password not in not_ready.text + caplog.text


async def test_an_outage_that_is_longer_than_all_leases_runs_no_tool_again_and_loses_no_end(site: Site) -> None:
    clock = OffsetClock()
    async with lost_network(find_url(site)) as trouble:
        nodes = [
            await site.cluster.start_node(database_url=trouble.url, environment=Environment(clock=clock))
            for _ in range(2)
        ]
        alice = await nodes[0].client(await site.cluster.create_key("alice"))
        calls = [
            await start_upstream_call(alice, "hold", site.phone, correlation_id=str(number)) for number in range(4)
        ]
        await asyncio.wait_for(site.stage.wait_until_held(len(calls)), WAIT_SECONDS)

        async with trouble.lasting():
            site.stage.release.set()
            clock.advance(OUTAGE_SECONDS)
        callbacks = [
            await asyncio.wait_for(site.phone.wait_for_callback(str(number)), WAIT_SECONDS) for number in range(4)
        ]
        ended = [await wait_until_ended(alice, call) for call in calls]
        for node in nodes:
            await wait_until_ready(node)
        later = await start_upstream_call(alice, "echo", site.phone)
        after = await wait_until_ended(alice, later)
        events = Counter([event.data["call_id"] async for event in alice.events(name="call.finished")])
        await asyncio.gather(*(node.stop() for node in nodes))

    assert {call.outcome for call in ended} <= {"result", "unknown"}
    assert [callback.data["outcome"] for callback in callbacks] == [call.outcome for call in ended]
    assert events == Counter([*(call.id for call in calls), later.id])
    assert (after.outcome, len(site.stage.calls)) == ("result", len(calls) + 1)

"""What nodes must not do twice, and limits that hold for all of them together."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from ringback.bootstrap import Environment
from ringback.domain.call import Call, CallPhase
from ringback.domain.clock import SystemClock
from ringback.domain.ids import CallId
from ringback.janitor.janitor import Janitor
from tests.interaction.nodes.conftest import Site
from tests.support.application import SECRET, serving_callbacks, start_upstream_call, wait_until_ended
from tests.support.clock import ManualClock
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.nodes import Node, running_cluster
from tests.support.resource_upstream import NOTE_URI, ResourceUpstream
from tests.support.upstreams import make_http_config, serving

pytestmark = pytest.mark.requirement("R34")


async def read_call(node: Node, call_id: str) -> Call:
    call = await node.ringback.app.store.read(lambda tx: tx.calls.get(CallId(call_id)))
    assert call is not None
    return call


async def test_a_node_that_starts_beside_a_busy_one_touches_none_of_its_leases(site: Site) -> None:
    busy = await site.cluster.start_node()
    alice = await busy.client(await site.cluster.create_key("alice"))
    call = await start_upstream_call(alice, "hold", site.phone)
    await asyncio.wait_for(site.stage.wait_until_held(1), WAIT_SECONDS)
    before = await read_call(busy, call.id)

    fresh = await site.cluster.start_node()
    workers = fresh.ringback.app.supervisor._workers  # pyright: ignore[reportPrivateUsage]
    (janitor,) = (each for each in workers if isinstance(each, Janitor))
    for _ in range(3):
        await janitor.run_once()

    after = await read_call(busy, call.id)
    assert (after.phase, after.lease_owner, after.lease_token, after.runs) == (
        CallPhase.RUNNING,
        before.lease_owner,
        before.lease_token,
        1,
    )
    site.stage.release.set()
    assert (await wait_until_ended(alice, call)).outcome == "result"
    assert len(site.stage.calls) == 1


async def test_a_change_of_an_upstream_makes_one_event_and_another_node_takes_over(tmp_path: Path) -> None:
    notes = ResourceUpstream()
    async with (
        serving(notes.app()) as server,
        serving_callbacks() as phone,
        running_cluster(tmp_path, make_http_config(server.url)) as cluster,
    ):
        first, second = await cluster.start_node(), await cluster.start_node()
        alice = await second.client(await cluster.create_key("alice"))
        await alice.register_webhook(
            phone.url, secret=SECRET, events=["upstream.changed"], upstream="stage", resource_uri=NOTE_URI
        )
        await notes.wait_until(lambda: notes.subscribed == [NOTE_URI])
        await notes.publish_resource_change()

        async def count_events() -> int:
            return len([each async for each in alice.events(name="upstream.changed")])

        async def has_event() -> bool:
            return await count_events() >= 1

        await wait_until(has_event)
        events_before = await count_events()
        await first.stop()
        await notes.wait_until(lambda: notes.subscribed == [NOTE_URI])
        await notes.publish_resource_change()

        async def has_another() -> bool:
            return await count_events() > events_before

        await wait_until(has_another)
        assert events_before == 1


async def test_a_rate_limit_holds_for_two_dispatchers_together(site: Site) -> None:
    """The dispatchers' clock stands still, so a bucket that is not shared would give its burst once more."""
    api = await site.cluster.start_node(roles="api,runner")
    alice = await api.client(await site.cluster.create_key("alice"))
    async with serving_callbacks() as slow:
        await alice.register_webhook(slow.url, secret=SECRET, rate_per_second=2)
        for number in range(6):
            call = await start_upstream_call(alice, "echo", site.phone, correlation_id=str(number))
            await wait_until_ended(alice, call)
        still = Environment(clock=ManualClock(SystemClock().now() + timedelta(seconds=5)))

        first = await site.cluster.start_node(roles="dispatcher", environment=still)
        for number in range(6):
            await site.phone.wait_for_callback(str(number))

        async def has_sent_burst() -> bool:
            return len(slow.callbacks) == 2

        await wait_until(has_sent_burst)
        await first.stop()
        await site.cluster.start_node(roles="dispatcher", environment=still)
        await start_upstream_call(alice, "echo", site.phone, correlation_id="last")
        await asyncio.wait_for(site.phone.wait_for_callback("last"), WAIT_SECONDS)

        assert len(slow.callbacks) == 2

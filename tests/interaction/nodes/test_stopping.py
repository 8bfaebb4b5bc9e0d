"""A node that stops hands its work back, and another node goes on with it at once."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from ringback.bootstrap import workers
from ringback.domain.call import Call, CallPhase
from ringback.domain.delivery import Delivery
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.ids import CallId
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.notifier.dispatcher import DispatcherConfig
from ringback.runner.leasing import RunnerConfig
from tests.interaction.nodes.conftest import NEVER, Site
from tests.support.application import start_upstream_call, wait_until_ended
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.nodes import Node
from tests.support.upstreams import make_http_config

pytestmark = pytest.mark.requirement("R34")
UNREACHABLE = make_http_config("http://127.0.0.1:9/mcp")


@pytest.fixture(autouse=True)
def without_slow_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a notification wakes a worker."""
    monkeypatch.setattr(workers, "RunnerConfig", partial(RunnerConfig, poll_seconds=NEVER))
    monkeypatch.setattr(workers, "DispatcherConfig", partial(DispatcherConfig, poll_seconds=NEVER))


async def read_call(node: Node, call_id: str) -> Call:
    call = await node.ringback.app.store.read(lambda tx: tx.calls.get(CallId(call_id)))
    assert call is not None
    return call


async def read_delivery(node: Node) -> Delivery:
    (delivery,) = await node.ringback.app.store.read(
        lambda tx: tx.deliveries.list_page(Principal("alice"), DeliveryFilter(), position=None, limit=2)
    )
    return delivery


async def test_a_call_that_waits_for_its_upstream_moves_to_another_node(site: Site) -> None:
    leaving = await site.cluster.start_node(upstreams=[UNREACHABLE])
    alice = await leaving.client(await site.cluster.create_key("alice"))
    call = await start_upstream_call(alice, "echo", site.phone)

    async def is_leased() -> bool:
        return (await read_call(leaving, call.id)).phase is CallPhase.RUNNING

    await wait_until(is_leased)
    staying = await site.cluster.start_node()
    await leaving.stop()

    async with asyncio.timeout(WAIT_SECONDS):
        await site.phone.wait_for_callback("echo")
    ended = await read_call(staying, call.id)
    assert (str(ended.outcome), ended.runs) == ("result", 1)


async def test_what_was_leased_while_the_workers_stopped_is_released(site: Site) -> None:
    """The lease of the delivery is granted as by a transaction that commits after the dispatcher has stopped."""
    leaving = await site.cluster.start_node(roles="api,runner")
    alice = await leaving.client(await site.cluster.create_key("alice"))
    running = await start_upstream_call(alice, "hold", site.phone)
    await asyncio.wait_for(site.stage.wait_until_held(1), WAIT_SECONDS)
    owner = (await read_call(leaving, running.id)).lease_owner
    assert owner is not None
    await wait_until_ended(alice, await start_upstream_call(alice, "echo", site.phone))
    webhook_id = (await read_delivery(leaving)).webhook_id

    async def lease_late(tx: Transaction) -> None:
        leased = await tx.delivery_queue.lease_due(
            webhook_id,
            now=tx.now(),
            owner=owner,
            token="late",
            until=tx.now() + timedelta(hours=1),
            limit=1,
            ordered=False,
        )
        assert len(leased) == 1

    await leaving.ringback.app.store.write(lease_late)
    await site.cluster.start_node(roles="dispatcher")
    site.stage.release.set()
    await leaving.stop()

    async with asyncio.timeout(WAIT_SECONDS):
        assert (await site.phone.wait_for_callback("echo")).correlation_id == "echo"


async def test_a_node_that_stops_takes_no_new_call_and_leaves_none_leased(site: Site) -> None:
    leaving, staying = await site.cluster.start_node(), await site.cluster.start_node()
    alice = await leaving.client(await site.cluster.create_key("alice"))
    calls = [await start_upstream_call(alice, "echo", site.phone, correlation_id=str(number)) for number in range(20)]
    await leaving.stop()

    async with asyncio.timeout(WAIT_SECONDS):
        for number in range(20):
            await site.phone.wait_for_callback(str(number))
    assert {str((await read_call(staying, call.id)).status) for call in calls} == {"completed"}
    assert len(site.stage.calls) == 20

"""While a node cannot reach its database, it accepts no work and loses none; then everything goes on."""

import asyncio
from urllib.parse import urlsplit

import pytest

from ringback.client import Problem
from tests.interaction.nodes.conftest import Site
from tests.support.application import start_upstream_call
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.postgres import shared_postgres
from tests.support.tcp_proxy import running_tcp_proxy

pytestmark = pytest.mark.requirement("R34")


async def test_a_node_without_its_database_refuses_new_work_and_goes_on_afterwards(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    address, database = shared_postgres(), urlsplit(site.cluster.database_url).path.removeprefix("/")
    server = urlsplit(address.network_url)
    assert server.port is not None
    async with running_tcp_proxy(server.port) as proxy:
        node = await site.cluster.start_node(database_url=address.tcp_url(database, port=proxy.port))
        alice = await node.client(await site.cluster.create_key("alice"))
        call = await start_upstream_call(alice, "hold", site.phone)
        await asyncio.wait_for(site.stage.wait_until_held(1), WAIT_SECONDS)

        proxy.refuse()
        proxy.cut()
        not_ready = await node.get("/readyz")
        with pytest.raises(Problem) as refusal:
            await start_upstream_call(alice, "echo", site.phone)
        site.stage.release.set()  # the tool ends while its end cannot be stored
        assert (await node.get("/healthz")).status_code == 200
        proxy.refuse(refusing=False)

        callback = await asyncio.wait_for(site.phone.wait_for_callback("hold"), WAIT_SECONDS)

        async def is_ready() -> bool:
            return (await node.get("/readyz")).status_code == 200

        await wait_until(is_ready)
        calls = [each.id async for each in alice.calls()]

    assert (not_ready.status_code, set(not_ready.json()["roles"].values())) == (503, {False})
    assert refusal.value.status == 503
    assert (callback.call_id, calls) == (call.id, [call.id])
    assert len(site.stage.calls) == 1
    assert server.password is None or server.password not in not_ready.text + caplog.text

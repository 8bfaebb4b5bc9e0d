"""Look-ups of configured hosts: no upstream's hung names are in another one's way, and names are found as people write them."""

import asyncio
from ipaddress import ip_address

import pytest

from ringback.notifier.configured_hosts import LOOK_UPS_PER_OWNER_MAX, ConfiguredHosts, is_multicast_name
from ringback.notifier.http.resolver import CAresResolver, LookupFailed, Resolution
from tests.support.name_servers import Behaviour, Records, name_server
from tests.support.resolvers import make_resolution

WAIT_SECONDS = 60


class PartlyHanging:
    """Names that begin with `hung` are never answered."""

    def __init__(self) -> None:
        self.hanging: list[str] = []

    async def __call__(self, host: str, /) -> Resolution:
        if host.startswith("hung"):
            self.hanging.append(host)
            await asyncio.Event().wait()
        return make_resolution("192.0.2.1")

    async def aclose(self) -> None: ...


async def test_hanging_names_of_one_upstream_do_not_delay_the_others() -> None:
    resolver = PartlyHanging()
    hosts = ConfiguredHosts(resolver)
    waiting = [
        asyncio.ensure_future(hosts.look_up_for("a")(f"hung-{number}.test"))
        for number in range(10 * LOOK_UPS_PER_OWNER_MAX)
    ]
    await asyncio.sleep(0)
    async with asyncio.timeout(WAIT_SECONDS):
        assert await hosts.look_up_for("b")("healthy.test") == (ip_address("192.0.2.1"),)
    assert len(resolver.hanging) == LOOK_UPS_PER_OWNER_MAX

    await hosts.aclose()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(each) for each in ended} == {LookupFailed}


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::7"])
async def test_an_ip_address_causes_no_lookup(host: str) -> None:
    assert await ConfiguredHosts(PartlyHanging()).look_up_for("a")(host) == (ip_address(host),)


async def test_upstream_names_use_the_search_domains_and_callback_names_do_not() -> None:
    known = {"tools.apps.test": Records("127.0.0.1")}
    async with name_server(known, others=Behaviour.NO_SUCH_NAME) as server:
        for searches, addresses in ((True, (ip_address("127.0.0.1"),)), (False, ())):
            resolver = CAresResolver([server.address], searches=searches, search_domains=["apps.test"])
            assert (await resolver("tools")).addresses == addresses
            await resolver.aclose()


@pytest.mark.parametrize(
    ("host", "multicast"),
    [
        ("printer.local", True),
        ("Printer.LOCAL.", True),
        ("tools.apps.svc.cluster.local", False),
        ("local", False),
        ("local.example", False),
    ],
)
def test_multicast_dns_names_differ_from_cluster_names(host: str, *, multicast: bool) -> None:
    assert is_multicast_name(host) is multicast

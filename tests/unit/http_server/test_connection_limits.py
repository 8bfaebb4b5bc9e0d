"""The limits on connections, in all and for one peer."""

import ipaddress
from collections.abc import Callable

import pytest

from ringback.http_server import HttpLimits, compute_connections_max
from ringback.http_server.limits import FILES_RESERVED, ConnectionPhase
from ringback.server import build_http_limits, warn_about_open_files
from ringback.settings import Settings
from tests.unit.http_server.conftest import ConnectionHarness, run_loop_turns

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def test_one_peer_has_its_share_and_others_have_theirs(make_bench: Callable[..., ConnectionHarness]) -> None:
    bench = make_bench(peer_connections_max=3)
    held = [bench.connect("203.0.113.7") for _ in range(3)]
    _, refused = bench.connect("203.0.113.7")
    assert (refused.statuses, refused.ended, refused.reading) == ([503], "closed", False)
    assert b"retry-after: 5" in refused.sent
    assert b"/problems/too-many-connections" in refused.sent
    protocol, other = bench.connect("203.0.113.8")
    protocol.data_received(GET)
    await run_loop_turns()
    assert other.statuses == [200]
    bench.lose_connection(held[0][0])
    bench.lose_connection(bench.protocols[2])  # the rejected one, which frees only its own place
    _, next_one = bench.connect("203.0.113.7")
    assert next_one.ended is None


async def test_the_total_number_of_connections_is_limited_for_all_peers(
    make_bench: Callable[..., ConnectionHarness],
) -> None:
    bench = make_bench(connections_max=3)
    for number in range(3):
        assert bench.connect(f"203.0.113.{number}")[1].ended is None
    protocol, refused = bench.connect("198.51.100.1")
    assert (refused.statuses, refused.ended) == ([503], "closed")
    protocol.data_received(GET)
    await run_loop_turns()
    assert refused.statuses == [503]


async def test_when_all_have_gone_nothing_is_left_of_them(make_bench: Callable[..., ConnectionHarness]) -> None:
    bench = make_bench(peer_connections_max=5)
    for number in range(20):
        protocol, _ = bench.connect()
        if number % 2:
            protocol.data_received(GET[:number])
    for protocol in list(bench.protocols):
        bench.lose_connection(protocol)
    assert (len(bench.connections), bench.connections.count_for_peer("203.0.113.7")) == (0, 0)
    assert [bench.connections.count_in_phase(phase) for phase in ConnectionPhase] == [0] * len(ConnectionPhase)


def test_a_trusted_proxy_is_not_one_peer() -> None:
    networks = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8"))
    limits = HttpLimits(trusted_proxies=networks)
    assert [limits.peer_key(host) for host in ("10.1.2.3", "::ffff:10.1.2.3", "fd12::1")] == [None, None, None]


@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_a_peer_is_an_address_or_a_site(host: str, peer: str) -> None:
    assert HttpLimits().peer_key(host) == peer


@pytest.mark.parametrize(
    ("files", "connections"), [(20_000, 15_904), (8192, 4096), (1024, 512), (20, 16), (1_048_576, 1_044_480)]
)
def test_clients_leave_files_for_receivers_and_upstreams(files: int, connections: int) -> None:
    assert compute_connections_max(files) == connections


def test_a_low_limit_on_open_files_is_one_warning_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(peer_connections_max=256)
    wanted = FILES_RESERVED + 256
    for files in (64, wanted - 1, wanted):
        warn_about_open_files(build_http_limits(settings, open_files_max=files), settings, open_files_max=files)

    assert [record.message for record in caplog.records] == ["service.open_files_limited"] * 2

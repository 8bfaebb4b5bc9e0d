"""Which protocol the next handshake begins with."""

import pytest

from ringback.domain.upstreams import UpstreamProfile
from ringback.upstreams.config import ProtocolChoice
from ringback.upstreams.connection_problems import ConnectionProblem
from ringback.upstreams.handshake import ModernProbe
from ringback.upstreams.handshake_order import FAILED_PROBES_MAX, SILENT_PROBES_MAX, HandshakeOrder

MODERN = UpstreamProfile(protocol_version="2026-07-28", capabilities={}, instructions=None, server_info={})
LEGACY = UpstreamProfile(protocol_version="2025-11-25", capabilities={}, instructions=None, server_info={})


@pytest.mark.parametrize(
    ("profile", "probe"), [(None, ModernProbe.TRY), (LEGACY, ModernProbe.TRY), (MODERN, ModernProbe.EXPECT)]
)
def test_a_response_is_expected_of_an_upstream_that_was_modern(
    profile: UpstreamProfile | None, probe: ModernProbe
) -> None:
    assert HandshakeOrder().choose_probe(profile) is probe


def test_an_upstream_that_is_configured_as_legacy_is_never_probed() -> None:
    order = HandshakeOrder(ProtocolChoice.LEGACY)
    order.note_failure(ConnectionProblem.LOST)
    assert {order.choose_probe(profile) for profile in (None, LEGACY, MODERN)} == {ModernProbe.SKIP}


def test_a_modern_upstream_that_stays_silent_may_have_become_a_legacy_one() -> None:
    order = HandshakeOrder()
    for _ in range(SILENT_PROBES_MAX):
        assert order.choose_probe(MODERN) is ModernProbe.EXPECT
        order.note_failure(ConnectionProblem.TIMEOUT)
    assert order.choose_probe(MODERN) is ModernProbe.TRY
    order.note_success()
    assert order.choose_probe(MODERN) is ModernProbe.EXPECT


@pytest.mark.parametrize(
    ("profile", "expected", "is_child", "later"),
    [
        (LEGACY, 0, False, ModernProbe.SKIP),
        (None, 0, True, ModernProbe.SKIP),
        (MODERN, FAILED_PROBES_MAX, True, ModernProbe.SKIP),
        (MODERN, FAILED_PROBES_MAX, False, ModernProbe.TRY),
    ],
)
def test_every_second_handshake_after_lost_connections_is_legacy_at_once(
    profile: UpstreamProfile | None, expected: int, later: ModernProbe, *, is_child: bool
) -> None:
    """An upstream that was modern has a minute to restart: it speaks both protocols, and its tasks are lost in the other."""
    order, probes = HandshakeOrder(is_child=is_child), list[ModernProbe]()
    for _ in range(FAILED_PROBES_MAX + 4):
        probes.append(order.choose_probe(profile))
        order.note_failure(ConnectionProblem.LOST)

    assert probes[:expected] == [ModernProbe.EXPECT] * expected
    assert probes[expected:][:4] == [ModernProbe.TRY, later] * 2


def test_a_modern_upstream_that_is_away_for_long_is_still_expected_to_be_modern() -> None:
    order = HandshakeOrder()
    for _ in range(10 * FAILED_PROBES_MAX):
        order.note_failure(ConnectionProblem.CANNOT_CONNECT)
        assert order.choose_probe(MODERN) is ModernProbe.EXPECT


def test_a_modern_upstream_that_fails_for_a_minute_may_have_become_a_legacy_one() -> None:
    order = HandshakeOrder()
    for number in range(FAILED_PROBES_MAX):
        assert order.choose_probe(MODERN) is ModernProbe.EXPECT
        order.note_failure(ConnectionProblem.LOST if number % 3 else ConnectionProblem.HANDSHAKE)
    order.note_failure(ConnectionProblem.HANDSHAKE)
    assert order.choose_probe(MODERN) is ModernProbe.TRY

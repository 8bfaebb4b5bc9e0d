"""notifications/events/list_changed, when the event types of an upstream change."""

from typing import Any, Final

import pytest

from ringback.domain.upstreams import Listing, UpstreamChange
from tests.interaction.gateway.conftest import GatewayHarness

UPSTREAMS: Final = ("library", "plain")

LIST_CHANGED: Final = "notifications/events/list_changed"


def publish_change(gate: GatewayHarness, upstream: str, listing: Listing) -> None:
    """What the upstream's catalog publishes once a list differs from the one before."""
    mcp: Any = gate.ringback.app.mcp
    mcp._gateway.proxy._change_notifications.publish_change(UpstreamChange(upstream=upstream, listing=listing))


async def test_a_client_that_listens_is_notified_of_the_changed_event_types_of_its_upstream(
    gate: GatewayHarness,
) -> None:
    client = await gate.make_modern_client("plain")
    async with client.open_subscription({"eventsListChanged": True}) as stream:
        acknowledged = await stream.read_message()
        publish_change(gate, "library", Listing.EVENTS)
        publish_change(gate, "plain", Listing.EVENTS)
        notified = await stream.read_message()

    assert acknowledged["params"]["notifications"] == {"eventsListChanged": True}
    assert notified["method"] == LIST_CHANGED


async def test_a_client_of_all_upstreams_is_notified_of_each_and_one_that_did_not_ask_of_none(
    gate: GatewayHarness,
) -> None:
    client = await gate.make_modern_client(None)
    async with (
        client.open_subscription({"eventsListChanged": True}) as stream,
        client.open_subscription({"toolsListChanged": True}) as other,
    ):
        await stream.read_message()
        await other.read_message()
        publish_change(gate, "plain", Listing.EVENTS)
        assert (await stream.read_message())["method"] == LIST_CHANGED
        publish_change(gate, "plain", Listing.TOOLS)
        assert (await other.read_message())["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({}, "notifications/tools/list_changed"),
        ({"extensions": {"io.modelcontextprotocol/events": {}}}, LIST_CHANGED),
    ],
)
async def test_a_legacy_session_is_notified_if_its_client_declares_events(
    gate: GatewayHarness, capabilities: dict[str, Any], expected: str
) -> None:
    async with (
        gate.open_legacy_session("plain", capabilities=capabilities) as session,
        session.open_event_stream() as stream,
    ):
        await session.request("ping", {})
        publish_change(gate, "plain", Listing.EVENTS)
        publish_change(gate, "plain", Listing.TOOLS)
        notified = await stream.read_message()

    assert notified["method"] == expected

"""Who may use which delivery mode of which event type."""

from collections.abc import Mapping
from typing import Any

import pytest

from ringback.protocol.mcp_events.backend import OccurrencePage
from ringback.protocol.mcp_events.errors import ErrorProfile, EventError
from tests.unit.protocol.mcp_events.fake_backend import CHANGED, POLL_ONLY, SECRET, FakeBackend, make_endpoint

Json = dict[str, Any]


async def stream(name: str, caller: str | None = "alice") -> list[str]:
    """The methods of the frames."""
    methods: list[str] = []

    async def send(method: str, _params: Mapping[str, Any]) -> None:
        methods.append(method)

    backend = FakeBackend(stream=[OccurrencePage(cursor="c0")])
    await make_endpoint(backend).stream_events(
        caller, {"name": name}, request_id=1, profile=ErrorProfile.SKETCH, send=send
    )
    return methods


async def test_a_stream_of_a_type_that_does_not_offer_push_is_unsupported_and_sends_nothing() -> None:
    with pytest.raises(EventError, match="Unsupported") as refused:
        await stream(POLL_ONLY.name)

    assert refused.value.data == {"feature": "deliveryMode", "value": "push"}


async def test_an_unauthenticated_caller_may_poll_and_stream_and_not_subscribe() -> None:
    endpoint = make_endpoint(FakeBackend())
    params: Json = {"name": CHANGED.name, "delivery": {"url": "https://agent.example/hook", "secret": SECRET}}

    assert await stream(CHANGED.name, caller=None) == ["notifications/events/active"]
    assert (await endpoint.poll_events(None, {"name": CHANGED.name}))["events"] == []
    with pytest.raises(EventError, match="Forbidden"):
        await endpoint.subscribe(None, params, profile=ErrorProfile.SKETCH)
    with pytest.raises(EventError, match="Forbidden"):
        await endpoint.unsubscribe(None, params)


async def test_a_subscribe_without_a_mode_is_one_by_webhook() -> None:
    backend = FakeBackend()
    params: Json = {"name": CHANGED.name, "delivery": {"url": "https://agent.example/hook", "secret": SECRET}}
    await make_endpoint(backend).subscribe("alice", params, profile=ErrorProfile.SKETCH)

    assert len(backend.subscribed) == 1

"""The five methods over a scripted backend: what a real log or a real upstream does rarely, or not on request."""

# ruff: noqa: ARG002 - a scripted backend has the parameters of the Protocol

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from ringback.protocol.mcp_events.backend import (
    Interest,
    OccurrencePage,
    SubscriptionGrant,
    SubscriptionKey,
    SubscriptionRequest,
)
from ringback.protocol.mcp_events.descriptors import EventDescriptor
from ringback.protocol.mcp_events.endpoint import EndpointPolicy, EventEndpoint
from ringback.protocol.mcp_events.errors import ErrorProfile, EventError, EventErrorName, event_not_found
from ringback.protocol.mcp_events.names import SUBSCRIPTION_ID_META_KEY, DeliveryMode

Json = dict[str, Any]

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FAILURE: Final = EventError(EventErrorName.INTERNAL_ERROR, "The source cannot be read now.")
PREFIX: Final = "notifications/events/"


@dataclass
class ScriptedBackend:
    """Offers one event type, and follows it with these pages or with this refusal at their end."""

    delivery: tuple[DeliveryMode, ...] = tuple(DeliveryMode)
    pages: Sequence[OccurrencePage] = ()
    end: EventError | None = None
    unsubscribed: list[SubscriptionKey] = field(default_factory=list[SubscriptionKey])
    subscribed: list[SubscriptionRequest] = field(default_factory=list[SubscriptionRequest])
    waits: list[float] = field(default_factory=list[float])

    async def list_descriptors(self, caller: str) -> Sequence[EventDescriptor]:
        return [self._describe()]

    async def find_descriptor(self, caller: str, name: str) -> EventDescriptor | None:
        return self._describe() if name == "note.added" else None

    def implied_arguments(self, caller: str, name: str) -> Mapping[str, Any]:
        return {}

    async def poll_occurrences(
        self,
        caller: str,
        interest: Interest,
        *,
        cursor: str | None,
        max_age_seconds: float | None,
        limit: int,
        wait_seconds: float,
    ) -> OccurrencePage:
        self.waits.append(wait_seconds)
        return OccurrencePage(cursor="c1")

    async def follow_occurrences(
        self, caller: str, interest: Interest, *, cursor: str | None, max_age_seconds: float | None
    ) -> AsyncGenerator[OccurrencePage]:
        for page in self.pages:
            yield page
        if self.end is not None:
            raise self.end

    async def subscribe(self, caller: str, request: SubscriptionRequest) -> SubscriptionGrant:
        self.subscribed.append(request)
        return SubscriptionGrant(id="sub_1", refresh_before=None, cursor=None, truncated=False)

    async def unsubscribe(self, caller: str, key: SubscriptionKey) -> None:
        self.unsubscribed.append(key)

    def _describe(self) -> EventDescriptor:
        return EventDescriptor(
            name="note.added", description="", input_schema={}, payload_schema={}, delivery=self.delivery
        )


def open_endpoint(backend: ScriptedBackend) -> EventEndpoint[str]:
    policy = EndpointPolicy[str](
        get_principal=lambda caller: caller or None,
        find_argument_error=lambda _, arguments: "The topic is no text." if "topic" in arguments else None,
    )
    return EventEndpoint(backend, policy)


async def read_stream(backend: ScriptedBackend, profile: ErrorProfile = ErrorProfile.SKETCH) -> tuple[list[Json], Json]:
    """The frames as `{method, …params}`, and the final result."""
    frames: list[Json] = []

    async def send(method: str, params: Mapping[str, Any]) -> None:
        frames.append({"method": method.removeprefix(PREFIX), **params})

    result = await open_endpoint(backend).stream_events(
        "alice", {"name": "note.added", "arguments": {}}, request_id=7, profile=profile, send=send
    )
    return frames, result


def subscribe_params(**delivery: Any) -> Json:
    webhook = {"mode": "webhook", "url": "https://agent.example/callback", "secret": SECRET, **delivery}
    return {"name": "note.added", "arguments": {}, "delivery": webhook}


async def test_a_gap_in_a_stream_is_a_second_confirmation_that_says_truncated() -> None:
    start, gap = OccurrencePage(cursor="c1"), OccurrencePage(cursor="c9", truncated=True)
    frames, _ = await read_stream(ScriptedBackend(pages=[start, gap]))

    assert [(each["method"], each["cursor"], each["truncated"]) for each in frames] == [
        ("active", "c1", False),
        ("active", "c9", True),
    ]


async def test_an_error_in_a_stream_leaves_it_open() -> None:
    start, failing, idle = (
        OccurrencePage(cursor="c1"),
        OccurrencePage(cursor="c1", error=FAILURE),
        OccurrencePage(cursor="c2"),
    )
    frames, _ = await read_stream(ScriptedBackend(pages=[start, failing, idle]))

    assert [each["method"] for each in frames] == ["active", "error", "heartbeat"]
    assert frames[1]["error"] == {"code": -32603, "message": "InternalError: The source cannot be read now."}


@pytest.mark.parametrize(("profile", "code"), [(ErrorProfile.SKETCH, -32011), (ErrorProfile.SEP, -32023)])
async def test_a_removed_event_type_ends_a_stream_with_a_terminated_frame_in_the_clients_codes(
    profile: ErrorProfile, code: int
) -> None:
    backend = ScriptedBackend(pages=[OccurrencePage(cursor="c1")], end=event_not_found("note.added"))
    frames, _ = await read_stream(backend, profile)

    assert [each["method"] for each in frames] == ["active", "terminated"]
    assert (frames[1]["error"]["code"], frames[1]["error"]["data"]) == (code, {"kind": "event"})


async def test_a_stream_that_the_server_ends_has_an_empty_result_with_the_id_of_the_request() -> None:
    _, result = await read_stream(ScriptedBackend(pages=[OccurrencePage(cursor="c1")]))

    assert result == {"_meta": {SUBSCRIPTION_ID_META_KEY: 7}}


async def test_a_stream_that_is_refused_before_its_first_frame_is_an_error_without_frames() -> None:
    with pytest.raises(EventError, match="NotFound"):
        await read_stream(ScriptedBackend(end=event_not_found("note.added")))


@pytest.mark.parametrize("mode", list(DeliveryMode))
async def test_a_mode_that_the_event_type_does_not_offer_is_unsupported_and_named(mode: DeliveryMode) -> None:
    others = tuple(each for each in DeliveryMode if each is not mode)
    backend = ScriptedBackend(delivery=others)
    endpoint = open_endpoint(backend)

    requests = {
        DeliveryMode.POLL: lambda: endpoint.poll_events("alice", {"name": "note.added", "arguments": {}}),
        DeliveryMode.PUSH: lambda: read_stream(backend),
        DeliveryMode.WEBHOOK: lambda: endpoint.subscribe("alice", subscribe_params(), profile=ErrorProfile.SKETCH),
    }
    with pytest.raises(EventError, match="Unsupported") as refused:
        await requests[mode]()

    assert refused.value.data == {"feature": "deliveryMode", "value": str(mode)}


async def test_a_subscribe_for_another_mode_than_webhook_is_unsupported() -> None:
    with pytest.raises(EventError, match="Unsupported") as refused:
        await open_endpoint(ScriptedBackend()).subscribe(
            "alice", subscribe_params(mode="push"), profile=ErrorProfile.SKETCH
        )

    assert refused.value.data == {"feature": "deliveryMode", "value": "push"}


async def test_an_unauthenticated_caller_may_poll_and_stream_and_not_subscribe() -> None:
    backend = ScriptedBackend(pages=[OccurrencePage(cursor="c1")])
    endpoint = open_endpoint(backend)

    assert (await endpoint.poll_events("", {"name": "note.added", "arguments": {}}))["cursor"] == "c1"
    with pytest.raises(EventError, match="Forbidden"):
        await endpoint.subscribe("", subscribe_params(), profile=ErrorProfile.SKETCH)
    with pytest.raises(EventError, match="Forbidden"):
        await endpoint.unsubscribe("", subscribe_params())


async def test_a_subscribe_without_a_mode_is_one_by_webhook() -> None:
    backend = ScriptedBackend()
    params = subscribe_params()
    del params["delivery"]["mode"]
    await open_endpoint(backend).subscribe("alice", params, profile=ErrorProfile.SKETCH)

    assert len(backend.subscribed) == 1


async def test_unsubscribing_does_not_check_the_arguments_against_a_schema_that_may_have_changed() -> None:
    backend = ScriptedBackend()
    await open_endpoint(backend).unsubscribe(
        "alice", {**subscribe_params(), "name": "note.removed", "arguments": {"topic": 1}}
    )

    assert [(each.name, each.canonical_arguments) for each in backend.unsubscribed] == [("note.removed", '{"topic":1}')]


@pytest.mark.parametrize("name", ["timeoutMs", "waitMs"])
async def test_a_long_poll_has_two_names_and_an_upper_bound(name: str) -> None:
    backend = ScriptedBackend()
    endpoint = open_endpoint(backend)
    for milliseconds in (2000, 3_600_000):
        await endpoint.poll_events("alice", {"name": "note.added", "arguments": {}, name: milliseconds})

    assert backend.waits == [2.0, 45.0]


async def test_what_is_checked_first_decides_the_error_of_a_request_that_is_wrong_in_every_way() -> None:
    endpoint = open_endpoint(ScriptedBackend())
    wrong: Json = {"name": "note.none", "arguments": {"topic": 1}, "delivery": {"url": "http://x", "secret": "s"}}
    repairs: tuple[Json, ...] = (
        {"name": "note.added"},
        {"arguments": {}},
        {"delivery": {"url": "http://x", "secret": SECRET}},
    )
    messages: list[str] = []
    for repair in ({}, *repairs):
        wrong |= repair
        with pytest.raises(EventError) as refused:
            await endpoint.subscribe("alice", wrong, profile=ErrorProfile.SKETCH)
        messages.append(refused.value.message)

    assert [message.split(":")[0] for message in messages] == ["NotFound", *["InvalidParams"] * 3]
    assert "topic" in messages[1]
    assert "secret" in messages[2]
    assert "https" in messages[3]

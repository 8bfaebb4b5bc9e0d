"""The five methods over a backend: the order of the checks, the results and the frames."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from ringback.protocol.mcp_events.backend import DeliveryStatus, OccurrencePage, SubscriptionGrant
from ringback.protocol.mcp_events.endpoint import EVENTS_PER_POLL_MAX
from ringback.protocol.mcp_events.errors import (
    CallbackFailure,
    ErrorProfile,
    EventError,
    EventErrorName,
    event_not_found,
    to_error_object,
)
from ringback.protocol.mcp_events.grants import TtlRequest
from ringback.protocol.mcp_events.requests import CURSOR_LENGTH_MAX
from tests.unit.protocol.mcp_events.fake_backend import NOW, SECRET, FakeBackend, make_endpoint, make_occurrence

URL: Final = "https://agent.example/hook?id=1"
NAME: Final = "file.changed"
Json = dict[str, Any]


def subscription(**members: Any) -> Json:
    delivery = {"mode": "webhook", "url": URL, "secret": SECRET, **members.pop("delivery", {})}
    delivery = {key: value for key, value in delivery.items() if value is not None}
    return {"name": NAME, "arguments": {}, "delivery": delivery, **members}


async def subscribe(backend: FakeBackend, params: Mapping[str, Any], caller: str | None = "alice") -> Json:
    return await make_endpoint(backend).subscribe(caller, params, profile=ErrorProfile.SKETCH)


# -- list --


async def test_a_descriptor_has_the_members_that_clients_need() -> None:
    listed = await make_endpoint(FakeBackend()).list_events("alice", {})

    assert [each["name"] for each in listed["events"]] == [NAME, "disk.full", "load.high"]
    for each in listed["events"]:
        assert each.keys() == {"name", "description", "delivery", "inputSchema", "payloadSchema"}


# -- poll --


async def test_a_poll_without_a_cursor_and_one_with_null_are_the_same() -> None:
    backend = FakeBackend()
    for params in ({"name": NAME}, {"name": NAME, "arguments": None, "cursor": None}):
        await make_endpoint(backend).poll_events(None, params)

    assert backend.polls[0] == backend.polls[1]
    assert backend.polls[0]["cursor"] is None


async def test_a_poll_returns_the_page_with_the_advised_pause_and_occurrences_without_cursors() -> None:
    backend = FakeBackend(OccurrencePage(occurrences=[make_occurrence(1)], cursor="c1", truncated=True, has_more=True))

    result = await make_endpoint(backend).poll_events("alice", {"name": NAME, "cursor": "c0"})

    assert result == {
        "events": [
            {"eventId": "e1", "name": NAME, "timestamp": "2026-11-20T17:00:00.000Z", "data": {"number": 1}},
        ],
        "cursor": "c1",
        "truncated": True,
        "hasMore": True,
        "nextPollMs": 2000,
    }


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, {"limit": EVENTS_PER_POLL_MAX, "wait_seconds": 0, "max_age_seconds": None}),
        ({"maxEvents": 3}, {"limit": 3}),
        ({"maxEvents": 10**9}, {"limit": EVENTS_PER_POLL_MAX}),
        ({"timeoutMs": 1500}, {"wait_seconds": 1.5}),
        ({"waitMs": 1500.0}, {"wait_seconds": 1.5}),
        ({"waitMs": 10**12}, {"wait_seconds": 45}),
        ({"maxAgeMs": 250}, {"max_age_seconds": 0.25}),
    ],
)
async def test_the_options_of_a_poll_are_bounded(members: Json, expected: Json) -> None:
    backend = FakeBackend()
    await make_endpoint(backend).poll_events("alice", {"name": NAME, "cursor": "c", **members})

    assert backend.polls[0].items() >= expected.items()


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": ""},
        {"name": 7},
        {"name": "x" * 257},
        {"name": NAME, "arguments": []},
        {"name": NAME, "arguments": {"unknown": 1}},
        {"name": NAME, "cursor": 7},
        {"name": NAME, "cursor": "c" * (CURSOR_LENGTH_MAX + 1)},
        {"name": NAME, "maxEvents": 0},
        {"name": NAME, "maxEvents": True},
        {"name": NAME, "maxAgeMs": -1},
        {"name": NAME, "maxAgeMs": float("nan")},
        {"name": NAME, "timeoutMs": "1000"},
    ],
)
async def test_invalid_params_are_refused_by_name(params: Json) -> None:
    with pytest.raises(EventError) as refused:
        await make_endpoint(FakeBackend()).poll_events("alice", params)

    assert refused.value.name is EventErrorName.INVALID_PARAMS


class LateBackend(FakeBackend):
    """Knows of a type only once it has asked another server for its list."""

    async def find_descriptor(self, caller: str | None, name: str) -> None:
        pass


async def test_an_event_type_that_only_the_new_list_has_is_polled_at_the_first_request() -> None:
    result = await make_endpoint(LateBackend()).poll_events("alice", {"name": NAME})

    assert result["cursor"] == "c0"


async def test_a_misspelled_event_type_is_not_found_with_the_name_that_was_meant() -> None:
    endpoint = make_endpoint(FakeBackend())

    with pytest.raises(EventError, match=r"Did you mean 'file\.changed'"):
        await endpoint.poll_events("alice", {"name": "file.chnaged"})


def test_an_upstreams_own_name_of_an_event_is_answered_with_its_name_here() -> None:
    known = ["call.finished", "github/push"]

    assert "Did you mean 'github/push'?" in event_not_found("push", known).detail
    assert "Did you mean 'github/push'?" in event_not_found("GITHUB/PUSH", known).detail
    assert "Did you mean" not in event_not_found("nothing.alike", known).detail
    assert "Did you mean" not in event_not_found("x" * 200, ["x" * 201]).detail


async def test_an_unknown_event_type_is_not_found_and_a_mode_that_it_lacks_is_unsupported() -> None:
    endpoint = make_endpoint(FakeBackend())

    with pytest.raises(EventError) as unknown:
        await endpoint.poll_events("alice", {"name": "file.chnaged", "arguments": {"unknown": 1}})
    with pytest.raises(EventError) as unsupported:
        await endpoint.poll_events("alice", {"name": "load.high", "arguments": {"unknown": 1}})

    assert (unknown.value.name, unknown.value.data) == (EventErrorName.NOT_FOUND, {"kind": "event"})
    assert unsupported.value.name is EventErrorName.UNSUPPORTED
    assert unsupported.value.data == {"feature": "deliveryMode", "value": "poll"}


# -- stream --


async def run_stream(backend: FakeBackend) -> tuple[Json, list[tuple[str, Json]]]:
    frames: list[tuple[str, Json]] = []

    async def send(method: str, params: Mapping[str, Any]) -> None:
        frames.append((method.removeprefix("notifications/events/"), dict(params)))

    result = await make_endpoint(backend).stream_events(
        "alice", {"name": NAME, "cursor": "c0"}, request_id="7", profile=ErrorProfile.SKETCH, send=send
    )
    return result, frames


META: Final = {"_meta": {"io.modelcontextprotocol/subscriptionId": "7"}}


async def test_a_stream_has_the_frames_of_its_pages_and_a_final_result() -> None:
    unavailable = EventError(EventErrorName.INTERNAL_ERROR, "Later.")
    backend = FakeBackend(
        stream=[
            OccurrencePage(cursor="c0"),
            OccurrencePage(cursor="c2", occurrences=[make_occurrence(1), make_occurrence(2)]),
            OccurrencePage(cursor="c3"),
            OccurrencePage(cursor="c3", error=unavailable),
            OccurrencePage(cursor="c9", truncated=True),
        ]
    )

    result, frames = await run_stream(backend)

    assert frames == [
        ("active", {"cursor": "c0", "truncated": False, **META}),
        ("event", {**make_occurrence(1).to_wire(with_cursor=True), **META}),
        ("event", {**make_occurrence(2).to_wire(with_cursor=True), **META}),
        ("heartbeat", {"cursor": "c3", **META}),
        ("error", {"error": to_error_object(unavailable, ErrorProfile.SKETCH), **META}),
        ("active", {"cursor": "c9", "truncated": True, **META}),
    ]
    assert frames[1][1]["cursor"] == "c1"
    assert result == META
    assert backend.is_stream_closed


async def test_a_gap_before_events_is_sent_with_the_cursor_before_these_events() -> None:
    backend = FakeBackend(
        stream=[
            OccurrencePage(cursor="c1"),
            OccurrencePage(cursor="c3", occurrences=[make_occurrence(3)], truncated=True),
        ]
    )

    _, frames = await run_stream(backend)

    assert [(kind, frame["cursor"]) for kind, frame in frames] == [("active", "c1"), ("active", "c1"), ("event", "c3")]


async def test_a_subscription_that_ends_is_terminated_with_its_error() -> None:
    ended = event_not_found(NAME)

    result, frames = await run_stream(FakeBackend(stream=[OccurrencePage(cursor="c0"), ended]))

    assert frames[-1] == ("terminated", {"error": to_error_object(ended, ErrorProfile.SKETCH), **META})
    assert frames[-1][1]["error"]["code"] == -32011
    assert result == META


async def test_an_error_before_the_first_frame_is_an_error_of_the_request() -> None:
    with pytest.raises(EventError):
        await run_stream(FakeBackend(stream=[event_not_found(NAME)]))


# -- subscribe --


async def test_a_subscription_reaches_the_backend_with_its_canonical_arguments() -> None:
    backend = FakeBackend(implied={"upstream": "git"})

    await subscribe(backend, subscription(arguments={"path": "a"}, cursor="c", maxAgeMs=500, ttlMs=60_000, id="sub_x"))

    (request,) = backend.subscribed
    assert request.canonical_arguments == '{"path":"a","upstream":"git"}'
    assert (request.url, request.secret, request.cursor) == (URL, SECRET, "c")
    assert (request.max_age_seconds, request.ttl) == (0.5, 60.0)
    assert SECRET not in repr(request)


@pytest.mark.parametrize(
    ("members", "ttl"),
    [({}, TtlRequest.SERVER_DEFAULT), ({"ttlMs": None}, TtlRequest.NO_EXPIRY), ({"ttlMs": 0}, 0.0)],
)
async def test_the_requested_ttl_is_absent_null_or_a_number(members: Json, ttl: float | TtlRequest) -> None:
    backend = FakeBackend()
    await subscribe(backend, subscription(**members))

    assert backend.subscribed[0].ttl == ttl


ORDERED_FAULTS: Final[list[tuple[Json, str | None, EventErrorName]]] = [
    (
        subscription(name="unknown", delivery={"mode": "push", "secret": "x", "url": "x"}),
        None,
        EventErrorName.FORBIDDEN,
    ),
    (subscription(name="unknown", delivery={"mode": "push", "secret": "x"}), "alice", EventErrorName.NOT_FOUND),
    (subscription(delivery={"mode": "push", "secret": "x"}), "alice", EventErrorName.UNSUPPORTED),
    (subscription(name="disk.full", delivery={"secret": "x"}), "alice", EventErrorName.UNSUPPORTED),
]


@pytest.mark.parametrize(("params", "caller", "name"), ORDERED_FAULTS)
async def test_the_first_fault_in_the_order_of_the_specification_decides(
    params: Json, caller: str | None, name: EventErrorName
) -> None:
    backend = FakeBackend()

    with pytest.raises(EventError) as refused:
        await subscribe(backend, params, caller)

    assert refused.value.name is name
    assert backend.subscribed == []


@pytest.mark.parametrize(
    ("params", "word"),
    [
        (subscription(arguments={"unknown": 1}, delivery={"secret": None}), "arguments"),
        (subscription(delivery={"secret": None, "url": "http://x"}), "secret"),
        (subscription(delivery={"secret": SECRET.removeprefix("whsec_")}), "secret"),
        (subscription(delivery={"secret": "whsec_" + "a" * 28}), "secret"),
        (subscription(delivery={"secret": "whsec_" + "a" * 100}), "secret"),
        (subscription(delivery={"url": None}), "url"),
        (subscription(delivery={"url": "http://agent.example/"}), "url"),
        (subscription(delivery={"url": "https://"}), "url"),
        (subscription(delivery={"url": "https://user:word@agent.example/"}), "url"),
        (subscription(delivery={"url": "https://agent.example/#part"}), "url"),
        (subscription(delivery={"url": "https://agent.example/ x"}), "url"),
        (subscription(delivery={"url": "https://[::1/"}), "url"),
        (subscription(delivery={"url": "https://agent.example:99999/"}), "url"),
        ({"name": NAME, "arguments": {}}, "delivery"),
    ],
)
async def test_arguments_secret_and_url_are_checked_in_this_order_before_the_backend(params: Json, word: str) -> None:
    backend = FakeBackend()

    with pytest.raises(EventError) as refused:
        await subscribe(backend, params)

    assert refused.value.name is EventErrorName.INVALID_PARAMS
    assert word in refused.value.detail
    assert "whsec_M" not in str(refused.value)
    assert backend.subscribed == []


async def test_a_secret_without_padding_and_one_with_it_are_accepted() -> None:
    backend = FakeBackend()
    for secret in ("whsec_" + "YWJj" * 8 + "YQ", "whsec_" + "YWJj" * 8 + "YQ=="):
        await subscribe(backend, subscription(delivery={"secret": secret}))

    assert len(backend.subscribed) == 2


async def test_a_grant_has_every_member_that_a_client_requires_also_if_it_is_null() -> None:
    grant = SubscriptionGrant(id="sub_1", refresh_before=None, cursor=None, truncated=False)

    assert await subscribe(FakeBackend(grant=grant), subscription()) == {
        "id": "sub_1",
        "refreshBefore": None,
        "cursor": None,
        "truncated": False,
    }


async def test_a_refresh_says_how_deliveries_are_doing_without_a_receivers_words() -> None:
    status = DeliveryStatus(active=False, last_error=CallbackFailure.HTTP_5XX, failed_since=NOW)
    grant = SubscriptionGrant(id="s", refresh_before=NOW, cursor="c", truncated=True, delivery_status=status)

    result = await subscribe(FakeBackend(grant=grant), subscription())

    assert result["refreshBefore"] == "2026-11-20T17:00:00.000Z"
    assert result["deliveryStatus"] == {
        "active": False,
        "lastDeliveryAt": None,
        "lastError": "http_5xx",
        "failedSince": "2026-11-20T17:00:00.000Z",
    }


# -- unsubscribe --


@pytest.mark.parametrize("mode", [{}, {"mode": "webhook"}])
async def test_unsubscribing_takes_the_mode_or_not_and_does_not_validate_the_arguments(mode: Json) -> None:
    backend = FakeBackend()
    params = {"name": "gone", "arguments": {"b": 1.0, "a": 2}, "delivery": {"url": URL, **mode}}

    assert await make_endpoint(backend).unsubscribe("alice", params) == {}

    (key,) = backend.unsubscribed
    assert (key.name, key.canonical_arguments, key.url) == ("gone", '{"a":2,"b":1}', URL)


async def test_an_argument_that_contradicts_the_endpoint_is_refused() -> None:
    backend = FakeBackend(implied={"upstream": "git"})
    params = {"name": NAME, "arguments": {"upstream": "other"}, "delivery": {"url": URL}}

    with pytest.raises(EventError) as refused:
        await make_endpoint(backend).unsubscribe("alice", params)

    assert refused.value.name is EventErrorName.INVALID_PARAMS
    assert backend.unsubscribed == []


# -- errors --


@pytest.mark.parametrize("name", list(EventErrorName))
def test_an_error_has_its_name_in_the_message_and_a_code_of_the_servers_range(name: EventErrorName) -> None:
    error = EventError(name, "Why.", {"kind": "event"})
    for profile in ErrorProfile:
        shown = to_error_object(error, profile)

        assert shown["message"] == f"{name}: Why."
        assert shown["data"] == {"kind": "event"}
        assert -32099 <= shown["code"] <= -32000 or shown["code"] in {-32602, -32603}

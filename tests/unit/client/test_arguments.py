"""Arguments that cannot be sent are refused by name, before a request. The service has no routes: a request would fail."""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import respx

from ringback.client import DurableCaller, InvalidArgument, RingbackClient, SyncRingbackClient
from tests.support.mocked_requests import get_last_request
from tests.unit.client.conftest import BASE_URL

Method = Callable[[Any], Awaitable[object] | AsyncGenerator[object]]

NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)

CALLS_OF_METHODS: dict[str, tuple[Method, str]] = {
    "call": (lambda client: client.call(""), "`call_id`"),
    "call .": (lambda client: client.call(".."), "`call_id`"),
    "call None": (lambda client: client.call(None), "`call_id`"),
    "result": (lambda client: client.result(""), "`call_id`"),
    "put_webhook": (lambda client: client.put_webhook("", "https://agent.example/callback"), "`name`"),
    "webhook": (lambda client: client.webhook(""), "`webhook_id`"),
    "redeliver": (lambda client: client.redeliver(""), "`delivery_id`"),
    "declare_event_type": (lambda client: client.declare_event_type(""), "`name`"),
    "tools": (lambda client: client.tools(""), "`upstream`"),
    "start_login": (lambda client: client.start_login(""), "`upstream`"),
    "erase_session": (lambda client: client.erase_session(""), "`client_session_id`"),
    "revoke_key": (lambda client: client.revoke_key(""), "`key_id`"),
    "start_call": (lambda client: client.start_call("git", "git_log", idempotency_key=""), "idempotency key"),
    "register_webhook": (
        lambda client: client.register_webhook("https://agent.example/callback", idempotency_key=""),
        "idempotency key",
    ),
    "wait_any": (lambda client: client.wait_any("call_1"), "`call_ids`"),
    "wait_all": (lambda client: client.wait_all([1]), "`call_ids`"),
    "start_calls": (lambda client: client.start_calls({"upstream": "git", "tool": "git_log"}), "`calls`"),
    "publish_events": (lambda client: client.publish_events({"name": "order.paid"}), "`events`"),
    "start_calls of texts": (lambda client: client.start_calls(["git_log"]), r"`calls\[0\]` must be a mapping"),
    "start_calls arguments": (
        lambda client: client.start_calls([{"upstream": "git", "tool": "git_log", "arguments": {"at": NEW_YEAR}}]),
        "`calls` cannot be sent as JSON: Object of type datetime",
    ),
    "start_call arguments": (
        lambda client: client.start_call("git", "git_log", "main"),
        "`arguments` must be a mapping",
    ),
    "start_call NaN": (
        lambda client: client.start_call("git", "git_log", {"limit": float("nan")}),
        "`arguments` cannot be sent as JSON: Out of range float",
    ),
    "start_call half a character": (
        lambda client: client.start_call("git", "git_log", {"branch": "\ud800"}),
        "`arguments` contains half a character",
    ),
    "answer": (lambda client: client.answer("call_1", {"q": "accept"}), r"`responses\['q'\]` must be a mapping"),
    "publish_event": (lambda client: client.publish_event("order.paid", {"at": NEW_YEAR}), "`data` cannot be sent"),
    "publish_events of numbers": (lambda client: client.publish_events([7]), r"`events\[0\]` must be a mapping"),
    "calls": (lambda client: client.calls(outcome="tool_error"), "`outcome`"),
    "calls of a long session": (lambda client: client.calls(client_session_id="s" * 70_000), "is too long"),
    "events of a long session": (
        lambda client: client.events(client_session_id="s" * 70_000, follow=True),
        "is too long",
    ),
    "create_key scopes": (lambda client: client.create_key("alice", scopes="read"), "`scopes`"),
    "create_key upstreams": (lambda client: client.create_key("alice", upstreams="git"), "`upstreams`"),
}


async def use(client: RingbackClient, method: Method) -> None:
    match method(client):
        case AsyncGenerator() as items:
            await anext(items)
        case started:
            assert inspect.isawaitable(started)
            await started


@pytest.mark.parametrize(("method", "named"), CALLS_OF_METHODS.values(), ids=CALLS_OF_METHODS)
async def test_an_argument_that_cannot_be_sent_is_refused_by_name(
    client: RingbackClient, service: respx.MockRouter, method: Method, named: str
) -> None:
    with pytest.raises(InvalidArgument, match=named):
        await use(client, method)

    assert not service.calls


async def test_a_slash_and_a_space_within_an_id_are_escaped(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.delete(url__regex=".*").respond(204)

    await client.remove_event_type("a/../b c?d")

    assert get_last_request(route).url.raw_path == b"/v1/event-types/a%2F..%2Fb%20c%3Fd"


@pytest.mark.parametrize("construct", [RingbackClient, SyncRingbackClient])
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"base_url": None}, "base URL must be a text. Example: http"),
        ({"base_url": b"http://ringback.example"}, "base URL must be a text"),
        ({"timeout_seconds": -1}, "`timeout_seconds`"),
        ({"timeout_seconds": 0}, "`timeout_seconds`"),
        ({"timeout_seconds": float("nan")}, "`timeout_seconds`"),
        ({"timeout_seconds": None}, "`timeout_seconds`"),
    ],
)
def test_a_client_is_not_constructed_with_an_invalid_option(
    construct: Callable[..., object], options: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidArgument, match=named):
        construct(**{"base_url": BASE_URL, **options})


def test_the_client_without_await_refuses_the_same_arguments() -> None:
    with SyncRingbackClient(BASE_URL) as ringback:
        with pytest.raises(InvalidArgument, match="`call_ids`"):
            ringback.wait_any("call_1")
        with pytest.raises(InvalidArgument, match="idempotency key"):
            ringback.start_call("git", "git_log", idempotency_key="")


@pytest.mark.parametrize("url", [BASE_URL, f"{BASE_URL}/mcp"])
async def test_a_durable_caller_refuses_an_empty_key_and_a_single_handle_where_several_are_expected(url: str) -> None:
    async with DurableCaller(url) as caller:
        with pytest.raises(InvalidArgument, match="idempotency key"):
            await caller.request_call_tool("git_log", upstream="git", idempotency_key="")
        with pytest.raises(InvalidArgument, match="`handles`"):
            await caller.join_any("req_1")
        assert await caller.list_calls() == []

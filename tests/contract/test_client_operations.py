"""RingbackClient and SyncRingbackClient have a method for every operation of the OpenAPI document."""

import inspect
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest

from ringback.client import ClientError, EventStream, RingbackClient, SyncRingbackClient
from scripts import sync_client_methods

PATHS: Final[dict[str, dict[str, dict[str, Any]]]] = json.loads(
    (Path(__file__).parents[2] / "openapi" / "ringback.json").read_text(encoding="utf-8")
)["paths"]
PAGING: Final = frozenset({"cursor", "limit"})
"""Parameters that the methods which iterate over pages send themselves."""


class Operation(NamedTuple):
    method: str
    path: str
    query: frozenset[str]


OPERATIONS: Final[Mapping[str, Operation]] = {
    operation["operationId"]: Operation(
        method.upper(),
        path,
        frozenset(each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"),
    )
    for path, methods in PATHS.items()
    for method, operation in methods.items()
}

OPERATOR: Final = frozenset({"principal"})
"""The parameter that a client with `principal` sends with every request of the API."""
POLYFILL: Final = frozenset({"lastEventId"})
"""What EventSource polyfills of browsers send; the client sends the header."""

Sent = Awaitable[Any] | AsyncGenerator[Any] | EventStream

METHODS: Final[Mapping[str, Callable[[RingbackClient], Sent]]] = {
    "adopt_task": lambda client: client.adopt("git", "task-1"),
    "answer_call": lambda client: client.answer("id", {}),
    "cancel_calls": lambda client: client.cancel_calls(upstream="git"),
    "cancel_call": lambda client: client.cancel("id"),
    "change_webhook": lambda client: client.change_webhook("id", state="active"),
    "check_health": lambda client: client.healthy(),
    "check_readiness": lambda client: client.readiness(),
    "create_key": lambda client: client.create_key("alice"),
    "complete_login": lambda client: client.complete_login("id", "https://us.example/?code=c&state=s"),
    "end_login": lambda client: client.end_login("id"),
    "start_login": lambda client: client.start_login("id"),
    "create_portal_link": lambda client: client.create_portal_link(),
    "delete_portal_link": lambda client: client.delete_portal_link("id"),
    "list_portal_links": lambda client: client.portal_links(),
    "list_audit_entries": lambda client: client.audit_entries(),
    "erase_call": lambda client: client.erase_call("id"),
    "erase_principal": lambda client: client.erase_principal("id"),
    "erase_session": lambda client: client.erase_session("id"),
    "issue_resume_token": lambda client: client.fresh_resume_token("id"),
    "join_calls": lambda client: client.wait_all(["id"]),
    "list_calls": lambda client: client.calls(),
    "list_deliveries": lambda client: client.deliveries(),
    "list_keys": lambda client: client.keys(),
    "list_tools": lambda client: client.tools("id"),
    "list_upstreams": lambda client: client.upstreams(),
    "list_webhooks": lambda client: client.webhooks(),
    "look_at_result": lambda client: client.result_info("id"),
    "poll_events": lambda client: client.poll_events(),
    "declare_event_type": lambda client: client.declare_event_type("id"),
    "list_event_types": lambda client: client.event_types(),
    "publish_event": lambda client: client.publish_event("order.paid", {}),
    "publish_events": lambda client: client.publish_events([{"name": "order.paid", "data": {}}]),
    "remove_event_type": lambda client: client.remove_event_type("id"),
    "put_webhook": lambda client: client.put_webhook("id", "https://agent.example/"),
    "read_call": lambda client: client.call("id"),
    "read_call_history": lambda client: client.call_history("id"),
    "read_delivery": lambda client: client.delivery("id"),
    "read_erasure": lambda client: client.erasure("id"),
    "list_sessions": lambda client: client.sessions(),
    "read_insights": lambda client: client.insights(),
    "read_session": lambda client: client.session("id"),
    "read_key": lambda client: client.key("id"),
    "read_named_webhook": lambda client: client.named_webhook("id"),
    "read_metrics": lambda client: client.metrics(),
    "read_problem_type": lambda client: client.problem_type("id"),
    "read_result": lambda client: client.result("id"),
    "read_status": lambda client: client.status(),
    "read_signing_keys": lambda client: client.public_keys(),
    "read_usage": lambda client: client.usage(),
    "read_webhook": lambda client: client.webhook("id"),
    "drain_upstream": lambda client: client.drain_upstream("id"),
    "pause_upstream": lambda client: client.pause_upstream("id"),
    "restart_upstream": lambda client: client.restart_upstream("id"),
    "resume_upstream": lambda client: client.resume_upstream("id"),
    "redeliver_many": lambda client: client.redeliver_many(webhook_id="id"),
    "redeliver": lambda client: client.redeliver("id"),
    "register_webhook": lambda client: client.register_webhook("https://agent.example/"),
    "reload_upstreams": lambda client: client.reload_upstreams(),
    "remove_named_webhook": lambda client: client.delete_named_webhook("id"),
    "remove_webhook": lambda client: client.delete_webhook("id"),
    "replay_webhook": lambda client: client.replay_webhook("id", since=datetime(2026, 11, 20, tzinfo=UTC)),
    "report_call": lambda client: client.report("key", "git", "git_log"),
    "resume_call": lambda client: client.resume("token"),
    "revoke_key": lambda client: client.revoke_key("id"),
    "rotate_key": lambda client: client.rotate_key("id"),
    "rotate_secret": lambda client: client.rotate_secret("id"),
    "start_call": lambda client: client.start_call("git", "git_log"),
    "start_calls": lambda client: client.start_calls([{"upstream": "git", "tool": "git_log"}]),
    "stream_events": lambda client: client.stream_events(),
    "test_webhook": lambda client: client.test_webhook("id"),
    "verify_webhook": lambda client: client.verify_webhook("id"),
}


async def send(operation_id: str) -> httpx.Request:
    """The request that the operation's method sends. The service rejects it."""
    requests: list[httpx.Request] = []

    def reject(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(404, json={}, headers={"content-type": "application/problem+json"})

    async with RingbackClient("http://ringback.example", transport=httpx.MockTransport(reject)) as client:
        sent = METHODS[operation_id](client)
        with suppress(ClientError):
            await (sent if isinstance(sent, Awaitable) else anext(sent))
    return requests[0]


def find_method(operation_id: str) -> str:
    """The name of the method that the table calls."""
    return METHODS[operation_id].__code__.co_names[0]


def public_methods(client_type: type) -> Mapping[str, inspect.Signature]:
    methods = inspect.getmembers(client_type, inspect.isfunction)
    return {name: inspect.signature(method) for name, method in methods if not name.startswith("_")}


def test_every_operation_has_a_method() -> None:
    assert METHODS.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("operation_id", METHODS)
async def test_the_method_of_an_operation_sends_its_request(operation_id: str) -> None:
    operation = OPERATIONS[operation_id]

    request = await send(operation_id)

    assert request.method == operation.method
    assert re.fullmatch(re.sub(r"\{\w+\}", "id", operation.path), request.url.path)


@pytest.mark.parametrize("operation_id", METHODS)
def test_the_method_of_an_operation_takes_its_query_parameters(operation_id: str) -> None:
    taken = public_methods(RingbackClient)[find_method(operation_id)].parameters

    assert OPERATIONS[operation_id].query - PAGING - OPERATOR - POLYFILL - taken.keys() == set()


def test_the_synchronous_client_has_the_same_methods_with_the_same_parameters() -> None:
    asynchronous, synchronous = public_methods(RingbackClient), public_methods(SyncRingbackClient)
    closing = {"aclose", "close"}

    assert asynchronous.keys() - closing == synchronous.keys() - closing
    assert {name: signature.parameters for name, signature in asynchronous.items() if name not in closing} == {
        name: signature.parameters for name, signature in synchronous.items() if name not in closing
    }


def test_the_readme_names_every_method_and_those_to_iterate_over() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    table, _, rest = readme.partition("| methods of both clients |")[2].partition("\n\n")
    named = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split(" | ")[0])]
    iterated = re.findall(r"`(\w+)`", rest.partition(" over ")[2].partition(";")[0])
    methods = public_methods(RingbackClient)

    assert sorted(named) == sorted(methods.keys() - {"aclose"})
    assert sorted(iterated) == sorted(name for name in methods if returns_an_iterator(name))


def returns_an_iterator(name: str) -> bool:
    method = getattr(RingbackClient, name)
    return inspect.isasyncgenfunction(method) or "EventStream" in str(inspect.signature(method).return_annotation)


def test_the_generated_methods_are_up_to_date() -> None:
    assert sync_client_methods.list_outdated_modules() == [], "Run scripts/sync_client and commit the change."

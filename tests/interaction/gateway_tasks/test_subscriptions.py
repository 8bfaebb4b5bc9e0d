"""Notifications on the stream of subscriptions/listen and in legacy sessions."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.domain.call import Call
from ringback.domain.errors import Unavailable
from ringback.domain.principal import ALL_SCOPES, Caller, Principal
from ringback.mcp_server import session_notifications, subscriptions
from ringback.mcp_server.change_publisher import ChangePublisher
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.session_notifications import send_to_request
from ringback.mcp_server.task_serializer import TaskSerializer
from ringback.mcp_server.tasks import build_detailed_task
from tests.interaction.gateway_tasks.conftest import TasksHarness
from tests.support.api_server import serving_api
from tests.support.application import running_application
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import TASKS, Json, JsonRpcErrorResponse, LegacyClientSession, ModernClient
from tests.support.resource_upstream import NOTE_URI

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
OPERATOR = Caller(principal=Principal("operator"), scopes=ALL_SCOPES)
UNKNOWN = "call_00000000000000000000000000"

pytestmark = pytest.mark.requirement("R20")


async def read_acknowledged(modern: ModernClient, notifications: Json) -> Json:
    async with modern.open_subscription(notifications) as stream:
        first = await stream.read_message()
        assert first["method"] == ACKNOWLEDGED
        honoured: Json = first["params"]["notifications"]
        return honoured


@pytest.mark.requirement("R30")
async def test_a_task_notification_equals_the_tasks_get_result(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, task = await harness.start_task()
    async with modern.open_subscription({"taskIds": [task_id]}) as stream:
        first = await stream.read_message()
        assert (first["method"], first["params"]["notifications"]) == (ACKNOWLEDGED, {"taskIds": [task_id]})
        now = await stream.read_message()
        assert (now["method"], now["params"]["status"]) == ("notifications/tasks", "working")
        task.complete_task("done")
        ended = await stream.read_message(
            where=lambda returned: returned["status"] == "completed", method="notifications/tasks"
        )
        answered = await modern.request("tasks/get", {"taskId": task_id})
    about = ended["params"].pop("_meta")
    assert about[SUBSCRIPTION] == first["params"]["_meta"][SUBSCRIPTION]
    assert about["ringback/callId"] == task_id
    assert ended["params"] == {key: value for key, value in answered.items() if key not in {"_meta", "resultType"}}


async def test_a_stream_whose_client_reads_slowly_holds_one_task_in_memory(
    harness: TasksHarness, modern: ModernClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its tasks may have a result of the largest size."""
    task_ids = [(await harness.start_task())[0] for _ in range(3)]
    is_sending, may_read, built = asyncio.Event(), asyncio.Event(), list[str]()

    async def count_and_build(gateway: Gateway, serializer: TaskSerializer, caller: Caller, call: Call) -> Json:
        built.append(call.id)
        return await build_detailed_task(gateway, serializer, caller, call)

    async def send_when_read(context: RequestContext, method: str, params: Mapping[str, Any]) -> None:
        if method != ACKNOWLEDGED:
            is_sending.set()
            await may_read.wait()
        await send_to_request(context, method, params)

    monkeypatch.setattr(subscriptions, "build_detailed_task", count_and_build)
    monkeypatch.setattr(subscriptions, "send_to_request", send_when_read)
    async with modern.open_subscription({"taskIds": task_ids}) as stream:
        await stream.read_message(ACKNOWLEDGED)
        await asyncio.wait_for(is_sending.wait(), WAIT_SECONDS)
        for task_id in task_ids:
            await modern.request("tasks/get", {"taskId": task_id})  # the publishers of the stream have their turns
        assert len(built) == 1
        may_read.set()
        shown = {(await stream.read_message("notifications/tasks"))["params"]["taskId"] for _ in task_ids}
    assert shown == set(task_ids)


@pytest.mark.requirement("R30")
@pytest.mark.requirement("R25")
async def test_only_the_callers_own_tasks_are_accepted(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, _ = await harness.start_task()
    theirs, _ = await harness.start_task(principal="bob")
    assert await read_acknowledged(modern, {"taskIds": [theirs, UNKNOWN, task_id, "nonsense", task_id]}) == {
        "taskIds": [task_id]
    }
    assert await read_acknowledged(modern, {"taskIds": [theirs]}) == {}


@pytest.mark.must("M21")
async def test_a_subscription_to_tasks_requires_the_extension(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, _ = await harness.start_task()
    async with modern.open_subscription({"taskIds": [task_id]}, declare={}) as stream:
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await stream.read_response()
    assert (refused.value.code, refused.value.status) == (-32021, 400)
    assert refused.value.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


async def test_a_failed_subscription_stream_ends_with_a_retryable_error(
    harness: TasksHarness, modern: ModernClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object) -> None:
        raise Unavailable("The store cannot be read.")

    monkeypatch.setattr(ChangePublisher, "publish_list_changes", unavailable)
    async with modern.open_subscription({"toolsListChanged": True}) as stream:
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await stream.read_response()
    assert (refused.value.code, refused.value.message) == (-32000, "The store cannot be read.")


async def test_a_task_that_cannot_be_read_does_not_end_the_stream_of_other_tasks(
    harness: TasksHarness, modern: ModernClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable_id, _ = await harness.start_task()
    task_id, task = await harness.start_task()
    unreadable = {unreadable_id}

    async def fail_or_build(gateway: Gateway, serializer: TaskSerializer, caller: Caller, call: Call) -> Json:
        if call.id in unreadable:
            raise Unavailable("The store cannot be read.")
        return await build_detailed_task(gateway, serializer, caller, call)

    monkeypatch.setattr(subscriptions, "build_detailed_task", fail_or_build)
    async with modern.open_subscription({"taskIds": [unreadable_id, task_id]}) as stream:
        await stream.read_message(ACKNOWLEDGED)
        task.complete_task("done")
        ended = await stream.read_message(
            where=lambda returned: returned["status"] == "completed", method="notifications/tasks"
        )
        assert ended["params"]["taskId"] == task_id
        unreadable.clear()
        await modern.request("tasks/cancel", {"taskId": unreadable_id})
        shown = await stream.read_message("notifications/tasks")
    assert shown["params"]["taskId"] == unreadable_id


async def test_a_filter_that_is_no_list_of_strings_is_refused(modern: ModernClient) -> None:
    for wanted in ({"taskIds": "x"}, {"taskIds": [7]}, {"resourceSubscriptions": 7}):
        async with modern.open_subscription(wanted) as stream:
            with pytest.raises(JsonRpcErrorResponse) as refused:
                await stream.read_response()
        assert refused.value.code == -32602


async def test_a_stream_accepts_a_limited_number_of_tasks(
    harness: TasksHarness, modern: ModernClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "STREAM_SUBSCRIPTIONS_MAX", 1)
    first, _ = await harness.start_task()
    second, _ = await harness.start_task()
    assert await read_acknowledged(modern, {"taskIds": [first, second]}) == {"taskIds": [first]}


@pytest.mark.requirement("R15")
async def test_a_change_of_a_calls_resource_is_notified(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, task = await harness.start_task()
    uri = f"ringback://calls/{task_id}"
    async with modern.open_subscription({"resourceSubscriptions": [uri]}) as stream:
        first = await stream.read_message()
        assert first["params"]["notifications"] == {"resourceSubscriptions": [uri]}
        task.complete_task("done")
        assert (await stream.read_message(UPDATED))["params"]["uri"] == uri
    (read,) = (await modern.request("resources/read", {"uri": uri}))["contents"]
    assert json.loads(read["text"])["result"]["content"] == [{"type": "text", "text": "done"}]


@pytest.mark.requirement("R25")
async def test_a_subscription_to_a_foreign_calls_resource_is_refused(harness: TasksHarness) -> None:
    task_id, _ = await harness.start_task()
    bob = await harness.make_modern_client("bob")
    assert await read_acknowledged(bob, {"resourceSubscriptions": [f"ringback://calls/{task_id}"]}) == {}


async def test_a_change_of_an_upstreams_resource_is_notified(harness: TasksHarness) -> None:
    modern = await harness.make_modern_client(upstream="notes")
    async with modern.open_subscription({"resourceSubscriptions": [NOTE_URI]}) as stream:
        first = await stream.read_message()
        assert first["params"]["notifications"] == {"resourceSubscriptions": [NOTE_URI]}
        await harness.notes.publish_resource_change()
        assert (await stream.read_message(UPDATED))["params"]["uri"] == NOTE_URI
    await harness.notes.wait_until(lambda: not harness.notes.subscribed)


async def test_the_joined_endpoint_notifies_resource_and_list_changes(harness: TasksHarness) -> None:
    joined = ModernClient(harness.http, f"{harness.url}/mcp", await harness.get_api_key("alice"))
    async with joined.open_subscription(
        {"resourceSubscriptions": [NOTE_URI, "other://no"], "toolsListChanged": True}
    ) as stream:
        first = await stream.read_message()
        assert first["params"]["notifications"] == {"resourceSubscriptions": [NOTE_URI], "toolsListChanged": True}
        await harness.notes.publish_resource_change()
        await harness.notes.publish_list_changes()
        returned = {(await stream.read_message())["method"] for _ in range(2)}
    assert returned == {UPDATED, "notifications/tools/list_changed"}


async def test_a_resource_that_the_upstream_does_not_notify_is_refused(
    harness: TasksHarness, modern: ModernClient, session: LegacyClientSession
) -> None:
    assert await read_acknowledged(modern, {"resourceSubscriptions": [NOTE_URI]}) == {}
    with pytest.raises(JsonRpcErrorResponse):
        await session.request("resources/subscribe", {"uri": NOTE_URI})


async def test_a_stream_ends_with_an_error_when_the_service_stops(tmp_path: Path) -> None:
    async with (
        running_application(tmp_path, auth="off", allowed_hosts=("127.0.0.1",)) as ringback,
        serving_api(ringback.app.api) as url,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
        ModernClient(http, f"{url}/mcp").open_subscription({"toolsListChanged": True}) as stream,
    ):
        subscription = (await stream.read_message())["params"]["_meta"][SUBSCRIPTION]
        ringback.stop.set()
        ended = await stream.read_response()
    assert (ended["resultType"], ended["_meta"][SUBSCRIPTION]) == ("complete", subscription)


async def test_list_changes_are_sent_to_subscribers(harness: TasksHarness) -> None:
    modern = await harness.make_modern_client(upstream="notes")
    async with modern.open_subscription({"resourcesListChanged": True, "promptsListChanged": False}) as stream:
        first = await stream.read_message()
        assert first["params"]["notifications"] == {"resourcesListChanged": True}
        await harness.notes.publish_list_changes()
        assert (await stream.read_message())["method"] == "notifications/resources/list_changed"


@pytest.mark.requirement("R15")
async def test_a_session_can_subscribe_to_the_resource_of_a_call(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    task_id, task = await harness.start_task()
    uri = f"ringback://calls/{task_id}"
    async with session.open_event_stream() as stream:
        assert await session.request("resources/subscribe", {"uri": uri}) == {}
        task.complete_task("done")
        assert (await stream.read_message(UPDATED))["params"]["uri"] == uri


async def test_a_session_can_subscribe_to_an_upstreams_resource_and_unsubscribe(
    harness: TasksHarness,
) -> None:
    async with harness.open_legacy_session(upstream="notes") as session, session.open_event_stream() as stream:
        await session.request("resources/subscribe", {"uri": NOTE_URI})
        await harness.notes.publish_resource_change()
        assert (await stream.read_message(UPDATED))["params"]["uri"] == NOTE_URI
        assert await session.request("resources/unsubscribe", {"uri": NOTE_URI}) == {}
        await harness.notes.wait_until(lambda: not harness.notes.subscribed)
        assert await session.request("resources/unsubscribe", {"uri": NOTE_URI}) == {}


async def test_a_session_that_ends_leaves_no_subscription(harness: TasksHarness) -> None:
    async with harness.open_legacy_session(upstream="notes") as session:
        await session.request("resources/subscribe", {"uri": NOTE_URI})
        assert harness.notes.subscribed == [NOTE_URI]
    await harness.notes.wait_until(lambda: not harness.notes.subscribed)


@pytest.mark.requirement("R25")
async def test_foreign_and_unknown_resources_cannot_be_subscribed(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    theirs, _ = await harness.start_task(principal="bob")
    for call_id in (theirs, UNKNOWN):
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await session.request("resources/subscribe", {"uri": f"ringback://calls/{call_id}"})
        assert refused.value.code == -32602


async def test_the_subscriptions_of_a_session_are_limited(
    harness: TasksHarness, session: LegacyClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_notifications, "SESSION_PUBLISHERS_MAX", 2)
    first, _ = await harness.start_task()
    second, _ = await harness.start_task()
    await session.request("resources/subscribe", {"uri": f"ringback://calls/{first}"})
    with pytest.raises(JsonRpcErrorResponse, match="Unsubscribe"):
        await session.request("resources/subscribe", {"uri": f"ringback://calls/{second}"})
    await session.request("resources/unsubscribe", {"uri": f"ringback://calls/{first}"})
    await session.request("resources/subscribe", {"uri": f"ringback://calls/{second}"})


async def test_the_subscriptions_of_all_sessions_of_a_principal_are_limited(
    harness: TasksHarness, session: LegacyClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_notifications, "PRINCIPAL_PUBLISHERS_MAX", 3)  # one of each session is for lists
    first, _ = await harness.start_task()
    second, _ = await harness.start_task()
    async with harness.open_legacy_session() as other, harness.open_legacy_session("bob", upstream="notes") as bobs:
        await other.request("resources/subscribe", {"uri": f"ringback://calls/{first}"})
        with pytest.raises(JsonRpcErrorResponse, match="your sessions together"):
            await session.request("resources/subscribe", {"uri": f"ringback://calls/{second}"})
        await bobs.request("resources/subscribe", {"uri": NOTE_URI})
        await other.request("resources/unsubscribe", {"uri": f"ringback://calls/{first}"})
        await session.request("resources/subscribe", {"uri": f"ringback://calls/{second}"})


async def test_a_session_gets_list_change_notifications(harness: TasksHarness) -> None:
    async with harness.open_legacy_session(upstream="notes") as session, session.open_event_stream() as stream:
        await session.request("ping", {})  # earlier notifications of the session have arrived by then
        await harness.notes.publish_list_changes()
        returned = {(await stream.read_message())["method"] for _ in range(2)}
    assert returned == {"notifications/tools/list_changed", "notifications/resources/list_changed"}


async def test_streams_count_against_the_principals_quota(harness: TasksHarness, modern: ModernClient) -> None:
    async def open_streams() -> int:
        return (await harness.ringback.app.services.insights.get_status(OPERATOR)).open_streams

    async def all_closed() -> bool:
        return await open_streams() == 0

    await wait_until(all_closed)
    async with modern.open_subscription({"toolsListChanged": True}) as stream:
        await stream.read_message()
        assert await open_streams() == 1
    await wait_until(all_closed)

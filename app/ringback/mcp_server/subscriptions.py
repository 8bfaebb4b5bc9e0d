"""Subscriptions of clients: `subscriptions/listen` for modern clients, notifications in the session for legacy ones.

    subscriptions/listen      {taskIds, resourceSubscriptions, toolsListChanged, promptsListChanged, resourcesListChanged,
                              eventsListChanged} is acknowledged with what is accepted; then a stream until one side ends
                              it. After `FOLLOW_SECONDS_MAX` Ringback ends it, so that a returning client is authenticated
                              again
    resources/subscribe       and unsubscribe: notifications go to the session's own stream, on whichever node that is open
    after `initialized`       notifications of changed lists go there too; of event types if the client declares MCP Events

Another caller's task or resource is left out of the acknowledgement, like one that does not exist. A stream begins with the
current state of every task, so a returning client misses nothing that matters. Nothing is stored for a client that is away or
reads slowly: it gets the latest state when it reads.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

from ringback.domain.call import Call
from ringback.domain.errors import Gone, NotFound, QuotaExceeded, RingbackError, Unavailable
from ringback.domain.ids import CallId
from ringback.domain.mcp_sessions import SessionState
from ringback.domain.upstreams import UpstreamErrorResponse
from ringback.mcp_server.change_publisher import (
    LIST_CHANGED_METHODS,
    Acceptance,
    ChangePublisher,
    subscribe_call_changes,
)
from ringback.mcp_server.gateway import (
    LEGACY_ONLY,
    MODERN_ONLY,
    Capabilities,
    Era,
    Feature,
    Gateway,
    MethodBinding,
    Result,
)
from ringback.mcp_server.jsonrpc_errors import method_not_found
from ringback.mcp_server.meta import with_meta
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.session_notifications import (
    PRINCIPAL_PUBLISHERS_MAX,
    SESSION_PUBLISHERS_MAX,
    SessionNotifications,
    detach_context,
    get_session_notifications,
    send_to_request,
    send_to_session,
)
from ringback.mcp_server.task_serializer import TaskSerializer
from ringback.mcp_server.tasks import build_detailed_task, require_tasks_extension
from ringback.protocol.mcp_events.names import EVENTS_EXTENSION, LIST_CHANGED_FLAG
from ringback.services.events.event_streams import FOLLOW_SECONDS_MAX
from ringback.services.mcp_sessions import with_subscription, without_subscription
from ringback.waits import wait_first

ACKNOWLEDGED_METHOD: Final = "notifications/subscriptions/acknowledged"
STREAM_SUBSCRIPTIONS_MAX: Final = 128
"""The maximum of tasks, and of resources, on one stream; further ones are not acknowledged. Each takes 6 KB (measured).
Together with the quota of a principal's streams this bounds the memory of a principal.
"""
RETRY_AFTER_SECONDS: Final = 30
SYNC_METHOD: Final = "ringback/syncSubscriptions"
"""The session manager replays it when another node has changed the session."""
_LIST_PUBLISHER: Final = "lists"


class SyncSubscriptionsParams(types.RequestParams):
    uris: list[str]


def build_feature(gateway: Gateway) -> Feature:
    modern, legacy = ModernSubscriptions(gateway), LegacySubscriptions(gateway)
    return Feature(
        methods=(
            MethodBinding(
                "subscriptions/listen", types.SubscriptionsListenRequestParams, modern.handle_listen, eras=MODERN_ONLY
            ),
            MethodBinding(
                "resources/subscribe", types.SubscribeRequestParams, legacy.subscribe_resource, eras=LEGACY_ONLY
            ),
            MethodBinding(
                "resources/unsubscribe", types.UnsubscribeRequestParams, legacy.unsubscribe_resource, eras=LEGACY_ONLY
            ),
            MethodBinding(SYNC_METHOD, SyncSubscriptionsParams, legacy.sync_subscriptions, eras=LEGACY_ONLY),
        ),
        notification_handlers={"notifications/initialized": legacy.handle_initialized},
        advertise_capabilities=_advertise_subscriptions,
    )


class ModernSubscriptions:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def handle_listen(self, context: RequestContext, params: types.SubscriptionsListenRequestParams) -> Result:
        filters = params.notifications.model_dump(by_alias=True, exclude_none=True)
        task_ids = _read_string_list(filters, "taskIds")
        if task_ids:
            require_tasks_extension(context)
        with self._gateway.quotas.open_stream(context.caller.principal, key_id=context.caller.key_id):
            stream = _SubscriptionStream(self._gateway, context)
            await stream.run(
                task_ids,
                _read_string_list(filters, "resourceSubscriptions"),
                [flag for flag in LIST_CHANGED_METHODS if filters.get(flag)],
            )
        return {"_meta": stream.meta}


class _SubscriptionStream:
    """One listen request, from its acknowledgement to its end."""

    def __init__(self, gateway: Gateway, context: RequestContext) -> None:
        self._gateway = gateway
        self._context = context
        self._publisher = ChangePublisher(gateway)
        self._serializer = TaskSerializer(result_retention_seconds=gateway.config.result_retention_seconds)
        self._is_acknowledged = asyncio.Event()
        self._task_turns = asyncio.Lock()
        """A task may have a large result: only the one that is being sent is in memory."""
        self.meta = {SUBSCRIPTION_ID_META_KEY: context.sdk_context.request_id}

    async def run(self, task_ids: Sequence[str], uris: Sequence[str], lists: Sequence[str]) -> None:
        """Publish until the service stops or `FOLLOW_SECONDS_MAX` are over; a disconnect of the client cancels this.

        Raises the first error.
        """
        tasks = await self._filter_own_tasks(task_ids[:STREAM_SUBSCRIPTIONS_MAX])
        try:
            async with asyncio.TaskGroup() as group:
                await self._run_publishers(group, tasks, uris[:STREAM_SUBSCRIPTIONS_MAX], lists)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # the dispatcher converts single errors only

    async def _run_publishers(
        self, group: asyncio.TaskGroup, tasks: Sequence[CallId], uris: Sequence[str], lists: Sequence[str]
    ) -> None:
        acceptances: dict[str, Acceptance] = {uri: asyncio.get_running_loop().create_future() for uri in uris}
        publishers = [
            group.create_task(
                self._publisher.publish_resource_changes(self._context, uri, self._send_notification, each)
            )
            for uri, each in acceptances.items()
        ]
        publishers += [group.create_task(self._publish_task_changes(call_id)) for call_id in tasks]
        if lists:
            publishers.append(
                group.create_task(self._publisher.publish_list_changes(self._context, lists, self._send_notification))
            )
        await self._send_acknowledgement(tasks, await _collect_accepted(acceptances), lists)
        await wait_first(self._gateway.lifecycle.shutdown_event.wait(), self._gateway.clock.sleep(FOLLOW_SECONDS_MAX))
        for each in publishers:
            each.cancel()

    async def _send_acknowledgement(self, tasks: Sequence[CallId], uris: Sequence[str], lists: Sequence[str]) -> None:
        """Send the acknowledgement, always the first message of the stream."""
        accepted: dict[str, Any] = dict.fromkeys(lists, True)
        accepted |= {"taskIds": tasks} if tasks else {}
        accepted |= {"resourceSubscriptions": uris} if uris else {}
        await send_to_request(self._context, ACKNOWLEDGED_METHOD, {"notifications": accepted, "_meta": self.meta})
        self._is_acknowledged.set()

    async def _filter_own_tasks(self, task_ids: Sequence[str]) -> Sequence[CallId]:
        own_ids: list[CallId] = []
        for task_id in dict.fromkeys(task_ids):
            try:
                own_ids.append((await self._gateway.calls.get_call(self._context.caller, task_id)).id)
            except (NotFound, Gone):
                continue
        return own_ids

    async def _publish_task_changes(self, call_id: CallId) -> None:
        with (
            suppress(NotFound, Gone),
            subscribe_call_changes(self._gateway, self._context.caller, call_id) as call_changes,
        ):
            while call := await call_changes.next_change():
                if not await self._send_task(call):
                    await call_changes.retry_change()

    async def _send_task(self, call: Call) -> bool:
        """False if the task cannot be read now: an outage, or one unreadable result, must not end the other tasks' stream."""
        async with self._task_turns:
            try:
                task = await build_detailed_task(self._gateway, self._serializer, self._context.caller, call)
            except Unavailable:
                return False
            await self._send_notification("notifications/tasks", task)
        return True

    async def _send_notification(self, method: str, params: Mapping[str, Any]) -> None:
        await self._is_acknowledged.wait()
        await send_to_request(self._context, method, with_meta(params, self.meta))


async def _collect_accepted(resources: Mapping[str, Acceptance]) -> Sequence[str]:
    # Shielded, because a publisher may be about to set the result when the client disconnects.
    outcomes = await asyncio.gather(*map(asyncio.shield, resources.values()), return_exceptions=True)
    return [uri for uri, answer in zip(resources, outcomes, strict=True) if answer is None]


class LegacySubscriptions:
    """resources/subscribe and unsubscribe of legacy sessions."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._publisher = ChangePublisher(gateway)

    async def subscribe_resource(self, context: RequestContext, params: types.SubscribeRequestParams) -> Result:
        notifications, uri = get_session_notifications(self._gateway, context), str(params.uri)
        if not notifications.has_capacity_for(_publisher_key(uri)):
            raise QuotaExceeded(
                f"This session already has {SESSION_PUBLISHERS_MAX} tasks and subscriptions, or your sessions together have "
                f"{PRINCIPAL_PUBLISHERS_MAX}. Unsubscribe from some resources, or end sessions.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        accepted = self._start_publisher(context, uri, notifications)
        with _describing_unsupported_subscriptions():
            await asyncio.shield(accepted)  # a cancelled request does not cancel the subscription
        if not context.is_replayed:
            await self._store_subscription(context, uri, notifications)
        notifications.stored_uris.add(uri)
        return {}

    async def unsubscribe_resource(self, context: RequestContext, params: types.UnsubscribeRequestParams) -> Result:
        uri, notifications = str(params.uri), get_session_notifications(self._gateway, context)
        notifications.stop_publisher(_publisher_key(uri))
        notifications.stored_uris.discard(uri)
        await self._change_session(context, lambda state: without_subscription(state, uri))
        return {}

    async def sync_subscriptions(self, context: RequestContext, params: SyncSubscriptionsParams) -> Result:
        """Follow the stored subscriptions of a session, after another node has changed them. No client can send this."""
        if not context.is_replayed:
            raise method_not_found(SYNC_METHOD)
        notifications, stored = get_session_notifications(self._gateway, context), set(params.uris)
        for uri in notifications.stored_uris - stored:
            notifications.stop_publisher(_publisher_key(uri))
        notifications.stored_uris &= stored
        for uri in stored - notifications.stored_uris:
            if notifications.has_capacity_for(_publisher_key(uri)):  # else the next sync tries it again
                self._start_publisher(context, uri, notifications)
                notifications.stored_uris.add(uri)
        return {}

    def _start_publisher(self, context: RequestContext, uri: str, notifications: SessionNotifications) -> Acceptance:
        accepted: Acceptance = asyncio.get_running_loop().create_future()
        detached = detach_context(context)
        send = partial(send_to_session, detached)
        notifications.start_publisher(
            _publisher_key(uri), lambda: self._publisher.publish_resource_changes(detached, uri, send, accepted)
        )
        return accepted

    async def _store_subscription(self, context: RequestContext, uri: str, notifications: SessionNotifications) -> None:
        try:
            await self._change_session(context, lambda state: with_subscription(state, uri))
        except RingbackError:
            notifications.stop_publisher(_publisher_key(uri))
            raise

    async def _change_session(self, context: RequestContext, change: Callable[[SessionState], SessionState]) -> None:
        await self._gateway.sessions.change_state(context.caller, context.mcp_session_id, context.endpoint.path, change)

    async def handle_initialized(self, context: RequestContext) -> None:
        """Start the notifications of changed lists."""
        detached, flags = detach_context(context), _list_flags(context)
        send = partial(send_to_session, detached)
        notifications = get_session_notifications(self._gateway, context)
        notifications.start_publisher(
            _LIST_PUBLISHER, lambda: self._publisher.publish_list_changes(detached, flags, send)
        )


@contextmanager
def _describing_unsupported_subscriptions() -> Generator[None]:
    """The upstream's own error names a method that the client has not called, or one that Ringback has."""
    try:
        yield
    except UpstreamErrorResponse as error:
        if error.error.get("code") != METHOD_NOT_FOUND:
            raise
        raise MCPError(
            METHOD_NOT_FOUND, "The upstream of this resource reports no changes. Read the resource again instead."
        ) from None


def _list_flags(context: RequestContext) -> Sequence[str]:
    """The lists whose changes the client of a legacy session knows. SDK 1.x logs each notification that it does not know."""
    knows_events = context.declares_extension(EVENTS_EXTENSION)
    return [flag for flag in LIST_CHANGED_METHODS if flag != LIST_CHANGED_FLAG or knows_events]


def _publisher_key(uri: str) -> str:
    return f"resource {uri}"


def _read_string_list(filters: Mapping[str, Any], key: str) -> Sequence[str]:
    value = filters.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in cast("list[Any]", value)):
        raise MCPError(INVALID_PARAMS, f"notifications.{key} must be a list of strings.")
    return cast("list[str]", value)


def _advertise_subscriptions(_era: Era, capabilities: Capabilities) -> None:
    for kind in ("tools", "prompts", "resources"):
        if kind in capabilities:
            capabilities[kind] = {**capabilities[kind], "listChanged": True}
    if "resources" in capabilities:
        capabilities["resources"] = {**capabilities["resources"], "subscribe": True}

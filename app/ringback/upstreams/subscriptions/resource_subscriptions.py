"""One subscription at the upstream for each watched resource, for any number of subscribers, renewed after reconnects.

    subscribe_resource(upstream, uri) ──first subscriber──▶ a task: subscribe on the session, wait for its end, repeat
                                      ──last one leaves───▶ unsubscribe

    modern    a `subscriptions/listen` stream for each resource: a rejected or noisy resource disturbs no other
    legacy    resources/subscribe on the shared session, which is pinged regularly: a session that the upstream has forgotten
              would stay silent for ever

A subscription that starts after its first subscriber, or is renewed, may have missed a change. So it publishes one.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import anyio
from mcp_types import INVALID_PARAMS

from ringback.asyncio_tasks import end_tasks
from ringback.domain.change_subscriptions import RESOURCE_URIS_MAX
from ringback.domain.clock import Clock
from ringback.domain.errors import QuotaExceeded
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.domain.upstreams import UpstreamChange, UpstreamErrorResponse
from ringback.log_context import leave_log_context
from ringback.protocol.errors import (
    InvalidUpstreamResponse,
    RequestFailed,
    RequestNotSent,
    ResponseLost,
    UpstreamError,
)
from ringback.protocol.tasks import await_poll
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.session import UpstreamSession
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications
from ringback.upstreams.transports.guarded_http import NOTIFICATION_TIMEOUT_SECONDS
from ringback.waits import wait_first

SUBSCRIPTIONS_PER_UPSTREAM_MAX: Final = 2 * RESOURCE_URIS_MAX
"""Watched resources of one upstream, half for connected clients and half for webhooks. On 2026-07-28 each holds an open
request; this many stay below the usual limit of 1024 open files."""
SUBSCRIPTIONS_PER_OWNER_MAX: Final = 32
"""Watched resources of one principal at an upstream with credentials for each principal. So one principal uses a sixteenth of
the upstream's limit; a client that watches more reads the others again from time to time."""
SUBSCRIPTIONS_PER_PRINCIPAL_MAX: Final = RESOURCE_URIS_MAX // 2
"""Watched resources of a shared upstream that only clients of one principal watch: half of those that are for clients."""
SUBSCRIBE_WAIT_SECONDS: Final = 5.0
"""How long a new subscriber waits for the first response. The attempts continue after it."""
RETRY_SECONDS: Final = 2.0
"""Between two attempts while the upstream is away or after it ended the stream. No changes arrive during the pause."""
REJECTED_RETRY_SECONDS: Final = 30.0
"""Between two attempts after the upstream rejected the subscription."""
PING_SECONDS: Final = 30.0
"""The longest time for which a forgotten session can hide changes."""


class SubscribableConnection(Protocol):
    """What a subscription needs of a connection."""

    @property
    def replaced(self) -> anyio.Event:
        """Set when the configuration has replaced or removed this connection."""
        ...

    async def get_shared_session(self, *, started_here: bool) -> UpstreamSession:
        """Wait for the shared session; raises `UpstreamUnreachable`, also if this connection was replaced."""
        ...


class SubscribableConnections(Protocol):
    def use_connection(self, upstream: str, principal: Principal) -> AbstractContextManager[SubscribableConnection]:
        """The connection, which stays open while entered. Raises `UpstreamUnreachable`."""
        ...


class ResourceSubscriptions:
    def __init__(
        self,
        connections: SubscribableConnections,
        *,
        change_notifications: ChangeNotifications,
        clock: Clock,
    ) -> None:
        self._connections = connections
        self._change_notifications = change_notifications
        self._clock = clock
        self._subscriptions: dict[_WatchedResource, _ResourceSubscription] = {}

    @asynccontextmanager
    async def subscribe_resource(
        self, upstream: str, uri: str, *, owner: Principal, principal: Principal
    ) -> AsyncGenerator[None]:
        """Implements `UpstreamProxyPort.subscribe_resource`, on the connection of this owner."""
        subscription = await self._acquire_subscription(_WatchedResource(upstream, owner, uri), principal)
        try:
            await subscription.wait_for_first_response()
            yield
        finally:
            await self._release_subscription(subscription, principal)

    async def _acquire_subscription(self, watched: "_WatchedResource", principal: Principal) -> "_ResourceSubscription":
        while (subscription := self._subscriptions.get(watched)) is not None and subscription.is_ending:
            await asyncio.wait({subscription.task})
        if subscription is None:
            self._require_free_place(watched, principal)
            subscription = _ResourceSubscription(
                watched, connections=self._connections, changes=self._change_notifications, clock=self._clock
            )
            self._subscriptions[watched] = subscription
            subscription.task.add_done_callback(partial(self._remove_subscription, subscription))
        subscription.subscribers[principal] += 1
        return subscription

    def _require_free_place(self, watched: "_WatchedResource", principal: Principal) -> None:
        """Webhooks watch the resources of a shared upstream as the shared owner, and have quotas of their own."""
        of_upstream = [each for each in self._subscriptions.values() if each.watched.upstream == watched.upstream]
        own_count = sum(each.subscribers.keys() == {principal} for each in of_upstream)
        own_limit = SUBSCRIPTIONS_PER_PRINCIPAL_MAX if watched.owner == SHARED_OWNER else SUBSCRIPTIONS_PER_OWNER_MAX
        if principal != SHARED_OWNER and own_count >= own_limit:
            limit = f"{own_limit} resources of upstream '{watched.upstream}' have subscriptions of yours"
        elif len(of_upstream) >= SUBSCRIPTIONS_PER_UPSTREAM_MAX:
            limit = f"{SUBSCRIPTIONS_PER_UPSTREAM_MAX} resources of upstream '{watched.upstream}' have subscriptions"
        else:
            return
        raise QuotaExceeded(f"{limit} already. End one of them first.", retry_after_seconds=int(REJECTED_RETRY_SECONDS))

    async def _release_subscription(self, subscription: "_ResourceSubscription", principal: Principal) -> None:
        subscription.subscribers[principal] -= 1
        subscription.subscribers += Counter[Principal]()  # without those of none
        if not subscription.subscribers:
            subscription.is_ending = True
            subscription.task.cancel()
            await asyncio.wait({subscription.task})

    def _remove_subscription(self, subscription: "_ResourceSubscription", _task: asyncio.Task[None]) -> None:
        """Runs when the task has ended. The last subscriber cannot do this, because it may be cancelled while it waits."""
        del self._subscriptions[subscription.watched]


class _WatchedResource(NamedTuple):
    upstream: str
    owner: Principal
    uri: str


class _ResourceSubscription:
    """The subscription of one resource, until its task is cancelled."""

    def __init__(
        self,
        watched: _WatchedResource,
        *,
        connections: SubscribableConnections,
        changes: ChangeNotifications,
        clock: Clock,
    ) -> None:
        self.watched = watched
        self._uri = watched.uri
        self.subscribers = Counter[Principal]()
        """Subscribers by principal."""
        self.is_ending = False
        self._connections = connections
        self._change_notifications = changes
        self._clock = clock
        self._first_response = asyncio.Event()
        self._rejection: Mapping[str, Any] | None = None
        self._may_have_missed_change = False
        self.task = asyncio.create_task(self._run())

    async def wait_for_first_response(self) -> None:
        """Wait for the first response of the upstream; raises `UpstreamErrorResponse` if it rejects the subscription."""
        with anyio.move_on_after(SUBSCRIBE_WAIT_SECONDS):
            await self._first_response.wait()
        if not self._first_response.is_set():
            self._may_have_missed_change = True
        if self._rejection is not None:
            raise UpstreamErrorResponse(self._rejection)

    async def _run(self) -> None:
        leave_log_context()
        while True:
            try:
                with self._connections.use_connection(self.watched.upstream, self.watched.owner) as connection:
                    await self._run_on_session(
                        await connection.get_shared_session(started_here=False), connection.replaced
                    )
                continue  # the session ended normally: wait for the next one
            except UpstreamError as error:
                self._rejection = error.error
                self._first_response.set()
                pause = REJECTED_RETRY_SECONDS
            except (RequestFailed, UpstreamUnreachable):
                pause = RETRY_SECONDS
            self._may_have_missed_change = True
            await self._clock.sleep(pause)

    async def _run_on_session(self, session: UpstreamSession, replaced: anyio.Event) -> None:
        """Run until the session closes or the connection is replaced; raises `RequestFailed`."""
        reading = asyncio.create_task(
            self._run_modern(session) if session.protocol.is_modern else self._run_legacy(session)
        )
        try:
            await wait_first(asyncio.shield(reading), session.closed.wait(), replaced.wait())
            if reading.done():
                reading.result()
        finally:
            await end_tasks([reading])

    def _on_subscribed(self) -> None:
        self._rejection = None
        self._first_response.set()
        if self._may_have_missed_change:
            self._publish_change()
        self._may_have_missed_change = True  # for the next subscription

    def _publish_change(self) -> None:
        upstream, owner, uri = self.watched
        self._change_notifications.publish_change(UpstreamChange(upstream=upstream, owner=owner, uri=uri))

    async def _run_modern(self, session: UpstreamSession) -> None:
        async with session.stream_opener.open_listen_stream(
            {"resourceSubscriptions": [self._uri]}, client_capabilities={}
        ) as stream:
            acknowledged_filter = await stream.wait_acknowledged()
            if acknowledged_filter is None:
                raise (
                    stream.failure
                    if isinstance(stream.failure, RequestFailed)
                    else InvalidUpstreamResponse("No acknowledgement.")
                )
            accepted = acknowledged_filter.get("resourceSubscriptions")
            if not isinstance(accepted, list) or self._uri not in accepted:
                raise UpstreamError(
                    {"code": INVALID_PARAMS, "message": "The upstream does not send updates of this resource."}
                )
            self._on_subscribed()
            while await stream.next_notification() is not None:
                self._publish_change()  # the stream serves only this resource
            if isinstance(stream.failure, RequestFailed):
                raise stream.failure
            raise InvalidUpstreamResponse("The upstream ended the stream.")

    async def _run_legacy(self, session: UpstreamSession) -> None:
        with self._change_notifications.subscribe_changes(
            self.watched.upstream, principal=self.watched.owner
        ) as changes:
            await await_poll(session.send_request("resources/subscribe", {"uri": self._uri}))
            self._on_subscribed()
            forwarding = asyncio.create_task(self._forward_subresource_changes(changes))
            try:
                await self._ping_session(session)
            finally:
                await end_tasks([forwarding])
                with suppress(RequestFailed), anyio.move_on_after(NOTIFICATION_TIMEOUT_SECONDS, shield=True):
                    await session.send_request("resources/unsubscribe", {"uri": self._uri})

    async def _forward_subresource_changes(self, changes: AsyncIterator[UpstreamChange]) -> None:
        """A notification may name a part of the resource (specification, server/resources: "might be a sub-resource")."""
        prefix = f"{self._uri.rstrip('/')}/"
        async for change in changes:
            if change.uri is not None and change.uri != self._uri and change.uri.startswith(prefix):
                self._publish_change()

    async def _ping_session(self, session: UpstreamSession) -> None:
        while True:
            await self._clock.sleep(PING_SECONDS)
            try:
                await await_poll(session.send_request("ping", {}))
            except RequestNotSent:
                session.close_to_new_requests()
                raise
            except UpstreamError:
                pass  # it answers, which is all that was asked
            except ResponseLost:
                if session.child is None:  # a command that runs a tool may answer much later
                    raise

"""Passes upstreams through to gateway clients: their profile, lists, requests and change notifications."""

import asyncio
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from mcp.shared.inbound import NAME_BEARING_METHODS

from ringback.domain.errors import InvalidRequest, UnknownUpstream
from ringback.domain.principal import Principal
from ringback.domain.upstreams import Listing, UpstreamErrorResponse, UpstreamProfile
from ringback.protocol.errors import (
    LoginRequired,
    RequestFailed,
    RequestNotSent,
    TokenReplaced,
    TokensUnreadable,
    UpstreamError,
)
from ringback.upstreams.catalog.tool_catalog import (
    LIST_AGE_SECONDS_MAX,
    login_required,
    require_no_login,
    upstream_unavailable,
)
from ringback.upstreams.connection import UpstreamConnection
from ringback.upstreams.connection_directory import ConnectionDirectory
from ringback.upstreams.connection_problems import ConnectionProblem
from ringback.upstreams.errors import UpstreamLoginRequired, UpstreamTokensUnreadable, UpstreamUnreachable
from ringback.upstreams.session import concerns_session
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications, ChangeStream
from ringback.upstreams.subscriptions.resource_subscriptions import ResourceSubscriptions

PROXIED_METHODS: Final = frozenset({"resources/read", "prompts/get", "completion/complete"})
"""The methods that `send_request` forwards. A tool call becomes a call; other methods concern only one connection."""
CONNECT_WAIT_SECONDS: Final = 5.0
"""How long a request waits for an upstream that is connecting."""
REQUEST_TIMEOUT_SECONDS: Final = 60.0
"""For a turn and a response, which may be a large file; the usual timeout of MCP clients."""
SHARE_DIVISOR: Final = 2
"""Of the concurrent calls of the upstream: a principal has at most half as many requests there at once."""


class RequestTurns:
    """Turns of the requests that clients send through to an upstream.

    The runner limits the concurrent calls of an upstream and shares them fairly. A request that is only passed on has no call:
    so each principal has some of these requests at the upstream at once, and its further ones wait. Without that, the requests
    of one principal would fill a server that works off one message after the other, and the calls of all others would wait.
    """

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[tuple[str, Principal], asyncio.Semaphore] = WeakValueDictionary()

    def get_turns(self, upstream: str, principal: Principal, *, max_concurrent: int) -> asyncio.Semaphore:
        """The turns of this principal, for `async with`. They are kept while a request has or awaits one of them."""
        share = max(1, max_concurrent // SHARE_DIVISOR)
        return self._turns.setdefault((upstream, principal), asyncio.Semaphore(share))


class UpstreamProxy:
    """Implements `domain.upstreams.UpstreamProxyPort` over the shared session of the principal's connection."""

    def __init__(
        self,
        connections: ConnectionDirectory,
        *,
        change_notifications: ChangeNotifications,
        resource_subscriptions: ResourceSubscriptions,
    ) -> None:
        self._connections = connections
        self._change_notifications = change_notifications
        self._resource_subscriptions = resource_subscriptions
        self._turns = RequestTurns()

    def get_owner(self, upstream: str, principal: Principal) -> Principal:
        return self._connections.get_owner(upstream, principal)

    async def get_profile(self, upstream: str, *, principal: Principal) -> UpstreamProfile | None:
        self._require_upstream(upstream)
        await self._connections.check_login(upstream, principal)
        with suppress(UpstreamUnreachable), self._connections.use_connection(upstream, principal) as connection:
            if connection.catalog_cache.profile is None:
                await connection.wait_until_settled(CONNECT_WAIT_SECONDS)
            return connection.catalog_cache.profile
        return None

    async def list_entries(
        self, upstream: str, listing: Listing, *, principal: Principal, can_elicit: bool = False
    ) -> Sequence[Mapping[str, Any]]:
        await self._connections.check_login(upstream, principal)
        with self._use_connection(upstream, principal) as connection:
            get_entries = partial(
                connection.lists.get_entries, listing, age_seconds_max=LIST_AGE_SECONDS_MAX, can_elicit=can_elicit
            )
            if (entries := await get_entries()) is None:
                await connection.wait_until_settled(CONNECT_WAIT_SECONDS)
                entries = await get_entries()
            if entries is None:
                require_no_login(connection.get_info())
                raise upstream_unavailable(upstream, connection.get_info().last_error)
        return entries

    async def send_request(
        self,
        upstream: str,
        method: str,
        params: Mapping[str, Any],
        *,
        principal: Principal,
        client_capabilities: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        await self._connections.check_login(upstream, principal)
        with self._use_connection(upstream, principal) as connection:
            _check_proxied_request(method, params)
            turns = self._turns.get_turns(upstream, principal, max_concurrent=connection.config.max_concurrent)
            try:
                with connection.track_request(REQUEST_TIMEOUT_SECONDS):
                    async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS), turns:
                        return await _send_with_retry(connection, method, params, client_capabilities)
            except UpstreamError as error:
                raise UpstreamErrorResponse(error.error) from None
            except (TokensUnreadable, UpstreamTokensUnreadable):
                raise upstream_unavailable(upstream, ConnectionProblem.TOKENS_UNREADABLE) from None
            except (LoginRequired, UpstreamLoginRequired):
                raise login_required(upstream) from None
            except (TimeoutError, UpstreamUnreachable, RequestFailed):
                raise upstream_unavailable(upstream, connection.get_info().last_error) from None

    def subscribe_changes(
        self, upstream: str | None, *, principal: Principal, uris: Collection[str] | None = None
    ) -> AbstractContextManager[ChangeStream]:
        if upstream is not None:
            self._require_upstream(upstream)
        return self._listen_to_changes(upstream, principal, uris)

    @contextmanager
    def _listen_to_changes(
        self, upstream: str | None, principal: Principal, uris: Collection[str] | None
    ) -> Generator[ChangeStream]:
        with (
            self._change_notifications.subscribe_changes(upstream, principal=principal, uris=uris) as changes,
            self._connections.listen_on_connections(upstream, principal),
        ):
            yield changes

    def subscribe_resource(self, upstream: str, uri: str, *, principal: Principal) -> AbstractAsyncContextManager[None]:
        self._require_upstream(upstream)
        return self._resource_subscriptions.subscribe_resource(
            upstream, uri, owner=self._connections.get_owner(upstream, principal), principal=principal
        )

    @contextmanager
    def _use_connection(self, upstream: str, principal: Principal) -> Generator[UpstreamConnection]:
        self._require_upstream(upstream)
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(self._connections.use_connection(upstream, principal))
            except UpstreamUnreachable:
                raise upstream_unavailable(upstream, None) from None
            yield connection

    def _require_upstream(self, upstream: str) -> None:
        if upstream not in self._connections:
            raise UnknownUpstream("There is no upstream of this name. List them: GET /v1/upstreams")


async def _send_with_retry(
    connection: UpstreamConnection,
    method: str,
    params: Mapping[str, Any],
    client_capabilities: Mapping[str, Any] | None,
) -> Mapping[str, Any]:
    """Send a request, and once more if it was not sent: on the next session, unless only its token was too old."""
    session = await connection.get_shared_session(CONNECT_WAIT_SECONDS)
    try:
        return await session.send_request(method, params, client_capabilities=client_capabilities)
    except TokenReplaced:
        pass
    except RequestNotSent as failure:
        if not concerns_session(failure, age_seconds=session.age_seconds):
            raise
        session.close_to_new_requests()
    return await (await connection.get_shared_session(CONNECT_WAIT_SECONDS)).send_request(
        method, params, client_capabilities=client_capabilities
    )


def _check_proxied_request(method: str, params: Mapping[str, Any]) -> None:
    if method not in PROXIED_METHODS:
        raise InvalidRequest(f"This method is not forwarded. Forwarded methods: {', '.join(sorted(PROXIED_METHODS))}.")
    if (name := NAME_BEARING_METHODS.get(method)) is not None and not isinstance(params.get(name), str):
        raise InvalidRequest(f"{method} needs the parameter '{name}', a string.")

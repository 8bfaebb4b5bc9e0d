"""Passes upstreams through to gateway clients: their profile, lists, requests and change notifications."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any, Final

from mcp.shared.inbound import NAME_BEARING_METHODS

from ringback.domain.errors import InvalidRequest, Unavailable, UnknownUpstream
from ringback.domain.upstreams import Listing, UpstreamErrorResponse, UpstreamProfile
from ringback.protocol.errors import RequestFailed, RequestNotSent, UpstreamError
from ringback.upstreams.catalog.tool_catalog import LIST_AGE_SECONDS_MAX
from ringback.upstreams.connection import UpstreamConnection
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications, ChangeStream
from ringback.upstreams.subscriptions.resource_subscriptions import ResourceSubscriptions

PROXIED_METHODS: Final = frozenset({"resources/read", "prompts/get", "completion/complete"})
"""The methods that `send_request` forwards. A tool call becomes a call; other methods concern only one connection."""
CONNECT_WAIT_SECONDS: Final = 5.0
"""How long a request waits for an upstream that is connecting."""
REQUEST_TIMEOUT_SECONDS: Final = 60.0
"""For a response, which may be a large file; the usual timeout of MCP clients."""


class UpstreamProxy:
    """Implements `domain.upstreams.UpstreamProxyPort` over the shared sessions."""

    def __init__(
        self,
        connections: Mapping[str, UpstreamConnection],
        *,
        change_notifications: ChangeNotifications,
        resource_subscriptions: ResourceSubscriptions,
    ) -> None:
        self._connections = connections
        self._change_notifications = change_notifications
        self._resource_subscriptions = resource_subscriptions

    async def get_profile(self, upstream: str) -> UpstreamProfile | None:
        connection = self._get_connection(upstream)
        if connection.catalog_cache.profile is None:
            await connection.wait_until_settled(CONNECT_WAIT_SECONDS)
        return connection.catalog_cache.profile

    async def list_entries(
        self, upstream: str, listing: Listing, *, can_elicit: bool = False
    ) -> Sequence[Mapping[str, Any]]:
        connection = self._get_connection(upstream)
        get_entries = partial(
            connection.lists.get_entries, listing, age_seconds_max=LIST_AGE_SECONDS_MAX, can_elicit=can_elicit
        )
        if (entries := await get_entries()) is None:
            await connection.wait_until_settled(CONNECT_WAIT_SECONDS)
            entries = await get_entries()
        if entries is None:
            raise _unavailable(upstream)
        return entries

    async def send_request(
        self,
        upstream: str,
        method: str,
        params: Mapping[str, Any],
        *,
        client_capabilities: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        connection = self._get_connection(upstream)
        _check_proxied_request(method, params)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                return await _send_with_retry(connection, method, params, client_capabilities)
        except UpstreamError as error:
            raise UpstreamErrorResponse(error.error) from None
        except (TimeoutError, UpstreamUnreachable, RequestFailed):
            raise _unavailable(upstream) from None

    def subscribe_changes(self, upstream: str | None) -> AbstractContextManager[ChangeStream]:
        if upstream is not None:
            self._get_connection(upstream)
        return self._change_notifications.subscribe_changes(upstream)

    def subscribe_resource(self, upstream: str, uri: str) -> AbstractAsyncContextManager[None]:
        self._get_connection(upstream)
        return self._resource_subscriptions.subscribe_resource(upstream, uri)

    def _get_connection(self, upstream: str) -> UpstreamConnection:
        if (connection := self._connections.get(upstream)) is None:
            raise UnknownUpstream("There is no upstream of this name. List them: GET /v1/upstreams")
        return connection


async def _send_with_retry(
    connection: UpstreamConnection,
    method: str,
    params: Mapping[str, Any],
    client_capabilities: Mapping[str, Any] | None,
) -> Mapping[str, Any]:
    """Send a request, and once more on the next session if it was not sent."""
    session = await connection.get_shared_session(CONNECT_WAIT_SECONDS)
    try:
        return await session.send_request(method, params, client_capabilities=client_capabilities)
    except RequestNotSent:
        session.close_to_new_requests()
    return await (await connection.get_shared_session(CONNECT_WAIT_SECONDS)).send_request(
        method, params, client_capabilities=client_capabilities
    )


def _check_proxied_request(method: str, params: Mapping[str, Any]) -> None:
    if method not in PROXIED_METHODS:
        raise InvalidRequest(f"This method is not forwarded. Forwarded methods: {', '.join(sorted(PROXIED_METHODS))}.")
    if (name := NAME_BEARING_METHODS.get(method)) is not None and not isinstance(params.get(name), str):
        raise InvalidRequest(f"{method} needs the parameter '{name}', a string.")


def _unavailable(upstream: str) -> Unavailable:
    return Unavailable(f"Upstream '{upstream}' does not respond now. See its state: GET /v1/upstreams")

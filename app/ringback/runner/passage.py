"""Upstreams as a gateway passes them on: what they say of themselves, their lists, requests, and what they tell unasked."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final

from mcp.shared.inbound import NAME_BEARING_METHODS

from ringback.domain.errors import InvalidRequest, Unavailable, UnknownUpstream
from ringback.domain.upstreams import Listing, Profile, UpstreamRefused
from ringback.runner.catalog import AGE_SECONDS_MAX
from ringback.runner.changes import Changes, ChangeStream
from ringback.runner.connection import Connection
from ringback.runner.drive import UpstreamUnreachable
from ringback.runner.failures import NotSent, Refused, RequestFailed
from ringback.runner.watching import Watching

PASSED_ON: Final = frozenset({"resources/read", "prompts/get", "completion/complete"})
"""What may be asked through `ask`. Tools are called as calls; everything else is between two neighbours."""
REACH_SECONDS: Final = 5.0
"""How long somebody waits for an upstream that is just being connected to."""
ASK_SECONDS: Final = 60.0
"""For an answer, which may be a large file; the usual patience of MCP clients."""


class UpstreamPassage:
    """Implements `domain.upstreams.Passage`, over the links that all share."""

    def __init__(self, connections: Mapping[str, Connection], *, changes: Changes, watching: Watching) -> None:
        self._connections = connections
        self._changes = changes
        self._watching = watching

    async def profile(self, upstream: str) -> Profile | None:
        connection = self._connection(upstream)
        if connection.shelf.profile is None:
            await connection.settled(REACH_SECONDS)
        return connection.shelf.profile

    async def listed(self, upstream: str, listing: Listing) -> Sequence[Mapping[str, Any]]:
        connection = self._connection(upstream)
        await connection.refresh(listing, age_seconds_max=AGE_SECONDS_MAX)
        if connection.shelf.entries(listing) is None:
            await connection.settled(REACH_SECONDS)
            await connection.refresh(listing, age_seconds_max=AGE_SECONDS_MAX)
        if (entries := connection.shelf.entries(listing)) is None:
            raise _away(upstream)
        return entries

    async def ask(
        self, upstream: str, method: str, params: Mapping[str, Any], *, declare: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        connection = self._connection(upstream)
        _check(method, params)
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await _ask(connection, method, params, declare)
        except Refused as refusal:
            raise UpstreamRefused(refusal.error) from None
        except (TimeoutError, UpstreamUnreachable, RequestFailed):
            raise _away(upstream) from None

    def changes(self, upstream: str | None) -> AbstractContextManager[ChangeStream]:
        if upstream is not None:
            self._connection(upstream)
        return self._changes.listen(upstream)

    def watching(self, upstream: str, uri: str) -> AbstractAsyncContextManager[None]:
        self._connection(upstream)
        return self._watching.watching(upstream, uri)

    def _connection(self, upstream: str) -> Connection:
        if (connection := self._connections.get(upstream)) is None:
            raise UnknownUpstream("There is no upstream of this name. List them: GET /v1/upstreams")
        return connection


async def _ask(
    connection: Connection, method: str, params: Mapping[str, Any], declare: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """What was surely not taken is sent once more, on the next link."""
    link = await connection.live(REACH_SECONDS)
    try:
        return await link.request(method, params, declare=declare)
    except NotSent:
        link.retire()
    return await (await connection.live(REACH_SECONDS)).request(method, params, declare=declare)


def _check(method: str, params: Mapping[str, Any]) -> None:
    if method not in PASSED_ON:
        raise InvalidRequest(f"This is not passed on. What is: {', '.join(sorted(PASSED_ON))}.")
    if (name := NAME_BEARING_METHODS.get(method)) is not None and not isinstance(params.get(name), str):
        raise InvalidRequest(f"{method} needs the parameter '{name}', a text.")


def _away(upstream: str) -> Unavailable:
    return Unavailable(f"Upstream '{upstream}' cannot be asked now. See how it is doing: GET /v1/upstreams")

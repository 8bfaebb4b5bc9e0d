"""What one call needs of a connection, whichever of its links serves just now."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypedDict

from mcp.shared.dispatcher import ProgressFnT

from ringback.domain.upstreams import ToolInfo
from ringback.runner.drive import UpstreamUnreachable
from ringback.runner.drivers import Negotiated, Told
from ringback.runner.drivers.base import OnPlace, SessionName, StatefulSession
from ringback.runner.failures import NotSent
from ringback.runner.link import Link
from ringback.runner.messages import CallMessages


class Links(Protocol):
    """What a conversation needs of its connection."""

    async def live(self) -> Link:
        """The link that is shared now; raises `UpstreamUnreachable`."""
        ...

    def aside(self, **opening: Any) -> AbstractAsyncContextManager[Link]:
        """A link of its own, opened so (`runner.opening.Opening`); raises `UpstreamUnreachable`."""
        ...


class _Options(TypedDict):
    """As in `drivers.Session.request`."""

    declare: Mapping[str, Any] | None
    on_progress: ProgressFnT | None
    on_place: OnPlace | None


class Conversation:
    """Implements `drivers.Session`: requests of one call, over the next link if this one turned out to be gone."""

    def __init__(self, links: Links, link: Link, *, own: bool) -> None:
        self._links = links
        self._link = link
        self._own = own
        self.messages: CallMessages | None = None
        """Those of the call, if it is one."""

    @property
    def negotiated(self) -> Negotiated:
        return self._link.negotiated

    def tool(self, name: str) -> ToolInfo | None:
        return self._link.tools.get(name)

    def listen(
        self, notifications: Mapping[str, Any], *, declare: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[Told | None]:
        return self._link.listen(notifications, declare=declare)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        declare: Mapping[str, Any] | None = None,
        on_progress: ProgressFnT | None = None,
        on_place: OnPlace | None = None,
    ) -> dict[str, Any]:
        """The raw result; raises `RequestFailed`. What was surely not taken is sent once more, on the next link."""
        options = _Options(declare=declare, on_progress=on_progress, on_place=on_place)
        try:
            return await self._request(method, params, options)
        except NotSent as failure:
            self._link.retire()
            if self._own:
                raise
            try:
                self._link = await self._links.live()
            except UpstreamUnreachable:
                raise failure from None
        return await self._request(method, params, options)

    async def _request(self, method: str, params: Mapping[str, Any], options: "_Options") -> dict[str, Any]:
        if self.messages is None or method != "tools/call":
            return await self._link.request(method, params, **options)
        async with self.messages.heard(self._link, own=self._own) as meta:
            return await self._link.request(method, params, meta=meta, **options)

    @property
    def stateful(self) -> StatefulSession:
        return self._link.stateful

    @asynccontextmanager
    async def rejoined(self, name: SessionName) -> AsyncGenerator[StatefulSession]:
        async with self._links.aside(own=True, rejoin=name) as link:
            yield link.stateful

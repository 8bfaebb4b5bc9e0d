"""The client's methods about insights: what happens hour by hour, what is open now, client sessions, and histories of calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from ringback.client.arguments import quote_path_segment
from ringback.client.resource_client import ResourceClient, without_none
from ringback.lazy_names import LazyModule

if TYPE_CHECKING:
    from ringback.client import insight_models
else:
    insight_models = LazyModule("ringback.client.insight_models")


class InsightMethods(ResourceClient):
    async def insights(self, *, hours: int | None = None, principal: str | None = None) -> insight_models.Insights:
        """What is open now, and the last hours (24 by default, at most 2,160); for an operator, those of another principal.

        An operator reads those of all principals with `principal="*"`.
        """
        params = without_none({"hours": hours, "principal": principal})
        return await self._transport.fetch_model(insight_models.Insights, "GET", "/v1/insights", params=params)

    async def sessions(self, *, principal: str | None = None) -> AsyncGenerator[insight_models.ClientSession]:
        """Your client sessions, that of the newest call first; for an operator, those of another principal or of all (`*`)."""
        async for page in self._iterate_pages(
            insight_models.ClientSessionPage, "/v1/sessions", {"principal": principal}
        ):
            for session in page.sessions:
                yield session

    async def session(self, client_session_id: str, *, principal: str | None = None) -> insight_models.SessionInsights:
        """A client session, with how its calls ended and its newest calls. An operator names its owner with `principal`."""
        path = f"/v1/sessions/{quote_path_segment(client_session_id, 'client_session_id')}"
        return await self._transport.fetch_model(
            insight_models.SessionInsights, "GET", path, params=without_none({"principal": principal})
        )

    async def call_history(self, call_id: str) -> insight_models.CallHistory:
        """What happened to a call: events, deliveries with their attempts, and when its client came back."""
        return await self._transport.fetch_model(
            insight_models.CallHistory, "GET", f"/v1/calls/{quote_path_segment(call_id, 'call_id')}/history"
        )

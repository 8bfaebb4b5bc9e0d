"""The client's methods about insights: what happens hour by hour, what is open now, and client sessions."""

from collections.abc import AsyncGenerator

from ringback.client.insight_models import ClientSession, ClientSessionPage, Insights, SessionInsights
from ringback.client.resource_client import ResourceClient, quote_path_segment, without_none


class InsightMethods(ResourceClient):
    async def insights(self, *, hours: int | None = None, principal: str | None = None) -> Insights:
        """What is open now, and the last hours (24 by default, at most 2,160); for an operator, those of another principal.

        An operator reads those of all principals with `principal="*"`.
        """
        params = without_none({"hours": hours, "principal": principal})
        return await self._transport.fetch_model(Insights, "GET", "/v1/insights", params=params)

    async def sessions(self, *, principal: str | None = None) -> AsyncGenerator[ClientSession]:
        """Your client sessions, that of the newest call first; for an operator, those of another principal or of all (`*`)."""
        async for page in self._iterate_pages(ClientSessionPage, "/v1/sessions", {"principal": principal}):
            for session in page.sessions:
                yield session

    async def session(self, client_session_id: str, *, principal: str | None = None) -> SessionInsights:
        """A client session, with how its calls ended and its newest calls. An operator names its owner with `principal`."""
        path = f"/v1/sessions/{quote_path_segment(client_session_id)}"
        return await self._transport.fetch_model(
            SessionInsights, "GET", path, params=without_none({"principal": principal})
        )

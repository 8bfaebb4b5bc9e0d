"""The client's methods about upstreams and their tools."""

from collections.abc import Sequence

from ringback.client.resource_client import ResourceClient, quote_path_segment
from ringback.client.upstream_models import Reloaded, Tool, ToolList, Upstream, UpstreamIntake, UpstreamList


class UpstreamMethods(ResourceClient):
    async def upstreams(self) -> Sequence[Upstream]:
        return (await self._transport.fetch_model(UpstreamList, "GET", "/v1/upstreams")).upstreams

    async def pause_upstream(self, upstream: str) -> UpstreamIntake:
        """Keep the upstream's calls queued, new ones too, until it is resumed. Needs the scope `admin`."""
        return await self._set_intake(upstream, "pause")

    async def drain_upstream(self, upstream: str) -> UpstreamIntake:
        """Refuse new calls of the upstream until it is resumed. Needs the scope `admin`."""
        return await self._set_intake(upstream, "drain")

    async def resume_upstream(self, upstream: str) -> UpstreamIntake:
        """Accept and run calls of the upstream again. Needs the scope `admin`."""
        return await self._set_intake(upstream, "resume")

    async def _set_intake(self, upstream: str, operation: str) -> UpstreamIntake:
        return await self._transport.fetch_model(
            UpstreamIntake,
            "POST",
            f"/v1/upstreams/{quote_path_segment(upstream)}/{operation}",
            repeatable=True,
        )

    async def reload_upstreams(self) -> Reloaded:
        """Make the service read its upstreams' configuration again, without dropping calls. Needs the scope `admin`.

        Raises `InvalidRequest`, and changes nothing, if the configuration is invalid.
        """
        return await self._transport.fetch_model(Reloaded, "POST", "/v1/upstreams/reload")

    async def tools(self, upstream: str) -> Sequence[Tool]:
        return (
            await self._transport.fetch_model(ToolList, "GET", f"/v1/upstreams/{quote_path_segment(upstream)}/tools")
        ).tools

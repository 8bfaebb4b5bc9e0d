"""The client's methods about upstreams and their tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ringback.client.arguments import quote_path_segment
from ringback.client.resource_client import ResourceClient, without_none
from ringback.lazy_names import LazyModule

if TYPE_CHECKING:
    from ringback.client import upstream_models
else:
    upstream_models = LazyModule("ringback.client.upstream_models")

DISCOVERY_SECONDS: Final = 40.0
"""How long the service asks the servers of an upstream at most before it responds."""


class UpstreamMethods(ResourceClient):
    async def upstreams(self) -> Sequence[upstream_models.Upstream]:
        return (await self._transport.fetch_model(upstream_models.UpstreamList, "GET", "/v1/upstreams")).upstreams

    async def pause_upstream(self, upstream: str) -> upstream_models.UpstreamIntake:
        """Keep the upstream's calls queued, new ones too, until it is resumed. Needs the scope `admin`."""
        return await self._set_intake(upstream, "pause")

    async def drain_upstream(self, upstream: str) -> upstream_models.UpstreamIntake:
        """Refuse new calls of the upstream until it is resumed. Needs the scope `admin`."""
        return await self._set_intake(upstream, "drain")

    async def resume_upstream(self, upstream: str) -> upstream_models.UpstreamIntake:
        """Accept and run calls of the upstream again. Needs the scope `admin`."""
        return await self._set_intake(upstream, "resume")

    async def _set_intake(self, upstream: str, operation: str) -> upstream_models.UpstreamIntake:
        return await self._transport.fetch_model(
            upstream_models.UpstreamIntake, "POST", _upstream_path(upstream, f"/{operation}"), repeatable=True
        )

    async def restart_upstream(self, upstream: str) -> upstream_models.UpstreamRestart:
        """End the connections of the node that answers to the upstream, and open them again. Needs the scope `admin`.

        Calls that wait for its response end as `unknown`, unless they can be resumed.
        """
        return await self._transport.fetch_model(
            upstream_models.UpstreamRestart, "POST", _upstream_path(upstream, "/restart")
        )

    async def reload_upstreams(self) -> upstream_models.Reloaded:
        """Make the service read its upstreams' configuration again, without dropping calls. Needs the scope `admin`.

        Entries that cannot be served are in `skipped`, or in `kept` if their upstreams go on with the former entries. Raises
        `InvalidRequest`, and changes nothing, if the file is invalid as a whole.
        """
        return await self._transport.fetch_model(upstream_models.Reloaded, "POST", "/v1/upstreams/reload")

    async def start_login(
        self, upstream: str, *, redirect_uri: str | None = None, scope: str | None = None
    ) -> upstream_models.StartedLogin:
        """Begin to sign in to an upstream in a browser. Complete the login within ten minutes, with the same key.

        `redirect_uri` is a listener on the user's machine (http://127.0.0.1:PORT/PATH), or a URL that the operator allows.
        """
        return await self._transport.fetch_model(
            upstream_models.StartedLogin,
            "POST",
            _upstream_path(upstream, "/login"),
            body=without_none({"redirect_uri": redirect_uri, "scope": scope}),
            wait_seconds=DISCOVERY_SECONDS,
        )

    async def complete_login(self, upstream: str, redirected_to: str) -> upstream_models.CompletedLogin:
        """Complete a login with the whole URL to which the authorization server sent the browser.

        A web front end first checks that this redirect arrived in the session of the user who started the login.
        """
        return await self._transport.fetch_model(
            upstream_models.CompletedLogin,
            "POST",
            _upstream_path(upstream, "/login/complete"),
            body={"redirected_to": redirected_to},
            wait_seconds=DISCOVERY_SECONDS,
        )

    async def end_login(self, upstream: str) -> None:
        """Sign out of an upstream: the service deletes its tokens."""
        await self._transport.send_request("DELETE", _upstream_path(upstream, "/login"))

    async def tools(self, upstream: str) -> Sequence[upstream_models.Tool]:
        return (
            await self._transport.fetch_model(upstream_models.ToolList, "GET", _upstream_path(upstream, "/tools"))
        ).tools


def _upstream_path(upstream: str, rest: str) -> str:
    return f"/v1/upstreams/{quote_path_segment(upstream, 'upstream')}{rest}"

"""The client's methods about the service itself: health, metrics, quotas, public keys, problem types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringback.client.arguments import quote_path_segment
from ringback.client.problems import ClientError
from ringback.client.resource_client import ResourceClient, without_none
from ringback.lazy_names import LazyModule

if TYPE_CHECKING:
    from ringback.client import administration_models, service_models
else:
    administration_models = LazyModule("ringback.client.administration_models")
    service_models = LazyModule("ringback.client.service_models")


class OperationMethods(ResourceClient):
    async def healthy(self) -> bool:
        """Whether the service responds now, in one attempt."""
        try:
            await self._transport.send_request("GET", "/healthz", repeatable=False)
        except ClientError:
            return False
        return True

    async def readiness(self) -> service_models.Readiness:
        """Whether the service accepts work now, in one attempt. Raises `Unavailable` with the reason if it does not."""
        return await self._transport.fetch_model(service_models.Readiness, "GET", "/readyz", repeatable=False)

    async def metrics(self) -> str:
        """The service's metrics, in the text format of Prometheus. Needs the scope `metrics`."""
        return (await self._transport.send_request("GET", "/metrics", headers={"accept": "text/plain"})).text

    async def status(self) -> service_models.ServiceStatus:
        """The checks of the node that responds, also while it accepts no work. Needs the scope `admin`."""
        return await self._transport.fetch_model(service_models.ServiceStatus, "GET", "/v1/status")

    async def usage(self, *, principal: str | None = None) -> Sequence[administration_models.UsedLimit]:
        """Your quotas and how much of each is used; with the scope `admin`, those of another principal."""
        params = without_none({"principal": principal})
        return (
            await self._transport.fetch_model(administration_models.Usage, "GET", "/v1/usage", params=params)
        ).limits

    async def public_keys(self) -> Sequence[service_models.PublicKey]:
        """The keys that verify the `v1a` signatures of callbacks, newest first. Empty if callbacks carry none.

        Read them again if none of them verifies a callback.
        """
        path = "/.well-known/mcp-webhook-jwks.json"
        return (await self._transport.fetch_model(service_models.PublicKeySet, "GET", path)).keys

    async def problem_type(self, slug: str) -> service_models.ProblemType:
        """The meaning of a problem type: the `slug` of a `Problem`. Raises `NotFound` for an unknown one."""
        return await self._transport.fetch_model(
            service_models.ProblemType, "GET", f"/problems/{quote_path_segment(slug, 'slug')}"
        )

"""The client's methods that erase data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringback.client.arguments import quote_path_segment
from ringback.client.resource_client import ResourceClient, without_none
from ringback.lazy_names import LazyModule

if TYPE_CHECKING:
    from ringback.client import administration_models
else:
    administration_models = LazyModule("ringback.client.administration_models")


class ErasureMethods(ResourceClient):
    async def erase_call(
        self, call_id: str, *, cancel: bool = False, principal: str | None = None
    ) -> administration_models.Erasure:
        """Erase a call that has ended, with its result, its events' contents and its callbacks.

        Raises `Conflict` if it has not ended; `cancel` cancels it first. Raises `Gone` if it was erased before. An operator
        names its owner with `principal`.
        """
        return await self._erase(
            f"/v1/calls/{quote_path_segment(call_id, 'call_id')}", cancel=cancel, principal=principal
        )

    async def erase_session(
        self, client_session_id: str, *, cancel: bool = False, principal: str | None = None
    ) -> administration_models.Erasure:
        """Erase your calls with this client_session_id, and the webhooks that are registered for it.

        An operator names its owner with `principal`.
        """
        path = f"/v1/sessions/{quote_path_segment(client_session_id, 'client_session_id')}"
        return await self._erase(path, cancel=cancel, principal=principal)

    async def erase_principal(self, principal: str, *, cancel: bool = False) -> administration_models.Erasure:
        """Erase everything of a principal, its API keys too. Needs the scope `admin`."""
        return await self._erase(f"/v1/principals/{quote_path_segment(principal, 'principal')}", cancel=cancel)

    async def erasure(self, erasure_id: str) -> administration_models.Erasure:
        """An erasure, and how far it is: until its `state` is `finished`, the service continues it."""
        return await self._transport.fetch_model(
            administration_models.Erasure, "GET", f"/v1/erasures/{quote_path_segment(erasure_id, 'erasure_id')}"
        )

    async def _erase(self, path: str, *, cancel: bool, principal: str | None = None) -> administration_models.Erasure:
        params = without_none({"cancel": "true" if cancel else None, "principal": principal})
        return await self._transport.fetch_model(administration_models.Erasure, "DELETE", path, params=params)

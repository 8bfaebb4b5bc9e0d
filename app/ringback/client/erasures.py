"""The client's methods that erase data."""

from ringback.client.models import Erasure
from ringback.client.resource_client import ResourceClient, quote_path_segment


class ErasureMethods(ResourceClient):
    async def erase_call(self, call_id: str, *, cancel: bool = False) -> Erasure:
        """Erase a call that has ended, with its result, its events' contents and its callbacks.

        Raises `Conflict` if it has not ended; `cancel` cancels it first. Raises `Gone` if it was erased before.
        """
        return await self._erase(f"/v1/calls/{quote_path_segment(call_id)}", cancel=cancel)

    async def erase_session(self, client_session_id: str, *, cancel: bool = False) -> Erasure:
        """Erase your calls with this client_session_id, and the webhooks that are registered for it."""
        return await self._erase(f"/v1/sessions/{quote_path_segment(client_session_id)}", cancel=cancel)

    async def erase_principal(self, principal: str, *, cancel: bool = False) -> Erasure:
        """Erase everything of a principal, its API keys too. Needs the scope `admin`."""
        return await self._erase(f"/v1/principals/{quote_path_segment(principal)}", cancel=cancel)

    async def erasure(self, erasure_id: str) -> Erasure:
        """An erasure, and how far it is: until its `state` is `finished`, the service continues it."""
        return await self._transport.fetch_model(Erasure, "GET", f"/v1/erasures/{quote_path_segment(erasure_id)}")

    async def _erase(self, path: str, *, cancel: bool) -> Erasure:
        return await self._transport.fetch_model(Erasure, "DELETE", path, params={"cancel": "true"} if cancel else None)

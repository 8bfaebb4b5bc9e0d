"""The client's methods about API keys. They need the scope `admin`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from ringback.client.arguments import list_texts, quote_path_segment
from ringback.client.resource_client import ResourceClient, without_none
from ringback.lazy_names import LazyModule

if TYPE_CHECKING:
    from ringback.client import administration_models
else:
    administration_models = LazyModule("ringback.client.administration_models")


class KeyMethods(ResourceClient):
    async def create_key(
        self,
        principal: str,
        *,
        name: str | None = None,
        scopes: Sequence[str] | None = None,
        upstreams: Sequence[str] | None = None,
        expires_at: datetime | None = None,
        expires_in_seconds: float | None = None,
    ) -> administration_models.CreatedApiKey:
        """Create an API key. The returned `key` is shown only once.

        By default it has the scopes calls, webhooks and read, may use all upstreams, and does not expire.
        """
        body = {
            "principal": principal,
            "name": name,
            "scopes": None if scopes is None else list_texts(scopes, "scopes"),
            "upstreams": None if upstreams is None else list_texts(upstreams, "upstreams"),
            "expires_at": expires_at and expires_at.isoformat(),
            "expires_in_seconds": expires_in_seconds,
        }
        return await self._transport.fetch_model(
            administration_models.CreatedApiKey, "POST", "/v1/keys", body=without_none(body)
        )

    async def keys(self, *, principal: str | None = None) -> AsyncGenerator[administration_models.ApiKey]:
        """The API keys of all principals, or of one, newest first, with the expired and the revoked ones."""
        async for page in self._iterate_pages(administration_models.ApiKeyPage, "/v1/keys", {"principal": principal}):
            for key in page.keys:
                yield key

    async def key(self, key_id: str) -> administration_models.ApiKey:
        """An API key, without the key itself."""
        return await self._transport.fetch_model(administration_models.ApiKey, "GET", _key_path(key_id))

    async def rotate_key(
        self, key_id: str, *, overlap_seconds: float | None = None, expires_in_seconds: float | None = None
    ) -> administration_models.RotatedApiKey:
        """Create a key with the same rights. The old one expires after the overlap (default: a day; 0 ends it now).

        By default the new key lives as long as the old one was created for. The returned `key` is shown only once.
        """
        body = without_none({"overlap_seconds": overlap_seconds, "expires_in_seconds": expires_in_seconds})
        return await self._transport.fetch_model(
            administration_models.RotatedApiKey, "POST", _key_path(key_id, "/rotate"), body=body
        )

    async def revoke_key(self, key_id: str) -> None:
        """Revoke an API key: its next request gets 401."""
        await self._transport.send_request("DELETE", _key_path(key_id))


def _key_path(key_id: str, rest: str = "") -> str:
    return f"/v1/keys/{quote_path_segment(key_id, 'key_id')}{rest}"

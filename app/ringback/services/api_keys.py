"""API keys. The store keeps only their hashes; clients send a key with every request."""

from collections.abc import Sequence
from typing import Final

from ringback.domain.errors import InvalidRequest, NotFound, Unauthenticated
from ringback.domain.ids import IdGenerator, KeyId, is_well_formed_id
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import (
    ALL_PRINCIPALS,
    OIDC_PRINCIPAL_PREFIX,
    PRINCIPAL_LENGTH_MAX,
    ApiKey,
    Caller,
    Principal,
    Scope,
)
from ringback.signing import secrets

API_KEY_PREFIX_LENGTH: Final = 12
"""Characters of a key that are stored readable: enough to distinguish keys, too few to guess the rest."""


class ApiKeys:
    def __init__(self, *, store: Store, ids: IdGenerator) -> None:
        self._store = store
        self._ids = ids

    async def create_key(
        self, principal: str, *, name: str, scopes: frozenset[Scope], upstreams: frozenset[str] | None
    ) -> tuple[ApiKey, str]:
        """Create a key. The second value is its text, which is shown only once."""
        if not principal.isprintable() or not 0 < len(principal) <= PRINCIPAL_LENGTH_MAX:
            raise InvalidRequest(f"principal must be 1 to {PRINCIPAL_LENGTH_MAX} printable characters.")
        if principal == ALL_PRINCIPALS:
            raise InvalidRequest(f"principal must not be '{ALL_PRINCIPALS}': operators name all principals so.")
        if principal.startswith(OIDC_PRINCIPAL_PREFIX):
            raise InvalidRequest(
                f"principal must not begin with '{OIDC_PRINCIPAL_PREFIX}': access tokens use this prefix."
            )
        text = secrets.generate_api_key(self._ids.random_bytes(secrets.API_KEY_RANDOM_BYTES))

        async def insert(tx: Transaction) -> ApiKey:
            key = ApiKey(
                id=self._ids.new_key_id(),
                principal=Principal(principal),
                name=name,
                hash=secrets.hash_api_key(text),
                prefix=text[:API_KEY_PREFIX_LENGTH],
                scopes=scopes,
                upstreams=upstreams,
                created_at=tx.now(),
            )
            await tx.api_keys.insert(key)
            return key

        return await self._store.write(insert), text

    async def list_keys(self) -> Sequence[ApiKey]:
        return await self._store.read(lambda tx: tx.api_keys.list_all())

    async def revoke_key(self, key_id: str) -> None:
        """Revoke the key from the next request on."""

        async def revoke(tx: Transaction) -> bool:
            return is_well_formed_id("key", key_id) and await tx.api_keys.revoke(KeyId(key_id), now=tx.now())

        if not await self._store.write(revoke):
            raise NotFound("No valid key has this id. List keys: ringback keys list")

    async def authenticate_key(self, text: str | None) -> Caller:
        """Return the caller of this key. Each request reads the store, so that a revoked key is refused at once."""
        if text is None:
            raise Unauthenticated(
                "Send your API key: 'Authorization: Bearer rbk_…'. Create one: ringback keys create PRINCIPAL"
            )
        key = None
        if secrets.is_well_formed_api_key(text):
            key = await self._store.read(lambda tx: tx.api_keys.find_by_hash(secrets.hash_api_key(text)))
        if key is None or key.revoked_at is not None:
            raise Unauthenticated("This API key is unknown or revoked. List keys: ringback keys list")
        return key.to_caller()

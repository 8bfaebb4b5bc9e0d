"""API keys. The store keeps only their hashes; clients send a key with every request.

Each request reads its key from the store, so a revocation and an expiry take effect on all nodes with the next request. The
store's clock decides about expiries.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from ringback.domain.clock import format_iso, seconds
from ringback.domain.cursor import Page
from ringback.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound, RingbackError, Unauthenticated
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
from ringback.domain.signals import API_KEYS_TOPIC
from ringback.services.audit import record_change
from ringback.signing import secrets

log = logging.getLogger(__name__)

KEY_LIFETIME_SECONDS_MAX: Final = 100 * 365 * 86_400.0
"""A hundred years: what is longer is a mistake, and a rotation that adds it again stays within the years that exist."""
API_KEY_PREFIX_LENGTH: Final = 12
"""Characters of a key that are stored readable: enough to distinguish keys, too few to guess the rest."""

_NO_VALID_KEY: Final = "No valid key has this id. List keys: ringback keys list, or GET /v1/keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatedKey:
    """A key that replaces another one."""

    key: ApiKey
    text: str = field(repr=False)
    """The key itself. It is shown once."""
    replaced_id: KeyId
    overlap_ends_at: datetime
    """Until then, the replaced key is accepted too, unless it expires earlier."""


class ApiKeys:
    """A caller needs the scope `admin`; None stands for an operator with access to the database."""

    def __init__(self, *, store: Store, ids: IdGenerator) -> None:
        self._store = store
        self._ids = ids

    async def create_key(
        self,
        principal: str,
        *,
        name: str,
        scopes: frozenset[Scope],
        upstreams: frozenset[str] | None,
        expires_at: datetime | None = None,
        lifetime_seconds: float | None = None,
        caller: Caller | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key, which expires at an instant or after a lifetime. The second value is its text, shown only once."""
        _require_admin(caller)
        _require_grantable(caller, upstreams)
        _check_principal(principal)
        text = self._generate_text()

        async def insert(tx: Transaction) -> ApiKey:
            now = tx.now()
            ends_at = expires_at if lifetime_seconds is None else now + seconds(lifetime_seconds)
            _check_expiry(ends_at, now)
            key = ApiKey(
                id=self._ids.new_key_id(),
                principal=Principal(principal),
                name=name,
                hash=secrets.hash_api_key(text),
                prefix=text[:API_KEY_PREFIX_LENGTH],
                scopes=scopes,
                upstreams=upstreams,
                created_at=now,
                expires_at=ends_at,
            )
            await tx.api_keys.insert(key)
            tx.notify(API_KEYS_TOPIC)
            await record_change(tx, caller, "create_key", key.id, owner=key.principal, detail=_describe_scopes(key))
            return key

        key = await self._store.write(insert)
        _log_change("api_key.created", key, caller)
        return key, text

    async def rotate_key(
        self,
        key_id: str,
        *,
        overlap_seconds: float,
        lifetime_seconds: float | None = None,
        caller: Caller | None = None,
    ) -> RotatedKey:
        """Create a key with the same rights, and let this one expire when the overlap ends.

        Without a lifetime of its own, the new key is valid as long as the replaced one was created for.
        """
        _require_admin(caller)
        text = self._generate_text()

        async def rotate(tx: Transaction) -> RotatedKey:
            now = tx.now()
            replaced = await _get_key(tx, key_id)
            _require_grantable(caller, replaced.upstreams)
            key = replace(
                replaced,
                id=self._ids.new_key_id(),
                hash=secrets.hash_api_key(text),
                prefix=text[:API_KEY_PREFIX_LENGTH],
                created_at=now,
                expires_at=_expiry_after_rotation(replaced, lifetime_seconds, now=now),
            )
            ends_at = now + seconds(overlap_seconds)
            if not await tx.api_keys.replace(replaced.id, replaced_by=key.id, expires_at=ends_at, now=now):
                raise _refuse_rotation(replaced)
            await tx.api_keys.insert(key)
            tx.notify(API_KEYS_TOPIC)
            await record_change(
                tx, caller, "rotate_key", replaced.id, owner=key.principal, detail=f"replaced by {key.id}"
            )
            return RotatedKey(key=key, text=text, replaced_id=replaced.id, overlap_ends_at=ends_at)

        rotated = await self._store.write(rotate)
        _log_change("api_key.rotated", rotated.key, caller, replaced_id=rotated.replaced_id)
        return rotated

    async def list_keys(self) -> Sequence[ApiKey]:
        return await self._store.read(lambda tx: tx.api_keys.list_all())

    async def list_page(
        self, caller: Caller, principal: str | None, *, position: str | None, limit: int
    ) -> Page[ApiKey, str]:
        """Keys of this principal (None or `*`: of all), newest first."""
        caller.require_scope(Scope.ADMIN)
        owner = None if principal is None or principal == ALL_PRINCIPALS else Principal(principal)
        return await self._store.scan(
            caller.principal, lambda tx: tx.api_keys.list_page(owner, position=position, limit=limit)
        )

    async def get_key(self, caller: Caller, key_id: str) -> ApiKey:
        caller.require_scope(Scope.ADMIN)
        return await self._store.read(lambda tx: _get_key(tx, key_id))

    async def revoke_key(self, key_id: str, *, caller: Caller | None = None) -> None:
        """Revoke the key from the next request on."""
        _require_admin(caller)

        async def revoke(tx: Transaction) -> ApiKey:
            key = await _get_key(tx, key_id)
            _require_grantable(caller, key.upstreams)
            if not await tx.api_keys.revoke(key.id, now=tx.now()):
                raise NotFound(_NO_VALID_KEY)
            tx.notify(API_KEYS_TOPIC)
            await record_change(tx, caller, "revoke_key", key.id, owner=key.principal)
            return key

        _log_change("api_key.revoked", await self._store.write(revoke), caller)

    async def authenticate_key(self, text: str | None) -> Caller:
        if text is None:
            raise Unauthenticated(
                "Send your API key: 'Authorization: Bearer rbk_…'. Create one: ringback keys create PRINCIPAL"
            )
        found = None
        if secrets.is_well_formed_api_key(text):
            found = await self._store.read(lambda tx: _find_key_and_time(tx, text))
        if found is None or found[0].revoked_at is not None:
            raise Unauthenticated("This API key is unknown or revoked. List keys: ringback keys list")
        key, now = found
        if not key.is_valid(now) and key.expires_at is not None:
            raise Unauthenticated(
                f"This API key expired at {format_iso(key.expires_at)}. Ask an operator for a new one: ringback keys create "
                "PRINCIPAL, or before the expiry: ringback keys rotate-api-key KEY"
            )
        return key.to_caller()

    def _generate_text(self) -> str:
        return secrets.generate_api_key(self._ids.random_bytes(secrets.API_KEY_RANDOM_BYTES))


async def require_held_key(tx: Transaction, caller: Caller) -> None:
    """Raise `Unauthenticated` if the caller's key was deleted since the request was authenticated.

    An erasure of the principal deletes its keys. A unit that stores something for a caller checks the key first: then either
    the erasure erases what the unit stores, or the unit stores nothing. A caller with an access token has no key; its issuer
    decides how long the token is valid, and what it starts after an erasure is newer than the erasure.
    """
    if caller.key_id is not None and not await tx.api_keys.hold(caller.key_id):
        raise Unauthenticated("This API key was deleted while the request was handled. Nothing was stored.")


async def _find_key_and_time(tx: Transaction, text: str) -> tuple[ApiKey, datetime] | None:
    key = await tx.api_keys.find_by_hash(secrets.hash_api_key(text))
    return None if key is None else (key, tx.now())


async def _get_key(tx: Transaction, key_id: str) -> ApiKey:
    key = await tx.api_keys.get(KeyId(key_id)) if is_well_formed_id("key", key_id) else None
    if key is None:
        raise NotFound(_NO_VALID_KEY)
    return key


def _refuse_rotation(key: ApiKey) -> RingbackError:
    if key.replaced_by is not None:
        return Conflict(f"This key was rotated before. Rotate the key that replaced it: {key.replaced_by}")
    return NotFound(_NO_VALID_KEY)


def _describe_scopes(key: ApiKey) -> str:
    return f"scopes: {', '.join(sorted(key.scopes))}"


def _require_admin(caller: Caller | None) -> None:
    if caller is not None:
        caller.require_scope(Scope.ADMIN)


def _require_grantable(caller: Caller | None, upstreams: frozenset[str] | None) -> None:
    """Raise `Forbidden` if the key may use an upstream that the caller may not: no key grants more than it has."""
    if caller is not None and not caller.may_grant_upstreams(upstreams):
        raise Forbidden("Your key may use only some upstreams, so it manages only keys for these.")


def _check_expiry(expires_at: datetime | None, now: datetime) -> None:
    if expires_at is not None and expires_at <= now:
        raise InvalidRequest(f"expires_at must be in the future; now is {format_iso(now)}.")
    if expires_at is not None and expires_at > now + seconds(KEY_LIFETIME_SECONDS_MAX):
        raise InvalidRequest("expires_at must be within 100 years. A key without it does not expire.")


def _check_principal(principal: str) -> None:
    if not principal.isprintable() or not 0 < len(principal) <= PRINCIPAL_LENGTH_MAX:
        raise InvalidRequest(f"principal must be 1 to {PRINCIPAL_LENGTH_MAX} printable characters.")
    if principal == ALL_PRINCIPALS:
        raise InvalidRequest(f"principal must not be '{ALL_PRINCIPALS}': operators name all principals so.")
    if principal.startswith(OIDC_PRINCIPAL_PREFIX):
        raise InvalidRequest(f"principal must not begin with '{OIDC_PRINCIPAL_PREFIX}': access tokens use this prefix.")


def _expiry_after_rotation(replaced: ApiKey, lifetime_seconds: float | None, *, now: datetime) -> datetime | None:
    if lifetime_seconds is not None:
        expires_at = now + seconds(lifetime_seconds)
        _check_expiry(expires_at, now)
        return expires_at
    return None if replaced.expires_at is None else now + (replaced.expires_at - replaced.created_at)


def _log_change(event: str, key: ApiKey, caller: Caller | None, **facts: str) -> None:
    by = "operator" if caller is None else caller.principal
    log.info(event, extra={"key_id": key.id, "principal": key.principal, "by": by, **facts})

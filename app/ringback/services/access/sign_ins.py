"""Sign-ins to the dashboard (`domain.sign_ins`): start one, find its caller with each request, end it."""

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from ringback.domain.clock import seconds
from ringback.domain.clock_confirmation import is_of_wrong_clock
from ringback.domain.errors import Forbidden
from ringback.domain.ids import IdGenerator, KeyId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope, Surface
from ringback.domain.sign_ins import SIGN_IN_SECONDS, SIGN_INS_KEPT, SignIn
from ringback.services.access.api_keys import require_held_key
from ringback.signing import secrets

log = logging.getLogger(__name__)

VIEWING_SCOPES: Final = frozenset({Scope.READ, Scope.ADMIN})
"""A viewer has one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedSignIn:
    secret: str = field(repr=False)
    """For the cookie. The store has only its hash."""
    expires_at: datetime


class SignIns:
    def __init__(self, *, store: Store, ids: IdGenerator) -> None:
        self._store = store
        self._ids = ids

    async def sign_in(self, caller: Caller, *, expires_at: datetime | None = None) -> StartedSignIn:
        """Sign the caller in for `SIGN_IN_SECONDS`, or until its access token expires if that is earlier.

        Raises `Forbidden` unless the caller has the scope `read` or `admin`.
        """
        if caller.scopes.isdisjoint(VIEWING_SCOPES):
            raise Forbidden("The dashboard needs a key with the scope 'read' or 'admin'.", scope=Scope.READ)
        secret = secrets.generate_browser_secret(self._ids.random_bytes(secrets.BROWSER_SECRET_BYTES))

        async def insert(tx: Transaction) -> SignIn:
            await require_held_key(tx, caller)
            ends_at = tx.now() + seconds(SIGN_IN_SECONDS)
            sign_in = SignIn(
                id=self._ids.new_sign_in_id(),
                secret_hash=secrets.hash_browser_secret(secret),
                principal=caller.principal,
                key_id=caller.key_id,
                scopes=caller.scopes,
                upstreams=caller.upstreams,
                created_at=tx.now(),
                expires_at=ends_at if expires_at is None else min(ends_at, expires_at),
            )
            await tx.sign_ins.insert(sign_in)
            await tx.sign_ins.remove_oldest(caller.principal, kept=SIGN_INS_KEPT)
            return sign_in

        sign_in = await self._store.write_for(caller.principal, insert)
        facts = {"sign_in_id": sign_in.id, "principal": caller.principal, "key_id": caller.key_id}
        log.info("viewer.signed_in", extra=facts)
        return StartedSignIn(secret=secret, expires_at=sign_in.expires_at)

    async def find_caller(self, secret: str) -> Caller | None:
        """The caller whose browser has this secret; None if its sign-in or its key has ended."""
        if not secrets.is_well_formed_browser_secret(secret):
            return None

        async def find(tx: Transaction) -> Caller | None:
            sign_in = await tx.sign_ins.find_by_hash(secrets.hash_browser_secret(secret), now=tx.now())
            if sign_in is None or is_of_wrong_clock(sign_in.created_at, now=tx.now()):
                return None  # of a clock that was far ahead: it would last for as long as the clock was wrong
            if sign_in.key_id is not None:
                return await find_viewing_caller(tx, sign_in.key_id)
            return Caller(principal=sign_in.principal, scopes=sign_in.scopes, upstreams=sign_in.upstreams)

        caller = await self._store.read(find)
        return None if caller is None else replace(caller, surface=Surface.UI)

    async def sign_out(self, secret: str) -> None:
        """End the sign-in: a copy of its cookie is worth nothing from now on."""
        caller = await self.find_caller(secret)
        if caller is not None:
            await self._store.write_for(
                caller.principal, lambda tx: tx.sign_ins.delete(secrets.hash_browser_secret(secret))
            )


async def find_viewing_caller(tx: Transaction, key_id: KeyId) -> Caller | None:
    """The caller of a key that is valid now and may read."""
    key = await tx.api_keys.get(key_id)
    if key is None or not key.is_valid(tx.now()) or key.scopes.isdisjoint(VIEWING_SCOPES):
        return None
    return key.to_caller()

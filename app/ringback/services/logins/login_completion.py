"""The second half of a login: its state is taken, its code is exchanged for tokens, and calls that waited for them go on.

A login is taken before its code is exchanged, so no two requests exchange it; a login that fails is started again. Its row
stays, without its state, until the tokens are stored: an erasure of the principal deletes it, and no tokens are stored then.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ringback.domain.clock import seconds
from ringback.domain.errors import (
    LoginNotCompleted,
    LoginUnavailable,
    RingbackError,
    UnknownLogin,
)
from ringback.domain.ids import KeyId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal
from ringback.domain.upstream_logins import (
    SHARED_OWNER,
    CredentialsScope,
    GrantedTokens,
    LoginFailed,
    LoginFailure,
    LoginFlow,
    UpstreamLogin,
    UpstreamTokens,
)
from ringback.services.audit import record_change
from ringback.services.logins.login_redirects import (
    AuthorizationResponse,
    require_granted_code,
    require_own_redirect,
)
from ringback.services.logins.login_tokens import LoginRevocations, ends_grant_of, get_readable_tokens, replace_tokens
from ringback.services.logins.login_waits import LoginWaits, write_for_owner
from ringback.telemetry.logs import AUDIT_LOGGER

audit_log = logging.getLogger(AUDIT_LOGGER)

EXCHANGE_SECONDS: Final = 60.0
"""How long a login stays that was taken: its code is exchanged within ten seconds, and the tokens are stored soon after."""
NO_LOGIN: Final = (
    "This login is unknown, was started by another key, has been completed or has expired. Start a new one: POST "
    "/v1/upstreams/NAME/login"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedLogin:
    upstream: str
    owner: CredentialsScope
    scope: str | None
    expires_at: datetime | None


class LoginCompletion:
    """Completes logins whose browsers came back. `UpstreamLogins` decides who may complete which."""

    def __init__(self, *, store: Store, flow: LoginFlow, waits: LoginWaits, redirect_urls: frozenset[str]) -> None:
        self._store = store
        self._flow = flow
        self._revocations = LoginRevocations(flow)
        self._waits = waits
        self._redirect_urls = redirect_urls

    async def take_login(
        self,
        principal: Principal,
        key_id: KeyId | None,
        response: AuthorizationResponse,
        matches: Callable[[UpstreamLogin], bool],
    ) -> UpstreamLogin:
        """Take the login of this state and return it: no state finds it then. Another redirect changes nothing."""

        async def claim_login(tx: Transaction) -> UpstreamLogin:
            await _require_valid_key(tx, key_id)
            login = await tx.upstream_logins.find_by_state(response.state_hash, now=tx.now())
            if login is None or not matches(login) or not await tx.upstream_logins.delete(login.id):
                raise UnknownLogin(NO_LOGIN)
            expires_at = tx.now() + seconds(EXCHANGE_SECONDS)
            await tx.upstream_logins.add(replace(login, state_hash=f"taken {login.id}", expires_at=expires_at))
            return login

        return await self._store.write_for(principal, claim_login)

    async def complete_login(
        self, caller: Caller, login: UpstreamLogin, response: AuthorizationResponse
    ) -> CompletedLogin:
        facts = {"login_id": login.id, "principal": login.principal, "key_id": login.key_id, "upstream": login.upstream}
        try:
            if login.request.redirect_uri not in self._redirect_urls:  # their proxies may change the path
                require_own_redirect(response, login.request)
            code = require_granted_code(response, login.request)
            granted = await self._flow.exchange_code(login.upstream, login.request, code=code)
        except LoginFailed as failure:
            audit_log.warning("audit.login_failed", extra={**facts, "reason": str(failure.failure)})
            await self._store.write_for(login.principal, lambda tx: tx.upstream_logins.delete(login.id))
            raise to_login_error(failure) from None
        tokens = await self._save_tokens(caller, login, granted)
        credentials = CredentialsScope.SHARED if tokens.owner == SHARED_OWNER else CredentialsScope.PRINCIPAL
        audit_log.info("audit.login_completed", extra={**facts, "credentials": str(credentials)})
        return CompletedLogin(
            upstream=tokens.upstream,
            owner=credentials,
            scope=tokens.scope,
            expires_at=tokens.expires_at,
        )

    async def _save_tokens(self, caller: Caller, login: UpstreamLogin, granted: GrantedTokens) -> UpstreamTokens:
        """Store the tokens, and let the calls go on that wait for them."""
        replaced: UpstreamTokens | None = None

        async def save(tx: Transaction) -> UpstreamTokens:
            nonlocal replaced
            if not await tx.upstream_logins.delete(login.id):  # erased with its principal
                raise UnknownLogin(NO_LOGIN)
            await _require_valid_key(tx, login.key_id)
            replaced = await get_readable_tokens(tx, login.upstream, login.owner)
            tokens = await replace_tokens(tx, login, granted)
            await record_change(tx, caller, "complete_login", login.upstream, owner=login.owner or None)
            await self._waits.resume_calls(tx, tokens)
            return tokens

        try:
            tokens = await write_for_owner(self._store, login.owner, save)
        except BaseException:
            self._revocations.revoke_unsaved(self._store, login, granted)
            raise
        if replaced is not None and ends_grant_of(tokens, replaced):
            self._revocations.revoke_later(replaced)
        return tokens


async def _require_valid_key(tx: Transaction, key_id: KeyId | None) -> None:
    """Raise `UnknownLogin` if the key that started a login was deleted or revoked. Until the unit ends, no other deletes it."""
    if key_id is None:
        return
    key = await tx.api_keys.get(key_id) if await tx.api_keys.hold(key_id) else None
    if key is None or not key.is_valid(tx.now()):
        raise UnknownLogin(NO_LOGIN)


def to_login_error(failure: LoginFailed) -> RingbackError:
    kind = LoginUnavailable if failure.failure is LoginFailure.UNREACHABLE else LoginNotCompleted
    return kind(str(failure), reason=str(failure.failure))

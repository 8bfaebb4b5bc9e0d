"""Signs in to upstreams: starts a login, completes it once its browser comes back, and signs out.

    start        checks ▸ rate and open logins ▸ discovery (network) ▸ the login: stored, sealed, for ten minutes
    complete     the login of this state: checked and deleted ▸ the code is exchanged (network) ▸ tokens stored, calls go on
    sign out     tokens deleted ▸ revoked at the authorization server (network)

An attacker could send a login of his own to a victim, whose account he would then use. So only the one who started a login
completes it: the key that started it, or the browser in which that key was entered on Ringback's page (`api.login_pages`).
`login_completion` is what follows once that is certain.
"""

import logging
from dataclasses import dataclass, field
from typing import Final

from ringback.domain.clock import Clock, seconds
from ringback.domain.errors import (
    InvalidRequest,
    LoginNotCompleted,
    QuotaExceeded,
    UnknownLogin,
)
from ringback.domain.ids import IdGenerator, LoginId
from ringback.domain.login_urls import is_allowed_redirect, login_callback_url
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope, Surface
from ringback.domain.rate_limiter import RateLimit, RateLimiter
from ringback.domain.upstream_logins import (
    CredentialsScope,
    LoginFailed,
    LoginFailure,
    LoginFlow,
    StartedAuthorization,
    UpstreamLogin,
    UpstreamTokens,
)
from ringback.domain.upstreams import ToolCatalog, UpstreamInfo
from ringback.services.access.api_keys import require_held_key
from ringback.services.audit import record_change
from ringback.services.lifecycle import Lifecycle
from ringback.services.logins.login_completion import NO_LOGIN, CompletedLogin, LoginCompletion, to_login_error
from ringback.services.logins.login_redirects import (
    AuthorizationResponse,
    hash_state,
    parse_redirect,
)
from ringback.services.logins.login_states import lacks_required_scope
from ringback.services.logins.login_tokens import EndedLogin, end_login, get_readable_tokens
from ringback.services.logins.login_waits import LoginWaits, write_for_owner
from ringback.services.unserved_upstreams import make_not_found
from ringback.telemetry.logs import AUDIT_LOGGER

audit_log = logging.getLogger(AUDIT_LOGGER)

LOGIN_SECONDS: Final = 600.0
"""Time to type a password and a second factor; authorization servers give up after as long."""
OPEN_LOGINS_MAX: Final = 10
"""Open logins of a principal: more than a person completes at once."""
START_RATE: Final = RateLimit(per_second=20 / 60, burst=20)
"""Logins that a principal may start at each node. Each sends some requests to servers of others."""
OPEN_LOGINS_RETRY_SECONDS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginConfig:
    public_url: str
    redirect_urls: frozenset[str] = frozenset()
    """Redirect URIs of web front ends, besides loopback and Ringback's own page.

    With `{upstream}` in it, each upstream has its own, and a redirect to that of another one is refused. Without it only the
    state binds a redirect to its login, and a server that sends no `iss` could be mixed up with a hostile one (RFC 9700 §4.4).
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedLogin:
    login: UpstreamLogin
    owner: CredentialsScope
    authorization_url: str = field(repr=False)


class UpstreamLogins:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: IdGenerator,
        catalog: ToolCatalog,
        flow: LoginFlow,
        waits: LoginWaits,
        lifecycle: Lifecycle,
        config: LoginConfig,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._catalog = catalog
        self._flow = flow
        self._completion = LoginCompletion(store=store, flow=flow, waits=waits, redirect_urls=config.redirect_urls)
        self._lifecycle = lifecycle
        self._config = config
        self._starts: RateLimiter[Principal] = RateLimiter()

    async def start_login(
        self, caller: Caller, upstream: str, *, redirect_uri: str | None = None, scope: str | None = None
    ) -> StartedLogin:
        """Begin a login. The caller sends a browser to the authorization URL, and completes the login with the redirect.

        Without `redirect_uri` the browser comes back to Ringback's own page. Without `scope` the login asks for what the
        upstream asked for last, or for what its metadata names.
        """
        self._lifecycle.require_running()
        credentials = self._require_login(caller, upstream)
        owner = credentials.get_owner(caller.principal)
        redirect_uri = redirect_uri or login_callback_url(self._config.public_url, upstream)
        self._require_redirect(redirect_uri, upstream)
        self._acquire_start(caller.principal)
        required_scope = await self._read_required_scope(caller.principal, upstream, owner)
        try:
            started = await self._lifecycle.run_until_shutdown(
                self._flow.begin_authorization(upstream, redirect_uri=redirect_uri, scope=scope or required_scope)
            )
        except LoginFailed as failure:
            _audit("audit.login_failed", caller, upstream, credentials, reason=str(failure.failure))
            raise to_login_error(failure) from None
        login = await self._add_login(caller, upstream, owner, started)
        _audit("audit.login_started", caller, upstream, credentials, login_id=login.id)
        return StartedLogin(login=login, owner=credentials, authorization_url=started.authorization_url)

    async def complete_login(self, caller: Caller, upstream: str, redirected_to: str) -> CompletedLogin:
        """Complete a login with the whole URL to which the authorization server sent the browser.

        Raises `UnknownLogin` unless the caller's own key started it, at this upstream, within `LOGIN_SECONDS`.
        """
        self._lifecycle.require_running()
        self._require_login(caller, upstream)
        response = _parse(redirected_to)

        def is_callers(login: UpstreamLogin) -> bool:
            started_by = (login.upstream, login.principal, login.key_id)
            return started_by == (upstream, caller.principal, caller.key_id)

        login = await self._completion.take_login(caller.principal, caller.key_id, response, is_callers)
        return await self._completion.complete_login(caller, login, response)

    async def complete_in_browser(self, login_ids: frozenset[LoginId], redirected_to: str) -> CompletedLogin:
        """Complete a login that began in this browser, on Ringback's page: `login_ids` are those that its cookies name.

        Raises `UnknownLogin` for a login of another browser, and if the key that started it is not valid any more.
        """
        self._lifecycle.require_running()
        response = _parse(redirected_to)
        found = await self._store.read(lambda tx: tx.upstream_logins.find_by_state(response.state_hash, now=tx.now()))
        if found is None or found.id not in login_ids:
            raise UnknownLogin(NO_LOGIN)
        login = await self._completion.take_login(
            found.principal, found.key_id, response, lambda each: each.id == found.id
        )
        starter = Caller(principal=login.principal, scopes=frozenset(), key_id=login.key_id, surface=Surface.UI)
        return await self._completion.complete_login(starter, login, response)

    async def sign_out(self, caller: Caller, upstream: str) -> None:
        """Delete the tokens of the caller's owner, and revoke them at the authorization server. Does nothing without tokens."""
        credentials = self._require_login(caller, upstream)
        owner = credentials.get_owner(caller.principal)

        async def delete(tx: Transaction) -> EndedLogin | None:
            ended = await end_login(tx, upstream, owner)
            if ended is not None:
                await record_change(tx, caller, "end_login", upstream, owner=owner or None)
            return ended

        ended = await write_for_owner(self._store, owner, delete)
        if ended is None:
            return
        _audit("audit.login_ended", caller, upstream, credentials)
        if ended.tokens is not None:
            await self._flow.revoke_tokens(ended.tokens)

    # -- checks --

    def _require_login(self, caller: Caller, upstream: str) -> CredentialsScope:
        """The owner of the tokens that the upstream uses. Raises unless the caller may sign in to it."""
        info = self._find_upstream(caller, upstream)
        caller.require_scope(Scope.ADMIN if info.credentials is CredentialsScope.SHARED else Scope.CALLS)
        if info.credentials is None:
            raise LoginNotCompleted(
                f"Upstream '{upstream}' uses no login: it is a child process, or has configured credentials.",
                reason=str(LoginFailure.NOT_OFFERED),
            )
        return info.credentials

    def _find_upstream(self, caller: Caller, upstream: str) -> UpstreamInfo:
        for info in self._catalog.list_upstreams(caller.principal):
            if info.name == upstream and caller.may_use_upstream(upstream):
                return info
        raise make_not_found(self._catalog, caller, upstream)

    def _require_redirect(self, redirect_uri: str, upstream: str) -> None:
        public_url, configured = self._config.public_url, self._config.redirect_urls
        if not is_allowed_redirect(redirect_uri, upstream=upstream, public_url=public_url, configured=configured):
            raise InvalidRequest(
                "redirect_uri must be http://127.0.0.1:PORT/PATH on the user's own machine, or a URL that the operator lists "
                "in RINGBACK_LOGIN_REDIRECT_URLS. Without it the browser comes back to Ringback's own page."
            )

    def _acquire_start(self, principal: Principal) -> None:
        now = self._clock.monotonic()
        bucket = self._starts.get_bucket(principal, START_RATE, now=now)
        if not bucket.try_acquire(now):
            raise QuotaExceeded(
                "You started many logins within a minute. Complete one of them, or wait.",
                retry_after_seconds=1 + int(bucket.wait_seconds(now)),
                quota="login_starts",
            )

    # -- the first half of a login --

    async def _read_required_scope(self, principal: Principal, upstream: str, owner: Principal) -> str | None:
        """The scope that the stored tokens lack. Raises `QuotaExceeded` and `ContentUnreadable` before anything is sent."""

        async def read(tx: Transaction) -> UpstreamTokens | None:
            await _require_few_logins(tx, principal)
            return await get_readable_tokens(tx, upstream, owner)

        tokens = await self._store.read(read)
        return tokens.required_scope if tokens is not None and lacks_required_scope(tokens) else None

    async def _add_login(
        self, caller: Caller, upstream: str, owner: Principal, started: StartedAuthorization
    ) -> UpstreamLogin:
        async def add(tx: Transaction) -> UpstreamLogin:
            await require_held_key(tx, caller)
            await tx.event_log.get_head(caller.principal, lock=True)  # starts of one principal are counted one by one
            await _require_few_logins(tx, caller.principal)
            login = UpstreamLogin(
                id=self._ids.new_login_id(),
                state_hash=hash_state(started.state),
                upstream=upstream,
                owner=owner,
                principal=caller.principal,
                key_id=caller.key_id,
                request=started.request,
                created_at=tx.now(),
                expires_at=tx.now() + seconds(LOGIN_SECONDS),
            )
            await tx.upstream_logins.add(login)
            return login

        return await self._store.write_for(caller.principal, add)


async def _require_few_logins(tx: Transaction, principal: Principal) -> None:
    if await tx.upstream_logins.count(principal, now=tx.now(), limit=OPEN_LOGINS_MAX) >= OPEN_LOGINS_MAX:
        raise QuotaExceeded(
            f"You have {OPEN_LOGINS_MAX} logins that were started and not completed. Complete one, or wait up to ten minutes.",
            retry_after_seconds=OPEN_LOGINS_RETRY_SECONDS,
            quota="open_logins",
        )


def _parse(redirected_to: str) -> AuthorizationResponse:
    try:
        return parse_redirect(redirected_to)
    except LoginFailed as failure:
        raise InvalidRequest(str(failure)) from None


def _audit(event: str, caller: Caller, upstream: str, credentials: CredentialsScope, **facts: str) -> None:
    by = {"principal": caller.principal, "key_id": caller.key_id, "upstream": upstream, "credentials": str(credentials)}
    audit_log.info(event, extra={**by, **facts})

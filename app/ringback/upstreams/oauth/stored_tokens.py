"""The tokens of one owner for one upstream: cached, refreshed once for all waiting requests, and shared by all nodes.

    get_token ──▶ cached and fresh ──────────────────────────────────▶ the token
        │           ├── no tokens ───────────────────────────────────▶ None: the request goes without
        │           └── sealed with a key of other nodes ────────────▶ `TokensUnreadable`
        └──▶ expires soon, or refused by the upstream ──▶ claim ──▶ refresh ──▶ save, notify the other nodes
                 │                                          ├── refused ───▶ `LoginRequired`
                 │                                          └── failed ────▶ the old token, else `TokenUnavailable`
                 └── another node has the claim ──▶ its tokens

A refresh runs in a task of its own: a cancelled request must not lose a rotated refresh token. Tokens belong to the URL that
they were issued for: after a change of the configuration, they are not sent to the new one.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Final, cast

from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.principal import Principal
from ringback.domain.signals import Signals, owner_erased_topic, upstream_tokens_topic
from ringback.domain.upstream_logins import UnreadableTokens, UpstreamTokens
from ringback.protocol.errors import (
    LoginRequired,
    RequestNotSent,
    ScopeRefused,
    TokenReplaced,
    TokensUnreadable,
    TokenUnavailable,
)
from ringback.protocol.upstream_logins import login_command
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.oauth.challenge import Refusal
from ringback.upstreams.oauth.client_store import ClientStore
from ringback.upstreams.oauth.discovery import is_resource_of
from ringback.upstreams.oauth.followed_login import FollowedLogin
from ringback.upstreams.oauth.login_offers import LoginOffers
from ringback.upstreams.oauth.metadata_http import MetadataHttp
from ringback.upstreams.oauth.scopes import (
    SCOPE_REFUSED,
    SCOPE_REQUIRED,
    SCOPES_MAX,
    parse_scope,
    split_scope,
    unite_scopes,
)
from ringback.upstreams.oauth.token_renewal import TokenRenewal, end_claim, wait_for_other_node
from ringback.upstreams.oauth.token_source import OnWait
from ringback.upstreams.oauth.token_store import TokenStore
from ringback.upstreams.oauth.token_validity import end_access, is_fresh, is_valid, keeps_refused

log = logging.getLogger(__name__)

CACHE_SECONDS: Final = 30.0
"""After this time the tokens are read again, in case a notification of the store was lost."""
RETRY_SECONDS: Final = 5.0
"""After a failed refresh, requests do not try again for this long."""
DRAIN_SECONDS: Final = 10.0
"""How long the end of the service waits for a refresh: its token request takes no longer."""
WRITES_MAX: Final = 5
"""Attempts to note what the upstream refused, over the writes of other nodes. A refresh writes twice."""
_TOKENS_UNREADABLE: Final = (
    "There is a login to the upstream, and this node lacks the key that sealed its tokens. Another node has it."
)
_LOGIN_REQUIRED: Final = "The upstream requires a login. Sign in to it"


class StoredTokenSource:
    """Implements `TokenSource`."""

    def __init__(
        self,
        config: UpstreamConfig,
        owner: Principal,
        *,
        store: TokenStore,
        clients: ClientStore,
        http: MetadataHttp,
        offers: LoginOffers,
        clock: Clock,
        signals: Signals | None = None,
    ) -> None:
        self.config = config
        self._owner = owner
        self._store = store
        self._renewal = TokenRenewal(store, clients, http, clock=clock)
        self._offers = offers
        self._clock = clock
        self.login = FollowedLogin()
        self._tokens: UpstreamTokens | None = None
        self._version: int | None = None
        """Of the stored tokens, also of those for another URL."""
        self._stale_at = 0.0
        """By `Clock.monotonic`; 0 if the tokens have to be read."""
        self._is_loaded = False
        self._is_unreadable = False
        """Whether the stored tokens are for this upstream, and this node cannot read them."""
        self._is_notified = False
        """Whether tokens changed since the last read."""
        self._reading = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None
        self._failed_until = 0.0
        self._requested_scopes: frozenset[str] = frozenset()
        """Scopes that the upstream asked for after a login. It gets them once; a second demand is refused."""
        self._explaining_scope = asyncio.Lock()
        """Demands for scopes are noted one by one: each sees those of the others, and no write loses one."""
        self._changed = asyncio.Event()
        self._subscriptions = ExitStack()
        if signals is not None:
            self._subscribe(signals)

    def _subscribe(self, signals: Signals) -> None:
        topic = upstream_tokens_topic(self.config.name, self._owner)
        self._subscriptions.enter_context(signals.subscribe(self.notify_changed, topic))
        erased = owner_erased_topic(self._owner)
        self._subscriptions.enter_context(signals.subscribe(self.end_login, erased, also_after_losses=False))

    # -- tokens for requests --

    async def get_token(
        self, *, other_than: str | None = None, refusal: Refusal | None = None, on_wait: OnWait | None = None
    ) -> str | None:
        before = tokens = await self._get_tokens()
        if (
            tokens is not None
            and tokens.access_token == other_than
            and keeps_refused(tokens, refusal, now=self._clock.now())
        ):
            return tokens.access_token
        if tokens is not None and not self.login.has_ended and self._needs_refresh(tokens, other_than):
            is_joining = self._refreshing is not None
            await self._refresh_once(tokens, other_than, on_wait)
            tokens = await self._get_tokens()
            if is_joining and tokens is not None and tokens.access_token == other_than:
                # The refresh in flight had made the token that was refused.
                await self._refresh_once(tokens, other_than, on_wait)
                tokens = await self._get_tokens()
        if self.login.has_ended:
            return self._require_last_token(tokens, other_than)
        if tokens is None:
            return None
        if tokens.access_token is None:
            raise self._require_login(tokens.required_scope)
        if before is not None and other_than == tokens.access_token and tokens.obtained_at > before.obtained_at:
            return other_than  # the refresh returned the refused token: the upstream decides about it once more
        if tokens.access_token == other_than or not is_valid(tokens, now=self._clock.now()):
            raise TokenUnavailable("The authorization server could not be asked for a new token. Try again later.")
        return tokens.access_token

    def _require_last_token(self, tokens: UpstreamTokens | None, other_than: str | None) -> str:
        """The token of a login that another one has replaced: running calls end with it. Nothing refreshes it."""
        if tokens is None or tokens.access_token in {None, other_than} or not is_valid(tokens, now=self._clock.now()):
            raise self._require_login(None)
        return cast("str", tokens.access_token)

    def _needs_refresh(self, tokens: UpstreamTokens, other_than: str | None) -> bool:
        if tokens.access_token is None or tokens.access_token == other_than:
            return True
        if not is_valid(tokens, now=self._clock.now()):
            return True
        is_waiting = self._refreshing is not None or self._clock.monotonic() < self._failed_until
        return not is_waiting and tokens.refresh_token is not None and not is_fresh(tokens, now=self._clock.now())

    # -- the cache --

    async def _get_tokens(self) -> UpstreamTokens | None:
        """The tokens of the owner that are for this upstream. Raises `TokensUnreadable`."""
        if self._clock.monotonic() >= self._stale_at:
            async with self._reading:
                if self._clock.monotonic() >= self._stale_at:
                    await self._read_tokens()
        if self._is_unreadable:
            raise TokensUnreadable(_TOKENS_UNREADABLE, tokens_version=self._version)
        return self._tokens

    async def _read_tokens(self) -> None:
        """Raises `TokenUnavailable` if the tokens were never read. Tokens that were read are used while the store fails."""
        self._stale_at = self._clock.monotonic() + CACHE_SECONDS  # a notification during the read makes it stale again
        self._is_notified = False
        try:
            self._accept_stored(await self._store.load(self.config.name, self._owner))
        except asyncio.CancelledError:
            self._stale_at = 0.0
            raise
        except Exception as error:
            log.warning("upstream.tokens_not_read", extra=self._failure_facts(error), exc_info=_find_bug(error))
            self._stale_at = self._clock.monotonic() + RETRY_SECONDS if self._is_loaded else 0.0
            if not self._is_loaded:
                raise TokenUnavailable("The tokens for the upstream could not be read. Try again later.") from None

    def _accept_stored(self, stored: UpstreamTokens | UnreadableTokens | None) -> None:
        """Tokens that were read are used also after another node has sealed them anew."""
        self._is_loaded = True
        if isinstance(stored, UnreadableTokens):
            if self._tokens is None or stored.version != self._version:
                self._tokens, self._version = None, stored.version
                self._is_unreadable = is_resource_of(stored.resource, self.config.url)
                self.login.follow_unreadable()
            return
        self._is_unreadable = False
        if not self.login.follow(None if stored is None else stored.login_id):
            self._tokens = None if stored is None else self._tokens
            return
        self._version = None if stored is None else stored.version
        is_ours = stored is not None and is_resource_of(stored.resource, self.config.url)
        self._tokens = stored if is_ours else None
        self._requested_scopes -= split_scope(None if self._tokens is None else self._tokens.scope)

    def notify_changed(self) -> None:
        """Called when tokens for this upstream were saved or deleted by any node."""
        self._stale_at = 0.0
        self._is_notified = True
        self._changed.set()
        self._changed = asyncio.Event()

    def end_login(self) -> None:
        """Called when the owner was erased."""
        self._tokens, self._is_unreadable = None, False
        self.login.end()

    async def check_login(self) -> None:
        with suppress(TokenUnavailable, TokensUnreadable):
            await self._get_tokens()

    @property
    def version(self) -> int | None:
        return self._version

    async def read_version(self) -> int | None:
        async with self._reading:
            await self._read_tokens()
        return self.version

    async def wait_changed(self) -> None:
        if not self._is_notified:
            await self._changed.wait()

    # -- refresh --

    async def _refresh_once(self, tokens: UpstreamTokens, other_than: str | None, on_wait: OnWait | None) -> None:
        """Wait for the refresh that all requests share. It stores its result; failures leave the tokens as they are."""
        if on_wait is not None and self._may_refresh(tokens):
            await on_wait()
        if not self._may_refresh(tokens):
            return
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh(tokens, is_refused=tokens.access_token == other_than))
            self._refreshing.add_done_callback(self._end_refresh)
        await asyncio.wait({self._refreshing})  # does not cancel it

    def _may_refresh(self, tokens: UpstreamTokens) -> bool:
        if self._refreshing is not None:
            return True
        is_current = self._tokens is not None and self._tokens.access_token == tokens.access_token
        return tokens.access_token is not None and is_current and self._clock.monotonic() >= self._failed_until

    def _end_refresh(self, task: "asyncio.Task[None]") -> None:
        self._refreshing = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failed_until = self._clock.monotonic() + RETRY_SECONDS
            log.error("upstream.tokens_not_refreshed", extra=self._failure_facts(failure), exc_info=_find_bug(failure))

    async def _refresh(self, tokens: UpstreamTokens, *, is_refused: bool) -> None:
        while True:
            claim = await self._store.claim_refresh(tokens)
            self._accept_stored(claim.tokens)
            if self._tokens is None or self._tokens.access_token != tokens.access_token or self.login.has_ended:
                return
            if claim.is_ours:
                await self._replace_tokens(self._tokens)
                return
            if not is_refused and is_valid(self._tokens, now=self._clock.now()):
                return
            tokens = self._tokens
            await wait_for_other_node(self._changed, claim.wait_seconds, clock=self._clock)

    async def _replace_tokens(self, claimed: UpstreamTokens) -> None:
        renewed = await self._renewal.request_tokens(claimed)
        if renewed is None:
            self._failed_until = self._clock.monotonic() + RETRY_SECONDS
            renewed = end_claim(claimed)
        self._accept_stored(renewed)  # requests go on with the new tokens, even if the store fails now
        if not await self._renewal.save(renewed, claimed=claimed):
            await self._read_tokens()  # another write came in between
            await self._renewal.revoke_unstored(renewed, claimed=claimed)

    # -- refused requests --

    async def explain_refusal(self, refusal: Refusal, *, token: str | None) -> RequestNotSent | None:
        if refusal.requires_scope and token is not None:
            async with self._explaining_scope:
                return await self._explain_scope(refusal, token)
        if refusal.status_code != HTTPStatus.UNAUTHORIZED:
            return None
        if token is not None:
            return await self._explain_refused_token(refusal, token)
        if not await self._offers.offers_login(refusal):
            return None
        if (tokens := await self._get_tokens()) is not None and tokens.access_token is not None:
            return TokenReplaced("A login was stored after the request was sent. Try again.")
        return self._require_login(parse_scope(refusal.scope))

    async def _explain_refused_token(self, refusal: Refusal, token: str) -> RequestNotSent:
        """The upstream refused a token that could not be replaced, or its replacement.

        The login has ended if the upstream refuses the token for every request. Otherwise only this request requires a login:
        one tool must not sign out an owner whose other calls run.
        """
        tokens = await self._get_tokens()
        if tokens is not None and tokens.access_token not in {None, token}:
            return TokenReplaced("The token of the upstream was replaced in the meantime. Try again.")
        if tokens is not None and tokens.access_token == token and refusal.rejects_token:
            log.warning("upstream.login_ended", extra={"upstream": self.config.name, "failure": "token_refused"})
            await self._write(tokens, end_access)
        return self._require_login(parse_scope(refusal.scope))

    async def _explain_scope(self, refusal: Refusal, token: str) -> RequestNotSent:
        """Ask for another login with the scopes that are missing (MCP 2025-11-25, "Scope Challenge Handling")."""
        tokens = await self._get_tokens()
        if tokens is None or tokens.access_token != token:
            return TokenReplaced("The token of the upstream was replaced in the meantime. Try again.")
        wanted = parse_scope(refusal.scope)
        missing = split_scope(wanted) - split_scope(tokens.scope)
        required = unite_scopes(tokens.scope, tokens.required_scope, wanted)
        is_noted = missing <= split_scope(tokens.required_scope)
        requested = self._requested_scopes | missing
        is_repeated = missing <= self._requested_scopes and not is_noted
        if not missing or required is None or is_repeated or len(requested) > SCOPES_MAX:
            return ScopeRefused(SCOPE_REFUSED)

        def add_scopes(stored: UpstreamTokens) -> UpstreamTokens:
            """Those that another node has noted meanwhile stay, unless they are too many together."""
            return replace(stored, required_scope=unite_scopes(stored.required_scope, required) or required)

        if is_noted or await self._write(tokens, add_scopes):
            self._requested_scopes = requested
        return self._require_login(required, SCOPE_REQUIRED)

    async def _write(self, tokens: UpstreamTokens, change: Callable[[UpstreamTokens], UpstreamTokens]) -> bool:
        """Store the change, also over the claim of a refresh. False if other tokens are stored, or the store fails.

        If the store fails, the next refusal tries again.
        """
        self._stale_at = 0.0
        before: UpstreamTokens | UnreadableTokens | None = tokens
        try:
            for _ in range(WRITES_MAX):
                if isinstance(before, UnreadableTokens) and before.version == tokens.version:
                    before = tokens
                if not isinstance(before, UpstreamTokens) or before.access_token != tokens.access_token:
                    return False
                changed = replace(change(before), version=before.version + 1)
                if await self._store.save(changed, expected_version=before.version):
                    self._accept_stored(changed)
                    return True
                before = await self._store.load(self.config.name, self._owner)
        except Exception as error:
            log.warning("upstream.tokens_not_saved", extra=self._failure_facts(error), exc_info=_find_bug(error))
        return False

    def _failure_facts(self, error: BaseException) -> dict[str, str]:
        reason = error.detail if isinstance(error, StoreUnavailable) else type(error).__name__
        return {"upstream": self.config.name, "reason": reason}

    def _require_login(self, scope: str | None, message: str = _LOGIN_REQUIRED) -> LoginRequired:
        message = f"{message}: {login_command(self.config.name)}."
        return LoginRequired(message, scope=scope, tokens_version=self._version)

    async def aclose(self) -> None:
        """Stop listening, and wait for a refresh in flight."""
        self._subscriptions.close()
        if self._refreshing is not None:
            await asyncio.wait({self._refreshing}, timeout=DRAIN_SECONDS)


def _find_bug(error: BaseException) -> BaseException | None:
    """The error, for a log line with its traceback; None for an outage of the store, whose reason says it all."""
    return None if isinstance(error, StoreUnavailable) else error

"""Whether a caller is signed in to the upstreams that it sees."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from ringback.domain.errors import StoreUnavailable
from ringback.domain.login_urls import login_page_url
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER, CredentialsScope, UnreadableTokens, UpstreamTokens
from ringback.domain.upstreams import LOGIN_REQUIRED_PROBLEM, UpstreamInfo


class LoginStatus(StrEnum):
    NONE = "none"
    """The upstream has not asked for a login, or uses none."""
    REQUIRED = "required"
    SIGNED_IN = "signed_in"
    EXPIRED = "expired"
    """There are tokens that do not work any more and cannot be refreshed."""
    UNREADABLE = "unreadable"
    """There are tokens, and this node lacks the key to read them, which other nodes may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginState:
    """The login of one owner to one upstream."""

    state: LoginStatus
    owner: CredentialsScope | None = None
    """None if the upstream uses no logins."""
    scope: str | None = None
    expires_at: datetime | None = None
    """When the access token expires. It is refreshed if the authorization server allows that."""
    login_url: str | None = None

    @property
    def is_missing(self) -> bool:
        """Whether calls wait for a login, also if the upstream's connection has no error yet."""
        return self.state in {LoginStatus.REQUIRED, LoginStatus.EXPIRED}


NO_LOGIN: Final = LoginState(state=LoginStatus.NONE)


class LoginStates:
    def __init__(self, store: Store, *, public_url: str) -> None:
        self._store = store
        self._public_url = public_url

    async def list_missing(self, upstreams: Sequence[UpstreamInfo], principal: Principal) -> Sequence[UpstreamInfo]:
        """Those of the upstreams that require a login before calls of this principal run.

        While the store fails, those whose connection says so.
        """
        refused = {info.name for info in upstreams if info.last_error == LOGIN_REQUIRED_PROBLEM}
        if any(info.credentials is not None for info in upstreams):
            with suppress(StoreUnavailable):
                states = await self._store.read(
                    lambda tx: read_login_states(tx, upstreams, principal, public_url=self._public_url)
                )
                refused |= {name for name, login in states.items() if login.is_missing}
        return [info for info in upstreams if info.name in refused]


async def read_login_states(
    tx: Transaction, upstreams: Sequence[UpstreamInfo], principal: Principal, *, public_url: str
) -> Mapping[str, LoginState]:
    """The state of each upstream, by name, for calls of this principal."""
    names = [info.name for info in upstreams if info.credentials is not None]
    found = await tx.upstream_tokens.list_owned(names, [SHARED_OWNER, principal])
    tokens = {(each.upstream, each.owner): each for each in found}
    return {info.name: _state_of(info, tokens, principal, tx.now(), public_url) for info in upstreams}


def _state_of(
    info: UpstreamInfo,
    tokens: Mapping[tuple[str, Principal], UpstreamTokens | UnreadableTokens],
    principal: Principal,
    now: datetime,
    public_url: str,
) -> LoginState:
    if info.credentials is None:
        return NO_LOGIN
    owned = tokens.get((info.name, info.credentials.get_owner(principal)))
    return LoginState(
        state=judge_login(owned, is_requested=info.last_error == LOGIN_REQUIRED_PROBLEM, now=now),
        owner=info.credentials,
        scope=None if owned is None else owned.scope,
        expires_at=None if owned is None else owned.expires_at,
        login_url=login_page_url(public_url, info.name),
    )


def judge_login(tokens: UpstreamTokens | UnreadableTokens | None, *, is_requested: bool, now: datetime) -> LoginStatus:
    """`is_requested`: the upstream refused a request without tokens."""
    if tokens is None:
        return LoginStatus.REQUIRED if is_requested else LoginStatus.NONE
    if isinstance(tokens, UnreadableTokens):
        return LoginStatus.UNREADABLE
    has_ended = tokens.expires_at is not None and tokens.expires_at <= now and tokens.refresh_token is None
    if tokens.access_token is None or has_ended:
        return LoginStatus.EXPIRED
    return LoginStatus.REQUIRED if lacks_required_scope(tokens) else LoginStatus.SIGNED_IN


def lacks_required_scope(tokens: UpstreamTokens) -> bool:
    """Whether the upstream asked for a scope that the tokens do not have, as far as their scope is known."""
    return tokens.required_scope is not None and not set(tokens.required_scope.split()) <= set(
        (tokens.scope or "").split()
    )

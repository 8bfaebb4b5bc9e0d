"""Authenticates bearer tokens: one that begins with `rbk_` is an API key, every other one an access token."""

from typing import Final

from ringback.domain.errors import Unauthenticated
from ringback.domain.principal import ALL_SCOPES, ANONYMOUS_PRINCIPAL, Caller
from ringback.identity.access_tokens import AccessTokenAuthenticator
from ringback.services.access.api_keys import ApiKeys
from ringback.signing.secrets import API_KEY_PREFIX

_ANONYMOUS_CALLER: Final = Caller(principal=ANONYMOUS_PRINCIPAL, scopes=ALL_SCOPES)


class BearerAuthenticator:
    """Accepts API keys, and access tokens if an issuer is configured. Implements `domain.principal.Authenticator`."""

    def __init__(self, *, keys: ApiKeys, tokens: AccessTokenAuthenticator | None = None) -> None:
        self._keys = keys
        self._tokens = tokens

    async def authenticate(self, bearer: str | None, *, resource: str) -> Caller:
        if self._tokens is None or (bearer or "").startswith(API_KEY_PREFIX):
            return await self._keys.authenticate_key(bearer)
        if bearer is None:
            raise Unauthenticated(
                f"Send an access token of {self._tokens.issuer_url} or an API key: 'Authorization: Bearer …'. Create a key: "
                "ringback keys create PRINCIPAL"
            )
        return await self._tokens.authenticate(bearer, resource=resource)


class AnonymousAuthenticator:
    """Used while authentication is off: every caller is one principal. Implements `domain.principal.Authenticator`."""

    async def authenticate(self, bearer: str | None, *, resource: str) -> Caller:
        del bearer, resource
        return _ANONYMOUS_CALLER

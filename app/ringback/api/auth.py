"""Who is asking: whoever the token in `Authorization: Bearer …` stands for."""

from typing import Annotated, Final

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from ringback.api.context import config_of
from ringback.domain.principal import Caller
from ringback.domain.protected_resource import REST, bearer_in

_BEARER: Final = HTTPBearer(
    scheme_name="apiKey",
    description=(
        "An API key, `rbk_…`. Make one: `ringback keys create PRINCIPAL`. Where an issuer is configured, its access tokens are "
        "as good (`/.well-known/oauth-protected-resource`)."
    ),
    auto_error=False,
)
"""Only for the document: what the header says was read before the body was."""


async def authenticate(request: Request) -> Caller:
    """The caller, or `Unauthenticated`."""
    bearer = bearer_in(request.headers.get("authorization"))
    return await config_of(request).authenticator.authenticate(bearer, resource=REST)


async def _caller_of(  # async, as `services_of`
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]
) -> Caller:
    caller: Caller = request.state.caller
    return caller


Asking = Annotated[Caller, Depends(_caller_of)]
"""A parameter of an operation: who is asking."""

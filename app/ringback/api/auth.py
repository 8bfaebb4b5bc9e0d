"""Who is asking: whoever the token in `Authorization: Bearer …` stands for."""

from typing import Annotated, Final

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from ringback.api.context import get_config
from ringback.domain.principal import Caller
from ringback.domain.protected_resource import REST_RESOURCE, parse_bearer_token

_BEARER: Final = HTTPBearer(
    scheme_name="apiKey",
    description=(
        "An API key, `rbk_…`. Make one: `ringback keys create PRINCIPAL`. Where an issuer is configured, its access tokens are "
        "as good (`/.well-known/oauth-protected-resource`)."
    ),
    auto_error=False,
)
"""Only for the document: what the header says was read before the body was."""


async def authenticate_request(request: Request) -> Caller:
    """The caller, or `Unauthenticated`."""
    bearer = parse_bearer_token(request.headers.get("authorization"))
    return await get_config(request).authenticator.authenticate(bearer, resource=REST_RESOURCE)


async def _get_caller(  # async, as `services_of`
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]
) -> Caller:
    caller: Caller = request.state.caller
    return caller


CallerDep = Annotated[Caller, Depends(_get_caller)]
"""A parameter of an operation: who is asking."""

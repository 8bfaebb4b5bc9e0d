"""Who is asking: an API key in `Authorization: Bearer rbk_…`, or everybody alike when authentication is off."""

from typing import Annotated, Final

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param

from ringback.api.context import config_of, services_of
from ringback.domain.principal import ALL_SCOPES, ANONYMOUS, Caller

_EVERYBODY: Final = Caller(principal=ANONYMOUS, scopes=ALL_SCOPES)

_BEARER: Final = HTTPBearer(
    scheme_name="apiKey",
    description="An API key, `rbk_…`. Make one: `ringback keys create PRINCIPAL`.",
    auto_error=False,
)
"""Only for the document: what the header says was read before the body was."""


async def authenticate(request: Request) -> Caller:
    """The caller, or `Unauthenticated`."""
    if config_of(request).auth == "off":
        return _EVERYBODY
    scheme, credentials = get_authorization_scheme_param(request.headers.get("authorization"))
    text = credentials if scheme.lower() == "bearer" and credentials else None
    return await services_of(request).keys.authenticate(text)


def _caller_of(request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]) -> Caller:
    caller: Caller = request.state.caller
    return caller


Asking = Annotated[Caller, Depends(_caller_of)]
"""A parameter of an operation: who is asking."""

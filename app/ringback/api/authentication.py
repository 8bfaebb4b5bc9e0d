"""Authentication by the bearer token, and strict parsing of JSON bodies after it."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, ClassVar, Final

import orjson
from fastapi import Depends, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from ringback.api.context import get_config
from ringback.api.http_errors import MalformedJson, UnsupportedMediaType
from ringback.api.strict_queries import find_query_rules, require_strict_query, require_utf8_url
from ringback.domain import jsontext
from ringback.domain.errors import InvalidRequest
from ringback.domain.principal import Caller
from ringback.domain.protected_resource import REST_RESOURCE, parse_bearer_token
from ringback.services.services import Services

_BEARER: Final = HTTPBearer(
    scheme_name="apiKey",
    description=(
        "An API key, `rbk_…`. Create one: `ringback keys create PRINCIPAL`. If an issuer is configured, its access tokens work "
        "too (`/.well-known/oauth-protected-resource`)."
    ),
    auto_error=False,
)
"""Only for the OpenAPI document: `AuthenticatedRoute` reads the header, before the body."""
_METHODS_WITHOUT_BODY: Final = frozenset({"GET", "HEAD"})
_EMPTY_BODIES: Final = frozenset({b"", b"{}", b"[]", b"null", b'""'})
"""Bodies that clients send with a request that has nothing to say, without whitespace: PHP encodes an empty array as `[]`."""
_EMPTY_BODY_LENGTH_MAX: Final = 64
CALLER_SECURITY: Final[dict[str, Any]] = {"security": [{_BEARER.scheme_name: []}]}
"""What the OpenAPI document says about an operation with `CallerDep`, for `openapi_extra` of one without."""


async def authenticate_request(request: Request) -> Caller:
    """The caller, or `Unauthenticated`."""
    bearer = parse_bearer_token(request.headers.get("authorization"))
    return await get_config(request).authenticator.authenticate(bearer, resource=REST_RESOURCE)


async def _get_caller(  # async, for the reason of `get_services`
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]
) -> Caller:
    caller: Caller = request.state.caller
    return caller


CallerDep = Annotated[Caller, Depends(_get_caller)]
"""The parameter of an operation that holds its caller."""


# The route class of all operations that need a caller.
#
# FastAPI parses a body before authentication, with a parser that accepts more than JSON. Here authentication comes first, and
# the parser is strict.


class AuthenticatedRoute(APIRoute):
    ignores_parameters: ClassVar[bool] = False
    """Whether query parameters that the operation does not know are ignored instead of refused."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        rules = find_query_rules(self.dependant)
        is_body_optional = self.body_field is not None and not self.body_field.field_info.is_required()

        async def handle_authenticated(request: Request) -> Response:
            request.state.caller = await authenticate_request(request)
            require_utf8_url(request.scope)
            if "principal" in request.query_params and "principal" not in rules:
                raise InvalidRequest("This operation acts for the owner of the key only. Leave out `principal`.")
            if not self.ignores_parameters:
                require_strict_query(rules, request.query_params.multi_items())
            if self.body_field is not None:
                request = StrictJsonRequest(request.scope, request.receive)
                if not is_body_optional or await request.body():
                    await request.require_json()
            elif request.method not in _METHODS_WITHOUT_BODY and _says_something(await request.body()):
                raise InvalidRequest("This operation takes no body. Nothing was done. Leave the body out.")
            response = await handle(request)
            # What belongs to the caller stays in no cache, also behind a proxy that adds the API key itself.
            response.headers.setdefault("Cache-Control", "no-store")
            return response

        return handle_authenticated


def _says_something(body: bytes) -> bool:
    return len(body) > _EMPTY_BODY_LENGTH_MAX or b"".join(body.split()) not in _EMPTY_BODIES


class StrictJsonRequest(Request):
    """A request whose JSON `parse_strict_json` parses once. FastAPI calls `json` again and gets the same value.

    An operation with a body may have it as its parameter, with its caller and the services. That saves FastAPI's solution of
    three dependencies, a tenth of the CPU that starting a call takes (measured). Such an operation also needs
    `CALLER_SECURITY`.
    """

    @property
    def caller(self) -> Caller:
        caller: Caller = self.state.caller
        return caller

    @property
    def services(self) -> Services:
        services: Services = self.app.state.services
        return services

    async def require_json(self) -> None:
        """Raise the error of a body that is no JSON, or that the principal may not send now."""
        require_json_content_type(self.headers.get("content-type"))
        await self.services.body_admission.admit_body(self.caller.principal, await self.body())
        await self.json()

    async def json(self) -> Any:
        if not hasattr(self, "_value"):
            self._value = parse_strict_json(await self.body())
        return self._value


def require_json_content_type(content_type: str | None) -> None:
    """Raise `UnsupportedMediaType` unless the media type is application/json, with any parameters."""
    if (content_type or "").partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedMediaType("The body must be JSON. Send it with the header 'Content-Type: application/json'.")


def parse_strict_json(text: bytes) -> Any:
    """Parse a JSON text (RFC 8259) whose value can be serialised again without changes.

    orjson checks the text: it reports the position of an error, and rejects NaN, numbers beyond doubles and lone surrogates.
    Integers of more than 300 digits, more than 250 levels, and two members with one name, are rejected, too.
    """
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as problem:
        raise MalformedJson(
            jsontext.describe_refusal(problem),
            position=problem.pos,
            line=problem.lineno,
            column=problem.colno,
        ) from None
    try:
        value = jsontext.loads_unique(text)
        jsontext.dumps(value)
    except jsontext.RepeatedName as problem:
        raise InvalidRequest(f"The body {problem.fault}") from None
    except (TypeError, ValueError, RecursionError):
        raise InvalidRequest(
            f"The body has an integer of more than {jsontext.INTEGER_DIGITS_MAX} digits, or more than 250 levels. Send such a "
            "number as a string."
        ) from None
    return value

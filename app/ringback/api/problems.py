"""Errors as problem documents (RFC 9457): their statuses and their form. At the MCP endpoints they are JSON-RPC errors.

    {"type": "/problems/unknown-tool", "title": "Unknown tool", "status": 422,
     "detail": "Upstream 'git' has no tool 'git_lgo'. Did you mean 'git_log'? …", "tool": "git_lgo"}

There is no `instance`, and no other member that differs between requests, so the responses for foreign and for unknown
resources have the same bytes.
"""

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final, cast

from fastapi import FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.routing import Match
from starlette.types import Scope

from ringback.api.context import get_config
from ringback.api.http_errors import (
    ContentTooLarge,
    HeadersTooLarge,
    HostNotAllowed,
    MalformedJson,
    MalformedRequest,
    MethodNotAllowed,
    RangeNotSatisfiable,
    RequestTooSlow,
    UnknownPath,
    UnsupportedContentEncoding,
    UnsupportedMediaType,
    UrlTooLong,
)
from ringback.api.misdirected_messages import is_mcp_message
from ringback.domain import errors, jsontext
from ringback.domain.protected_resource import REST_RESOURCE, resource_for_path
from ringback.domain.roles import Role
from ringback.protocol.sessions import is_in_legacy_session
from ringback.schemas.jsonrpc_errors import MESSAGE_ID_KEY, build_error_message
from ringback.schemas.validation_errors import describe_reasons

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 5
"""Sent with every 503: the typical duration of a restart or of a locked database."""
VALIDATION_ERRORS_MAX: Final = 20
"""The largest number of errors in one problem document."""
DASHBOARD_PATH: Final = "/ui"
MCP_PATH: Final = "/mcp"
HTTP_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

STATUS_BY_ERROR: Final[dict[type[errors.RingbackError], int]] = {
    MalformedJson: 400,
    MalformedRequest: 400,
    errors.MalformedMessage: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    MethodNotAllowed: 405,
    errors.StreamEnded: 405,
    errors.NotAcceptable: 406,
    RequestTooSlow: 408,
    errors.Conflict: 409,
    errors.Gone: 410,
    ContentTooLarge: 413,
    UrlTooLong: 414,
    UnsupportedMediaType: 415,
    errors.UnexpectedMediaType: 415,
    RangeNotSatisfiable: 416,
    HostNotAllowed: 421,
    errors.InvalidRequest: 422,
    errors.QuotaExceeded: 429,
    HeadersTooLarge: 431,
    errors.RingbackError: 500,
    errors.Unavailable: 503,
}
"""An error that is not listed has the status of its nearest ancestor."""


def status_for(kind: type[errors.RingbackError]) -> int:
    return next(STATUS_BY_ERROR[ancestor] for ancestor in kind.__mro__ if ancestor in STATUS_BY_ERROR)


def iterate_error_types(
    root: type[errors.RingbackError] = errors.RingbackError,
) -> Iterator[type[errors.RingbackError]]:
    """Every error that can become a problem document."""
    for kind in root.__subclasses__():
        yield kind
        yield from iterate_error_types(kind)


# -- responses -------------------------------------------------------------------------------------------------


def problem_type(kind: type[errors.RingbackError]) -> str:
    return f"/problems/{kind.slug}"


def error_response(scope: Scope, error: errors.RingbackError) -> Response:
    """The response to a refused request: a JSON-RPC error at the MCP endpoints, a problem document elsewhere.

    Both have the same status and headers. Clients of MCP show the message of a JSON-RPC error and no other body. In a legacy
    session a value that cannot be stored is an error with status 200: the SDK's clients end their session at 400.
    """
    if resource_for_path(scope["path"]) == REST_RESOURCE:
        return problem_response(error)
    return jsonrpc_response(scope, error)


def jsonrpc_response(scope: Scope, error: errors.RingbackError) -> Response:
    status = status_for(type(error))
    message_id = scope.get("state", {}).get(MESSAGE_ID_KEY)
    message = build_error_message(error, message_id, status=status)
    is_in_session = isinstance(error, errors.UnstorableMessage) and is_in_legacy_session(Headers(scope=scope))
    return Response(
        jsontext.dumps(message),
        status_code=HTTPStatus.OK if is_in_session and message_id is not None else status,
        headers=_NO_STORE | _problem_headers(error, status),
        media_type="application/json",
    )


def problem_response(error: errors.RingbackError) -> Response:
    kind = type(error)
    status = status_for(kind)
    document = {
        "type": problem_type(kind),
        "title": kind.title(),
        "status": status,
        "detail": error.detail,
        **error.extra,
    }
    return Response(
        jsontext.dumps(document),
        status_code=status,
        headers=_NO_STORE | _problem_headers(error, status),
        media_type=MEDIA_TYPE,
    )


def _problem_headers(error: errors.RingbackError, status: int) -> dict[str, str]:
    match error:
        case errors.QuotaExceeded():
            return {_RETRY_AFTER: str(error.retry_after_seconds)}
        case MethodNotAllowed():
            return {"Allow": ", ".join(error.extra["allow"])}
        case errors.StreamEnded():
            return {"Allow": "POST, DELETE"}
        case RangeNotSatisfiable():
            return {"Content-Range": f"bytes */{error.extra['bytes']}"}
        case UnsupportedContentEncoding():
            return {"Accept-Encoding": "identity"}  # RFC 9110 §12.5.3
        case _:
            return _HEADERS_BY_STATUS.get(status, {})


def add_retry_after(response: Response, error: errors.RingbackError) -> Response:
    """The page that shows this error, with the header that says when to send the request again, if the error has one."""
    if (seconds := _problem_headers(error, status_for(type(error))).get(_RETRY_AFTER)) is not None:
        response.headers[_RETRY_AFTER] = seconds
    return response


_NO_STORE: Final = {"Cache-Control": "no-store"}
"""A cache may keep a 404 or 410 without such a header (RFC 9110 §15.1), and what was missing may be there a moment later."""
_RETRY_AFTER: Final = "Retry-After"
_HEADERS_BY_STATUS: Final[dict[int, dict[str, str]]] = {
    401: {"WWW-Authenticate": "Bearer"},
    503: {_RETRY_AFTER: str(RETRY_AFTER_SECONDS)},
}


# -- handlers of FastAPI ---------------------------------------------------------------------------------------------------


def add_problem_handlers(app: FastAPI) -> None:
    app.add_exception_handler(errors.RingbackError, _handle_service_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_routing_error)


async def _handle_service_error(request: Request, error: Exception) -> Response:
    service_error = cast("errors.RingbackError", error)
    response = error_response(request.scope, service_error)
    if (challenge := _oauth_challenge(request, service_error)) is not None:
        response.headers["WWW-Authenticate"] = challenge
    return response


def _oauth_challenge(request: Request, error: errors.RingbackError) -> str | None:
    """The challenge from which an OAuth client learns how to get a sufficient token (RFC 6750 §3, RFC 9728 §5.1)."""
    oauth = get_config(request).oauth
    if oauth is None:
        return None
    resource = resource_for_path(request.scope["path"])
    match error:
        case errors.Unauthenticated():
            return oauth.challenge_header(
                resource, error="invalid_token" if "authorization" in request.headers else None
            )
        case errors.Forbidden(extra={"scope": scope}):
            return oauth.challenge_header(resource, error="insufficient_scope", scopes=[scope])
        case _:
            return None


async def _handle_validation_error(request: Request, error: Exception) -> Response:
    found = cast("Sequence[dict[str, Any]]", cast("RequestValidationError", error).errors())
    shown = found[:VALIDATION_ERRORS_MAX]
    reasons = describe_reasons(shown, _list_request_types(request, shown[0]["loc"][0]), prefix_length=1)
    violations = [_format_validation_error(one, reason) for one, reason in zip(shown, reasons, strict=True)]
    # A misspelled name is unknown, and often the right one is missing, too: only the error of the unknown one suggests it.
    unknown = (violation for one, violation in zip(shown, violations, strict=True) if one["type"] == "extra_forbidden")
    first = next(unknown, violations[0])
    detail = f"{first.get('pointer') or first.get('parameter')}: {first['detail']}"
    if len(found) > 1:
        detail += f" ({len(found)} errors in total, see `errors`.)"
    return problem_response(errors.InvalidRequest(detail, errors=violations))


def _list_request_types(request: Request, location: str) -> Sequence[Any]:
    """The types of the body or of the query of this operation, as `location` says."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return []
    if location == "body":
        return [] if route.body_field is None else [route.body_field.field_info.annotation]
    return list(_list_query_types(route.dependant)) if location == "query" else []


def _list_query_types(dependant: Dependant) -> Iterator[Any]:
    for parameter in dependant.query_params:
        yield parameter.field_info.annotation
    for each in dependant.dependencies:
        yield from _list_query_types(each)


def _format_validation_error(error: dict[str, Any], detail: str) -> dict[str, str]:
    """The place and the reason, never the value, because it can be a secret."""
    location, *path = (str(part) for part in error["loc"])
    if location != "body":
        return {"parameter": ".".join(path)[: jsontext.POINTER_LENGTH_MAX], "detail": detail}
    return {"pointer": jsontext.format_pointer(path), "detail": detail}


async def _handle_routing_error(request: Request, _error: Exception) -> Response:
    """The router's own 404 and 405; the API raises no HTTPException. A browser at the root gets to the dashboard."""
    if allowed := [method for method in HTTP_METHODS if _allows_method(request, method)]:
        return error_response(
            request.scope,
            MethodNotAllowed(
                f"This path does not allow {request.method}. It allows {', '.join(allowed)}.", allow=allowed
            ),
        )
    if Role.API not in get_config(request).workers_by_role:
        return error_response(
            request.scope,
            UnknownPath("This node does not serve the API (RINGBACK_ROLES). Send the request to a node that does."),
        )
    has_dashboard = _allows_method(request, "GET", path=DASHBOARD_PATH)
    if has_dashboard and _is_browser_at_root(request):
        return RedirectResponse(DASHBOARD_PATH, status_code=HTTPStatus.SEE_OTHER)
    dashboard = f"The dashboard is at {DASHBOARD_PATH}. " if has_dashboard else ""
    has_mcp = _allows_method(request, "POST", path=MCP_PATH)
    mcp = f"MCP is at {MCP_PATH} or {MCP_PATH}/{{upstream}}. " if has_mcp else ""
    error = UnknownPath(
        f"There is no such path. {mcp}{dashboard}List all paths: GET /openapi.json. For language models: GET /llms.txt"
    )
    if has_mcp and await is_mcp_message(request):
        return jsonrpc_response(request.scope, error)
    return error_response(request.scope, error)


def _allows_method(request: Request, method: str, *, path: str | None = None) -> bool:
    """Whether an operation has this method, at the path of the request or at another one."""
    root = request.scope.get("root_path", "")
    scope = {**request.scope, "method": method, **({} if path is None else {"path": root + path})}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


def _is_browser_at_root(request: Request) -> bool:
    is_root = request.scope["path"] == f"{request.scope.get('root_path', '')}/"
    return is_root and request.method in {"GET", "HEAD"} and "text/html" in request.headers.get("accept", "")


# -- OpenAPI ---------------------------------------------------------------------------------------------------

PROBLEM_SCHEMA: Final[dict[str, Any]] = {
    "title": "Problem",
    "description": "A problem document (RFC 9457). The type is stable; the detail says what to do. Some types have "
    "further members.",
    "type": "object",
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "description": "The errors of the request, each with a JSON pointer into the body or a parameter.",
            "type": "array",
            "maxItems": VALIDATION_ERRORS_MAX,
            "items": {
                "type": "object",
                "properties": {
                    "pointer": {"type": "string"},
                    "parameter": {"type": "string"},
                    "detail": {"type": "string"},
                },
                "required": ["detail"],
            },
        },
    },
    "required": ["type", "title", "status", "detail"],
    "additionalProperties": True,
    "examples": [
        {
            "type": "/problems/unknown-tool",
            "title": "Unknown tool",
            "status": 422,
            "detail": "Upstream 'git' has no tool 'git_lgo'. Did you mean 'git_log'? List them: GET /v1/upstreams/git/tools",
            "tool": "git_lgo",
        }
    ],
}

AUTHENTICATED_ERRORS: Final = (
    errors.Unauthenticated,
    errors.Forbidden,
    errors.StoreUnavailable,
    errors.RowsLocked,
    errors.IssuerUnavailable,
)
"""The errors of every operation with authentication."""
BODY_ERRORS: Final = (
    MalformedJson,
    ContentTooLarge,
    UnsupportedMediaType,
    errors.InvalidRequest,
    errors.QuotaExceeded,
)
"""The errors of every operation with a body."""


def problem_responses(*kinds: type[errors.RingbackError]) -> dict[int | str, dict[str, Any]]:
    """The `responses` of an operation with these errors, and with `default` for all others."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    by_status: dict[int | str, dict[str, Any]] = {"default": {"description": "Any other problem.", "content": content}}
    for kind in sorted(set(kinds), key=lambda kind: (status_for(kind), kind.slug)):
        response = by_status.setdefault(status_for(kind), {"description": "", "content": content})
        response["description"] = f"{response['description']} `{kind.slug}`: {kind.title()}.".strip()
    return by_status

"""What a response says, or the lack of one: a value, or an error of `problems` with what to do."""

import json
import re
import ssl
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

import httpx
from pydantic import BaseModel, ValidationError

from ringback import __version__
from ringback.backoff import parse_retry_after
from ringback.client.problems import PROBLEM_MEDIA_TYPE, ConnectionFailed, UnexpectedAnswer, build_problem

M = TypeVar("M", bound=BaseModel)

RETRYABLE_STATUSES: Final = frozenset({502, 503, 504, 520, 521, 522, 523, 524, 530})
"""The service cannot work now, or a proxy cannot reach it: all but 503 are a proxy's, from 520 on Cloudflare's."""
JSON_MEDIA_TYPE: Final = "application/json"
API_PREFIX: Final = "/v1/"
_READING_METHODS: Final = frozenset({"GET", "HEAD"})
_CALL_RESOURCES: Final = frozenset({"calls", "resume"})
_MCP_ENDPOINT: Final = re.compile(r"/mcp(/[^/]*)?$")
"""The end of the URL at which a client of MCP connects: that URL is often at hand in the place of the service's."""


def parse_text(model: type[M], text: str) -> M:
    """Parse a JSON text of the event stream; raises `UnexpectedAnswer`."""
    try:
        return validate_json(model, text)
    except ValidationError:
        raise UnexpectedAnswer(
            f"The stream has an invalid event. Is the service older than this client ({__version__})?"
        ) from None


def parse_response(model: type[M], response: httpx.Response) -> M:
    """Parse a response body; raises `UnexpectedAnswer`."""
    try:
        return validate_json(model, response.content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "the body"
        raise _unexpected_response(response, where) from None


def validate_json(model: type[M], text: str | bytes) -> M:
    """Parse JSON, also if it nests deeper than pydantic's parser reads: the service has limits of its own."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        if error.errors()[0]["type"] != "json_invalid":
            raise
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise error from None
        return model.model_validate(document)


def parse_object(response: httpx.Response) -> Mapping[str, Any]:
    """Parse a response body as a JSON object, without a model; raises `UnexpectedAnswer`."""
    try:
        document: Any = response.json()
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise _unexpected_response(response, "the body")
    return cast("Mapping[str, Any]", document)


def _unexpected_response(response: httpx.Response, where: str) -> UnexpectedAnswer:
    is_json = response.headers.get("content-type", "").startswith(JSON_MEDIA_TYPE)
    return UnexpectedAnswer(
        f"The response of {find_origin(response.url)} is invalid (at {where}). "
        f"Is this the URL of a Ringback, and is it older than this client ({__version__})?",
        status=None if is_json else response.status_code,
    )


def build_error(response: httpx.Response) -> Exception:
    document = _problem_document(response)
    if document is None and response.status_code in RETRYABLE_STATUSES:
        return ConnectionFailed(
            f"A proxy at {find_origin(response.url)} responded with {response.status_code}: it cannot reach Ringback. Is "
            f"Ringback running? {advise_repetition(response.request)}"
        )
    if document is None and response.next_request is not None:
        return UnexpectedAnswer(
            f"{_service_url(response.url)} redirects to {_service_url(response.next_request.url)}, and the client follows no "
            "redirects. If that is the URL of your Ringback, use it.",
            status=response.status_code,
        )
    if document is None:
        url = _service_url(response.url)
        return UnexpectedAnswer(
            f"{url} responded with {response.status_code}, and not as Ringback. {_advise_service_url(url)}",
            status=response.status_code,
        )
    asked = parse_retry_after(response.headers.get("retry-after"), now=None)
    return build_problem(response.status_code, document, retry_after_seconds=asked)


def _problem_document(response: httpx.Response) -> Mapping[str, Any] | None:
    if not response.headers.get("content-type", "").startswith(PROBLEM_MEDIA_TYPE):
        return None
    if response.request.method == "HEAD":
        return {}
    try:
        document: Any = response.json()
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None  # pyright: ignore[reportUnknownVariableType] - keys are strings


def build_connection_failed(url: httpx.URL, error: httpx.RequestError) -> ConnectionFailed:
    origin = find_origin(url)
    match error:
        case httpx.ProxyError():
            return ConnectionFailed(
                f"The proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names does not reach {origin}: {error}. Repair it, or "
                "add the host to NO_PROXY."
            )
        case httpx.ConnectError() if (tls_error := find_tls_error(error)) is not None:
            return ConnectionFailed(f"{_explain_tls_error(origin, tls_error)} Nothing was sent.")
        case httpx.ConnectError() | httpx.ConnectTimeout():
            return ConnectionFailed(
                f"No server responds at {origin}. Start Ringback there with 'ringback serve', "
                "or choose another URL (RINGBACK_URL)."
            )
        case httpx.TimeoutException():
            return ConnectionFailed(f"{origin} did not respond in time. {advise_repetition(error.request)}")
        case _:
            return ConnectionFailed(
                f"The connection to {origin} broke before the response. {advise_repetition(error.request)}"
            )


def advise_repetition(request: httpx.Request) -> str:
    """What to do about a request whose response is missing: it may have been executed, unless it only reads."""
    if request.method in _READING_METHODS:
        return "Try again."
    is_about_call = request.url.path.rpartition(API_PREFIX)[2].partition("/")[0] in _CALL_RESOURCES
    return f"Look {'the call' if is_about_call else 'its effect'} up, or try again."


def find_tls_error(error: BaseException) -> ssl.SSLError | None:
    """The TLS error that caused this one, if any."""
    cause = error.__cause__ or error.__context__
    if cause is None or isinstance(cause, ssl.SSLError):
        return cause
    return find_tls_error(cause)


def _explain_tls_error(origin: str, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"The certificate of {origin} is not accepted: {error.verify_message}. Check the URL, or name the file of its "
            "authority's certificate (SSL_CERT_FILE)."
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return f"{origin} does not speak TLS as expected ({reason}). Is its URL http:// instead of https://?"


def _service_url(url: httpx.URL) -> str:
    """The base URL of a request of the API, without a password."""
    return find_origin(url) + (url.path.rpartition(API_PREFIX)[0] if API_PREFIX in url.path else "")


def _advise_service_url(url: str) -> str:
    if (endpoint := _MCP_ENDPOINT.search(url)) is not None:
        return f"Leave '{endpoint[0]}' out: the URL of the service is {url[: endpoint.start()]}"
    return "Is this the URL of a Ringback, and does a proxy reject the request?"


def find_origin(url: httpx.URL) -> str:
    """Scheme, host and port, without a path or a password."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"

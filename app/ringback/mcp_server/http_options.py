"""Call options in an HTTP request: in `Ringback-…` headers, and in query parameters of the MCP URL.

Many clients let their users set nothing but a URL and headers. The options are read from each POST, because a client sends both
with each. They stay here: they are neither forwarded to an upstream nor logged, and only the options themselves are stored.

A value that cannot be meant is refused, because an option that is silently ignored means a callback that never comes: an empty
or repeated one, one with control characters or without valid UTF-8. What does not belong in a URL is refused there: URLs are
logged by proxies and shared between people, and every call would have the same idempotency key. So are names that cannot be
another principal's:

    header              refused     begins with `Ringback-` and is none of ours
    query parameter     refused     begins with `ringback`, or resembles one of ours: `clientSessionId`, `client_sesion_id`;
                                    or is a plain name of one: `session`, `secret`; or follows a callback URL whose own
                                    query is not percent-encoded, and so may be a part of it
    any other           ignored     proxies add headers, and gateways read parameters of their own
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from typing import Final
from urllib.parse import parse_qsl

from ringback.domain.call import LABEL_LENGTH_MAX
from ringback.domain.errors import InvalidRequest
from ringback.domain.webhook import SECRET_LENGTH_MAX
from ringback.notifier.http.target import URL_LENGTH_MAX
from ringback.protocol.cancel_keys import CANCEL_KEY_HEADER
from ringback.schemas.fields import ID_LENGTH_MAX
from ringback.services.long_polling import LONG_POLL_SECONDS_MAX

QUERY_PARAMETERS_MAX: Final = 64
"""Parameters in the query of an MCP URL; Ringback has a handful, and a proxy may add some of its own."""

OPTION_HEADERS: Final = {
    b"ringback-client-session-id": ("client_session_id", "Ringback-Client-Session-Id"),
    b"ringback-correlation-id": ("correlation_id", "Ringback-Correlation-Id"),
    b"ringback-idempotency-key": ("idempotency_key", "Ringback-Idempotency-Key"),
    b"ringback-callback-url": ("callback_url", "Ringback-Callback-Url"),
    b"ringback-callback-secret": ("callback_secret", "Ringback-Callback-Secret"),
}
"""The option of each header, and the name in its usual spelling. `api.app` allows them to pages of other origins."""
_TRACEPARENT_HEADER: Final = b"traceparent"
_HEADER_PREFIX: Final = b"ringback-"
_PARAMETERS: Final = frozenset({"client_session_id", "correlation_id", "callback_url", "webhook"})
WAIT_PARAMETER: Final = "wait"
"""How long a tool call waits (`wait_windows`). It is no option of a call, and says nothing about the client."""
_WAIT_VALUE: Final = re.compile(r"[0-9]{1,2}(\.[0-9]{1,3})?")
_ALL_PARAMETERS: Final = (*sorted(_PARAMETERS), WAIT_PARAMETER)
_REFUSED_PARAMETERS: Final = {
    "callback_secret": "A secret must not be in a URL, because URLs are logged. Send the header Ringback-Callback-Secret; or "
    "leave it out and get the generated secret with `ringback webhooks rotate-secret`; or register a webhook and name it with "
    "webhook=wh_….",
    "idempotency_key": "An idempotency key must not be in a URL, because every call would have the same one. Send the header "
    "Ringback-Idempotency-Key, or _meta['ringback/idempotencyKey'].",
}
_NO_LETTER: Final = re.compile("[^a-z0-9]")
_SPELLINGS: Final = {_NO_LETTER.sub("", name): name for name in (*_ALL_PARAMETERS, *_REFUSED_PARAMETERS)} | {
    "webhookid": "webhook",
    "waitseconds": WAIT_PARAMETER,
}
"""The parameters without their underscores, by which other spellings (`clientSessionId`) are recognized."""
_SYNONYMS: Final = {
    "session": "client_session_id",
    "correlation": "correlation_id",
    "url": "callback_url",
    "secret": "callback_secret",
}
"""Plain names of the options, recognized only as they are. `key` is not among them: gateways read an API key from it."""
_RESEMBLANCE_MIN: Final = 0.8
"""Of 1, as `difflib` computes it. A wrong or missing letter is above it (`client_sesion_id` 0.97, `callback` 0.84), and
`session_id`, which the old SSE transport has, below it (0.75)."""
_NAME_LENGTH_MAX: Final = 40
"""Characters of a name that is compared with ours, or shown in an error. Ours have at most 26."""
_LENGTHS_MAX: Final = {
    "callback_url": URL_LENGTH_MAX,
    "callback_secret": SECRET_LENGTH_MAX,
    "webhook": ID_LENGTH_MAX,
}

_CANCEL_KEY_HEADER: Final = CANCEL_KEY_HEADER.encode()

Headers = Iterable[tuple[bytes, bytes]]
"""Headers of an ASGI scope: names are in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """The options of one request; for each option the header counts, then the query."""

    client_session_id: str | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None
    callback_url: str | None = None
    callback_secret: str | None = field(default=None, repr=False)
    webhook: str | None = None


NO_OPTIONS: Final = HttpOptions()


def read_http_options(headers: Headers, query_string: bytes) -> HttpOptions:
    """Read and validate the options. Raises `InvalidRequest`, which names the header or parameter and never shows its value."""
    found = {**(_read_query(query_string) if query_string else {}), **_read_headers(headers)}
    return HttpOptions(**found) if found else NO_OPTIONS


def has_http_options(headers: Headers, query_string: bytes) -> bool:
    """Whether any option is present, valid or not."""
    if any(name in OPTION_HEADERS for name, _ in headers):
        return True
    return any(name in _PARAMETERS for name, _ in _split_query(query_string))


def parse_wait_parameter(query_string: bytes) -> float | None:
    """The `?wait=` of an endpoint's URL in seconds, None without one; raises `InvalidRequest` if it is no valid wait."""
    if not query_string:
        return None
    parameters = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)
    values = [value for name, value in parameters if name == WAIT_PARAMETER]
    if not values:
        return None
    if len(values) > 1 or not _WAIT_VALUE.fullmatch(values[0]) or float(values[0]) > LONG_POLL_SECONDS_MAX:
        raise InvalidRequest(
            f"The query parameter 'wait' of the URL must be one number of seconds from 0 to {LONG_POLL_SECONDS_MAX:g}, for "
            "example ?wait=20. It says how long a tool call waits for its result; no wait is longer than the service's maximum "
            "(45 by default)."
        )
    return float(values[0])


def read_traceparent(headers: Headers) -> str | None:
    """The header `traceparent` (W3C Trace Context); None without a usable one. Proxies and tracing libraries set it."""
    values = [value for name, value in headers if name == _TRACEPARENT_HEADER]
    text = _decode(values[0]) if len(values) == 1 else ""
    return text if _is_valid("traceparent", text) else None


def _read_headers(headers: Headers) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        if name in OPTION_HEADERS:
            option, spelling = OPTION_HEADERS[name]
            _add_option(found, option, _decode(value), place=f"Header {spelling}")
        elif name.startswith(_HEADER_PREFIX) and name != _CANCEL_KEY_HEADER:
            raise _unknown_header(name)
    return found


def _unknown_header(name: bytes) -> InvalidRequest:
    sent = name.decode("ascii", "replace")[:_NAME_LENGTH_MAX].title()
    known = [spelling for _, spelling in OPTION_HEADERS.values()]
    advice = _suggest(sent, known) or f"The headers are {', '.join(known)}; webhook=… and wait=… belong in the URL."
    return InvalidRequest(f"Ringback has no header {sent}. {advice}")


def _suggest(sent: str, known: Collection[str]) -> str:
    closest = get_close_matches(sent, known, n=1, cutoff=_RESEMBLANCE_MIN)
    return f"Did you mean {closest[0]}?" if closest else ""


def _read_query(query_string: bytes) -> dict[str, str]:
    parameters = _split_query(query_string)
    if len(parameters) > QUERY_PARAMETERS_MAX:
        raise InvalidRequest(f"The query of the MCP URL may have {QUERY_PARAMETERS_MAX} parameters at most.")
    found: dict[str, str] = {}
    for name, value in parameters:
        _check_spelling(name)
        if name in _PARAMETERS:
            _add_option(found, name, value, place=f"Query parameter {name} of the MCP URL")
    if "callback_url" in found:
        _check_encoding(query_string)
    return found


def _check_encoding(query_string: bytes) -> None:
    """Refuse a callback URL whose query seems to go on as parameters of the MCP URL, where nothing would read them.

    Some HTTP clients decode `%3F` of a URL that they send, but none decodes `%3D`.
    """
    parameters = query_string.split(b"&")
    for parameter, following in pairwise(parameters):
        name, _, value = parameter.partition(b"=")
        is_plain = name == b"callback_url" and b"=" in value.partition(b"?")[2]
        if is_plain and _decode(following.partition(b"=")[0]) not in _ALL_PARAMETERS:
            raise InvalidRequest(
                "Query parameter callback_url of the MCP URL has a query of its own that is not percent-encoded, so that what "
                "follows its first & does not belong to it. Percent-encode the whole value: ? as %3F, = as %3D, & as %26."
            )


def _split_query(query_string: bytes) -> Sequence[tuple[str, str]]:
    """The first parameters of the query. Bytes that are not UTF-8 become surrogates, which are not printable."""
    first_parameters = b"&".join(query_string.split(b"&", QUERY_PARAMETERS_MAX + 1)[: QUERY_PARAMETERS_MAX + 1])
    return parse_qsl(_decode(first_parameters), keep_blank_values=True, errors="surrogateescape")


def _check_spelling(name: str) -> None:
    if name in _ALL_PARAMETERS or len(name) > _NAME_LENGTH_MAX:
        return
    letters = _NO_LETTER.sub("", name.lower())
    option = _find_meant_option(letters.removeprefix("ringback"))
    if reason := _REFUSED_PARAMETERS.get(option or ""):
        raise InvalidRequest(f"Query parameter {option} of the MCP URL: {reason}")
    if option is not None:
        raise InvalidRequest(f"The query of the MCP URL has {option} under another name. Write {option}=….")
    if letters.startswith("ringback"):
        raise InvalidRequest(
            f"The query of the MCP URL has an unknown parameter of Ringback. The parameters are {', '.join(_ALL_PARAMETERS)}."
        )


@lru_cache(maxsize=256)
def _find_meant_option(letters: str) -> str | None:
    """Cached: a URL has the same foreign parameters in each request, and a comparison takes 30 µs."""
    closest = get_close_matches(letters, _SPELLINGS, n=1, cutoff=_RESEMBLANCE_MIN)
    return _SYNONYMS.get(letters) or (_SPELLINGS[closest[0]] if closest else None)


def _add_option(found: dict[str, str], option: str, value: str, *, place: str) -> None:
    if option in found:
        raise InvalidRequest(f"{place} is sent more than once. Send it once.")
    if not _is_valid(option, value):
        length_max = _LENGTHS_MAX.get(option, LABEL_LENGTH_MAX)
        raise InvalidRequest(f"{place} must have 1 to {length_max} printable characters, in UTF-8.")
    found[option] = value


def _is_valid(option: str, value: str) -> bool:
    return 0 < len(value) <= _LENGTHS_MAX.get(option, LABEL_LENGTH_MAX) and value.isprintable()


def _decode(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")

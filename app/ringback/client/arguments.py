"""Checks of the arguments of the client's methods, before a request is sent.

Each check returns the argument in the form that is sent, or raises `InvalidArgument`, which names the argument.
"""

import json
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any, Final, cast
from urllib.parse import quote

import httpx

from ringback.client.problems import InvalidArgument

PORT_MAX: Final = 65_535
_DOT_SEGMENTS: Final = frozenset({".", ".."})
"""HTTP clients and proxies remove these from a path (RFC 3986 §5.2.4), also if their dots are percent-encoded."""
_HALF_A_CHARACTER: Final = "a byte that is no UTF-8, or half of a surrogate pair (\\ud83d)"
_URL_EXAMPLE: Final = "Example: http://127.0.0.1:8090"


def quote_path_segment(text: object, name: str) -> str:
    """An id or a name as one segment of a path, with `/` escaped too."""
    if not isinstance(text, str) or not text or text in _DOT_SEGMENTS:
        raise InvalidArgument(f"`{name}` must be a text that is not empty, '.' or '..'.")
    return quote(text, safe="")


def list_texts(texts: object, name: str) -> list[str]:
    """Several texts as a list. A single text is refused: its characters would be sent."""
    found = list_items(texts, name)
    if not all(isinstance(each, str) for each in found):
        raise InvalidArgument(f"`{name}` must contain only texts.")
    return found


def list_items(items: object, name: str) -> list[Any]:
    """Several values as a list. A single text is refused, and so is a mapping, which would be read as its keys."""
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise InvalidArgument(f"`{name}` must be a sequence, such as a list, and not a single value: {name}=[…].")
    return list(cast("Iterable[Any]", items))


def list_mappings(items: object, name: str) -> list[Mapping[str, Any]]:
    """Several values with members as a list."""
    return [check_mapping(each, f"{name}[{index}]") for index, each in enumerate(list_items(items, name))]


def check_mapping(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"`{name}` must be a mapping, such as a dict.")
    return cast("Mapping[str, Any]", value)


def check_json(members: Mapping[str, Any]) -> None:
    """Raise `InvalidArgument` for the first member that no body can carry, such as NaN or a datetime."""
    for name, value in members.items():
        try:
            json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"`{name}` contains half a character: {_HALF_A_CHARACTER}.") from None
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgument(f"`{name}` cannot be sent as JSON: {error}") from None


def check_timeout(seconds: object, name: str) -> float:
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise InvalidArgument(f"`{name}` must be a number of seconds above 0.")
    return seconds


def check_header_value(text: object, *, what: str) -> str:
    """The text, if it is valid in a header."""
    if not isinstance(text, str) or not _is_header_value(text):
        raise InvalidArgument(f"{what} must be printable ASCII characters, at least one, without surrounding spaces.")
    return text


def _is_header_value(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and text == text.strip()


def check_base_url(base_url: object) -> str:
    """The URL without `/` at its end. The error does not quote it, because it may contain a password."""
    if not isinstance(base_url, str):
        raise InvalidArgument(f"The base URL must be a text. {_URL_EXAMPLE}")
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, UnicodeError):
        raise InvalidArgument(f"The base URL is not a URL. {_URL_EXAMPLE}") from None
    if not _is_plain_base_url(url) or base_url.endswith(("?", "#")):
        raise InvalidArgument(f"The base URL must be http or https, with only host, port and path. {_URL_EXAMPLE}")
    return base_url.rstrip("/")


def _is_plain_base_url(url: httpx.URL) -> bool:
    """Whether the URL has a host, and no user info, query or fragment: paths are appended, and the API key authenticates."""
    port_exists = url.port is None or 0 < url.port <= PORT_MAX
    rest = url.userinfo or url.query or url.fragment
    return url.scheme in {"http", "https"} and bool(url.host) and port_exists and not rest


def is_on_this_machine(url: str) -> bool:
    """Whether the URL's host is this machine, by its name or its loopback address."""
    host = httpx.URL(url).host
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False

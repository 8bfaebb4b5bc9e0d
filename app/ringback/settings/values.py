"""The types of settings: how the text of a variable is read, and which values are refused with words."""

import ipaddress
import pkgutil
import re
import socket
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

import ringback
from ringback.domain.client_address import Network
from ringback.domain.principal import Scope
from ringback.domain.roles import ALL_ROLES, Role
from ringback.domain.validation import is_loopback
from ringback.telemetry.logs import LogLevel

KEPT_SECONDS_MAX: Final = 1e10
"""317 years. A much longer time would lead beyond the calendar, and the cutoff before its first day."""
QUOTA_MAX: Final = 2**53
"""As in the file of upstreams: an integer that both stores can compare with a count."""


def is_wildcard_address(host: str) -> bool:
    """Also for `0`, which the system reads as `0.0.0.0`."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return _is_short_wildcard(host)


def _is_short_wildcard(host: str) -> bool:
    try:
        return not any(socket.inet_aton(host))
    except OSError:
        return False


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _split_commas(value: Any) -> Any:
    return _split_list(value) if isinstance(value, str) else value


def _parse_networks(value: Any) -> Any:
    return [_parse_network(part) for part in _split_list(value)] if isinstance(value, str) else value


def _parse_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    network = ipaddress.ip_network(text, strict=False)
    if network.network_address != ipaddress.ip_interface(text).ip:
        raise ValueError(f"{text} is an address within the network {network}: write {network}")
    return network


def _parse_roles(value: Any) -> Any:
    """An empty variable counts as unset."""
    return (_split_list(value) or ALL_ROLES) if isinstance(value, str) else value


def _parse_log_levels(value: Any) -> Any:
    return [_parse_log_level(part) for part in _split_list(value)] if isinstance(value, str) else value


def _parse_log_level(text: str) -> tuple[str, str]:
    """The area and its level. A misspelt area would silently log nothing more."""
    area, separator, level = (part.strip() for part in text.partition("="))
    known = sorted(module.name for module in pkgutil.iter_modules(ringback.__path__))
    if not separator or area not in known:
        raise ValueError(f"write it as AREA=LEVEL, for example notifier=debug. Areas: {', '.join(known)}.")
    return area, level.lower()


def _to_lower(value: Any) -> Any:
    """Other programs write their levels as `INFO`."""
    return value.lower() if isinstance(value, str) else value


def _empty_to_none(value: Any) -> Any:
    return None if value == "" else value


def _check_host(value: str) -> str:
    """The service's own URL is made from it."""
    if _HOST_NAME.fullmatch(value) is None and not _is_ip_address(value):
        raise ValueError("write it as an address or a name of this machine, such as 127.0.0.1, ::1 or localhost.")
    return value


def _is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_public_url(value: str | None) -> str | None:
    """Paths are appended to the URL, so it has no query and no fragment. Each callback contains it, so it has no password."""
    if not _is_public_url(value or "https://unset"):
        raise ValueError(
            "write it as https://HOST, optionally with a port and a path; a host with other letters than ASCII as clients send "
            "it, xn--…"
        )
    return value


def _is_public_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        return False
    is_plain = text.isprintable() and not {" ", "?", "#"} & set(text) and "@" not in url.netloc and url.netloc.isascii()
    return is_plain and url.scheme in {"http", "https"} and bool(url.hostname)


def _check_redirect_urls(value: tuple[str, ...]) -> tuple[str, ...]:
    """MCP 2025-11-25, Authorization, "Communication Security": redirect URIs are https or loopback."""
    for each in value:
        url = urlsplit(each)
        if url.scheme != "https" or not url.hostname or {"@", "{"} & set(url.netloc) or "#" in each:
            raise ValueError("write each as https://HOST/PATH, without a fragment. Loopback needs no entry.")
    return value


def _check_origins(value: tuple[str, ...]) -> tuple[str, ...]:
    """They are written into a header of every page, so each is exactly an origin."""
    for each in value:
        if _ORIGIN.fullmatch(each) is None:
            raise ValueError("write each as https://HOST, optionally with a port, and without a path.")
    return value


def _check_issuer(value: str | None) -> str | None:
    """OpenID Connect Discovery 1.0 §2: https without query and fragment; plain http on this machine only."""
    url = urlsplit(value or "https://unset")
    trusted = url.scheme == "https" or (url.scheme == "http" and is_loopback(url.hostname or ""))
    if not trusted or not url.hostname or url.query or url.fragment:
        raise ValueError("write it as https://HOST, optionally with a port and a path, exactly as in its tokens' iss.")
    return value


_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")
_ORIGIN = re.compile(
    r"https://[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::[0-9]{1,5})?|http://(?:localhost|127\.0\.0\.1)(?::[0-9]{1,5})?"
)

EmptyIsUnset = BeforeValidator(_empty_to_none)
"""An empty variable counts as unset."""
Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_commas)]
Scopes = Annotated[tuple[Scope, ...], NoDecode, BeforeValidator(_split_commas)]
Networks = Annotated[tuple[Network, ...], NoDecode, BeforeValidator(_parse_networks)]
Roles = Annotated[tuple[Role, ...], NoDecode, BeforeValidator(_parse_roles)]
AnyCaseLogLevel = Annotated[LogLevel, BeforeValidator(_to_lower)]
LogLevels = Annotated[tuple[tuple[str, LogLevel], ...], NoDecode, BeforeValidator(_parse_log_levels)]
RetentionSeconds = Annotated[float, Field(gt=0, le=KEPT_SECONDS_MAX)]
Quota = Annotated[int, Field(ge=1, le=QUOTA_MAX)]
Host = Annotated[str, AfterValidator(_check_host)]
PublicUrl = Annotated[str | None, EmptyIsUnset, AfterValidator(_check_public_url)]
IssuerUrl = Annotated[str | None, EmptyIsUnset, AfterValidator(_check_issuer)]
Origins = Annotated[Texts, AfterValidator(_check_origins)]
RedirectUrls = Annotated[Texts, AfterValidator(_check_redirect_urls)]

"""Which callback URLs are well formed. Whether their addresses may be reached is decided where the server connects."""

from collections.abc import Callable
from urllib.parse import urlsplit

from ringback.protocol.mcp_events.errors import invalid_params


def check_callback_url(url: str, *, allows_http: Callable[[str], bool]) -> None:
    """Raise `EventError` (InvalidParams) unless this is an absolute https URL without credentials and fragment.

    `allows_http` says for a host whether the server's operator allows plain http to it. The URL itself is used byte by byte.
    """
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise invalid_params("delivery.url must be an ASCII URL without spaces; write international names in Punycode.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise invalid_params("delivery.url is malformed. Write https://host/path.") from None
    if parts.scheme not in {"https", "http"} or not host or port == 0:
        raise invalid_params("delivery.url must be an absolute https URL. Write https://host/path.")
    if parts.username is not None or parts.password is not None:
        raise invalid_params("delivery.url must contain no user name and no password.")
    if "#" in url:
        raise invalid_params("delivery.url must have no fragment.")
    if parts.scheme == "http" and not allows_http(host):
        raise invalid_params("delivery.url must use https.")

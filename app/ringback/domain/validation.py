"""Small checks of values from outside."""

from functools import lru_cache
from ipaddress import ip_address


@lru_cache(maxsize=256)  # each request is about the same few names
def is_loopback(host: str) -> bool:
    """Whether a host name or an address (without brackets) is loopback, where plain HTTP is allowed."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def require_printable(text: str) -> str:
    """The same text. Raises `ValueError` for control characters and line breaks, which could forge log lines."""
    if not text.isprintable():
        raise ValueError("Use printable characters only: no control characters, no line breaks.")
    return text

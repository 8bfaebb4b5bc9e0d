"""Which names mean this machine: plain HTTP is good enough among them, and authentication may be off."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether a host name or an address (without brackets) is loopback."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


# Text that clients choose, as every door takes it.


def require_printable(text: str) -> str:
    """The same text; raises `ValueError` for control characters and line breaks, which would steer logs and screens."""
    if not text.isprintable():
        raise ValueError("Use printable characters only: no control characters, no line breaks.")
    return text

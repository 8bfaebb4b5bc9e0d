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

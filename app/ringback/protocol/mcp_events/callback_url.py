"""Which callback URLs are well formed. Whether their addresses may be reached is decided where the server connects."""

from urllib.parse import urlsplit


def find_callback_url_error(url: str) -> str | None:
    """One sentence unless this is an absolute https URL without credentials and fragment. It is used byte by byte."""
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return "delivery.url must be an ASCII URL without spaces; write international names in Punycode."
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "delivery.url is malformed. Write https://host/path."
    if parts.scheme != "https" or not host or port == 0:
        return "delivery.url must be an absolute https URL. Write https://host/path."
    if "@" in parts.netloc:
        return "delivery.url must contain no user name and no password."
    return "delivery.url must have no fragment." if "#" in url else None

"""Where a request ends: the headers that frame its body, and the requests whose end two servers may see differently."""

from collections.abc import Sequence
from typing import Final

_FRAMING_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})


def framing_header_lines(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Those of the headers that frame the body, as lines; empty if there is no body. Names are in lower case."""
    return b"".join(b"%b: %b\r\n" % header for header in headers if header[0] in _FRAMING_HEADERS)


def is_unambiguous(http_version: str, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether every server reads this request alike (RFC 9112 §3.2, §6.1). llhttp rejects two lengths itself."""
    names = [name for name, _ in headers]
    is_framed_alike = http_version == "1.1" or b"transfer-encoding" not in names
    return http_version in {"1.0", "1.1"} and is_framed_alike and names.count(b"host") <= 1

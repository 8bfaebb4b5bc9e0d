"""The certificate authorities that the operator adds to the usual ones: RINGBACK_CA_FILE.

They are trusted by everything that connects to other servers over TLS: callbacks, upstreams, and the token issuer.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
"""A file with all public authorities has 230 KB."""


class InvalidAuthorities(Exception):
    """The file is unusable. The message says why, and what the file must contain."""


@dataclass(frozen=True, slots=True)
class TrustedAuthorities:
    """Certificates as PEM text; empty if only the usual authorities are trusted."""

    pem: str = ""

    @classmethod
    def read_file(cls, path: Path) -> Self:
        """Raises `InvalidAuthorities` unless the file has the certificate of at least one authority."""
        try:
            with path.open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except OSError as problem:
            raise InvalidAuthorities(f"{path} cannot be read: {problem.strerror}.") from None
        if len(content) > FILE_BYTES_MAX:
            raise InvalidAuthorities(f"{path} is larger than {FILE_BYTES_MAX} bytes.")
        pem = content.decode("ascii", "ignore")  # bundles name the authorities in comments, in any language
        _require_authority(path, pem)
        return cls(pem)

    def add_to(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Trust these authorities in the context too, and return it."""
        if self.pem:
            context.load_verify_locations(cadata=self.pem)
        return context


USUAL_AUTHORITIES: Final = TrustedAuthorities()
"""No authority is added."""


def _require_authority(path: Path, pem: str) -> None:
    advice = "It must contain the certificates of authorities, as PEM: -----BEGIN CERTIFICATE-----"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError):
        raise InvalidAuthorities(f"{path} has no certificate, or a damaged one. {advice}") from None
    if not context.cert_store_stats()["x509_ca"]:
        raise InvalidAuthorities(
            f"{path} has only certificates of servers, not of the authority that signed them. {advice}"
        )

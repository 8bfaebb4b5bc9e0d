"""Client certificates for receivers that demand one: RINGBACK_CALLBACK_CLIENT_CERTIFICATES, one file for each origin.

A certificate is shown to the origin that the operator names and to no other: every principal may register a webhook anywhere,
and a receiver learns from the certificate who calls.
"""

import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ringback.domain.errors import InvalidCallbackUrl
from ringback.notifier.http.target import TargetPolicy, parse_target


class InvalidClientCertificate(Exception):
    """The setting or a file is unusable. The message says which, and what to write."""


def load_client_contexts(
    entries: Sequence[str], *, policy: TargetPolicy, make_context: Callable[[], ssl.SSLContext]
) -> Mapping[str, ssl.SSLContext]:
    """TLS contexts by origin, from entries `ORIGIN=FILE`. Raises `InvalidClientCertificate`.

    A file has the certificate, its intermediate certificates and the private key without a password, as PEM.
    """
    contexts: dict[str, ssl.SSLContext] = {}
    for entry in entries:
        origin, path = _parse_entry(entry, policy)
        if origin in contexts:
            raise InvalidClientCertificate(f"{origin} is named twice. Name one file for it.")
        contexts[origin] = _load_context(path, make_context())
    return contexts


def _parse_entry(entry: str, policy: TargetPolicy) -> tuple[str, Path]:
    url, separator, path = entry.partition("=")
    try:
        target = parse_target(url.strip(), policy)
    except InvalidCallbackUrl as refused:
        raise InvalidClientCertificate(f"{refused.detail} Write each entry as https://HOST=FILE.") from None
    if not separator or not path.strip() or target.scheme != "https" or target.path != "/":
        raise InvalidClientCertificate(f"Write each entry as https://HOST=FILE, without a path in the URL: {entry}")
    return target.origin, Path(path.strip())


def _load_context(path: Path, context: ssl.SSLContext) -> ssl.SSLContext:
    try:
        context.load_cert_chain(path, password=_refuse_password)
    except ssl.SSLError:
        raise InvalidClientCertificate(
            f"{path} must contain a certificate and its private key, without a password, as PEM."
        ) from None
    except OSError as problem:
        raise InvalidClientCertificate(f"{path} cannot be read: {problem.strerror}.") from None
    return context


def _refuse_password() -> str:
    """OpenSSL would otherwise ask for the password at the terminal."""
    return ""

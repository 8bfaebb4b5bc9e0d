"""A callback that was saved to a file: its headers and its raw body, and why its signature does not match.

POST /callbacks HTTP/1.1            may be absent
webhook-id: evt_01K…
webhook-timestamp: 1795000000
webhook-signature: v1,…
                                    an empty line
{"eventId":"evt_01K…", …            the body, unchanged
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ringback.receiver import VerificationError, VerifiedMessage, verify
from ringback.signing.standard_webhooks import SIGNATURE_HEADER, SIGNED_HEADERS

PUBLIC_KEY_PREFIX: Final = "whpk_"
_REQUEST_LINE: Final = re.compile(rb"[A-Z]+ \S+ HTTP/\d(\.\d)?")
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")


class UnreadableRequest(ValueError):
    """The file is not a stored request. The text says what it must be."""


@dataclass(frozen=True, slots=True)
class StoredRequest:
    headers: Mapping[str, str]
    body: bytes


def parse_request(text: bytes) -> StoredRequest:
    """Parse a request as it was received. Raises `UnreadableRequest`."""
    head, end, body = _split_head(text)
    lines = head.splitlines()
    if lines and _REQUEST_LINE.fullmatch(lines[0]):
        lines = lines[1:]
    if not end or not lines:
        raise UnreadableRequest(
            "It must be a request as it was received: headers, an empty line, and the raw body. For a file with the body only, "
            "use --body FILE and --header 'NAME: VALUE'."
        )
    return StoredRequest(parse_headers([line.decode("latin-1") for line in lines]), body)


def parse_headers(lines: Sequence[str]) -> Mapping[str, str]:
    """Headers of the form `name: value`, by their names in lower case; of others than the signature's, the first of each name.

    Raises `UnreadableRequest`.
    """
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise UnreadableRequest(f"This is not a header of the form 'NAME: VALUE': {line[:80]}")
        known = name.strip().lower()
        if known in headers and known in SIGNED_HEADERS:
            raise UnreadableRequest(f"The header {name.strip()} occurs twice. Keep the one that was received.")
        headers.setdefault(known, value.strip())
    return headers


def verify_signature(request: StoredRequest, secrets: Sequence[str], *, now: datetime) -> VerifiedMessage:
    """Verify the signature, of any age. Raises `VerificationError` with the likeliest reason."""
    try:
        return verify(request.headers, request.body, secrets, now=now, tolerance_seconds=float("inf"))
    except VerificationError as error:
        raise VerificationError(_find_reason(request, secrets, now=now) or str(error)) from None


def _find_reason(request: StoredRequest, secrets: Sequence[str], *, now: datetime) -> str | None:
    """A reason that explains the mismatch for certain; None without one."""
    signatures = request.headers.get(SIGNATURE_HEADER, "").split()
    if signatures and all(text.startswith("v1a,") for text in signatures) and not _public_keys(secrets):
        return "It has only v1a signatures, which a secret cannot verify. Verify it with --jwks, or with a whpk_… key."
    if signatures and all(text.startswith("v1,") for text in signatures) and len(_public_keys(secrets)) == len(secrets):
        return (
            "It has only v1 signatures, which a public key cannot verify. Verify it with the webhook's whsec_… secret."
        )
    for body, change in _changed_bodies(request.body):
        if _is_valid(StoredRequest(request.headers, body), secrets, now=now):
            return f"The body was changed after it was signed: {change}. Verify the bytes as they were received."
    return None


def _public_keys(secrets: Sequence[str]) -> list[str]:
    return [secret for secret in secrets if secret.startswith(PUBLIC_KEY_PREFIX)]


def _changed_bodies(body: bytes) -> Iterator[tuple[bytes, str]]:
    """What the body may have been before a usual change, and the change."""
    if (stripped := body.rstrip(b"\r\n")) != body:
        yield stripped, "a line end was added"
    if b"\r\n" in body:
        yield body.replace(b"\r\n", b"\n"), "its line ends were changed"
    for text in _rewritten_json(body):
        yield text.encode("utf-8", "replace"), "its JSON was parsed and written again"


def _rewritten_json(body: bytes) -> list[str]:
    """The JSON as our service, and as common libraries write it."""
    try:
        document = json.loads(body)
        compact = (",", ":")
        return [
            json.dumps(document, ensure_ascii=False, separators=compact),
            json.dumps(document, separators=compact),
            json.dumps(document),
        ]
    except (ValueError, RecursionError):
        return []


def _is_valid(request: StoredRequest, secrets: Sequence[str], *, now: datetime) -> bool:
    try:
        verify(request.headers, request.body, secrets, now=now, tolerance_seconds=float("inf"))
    except VerificationError:
        return False
    return True


def _split_head(text: bytes) -> tuple[bytes, bytes, bytes]:
    found = _HEAD_END.search(text)
    return (text, b"", b"") if found is None else (text[: found.start()], found[0], text[found.end() :])

"""Scopes as OAuth writes them: names with a space between (RFC 6749 §3.3). Bounded, because servers choose them."""

import re
from collections.abc import Iterable
from typing import Final

from ringback.domain.upstream_logins import SCOPE_LENGTH_MAX

SCOPE_REQUIRED: Final = "The upstream requires more rights than its login has. Sign in to it again"
SCOPE_REFUSED: Final = (
    "The upstream demands a right that its login has already, or did not get. Look at the account's rights."
)
SCOPES_MAX: Final = 100
"""Products with scopes for each operation have some dozens."""
OFFLINE_ACCESS: Final = "offline_access"
"""OpenID Connect Core §11: asks for a refresh token."""
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


def parse_scope(text: object) -> str | None:
    """The scopes without duplicates, in their order; None if there are none, or if they are invalid or too many."""
    if not isinstance(text, str) or len(text) > SCOPE_LENGTH_MAX:
        return None
    return join_scopes(text.split())


def join_scopes(names: Iterable[str]) -> str | None:
    unique = list(dict.fromkeys(names))
    text = " ".join(unique)
    is_valid = len(unique) <= SCOPES_MAX and len(text) <= SCOPE_LENGTH_MAX and all(map(_SCOPE.fullmatch, unique))
    return text if unique and is_valid else None


def unite_scopes(*scopes: str | None) -> str | None:
    """All scopes together; None if there are none, or too many."""
    return join_scopes(name for scope in scopes if scope is not None for name in scope.split())


def split_scope(scope: str | None) -> frozenset[str]:
    return frozenset((scope or "").split())

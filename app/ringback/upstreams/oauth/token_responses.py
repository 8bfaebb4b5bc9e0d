"""What is read of a token response (RFC 6749 §5), whatever the grant. Pure; a server may have written anything."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, TypeGuard

TOKEN_LENGTH_MAX: Final = 16 * 1024
"""Servers accept 8 to 16 KiB for all headers together."""
LIFETIME_SECONDS_MAX: Final = 10 * 366 * 24 * 3600.0
"""A longer lifetime is cut to ten years, so that the expiry stays within the calendar."""
CLIENT_UNKNOWN: Final = "invalid_client"
OAUTH_ERROR_CODES: Final = frozenset(
    {CLIENT_UNKNOWN, "invalid_grant", "invalid_request", "invalid_scope", "invalid_target", "unauthorized_client"}
    | {"unsupported_grant_type"}
    | {"interaction_required", "consent_required", "login_required"}
    | {"bad_refresh_token", "bad_verification_code", "incorrect_client_credentials"}
)
"""RFC 6749 §5.2 and RFC 8707 §2; those of OpenID Connect Core §3.1.2.6 that Microsoft Entra ID answers here, too;
and those of GitHub. Other codes of the server are not shown, because they could contain anything."""
REFUSING_STATUSES: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
ACCESS_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750 §2.1
REFRESH_TOKEN: Final = re.compile(r"[\x20-\x7e]+")  # RFC 6749 appendix A.17


def find_error_code(document: Mapping[str, Any]) -> str | None:
    """The known code of an error response. Some servers answer an object instead."""
    code = document.get("error")
    return code if isinstance(code, str) and code in OAUTH_ERROR_CODES else None


def is_token(value: Any, pattern: re.Pattern[str]) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= TOKEN_LENGTH_MAX and pattern.fullmatch(value) is not None


def is_bearer(token_type: Any) -> bool:
    return isinstance(token_type, str) and token_type.lower() == "bearer"


def parse_lifetime(expires_in: Any) -> float | None:
    """Seconds; None without a usable `expires_in`, which is optional: the token is used until it is refused.

    Some servers write 0 for a token that does not expire.
    """
    if isinstance(expires_in, bool) or not isinstance(expires_in, int | float | str):
        return None
    try:
        lifetime = float(expires_in)
    except OverflowError:  # an integer beyond the range of a float
        return LIFETIME_SECONDS_MAX if isinstance(expires_in, int) and expires_in > 0 else None
    except ValueError:
        return None
    return min(lifetime, LIFETIME_SECONDS_MAX) if lifetime > 0 else None  # not for NaN either

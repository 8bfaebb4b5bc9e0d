"""The redirect back from an authorization server: its parts, and what must match the login (RFC 6749 §4.1.2, RFC 9207)."""

import hashlib
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, parse_qsl, urlsplit

from ringback.domain.upstream_logins import AuthorizationRequest, LoginFailed, LoginFailure

REDIRECTED_TO_LENGTH_MAX: Final = 16 * 1024
"""Characters of the URL. Codes have some hundred; browsers and proxies rarely pass more."""
PARAMETERS_MAX: Final = 50

_MISMATCH: Final = (
    "This redirect does not belong to the login. Start the login again, and use the redirect of that login."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationResponse:
    """The query of the redirect. `error` is a code; its description is dropped, because a hostile server could write it."""

    state: str = field(repr=False)
    path: str | None = None
    """Where the browser came back; None if only the query was passed."""
    code: str | None = field(default=None, repr=False)
    issuer: str | None = None
    error: str | None = None
    parameters: frozenset[tuple[str, str]] = field(default=frozenset(), repr=False)
    """All parameters: a redirect URI may have some of its own."""

    @property
    def state_hash(self) -> str:
        return hash_state(self.state)


def hash_state(state: str) -> str:
    return hashlib.sha256(state.encode(errors="surrogatepass")).hexdigest()


def parse_redirect(redirected_to: str) -> AuthorizationResponse:
    """Raises `LoginFailed` for a URL that is no response of an authorization server, and for a repeated parameter."""
    try:
        url = urlsplit(_with_scheme(redirected_to.strip()))
        values = parse_qs(url.query, keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
    except ValueError:
        raise LoginFailed(LoginFailure.MISMATCH, _MISMATCH) from None
    if any(len(values.get(name, ())) > 1 for name in ("state", "code", "iss", "error")):
        raise LoginFailed(LoginFailure.MISMATCH, _MISMATCH)
    state, code = _first(values, "state"), _first(values, "code")
    error = _first(values, "error")
    if not state or (not code and not error):
        raise LoginFailed(
            LoginFailure.MISMATCH,
            "The URL is no redirect of an authorization server: it needs `state`, and `code` or `error`. Pass the whole URL to "
            "which the browser was sent.",
        )
    return AuthorizationResponse(
        state=state,
        path=url.path or None,
        code=code or None,
        issuer=_first(values, "iss"),
        error=error or None,
        parameters=frozenset(parse_qsl(url.query, max_num_fields=PARAMETERS_MAX)),
    )


def require_granted_code(response: AuthorizationResponse, request: AuthorizationRequest) -> str:
    """The code. Raises `LoginFailed` if the redirect names another issuer or none where one is required, or an error."""
    if response.issuer is None and request.requires_issuer:
        raise LoginFailed(LoginFailure.MISMATCH, _MISMATCH)
    if response.issuer is not None and response.issuer != request.issuer:
        raise LoginFailed(LoginFailure.MISMATCH, _MISMATCH)
    if response.error == "access_denied":
        raise LoginFailed(
            LoginFailure.DENIED, "The login was denied at the authorization server. Start it again to retry."
        )
    if response.error is not None or response.code is None:
        raise LoginFailed(
            LoginFailure.REFUSED,
            "The authorization server refused the login. Start it again; if that fails too, ask the operator to check the "
            "upstream's `ringback.login` settings.",
        )
    return response.code


def require_own_redirect(response: AuthorizationResponse, request: AuthorizationRequest) -> None:
    """Raise `LoginFailed` if the browser came back to the redirect URI of another upstream: the code is another server's."""
    own = urlsplit(request.redirect_uri)
    is_elsewhere = response.path is not None and response.path != own.path
    if is_elsewhere or not set(parse_qsl(own.query)) <= response.parameters:
        raise LoginFailed(LoginFailure.MISMATCH, _MISMATCH)


def _with_scheme(redirected_to: str) -> str:
    """Browsers hide `http://` in the address that a user copies."""
    address = redirected_to.partition("?")[0]
    return redirected_to if "://" in address or address[:1] in {"", "/"} else f"http://{redirected_to}"


def _first(values: dict[str, list[str]], name: str) -> str | None:
    return values[name][0] if name in values else None

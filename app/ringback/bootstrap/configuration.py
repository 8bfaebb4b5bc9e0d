"""Checks the settings, and converts them to values that the service and `ringback doctor` need. It imports neither of them."""

from collections.abc import Callable
from functools import partial

from ringback.domain.login_urls import client_metadata_url
from ringback.domain.principal import DEFAULT_SCOPES
from ringback.domain.protected_resource import ProtectedResource
from ringback.domain.roles import ALL_ROLES, Role
from ringback.notifier.http.authorities import USUAL_AUTHORITIES, InvalidAuthorities, TrustedAuthorities
from ringback.notifier.http.target import TargetPolicy
from ringback.settings import Settings, SettingsError
from ringback.storage.urls import is_postgres_url


def require_complete_roles(settings: Settings) -> None:
    """Raise `SettingsError` for roles that leave work undone: an SQLite database has only this node."""
    missing = [role for role in ALL_ROLES if role not in settings.roles]
    if missing and not is_postgres_url(settings.database_url):
        raise SettingsError(
            f"RINGBACK_ROLES: an SQLite database has one node, so it needs every role; {', '.join(missing)} is missing. Remove "
            "RINGBACK_ROLES, or share a PostgreSQL database between nodes (RINGBACK_DATABASE_URL)."
        )


def require_callback_url(settings: Settings) -> None:
    """Raise `SettingsError` if callbacks would name a node that does not serve the API."""
    if not names_itself_in_callbacks(settings) or Role.API in settings.roles:
        return
    raise SettingsError(
        f"RINGBACK_PUBLIC_URL is required on a node without the role api: callbacks would name {settings.base_url}, which does "
        "not serve the API. Set it, on every node to the same URL, at which clients reach the nodes with the role api."
    )


def names_itself_in_callbacks(settings: Settings) -> bool:
    """Whether a node that may be one of several has no URL for all of them. `serve --dev` is for one machine."""
    return is_postgres_url(settings.database_url) and settings.public_url is None and settings.auth != "off"


def load_authorities(settings: Settings) -> TrustedAuthorities:
    """The authorities of RINGBACK_CA_FILE; raises `SettingsError` if the file is unusable."""
    if settings.ca_file is None:
        return USUAL_AUTHORITIES
    try:
        return TrustedAuthorities.read_file(settings.ca_file)
    except InvalidAuthorities as problem:
        raise SettingsError(f"RINGBACK_CA_FILE: {problem}") from None


def build_client_metadata_url(settings: Settings) -> Callable[[str], str] | None:
    """The URL of Ringback's client id metadata document for an upstream.

    None unless authorization servers can read it over https.
    """
    return partial(client_metadata_url, settings.base_url) if settings.base_url.startswith("https://") else None


def build_target_policy(settings: Settings) -> TargetPolicy:
    return TargetPolicy(private_cidrs=settings.callback_private_cidrs, allows_private_http=settings.callback_http)


def build_protected_resource(settings: Settings) -> ProtectedResource | None:
    if settings.auth == "off" or settings.oidc_issuer is None:
        return None
    # An issuer that cannot grant Ringback's scopes rejects a client that requests them.
    scopes = () if settings.oidc_scopes else sorted(DEFAULT_SCOPES)
    return ProtectedResource(public_url=settings.base_url, issuer=settings.oidc_issuer, scopes=scopes)

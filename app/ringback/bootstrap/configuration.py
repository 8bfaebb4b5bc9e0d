"""Converts the settings to the values that components take."""

from collections.abc import Callable
from functools import partial

from ringback.domain.login_urls import client_metadata_url
from ringback.domain.principal import DEFAULT_SCOPES
from ringback.domain.protected_resource import ProtectedResource
from ringback.domain.roles import ALL_ROLES, Role
from ringback.identity.access_tokens import AccessTokenPolicy
from ringback.janitor import Retention
from ringback.mcp_server.gateway import GatewayConfig
from ringback.notifier.http.authorities import USUAL_AUTHORITIES, InvalidAuthorities, TrustedAuthorities
from ringback.notifier.http.target import TargetPolicy
from ringback.protocol.mcp_events.grants import TtlPolicy
from ringback.services.quotas import Quotas
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


def build_retention(settings: Settings) -> Retention:
    try:
        return Retention(
            result_seconds=settings.result_retention_seconds,
            event_seconds=settings.event_retention_seconds,
            tombstone_seconds=settings.tombstone_retention_seconds,
            audit_seconds=settings.audit_retention_seconds,
        )
    except ValueError as problem:
        raise SettingsError(f"RINGBACK_RESULT|EVENT|TOMBSTONE_RETENTION_SECONDS: {problem}") from None


def build_quotas(settings: Settings) -> Quotas:
    return Quotas(
        open_calls=settings.quota_open_calls,
        result_bytes=settings.quota_result_bytes,
        webhooks=settings.quota_webhooks,
        subscriptions=settings.quota_subscriptions,
        streams=settings.quota_streams,
        starts_per_minute=settings.quota_starts_per_minute,
    )


def build_ttl_policy(settings: Settings) -> TtlPolicy:
    try:
        return TtlPolicy(
            default_seconds=settings.subscription_ttl_seconds,
            shortest_seconds=settings.subscription_ttl_seconds_min,
            longest_seconds=settings.subscription_ttl_seconds_max,
        )
    except ValueError:
        raise SettingsError(
            "RINGBACK_SUBSCRIPTION_TTL_SECONDS must lie between RINGBACK_SUBSCRIPTION_TTL_SECONDS_MIN and _MAX."
        ) from None


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


def build_token_policy(settings: Settings) -> AccessTokenPolicy:
    return AccessTokenPolicy(
        public_url=settings.base_url,
        audiences=frozenset(settings.oidc_audience),
        principal_claim=settings.oidc_principal_claim,
        granted_scopes=frozenset(settings.oidc_scopes),
        accepts_untyped=settings.oidc_untyped_tokens,
        lifetime_seconds_max=settings.oidc_token_seconds_max,
    )


def build_protected_resource(settings: Settings) -> ProtectedResource | None:
    if settings.auth == "off" or settings.oidc_issuer is None:
        return None
    # An issuer that cannot grant Ringback's scopes rejects a client that requests them.
    scopes = () if settings.oidc_scopes else sorted(DEFAULT_SCOPES)
    return ProtectedResource(public_url=settings.base_url, issuer=settings.oidc_issuer, scopes=scopes)


def build_gateway_config(settings: Settings) -> GatewayConfig:
    return GatewayConfig(
        public_url=settings.base_url,
        inline_wait_seconds=settings.inline_wait_seconds,
        wait_seconds_max=settings.wait_seconds_max,
        task_grace_seconds=settings.task_grace_seconds,
        task_event_source=settings.task_event_source,
        on_disconnect=settings.on_disconnect,
        request_bytes_max=settings.request_bytes_max,
        authentication_enabled=settings.auth != "off",
        result_retention_seconds=settings.result_retention_seconds,
    )

"""Converts the settings to the limits and policies that components of the service take."""

from ringback.bootstrap.service_parts import ServicesConfig
from ringback.domain.webhook import MessageIds
from ringback.identity.access_tokens import AccessTokenPolicy
from ringback.janitor.config import Retention
from ringback.keyring import load_signing_keys
from ringback.mcp_server.gateway import GatewayConfig
from ringback.protocol.mcp_events.grants import TtlPolicy
from ringback.services.limits.quotas import Quotas
from ringback.services.webhooks.verification import VerificationPolicy
from ringback.settings import Settings, SettingsError


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
        stored_calls=settings.quota_stored_calls,
        result_bytes=settings.quota_result_bytes,
        argument_bytes=settings.quota_argument_bytes,
        event_bytes=settings.quota_event_bytes,
        delivery_bytes=settings.quota_delivery_bytes,
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


def build_services_config(settings: Settings) -> ServicesConfig:
    return ServicesConfig(
        public_url=settings.base_url,
        wait_seconds_max=settings.wait_seconds_max,
        verification=VerificationPolicy(mode=settings.verify_callbacks, allowlist=settings.callback_allowlist),
        ttl_policy=build_ttl_policy(settings),
        message_ids=MessageIds(settings.subscription_message_ids),
        signing_keys=load_signing_keys(settings),
        login_redirect_urls=settings.login_redirect_urls,
        has_dashboard=settings.ui,
    )


def build_token_policy(settings: Settings) -> AccessTokenPolicy:
    return AccessTokenPolicy(
        public_url=settings.base_url,
        audiences=frozenset(settings.oidc_audience),
        principal_claim=settings.oidc_principal_claim,
        granted_scopes=frozenset(settings.oidc_scopes),
        accepts_untyped=settings.oidc_untyped_tokens,
        lifetime_seconds_max=settings.oidc_token_seconds_max,
    )


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

"""How callbacks leave: the sender with the egress proxy and the client certificates of the settings."""

import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

from ringback.bootstrap.configuration import build_target_policy
from ringback.domain.client_address import Address
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.notifier.http.client_certificates import InvalidClientCertificate, load_client_contexts
from ringback.notifier.http.dialer import Connector, Egress, make_tls_context
from ringback.notifier.http.egress_proxy import ProxyConnector, parse_proxy_url
from ringback.notifier.http.resolver import Resolver
from ringback.settings import Settings, SettingsError


@asynccontextmanager
async def open_egress(
    settings: Settings,
    *,
    resolver: Resolver | None = None,
    make_context: Callable[[], ssl.SSLContext] = make_tls_context,
) -> AsyncGenerator[Egress]:
    """The egress of the settings. `resolver` resolves the proxy's host. Raises `SettingsError` for unusable settings."""
    contexts = _load_client_contexts(settings, make_context)
    async with aclosing(ConfiguredHosts(resolver)) as hosts:
        yield Egress(find_connector=_build_connector(settings, hosts), client_contexts=contexts)


def _load_client_contexts(settings: Settings, make_context: Callable[[], ssl.SSLContext]) -> dict[str, ssl.SSLContext]:
    entries, policy = settings.callback_client_certificates, build_target_policy(settings)
    try:
        return dict(load_client_contexts(entries, policy=policy, make_context=make_context))
    except InvalidClientCertificate as problem:
        raise SettingsError(f"RINGBACK_CALLBACK_CLIENT_CERTIFICATES: {problem}") from None


def _build_connector(settings: Settings, hosts: ConfiguredHosts) -> Callable[[Address], Connector | None]:
    if settings.callback_proxy is None:
        return lambda _: None
    try:
        proxy = parse_proxy_url(
            settings.callback_proxy.get_secret_value(), bypassed_networks=settings.callback_proxy_except
        )
    except ValueError as problem:
        raise SettingsError(f"RINGBACK_CALLBACK_PROXY: {problem}") from None
    connector = ProxyConnector(proxy, look_up=hosts.look_up_for("egress proxy"))
    return lambda address: None if proxy.bypasses(address) else connector

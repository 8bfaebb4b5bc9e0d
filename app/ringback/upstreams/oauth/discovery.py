"""Finds the authorization server of an upstream.

    probe ──401, resource_metadata──▶ resource metadata (RFC 9728) ──▶ issuers ──▶ metadata of the first usable one (RFC 8414)
      └── without it: the well-known URLs of the upstream ──┘
          none there: the upstream's own origin is the issuer (MCP 2025-03-26)

The resource of the metadata must be the upstream, or a parent of it at the same origin whose own metadata say so. The metadata
of an issuer must name the same issuer: otherwise one server could answer for another (mix-up).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    issuers_match,
)
from mcp.shared.auth_utils import check_resource_allowed

from ringback.domain.upstream_logins import LoginFailed, LoginFailure
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.oauth.challenge import Refusal
from ringback.upstreams.oauth.endpoints import get_origin, get_resource
from ringback.upstreams.oauth.metadata import (
    ResourceMetadata,
    ServerMetadata,
    parse_resource_metadata,
    parse_server_metadata,
)
from ringback.upstreams.oauth.metadata_http import MetadataHttp
from ringback.upstreams.oauth.scopes import parse_scope

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredServer:
    metadata: ServerMetadata
    resource: str
    """The audience of the tokens (RFC 8707)."""
    scope: str | None
    """What the upstream asks for: the scope of its challenge, else the scopes of its metadata."""


async def discover_server(config: UpstreamConfig, http: MetadataHttp) -> DiscoveredServer:
    """Raises `LoginFailed`."""
    refusal = await http.probe_upstream()
    resource = await find_resource_metadata(config, http, refusal)
    if resource is None and refusal.status_code != HTTPStatus.UNAUTHORIZED and config.login.issuer is None:
        raise LoginFailed(
            LoginFailure.NOT_OFFERED,
            "The upstream accepts requests without a login, and names no authorization server.",
        )
    metadata = await _find_server(_list_issuers(config, resource), http)
    return DiscoveredServer(
        metadata=metadata,
        resource=get_resource(config.url) if resource is None else resource.resource,
        scope=parse_scope(refusal.scope) or (None if resource is None else resource.scope),
    )


async def find_resource_metadata(
    config: UpstreamConfig, http: MetadataHttp, refusal: Refusal
) -> ResourceMetadata | None:
    """The metadata that the challenge names, or else those at a well-known URL; None if there are none."""
    named = refusal.resource_metadata
    upstream = get_resource(config.url)
    urls = [named] if named is not None else build_protected_resource_metadata_discovery_urls(None, upstream)
    for url in urls:
        response = await http.get_json(url)
        _require_no_failure(response.status_code)
        metadata = parse_resource_metadata(response.document) if response.status_code == HTTPStatus.OK else None
        if metadata is not None:
            http.rules.require_safe_url(metadata.resource)  # it becomes a part of the authorization URL
            return await _read_own_metadata(metadata, upstream, http, read_from=url)
    if named is not None:
        raise LoginFailed(
            LoginFailure.INVALID_RESPONSE, "The upstream names metadata for its login that are not there, or not valid."
        )
    return None


def is_resource_of(resource: str, upstream_url: str) -> bool:
    """Whether the resource is the upstream, or a parent of it at the same origin."""
    try:
        return check_resource_allowed(requested_resource=get_resource(upstream_url), configured_resource=resource)
    except ValueError:  # an invalid IPv6 address
        return False


async def _read_own_metadata(
    found: ResourceMetadata, upstream: str, http: MetadataHttp, *, read_from: str
) -> ResourceMetadata:
    """The metadata of the resource that the found ones name: they are those of the upstream, or the parent publishes them.

    On a host with several tenants, a tenant could otherwise ask for a token that the other ones accept too (RFC 9728 §3.3).
    """
    if not is_resource_of(found.resource, upstream):
        raise _make_foreign_resource()
    own_url = build_protected_resource_metadata_discovery_urls(None, found.resource)[0]
    if is_resource_of(upstream, found.resource) or own_url == read_from:
        return found
    response = await http.get_json(own_url)
    _require_no_failure(response.status_code)
    own = parse_resource_metadata(response.document) if response.status_code == HTTPStatus.OK else None
    if own is None or own.resource != found.resource:
        raise _make_foreign_resource()
    return own


def _make_foreign_resource() -> LoginFailed:
    return LoginFailed(
        LoginFailure.UNSAFE,
        "The metadata of the upstream belong to another resource, so Ringback does not use them.",
    )


def _list_issuers(config: UpstreamConfig, resource: ResourceMetadata | None) -> Sequence[str]:
    wanted = config.login.issuer
    if resource is None:
        return [get_origin(config.url) if wanted is None else wanted]
    if wanted is None:
        return resource.issuers
    found = [issuer for issuer in resource.issuers if issuers_match(issuer, wanted)]
    if not found:
        raise LoginFailed(
            LoginFailure.UNSAFE,
            "The upstream names another authorization server than the configured 'ringback.login.issuer'.",
        )
    return found


async def _find_server(issuers: Sequence[str], http: MetadataHttp) -> ServerMetadata:
    """The first usable one; raises the failure of the first one if none is usable."""
    failures: list[LoginFailed] = []
    for issuer in issuers:
        try:
            return await read_server_metadata(issuer, http)
        except LoginFailed as failure:
            log.debug("login.server_unusable", extra={"failure": str(failure.failure)})
            failures.append(failure)
    raise failures[0]


async def read_server_metadata(issuer: str, http: MetadataHttp) -> ServerMetadata:
    """The metadata of this issuer; raises `LoginFailed`."""
    http.rules.require_safe_url(issuer)
    for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, ""):
        response = await http.get_json(url)
        _require_no_failure(response.status_code)
        if response.status_code != HTTPStatus.OK or not response.document:
            continue
        metadata = parse_server_metadata(response.document, http.rules)
        if not issuers_match(metadata.issuer, issuer):
            raise LoginFailed(
                LoginFailure.UNSAFE, "The metadata of the authorization server belong to another issuer (mix-up)."
            )
        return metadata
    raise LoginFailed(
        LoginFailure.NOT_OFFERED, "The upstream's authorization server publishes no metadata for a login."
    )


def _require_no_failure(status_code: int) -> None:
    """A broken server says nothing about what it publishes, so no other URL is tried in its place."""
    if status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or status_code == HTTPStatus.TOO_MANY_REQUESTS:
        raise LoginFailed(
            LoginFailure.UNREACHABLE,
            f"The upstream or its authorization server fails now (HTTP {status_code}). Try again later.",
        )

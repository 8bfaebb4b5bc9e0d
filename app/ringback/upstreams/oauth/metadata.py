"""The metadata of an upstream (RFC 9728) and of its authorization server (RFC 8414), as far as a login needs them.

Values are kept as the servers wrote them, because issuers are compared as strings (RFC 8414 §3.3, RFC 9207 §2.4).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from ringback.domain.upstream_logins import LoginFailed, LoginFailure
from ringback.upstreams.oauth.endpoints import EndpointRules
from ringback.upstreams.oauth.scopes import join_scopes

AUTHORIZATION_SERVERS_MAX: Final = 4
"""The number of authorization servers tried for one upstream. Few name more than one."""
PKCE_METHOD: Final = "S256"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceMetadata:
    resource: str
    issuers: Sequence[str]
    """At least one, at most `AUTHORIZATION_SERVERS_MAX`."""
    scope: str | None = None
    """`scopes_supported`, if they are few enough to ask for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMetadata:
    """Every URL in it is safe."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes: frozenset[str] = frozenset()
    auth_methods: Sequence[str] = ()
    """How clients authenticate at the token endpoint; empty: the server does not say."""
    accepts_client_metadata: bool = False
    """Whether a client id may be the URL of a client id metadata document."""
    sends_issuer: bool = False
    """Whether the redirect names the issuer (RFC 9207)."""


def parse_resource_metadata(document: Mapping[str, Any]) -> ResourceMetadata | None:
    """None if the document is no resource metadata."""
    resource = document.get("resource")
    issuers = _get_texts(document, "authorization_servers")[:AUTHORIZATION_SERVERS_MAX]
    if not isinstance(resource, str) or not issuers:
        return None
    return ResourceMetadata(
        resource=resource, issuers=issuers, scope=join_scopes(_get_texts(document, "scopes_supported"))
    )


def parse_server_metadata(document: Mapping[str, Any], rules: EndpointRules) -> ServerMetadata:
    """Raises `LoginFailed` for metadata that are incomplete, unsafe, or without PKCE by S256."""
    issuer = document.get("issuer")
    if not isinstance(issuer, str):
        raise LoginFailed(
            LoginFailure.INVALID_RESPONSE, "The metadata of the authorization server do not name its issuer."
        )
    if PKCE_METHOD not in _get_texts(document, "code_challenge_methods_supported"):
        raise LoginFailed(
            LoginFailure.UNSUPPORTED, "The authorization server does not offer PKCE with S256, which MCP requires."
        )
    grants = _get_texts(document, "grant_types_supported")
    if grants and "authorization_code" not in grants:
        raise LoginFailed(LoginFailure.UNSUPPORTED, "The authorization server offers no login with a browser.")
    return ServerMetadata(
        issuer=issuer,
        authorization_endpoint=rules.require_safe_url(document.get("authorization_endpoint")),
        token_endpoint=rules.require_safe_url(document.get("token_endpoint")),
        registration_endpoint=_get_url(document, "registration_endpoint", rules),
        revocation_endpoint=_get_url(document, "revocation_endpoint", rules),
        scopes=frozenset(_get_texts(document, "scopes_supported")),
        auth_methods=_get_texts(document, "token_endpoint_auth_methods_supported"),
        accepts_client_metadata=document.get("client_id_metadata_document_supported") is True,
        sends_issuer=document.get("authorization_response_iss_parameter_supported") is True,
    )


def _get_url(document: Mapping[str, Any], name: str, rules: EndpointRules) -> str | None:
    url = document.get(name)
    return None if url is None or url == "" else rules.require_safe_url(url)


def _get_texts(document: Mapping[str, Any], name: str) -> list[str]:
    values = document.get(name)
    if not isinstance(values, list):
        return []
    return [value for value in cast("list[Any]", values) if isinstance(value, str)]

"""The revocation of tokens at their authorization server (RFC 7009), if it offers that. It is tried once and raises nothing."""

import logging
from typing import Final

import anyio

from ringback.domain.upstream_logins import LoginFailed, LoginFailure, UpstreamTokens
from ringback.upstreams.oauth.discovery import read_server_metadata
from ringback.upstreams.oauth.metadata_http import MetadataHttp
from ringback.upstreams.oauth.token_requests import revoke_token

log = logging.getLogger(__name__)

REVOKE_SECONDS: Final = 10.0
"""For the whole revocation: the time of one request. Who signs out waits for it, and the tokens are deleted before."""


async def revoke_at_server(http: MetadataHttp, tokens: UpstreamTokens) -> None:
    try:
        with anyio.fail_after(REVOKE_SECONDS):
            await _revoke(http, tokens)
    except LoginFailed as failure:
        log_not_revoked(tokens, failure.failure)
    except TimeoutError:
        log_not_revoked(tokens, LoginFailure.UNREACHABLE)


async def _revoke(http: MetadataHttp, tokens: UpstreamTokens) -> None:
    """The refresh token first: most servers then revoke the whole grant (RFC 7009 §2.1)."""
    server = await read_server_metadata(tokens.issuer, http)
    if server.revocation_endpoint is None:
        return
    for token, hint in ((tokens.refresh_token, "refresh_token"), (tokens.access_token, "access_token")):
        if token is None:
            continue
        try:
            await revoke_token(http, server.revocation_endpoint, tokens.client, token=token, hint=hint)
        except LoginFailed as failure:
            log_not_revoked(tokens, failure.failure)


def log_not_revoked(tokens: UpstreamTokens, failure: LoginFailure) -> None:
    log.info("login.not_revoked", extra={"upstream": tokens.upstream, "failure": str(failure)})

"""The results of `initialize` and `server/discover`: the upstream's capabilities and instructions, then Ringback's.

This is a middleware because the SDK drops capabilities that it does not know (`events`, and future ones).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from ringback.domain.errors import RingbackError
from ringback.domain.meta import INSTANCES_META_KEY, add_meta
from ringback.domain.principal import Principal
from ringback.domain.upstreams import UpstreamProfile
from ringback.mcp_server.auth import get_caller
from ringback.mcp_server.call_options import check_http_options
from ringback.mcp_server.gateway import Capabilities, Era, Feature, Gateway
from ringback.mcp_server.jsonrpc_errors import to_mcp_error
from ringback.mcp_server.request_context import TASKS_EXTENSION, Endpoint, RequestContext
from ringback.mcp_server.upstream_router import UpstreamRouter

RESUME_CAPABILITY: Final = "ringback/resume"
GATEWAY_INSTRUCTIONS: Final = (
    "These tools are called through Ringback. A call that takes long continues in the background; you get its call_id and a "
    "resource ringback://calls/{call_id}, which contains the result once the call has ended. Do not repeat such a call. Get "
    "it, wait for it, or answer its questions with the ringback_ tools."
)
_HANDSHAKE_ERAS: Final[Mapping[str, Era]] = {"initialize": "legacy", "server/discover": "modern"}
_PROXIED_CAPABILITIES: Final = ("tools", "resources", "prompts", "completions", "logging", "experimental", "extensions")
"""The upstream capabilities that work through the gateway. Tasks and subscriptions are not among them: clients get
Ringback's.
"""
_EXCLUDED_EXTENSIONS: Final = frozenset({TASKS_EXTENSION})


class CapabilitiesMiddleware:
    def __init__(self, endpoint: Endpoint, features: Sequence[Feature], gateway: Gateway) -> None:
        self._endpoint = endpoint
        self._features = features
        self._gateway = gateway
        self._router = UpstreamRouter(gateway)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method in _HANDSHAKE_ERAS:
            self._check_options(ctx)
        result = await call_next(ctx)
        era = _HANDSHAKE_ERAS.get(ctx.method)
        if era is None or not isinstance(result, dict):
            return result
        context = RequestContext(caller=get_caller(ctx), endpoint=self._endpoint, sdk_context=ctx)
        if context.is_replayed:
            return result  # no client reads this response, and an unreachable upstream would delay the session
        upstreams = self._router.list_upstreams(context)
        try:
            profiles = await asyncio.gather(
                *(self._get_profile(upstream, context.caller.principal) for upstream in upstreams)
            )
        except RingbackError as error:  # the upstream was removed after the request was authorized
            raise to_mcp_error(error) from None
        known_profiles = [profile for profile in profiles if profile is not None]
        instances = self._gateway.list_instances(self._endpoint.upstream)
        handshake: dict[str, Any] = {
            **add_meta(result, INSTANCES_META_KEY, instances),
            "capabilities": self._merge_capabilities(era, known_profiles),
            "instructions": "\n\n".join([*_collect_instructions(known_profiles), GATEWAY_INSTRUCTIONS]),
        }
        return {**handshake, "cacheScope": "private"} if era == "modern" else handshake

    async def _get_profile(self, upstream: str, principal: Principal) -> UpstreamProfile | None:
        return await self._gateway.proxy.get_profile(upstream, principal=principal)

    def _check_options(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Refuse a URL or headers with invalid options of Ringback, so that the user learns of them before the first call."""
        try:
            check_http_options(RequestContext(caller=get_caller(ctx), endpoint=self._endpoint, sdk_context=ctx))
        except RingbackError as error:
            raise to_mcp_error(error) from None

    def _merge_capabilities(self, era: Era, profiles: Sequence[UpstreamProfile]) -> Capabilities:
        capabilities: Capabilities = {}
        for profile in profiles:
            _merge_upstream_capabilities(profile, capabilities)
        for feature in self._features:
            feature.advertise_capabilities(era, capabilities)
        for section in ("extensions", "experimental"):
            capabilities[section] = {
                **capabilities.get(section, {}),
                RESUME_CAPABILITY: self._build_resume_capability(),
            }
        return capabilities

    def _build_resume_capability(self) -> dict[str, Any]:
        config = self._gateway.config
        return {
            "resumable": True,
            "ttlMs": int(config.result_retention_seconds * 1000),
            "resumeUrl": f"{config.public_url}/v1/resume",
        }


def _merge_upstream_capabilities(profile: UpstreamProfile, capabilities: Capabilities) -> None:
    for name in _PROXIED_CAPABILITIES:
        if (upstream_value := profile.capabilities.get(name)) is not None:
            merged = cast("dict[str, Any]", capabilities.setdefault(name, {}))
            merged |= {key: value for key, value in upstream_value.items() if key not in _EXCLUDED_EXTENSIONS}


def _collect_instructions(profiles: Sequence[UpstreamProfile]) -> Sequence[str]:
    return [profile.instructions for profile in profiles if profile.instructions]

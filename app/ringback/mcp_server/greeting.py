"""What `initialize` and `server/discover` tell: the upstream's capabilities and instructions, then ours.

A middleware, because the SDK drops the capabilities that it does not know (`events`, and those of tomorrow).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from ringback.domain.errors import RingbackError
from ringback.domain.upstreams import Profile
from ringback.mcp_server.auth import caller_of
from ringback.mcp_server.exchange import TASKS, Endpoint, Exchange
from ringback.mcp_server.gateway import Capabilities, Era, Feature, Gateway
from ringback.mcp_server.refusals import refusal
from ringback.mcp_server.routes import Routes

RESUME: Final = "ringback/resume"
INSTRUCTIONS: Final = (
    "Tools here are called through Ringback: a call that takes long goes on by itself, and is answered with a call_id and a "
    "resource ringback://calls/{call_id} that becomes the result. Do not repeat such a call. Look at it, wait for it or answer "
    "its questions with the ringback_ tools."
)
_ERAS: Final[Mapping[str, Era]] = {"initialize": "legacy", "server/discover": "modern"}
_MIRRORED: Final = ("tools", "resources", "prompts", "completions", "logging", "experimental", "extensions")
"""What of an upstream works through us as well. Its tasks and subscriptions are its own; a client gets ours."""
_NOT_MIRRORED: Final = frozenset({TASKS})


class Greeting:
    def __init__(self, endpoint: Endpoint, features: Sequence[Feature], gateway: Gateway) -> None:
        self._endpoint = endpoint
        self._features = features
        self._gateway = gateway
        self._routes = Routes(gateway)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        era = _ERAS.get(ctx.method)
        if era is None or not isinstance(result, dict):
            return result
        exchange = Exchange(caller=caller_of(ctx), endpoint=self._endpoint, context=ctx)
        upstreams = self._routes.upstreams(exchange)
        try:
            profiles = await asyncio.gather(*(self._gateway.passage.profile(upstream) for upstream in upstreams))
        except RingbackError as error:  # removed after the door had let the request in
            raise refusal(error) from None
        known = [profile for profile in profiles if profile is not None]
        told: dict[str, Any] = {
            **result,
            "capabilities": self._capabilities(era, known),
            "instructions": "\n\n".join([*_instructions(known), INSTRUCTIONS]),
        }
        return {**told, "cacheScope": "private"} if era == "modern" else told

    def _capabilities(self, era: Era, profiles: Sequence[Profile]) -> Capabilities:
        capabilities: Capabilities = {}
        for profile in profiles:
            _mirror(profile, capabilities)
        for feature in self._features:
            feature.advertise(era, capabilities)
        for place in ("extensions", "experimental"):
            capabilities[place] = {**capabilities.get(place, {}), RESUME: self._resume()}
        return capabilities

    def _resume(self) -> dict[str, Any]:
        config = self._gateway.config
        return {
            "resumable": True,
            "ttlMs": int(config.result_retention_seconds * 1000),
            "resumeUrl": f"{config.public_url}/v1/resume",
        }


def _mirror(profile: Profile, capabilities: Capabilities) -> None:
    for name in _MIRRORED:
        if (said := profile.capabilities.get(name)) is not None:
            mine = cast("dict[str, Any]", capabilities.setdefault(name, {}))
            mine |= {key: value for key, value in said.items() if key not in _NOT_MIRRORED}


def _instructions(profiles: Sequence[Profile]) -> Sequence[str]:
    return [profile.instructions for profile in profiles if profile.instructions]

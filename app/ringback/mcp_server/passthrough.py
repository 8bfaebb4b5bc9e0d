"""Resources, prompts, completions and log levels of the upstreams, passed on; and our own resource among them.

Lists are answered from what the upstreams told last, also while they are away. Whatever an upstream answers goes on as it came,
but for `_meta` between two neighbours. Its own freshness hints stay; nothing is ever `public`, because who may see it is for us
to say.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

import mcp_types as types

from ringback.domain.errors import NotFound
from ringback.domain.meta import without_reserved_meta
from ringback.domain.principal import Scope
from ringback.domain.upstreams import Listing
from ringback.mcp_server import meta, pending
from ringback.mcp_server.exchange import Exchange
from ringback.mcp_server.gateway import Capabilities, Era, Feature, Gateway, Method, Result
from ringback.mcp_server.refusals import unknown_resource
from ringback.mcp_server.relay import LogLevels
from ringback.mcp_server.request_state import opened, sealed, unknown_state
from ringback.mcp_server.routes import Routes
from ringback.mcp_server.tools import LIST_TTL_MILLISECONDS, refuse_cursor

INPUT_REQUIRED: Final = "input_required"
_PRIVATE: Final = {"ttlMs": LIST_TTL_MILLISECONDS, "cacheScope": "private"}


def feature(gateway: Gateway, *, levels: LogLevels) -> Feature:
    through = Passthrough(gateway, levels=levels)
    lists = types.PaginatedRequestParams
    return Feature(
        methods=(
            Method(name="resources/list", params=lists, handler=through.resources),
            Method(name="resources/templates/list", params=lists, handler=through.templates),
            Method(name="resources/read", params=types.ReadResourceRequestParams, handler=through.read),
            Method(name="prompts/list", params=lists, handler=through.prompts),
            Method(name="prompts/get", params=types.GetPromptRequestParams, handler=through.prompt),
            Method(name="completion/complete", params=types.CompleteRequestParams, handler=through.complete),
            Method(
                name="logging/setLevel",
                params=types.SetLevelRequestParams,
                handler=through.set_level,
                eras=("legacy",),
            ),
        ),
        advertise=_advertise,
    )


class Passthrough:
    def __init__(self, gateway: Gateway, *, levels: LogLevels) -> None:
        self._gateway = gateway
        self._routes = Routes(gateway)
        self._levels = levels

    async def resources(self, exchange: Exchange, params: types.PaginatedRequestParams) -> Result:
        return await self._listed(exchange, params, Listing.RESOURCES)

    async def templates(self, exchange: Exchange, params: types.PaginatedRequestParams) -> Result:
        listed = await self._listed(exchange, params, Listing.RESOURCE_TEMPLATES)
        theirs = [each for each in listed["resourceTemplates"] if not pending.is_pending_uri(each["uriTemplate"])]
        return {**listed, "resourceTemplates": [*theirs, pending.TEMPLATE]}

    async def prompts(self, exchange: Exchange, params: types.PaginatedRequestParams) -> Result:
        return await self._listed(exchange, params, Listing.PROMPTS)

    async def read(self, exchange: Exchange, params: types.ReadResourceRequestParams) -> Result:
        exchange.caller.require(Scope.READ)
        uri = str(params.uri)
        try:
            if pending.is_pending_uri(uri):
                return await pending.read(self._gateway, exchange, uri)
            upstream = await self._routes.owner(exchange, uri)
        except NotFound as unknown:
            raise unknown_resource(unknown, modern=exchange.modern) from None
        answer = await self._ask(exchange, upstream, {"uri": uri})
        return {"ttlMs": 0, **answer, "cacheScope": "private"}

    async def prompt(self, exchange: Exchange, params: types.GetPromptRequestParams) -> Result:
        exchange.caller.require(Scope.READ)
        upstream, name = await self._routes.find(exchange, Listing.PROMPTS, params.name)
        return await self._ask(exchange, upstream, {"name": name, "arguments": params.arguments or {}})

    async def complete(self, exchange: Exchange, _params: types.CompleteRequestParams) -> Result:
        exchange.caller.require(Scope.READ)
        sent = cast("dict[str, Any]", exchange.context.params)
        reference: dict[str, Any] = sent["ref"]
        if reference["type"] == "ref/prompt":
            upstream, name = await self._routes.find(exchange, Listing.PROMPTS, reference["name"])
            reference = {**reference, "name": name}
        else:
            upstream = await self._template_owner(exchange, reference["uri"])
        kept = {key: sent[key] for key in ("argument", "context") if key in sent}
        return await self._ask(exchange, upstream, {"ref": reference, **kept})

    async def set_level(self, exchange: Exchange, params: types.SetLevelRequestParams) -> Result:
        self._levels.set(exchange.session_id, params.level)
        return {}

    async def _listed(self, exchange: Exchange, params: types.PaginatedRequestParams, listing: Listing) -> Result:
        exchange.caller.require(Scope.READ)
        refuse_cursor(params)
        entries = await self._routes.entries(exchange, listing)
        return {str(listing): [entry.shown for entry in entries], **_PRIVATE}

    async def _template_owner(self, exchange: Exchange, template: str) -> str:
        for entry in await self._routes.entries(exchange, Listing.RESOURCE_TEMPLATES):
            if entry.original == template:
                return entry.upstream
        return await self._routes.owner(exchange, template)

    async def _ask(self, exchange: Exchange, upstream: str, params: Mapping[str, Any]) -> Result:
        told = meta.for_upstream(exchange.meta)
        sent = {**params, **self._round(exchange, upstream), **({"_meta": told} if told else {})}
        method, declare = exchange.context.method, exchange.elicitation
        answer = without_reserved_meta(await self._gateway.passage.ask(upstream, method, sent, declare=declare))
        if answer.get("resultType") == INPUT_REQUIRED:
            state = sealed(self._gateway, exchange, {"upstream": upstream, "state": answer.get("requestState")})
            return {**answer, "requestState": state}
        return {key: value for key, value in answer.items() if key != "resultType"}

    def _round(self, exchange: Exchange, upstream: str) -> dict[str, Any]:
        """What a request brings that is sent again with answers: an upstream's own state goes to that upstream only."""
        brought = exchange.context.params or {}
        again: dict[str, Any] = {key: brought[key] for key in ("inputResponses",) if key in brought}
        if brought.get("requestState") is not None:
            carried = opened(self._gateway, exchange, brought["requestState"])
            if carried["upstream"] != upstream:
                raise unknown_state()
            again |= {} if carried["state"] is None else {"requestState": carried["state"]}
        return again


def _advertise(_era: Era, capabilities: Capabilities) -> None:
    capabilities.setdefault("resources", {})

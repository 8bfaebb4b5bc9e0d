"""Resources, prompts, completions and log levels of the upstreams, and the resource of Ringback's calls.

Lists come from the catalog cache, also while an upstream is unreachable. An upstream's response is passed on unchanged, except
for the `_meta` keys of one connection and `cacheScope`, which is never `public`: Ringback decides who may see an entry.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from ringback.domain.errors import NotFound
from ringback.domain.inputs import check_input_requests
from ringback.domain.meta import without_reserved_meta
from ringback.domain.principal import Scope
from ringback.domain.upstreams import Listing
from ringback.mcp_server import meta
from ringback.mcp_server.gateway import LEGACY_ONLY, Capabilities, Era, Feature, Gateway, MethodBinding, Result
from ringback.mcp_server.jsonrpc_errors import resource_not_found
from ringback.mcp_server.pending_results import CALL_RESOURCE_TEMPLATE, is_ringback_uri, read_call_resource
from ringback.mcp_server.progress_relay import set_log_level
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.request_state import seal_request_state, unknown_request_state, unseal_request_state
from ringback.mcp_server.tools import LIST_TTL_MILLISECONDS, reject_cursor
from ringback.mcp_server.upstream_router import UpstreamRouter
from ringback.services.limits.unread_responses import reserve_parsed_answer
from ringback.services.mcp_sessions import with_log_level

INPUT_REQUIRED_RESULT: Final = "input_required"
_INPUT_REQUIRING_METHODS: Final = frozenset({"resources/read", "prompts/get"})
"""The proxied methods that an upstream may answer with an InputRequiredResult (2026-07-28)."""
_LIST_CACHE_HINTS: Final = {"ttlMs": LIST_TTL_MILLISECONDS, "cacheScope": "private"}


def build_feature(gateway: Gateway) -> Feature:
    methods = ProxiedMethods(gateway)
    lists = types.PaginatedRequestParams
    return Feature(
        methods=(
            MethodBinding("resources/list", lists, methods.list_resources),
            MethodBinding("resources/templates/list", lists, methods.list_resource_templates),
            MethodBinding("resources/read", types.ReadResourceRequestParams, methods.read_resource),
            MethodBinding("prompts/list", lists, methods.list_prompts),
            MethodBinding("prompts/get", types.GetPromptRequestParams, methods.get_prompt),
            MethodBinding("completion/complete", types.CompleteRequestParams, methods.complete_argument),
            MethodBinding("logging/setLevel", types.SetLevelRequestParams, methods.set_log_level, eras=LEGACY_ONLY),
        ),
        advertise_capabilities=_advertise_resources,
    )


class ProxiedMethods:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._router = UpstreamRouter(gateway)

    async def list_resources(self, context: RequestContext, params: types.PaginatedRequestParams) -> Result:
        return await self._list_entries(context, params, Listing.RESOURCES)

    async def list_resource_templates(self, context: RequestContext, params: types.PaginatedRequestParams) -> Result:
        listed = await self._list_entries(context, params, Listing.RESOURCE_TEMPLATES)
        upstream_templates = [each for each in listed["resourceTemplates"] if not is_ringback_uri(each["uriTemplate"])]
        return {**listed, "resourceTemplates": [*upstream_templates, CALL_RESOURCE_TEMPLATE]}

    async def list_prompts(self, context: RequestContext, params: types.PaginatedRequestParams) -> Result:
        return await self._list_entries(context, params, Listing.PROMPTS)

    async def read_resource(self, context: RequestContext, params: types.ReadResourceRequestParams) -> Result:
        context.caller.require_scope(Scope.READ)
        uri = str(params.uri)
        try:
            if is_ringback_uri(uri):
                return await read_call_resource(self._gateway, context, uri)
            upstream = await self._router.resolve_resource(context, uri)
        except NotFound as unknown:
            raise resource_not_found(unknown, is_modern=context.is_modern) from None
        answer = await self._forward_request(context, upstream, {"uri": uri})
        return {**answer, "ttlMs": _read_ttl(answer), "cacheScope": "private"}

    async def get_prompt(self, context: RequestContext, params: types.GetPromptRequestParams) -> Result:
        context.caller.require_scope(Scope.READ)
        upstream, name = await self._router.resolve_name(context, Listing.PROMPTS, params.name)
        return await self._forward_request(context, upstream, {"name": name, "arguments": params.arguments or {}})

    async def complete_argument(self, context: RequestContext, _params: types.CompleteRequestParams) -> Result:
        context.caller.require_scope(Scope.READ)
        params = cast("dict[str, Any]", context.sdk_context.params)
        reference: dict[str, Any] = params["ref"]
        if reference["type"] == "ref/prompt":
            upstream, name = await self._router.resolve_name(context, Listing.PROMPTS, reference["name"])
            reference = {**reference, "name": name}
        elif is_ringback_uri(reference["uri"]):
            return {"completion": {"values": []}}  # no upstream knows the ids of calls
        else:
            upstream = await self._find_template_upstream(context, reference["uri"])
        argument_params = {key: params[key] for key in ("argument", "context") if key in params}
        return await self._forward_request(context, upstream, {"ref": reference, **argument_params})

    async def set_log_level(self, context: RequestContext, params: types.SetLevelRequestParams) -> Result:
        set_log_level(context, params.level)
        if not context.is_replayed:
            await self._gateway.sessions.change_state(
                context.caller,
                context.mcp_session_id,
                context.endpoint.path,
                lambda state: with_log_level(state, params.level),
            )
        return {}

    async def _list_entries(
        self, context: RequestContext, params: types.PaginatedRequestParams, listing: Listing
    ) -> Result:
        context.caller.require_scope(Scope.READ)
        reject_cursor(params)
        entries = await self._router.list_entries(context, listing)
        return {str(listing): [entry.definition for entry in entries], **_LIST_CACHE_HINTS}

    async def _find_template_upstream(self, context: RequestContext, template: str) -> str:
        for entry in await self._router.list_entries(context, Listing.RESOURCE_TEMPLATES):
            if entry.upstream_key == template:
                return entry.upstream
        return await self._router.resolve_resource(context, template)

    async def _forward_request(self, context: RequestContext, upstream: str, params: Mapping[str, Any]) -> Result:
        upstream_meta = meta.select_upstream_meta(context.meta)
        upstream_params = {
            **params,
            **self._read_input_responses(context, upstream),
            **({"_meta": upstream_meta} if upstream_meta else {}),
        }
        method, capabilities = context.sdk_context.method, context.elicitation_capability
        answer = without_reserved_meta(
            await self._gateway.proxy.send_request(
                upstream,
                method,
                upstream_params,
                principal=context.caller.principal,
                client_capabilities=capabilities,
            )
        )
        reserve_parsed_answer(context.asgi_state, context.caller.principal, answer)
        if _requires_input(context, answer):
            state = seal_request_state(
                self._gateway, context, {"upstream": upstream, "state": answer.get("requestState")}
            )
            return {**answer, **_select_requests(answer), "requestState": state}
        return {key: value for key, value in answer.items() if key != "resultType"}

    def _read_input_responses(self, context: RequestContext, upstream: str) -> dict[str, Any]:
        """The answers of a repeated request. An upstream's own state goes only to that upstream."""
        received = context.sdk_context.params or {}
        retry_params: dict[str, Any] = {key: received[key] for key in ("inputResponses",) if key in received}
        if received.get("requestState") is not None:
            state_data = unseal_request_state(self._gateway, context, received["requestState"])
            if state_data["upstream"] != upstream:
                raise unknown_request_state()
            retry_params |= {} if state_data["state"] is None else {"requestState": state_data["state"]}
        return retry_params


def _read_ttl(answer: Mapping[str, Any]) -> int:
    """How long a client may cache the resource, in milliseconds: not at all if the upstream does not say so, or not validly."""
    ttl = answer.get("ttlMs")
    return ttl if isinstance(ttl, int) and not isinstance(ttl, bool) and ttl >= 0 else 0


def _requires_input(context: RequestContext, answer: Mapping[str, Any]) -> bool:
    """Whether the upstream asks for input; raises `MCPError` for a result of another kind than this request allows."""
    kind = answer.get("resultType", "complete")
    if kind == INPUT_REQUIRED_RESULT and not _can_provide_input(context, answer.get("inputRequests") or {}):
        raise MCPError(INTERNAL_ERROR, "The upstream asks for input, which the request did not offer.")
    if kind not in {"complete", INPUT_REQUIRED_RESULT}:
        raise MCPError(INTERNAL_ERROR, "The upstream's response has a resultType that the request did not offer.")
    return kind == INPUT_REQUIRED_RESULT


def _select_requests(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The upstream's `inputRequests`, if there are any, without what belongs to its own connection. They have been checked."""
    requests: Mapping[str, dict[str, Any]] = answer.get("inputRequests") or {}
    kept = {
        name: {**request, "params": without_reserved_meta(request.get("params", {}))}
        for name, request in requests.items()
    }
    return {"inputRequests": kept} if kept else {}


def _can_provide_input(context: RequestContext, requests: Any) -> bool:
    """Whether this request allows an InputRequiredResult, and its client declares what these requests need."""
    if not context.is_modern or context.sdk_context.method not in _INPUT_REQUIRING_METHODS:
        return False
    try:
        check_input_requests(requests)
    except ValueError:
        return False
    return context.supports_elicitation({str(each.get("params", {}).get("mode", "form")) for each in requests.values()})


def _advertise_resources(_era: Era, capabilities: Capabilities) -> None:
    capabilities.setdefault("resources", {})

"""The built-in tool `ringback_login`: a model asks where its user signs in to an upstream, and whether that is done.

tools/list has it only while an upstream of the endpoint requires a login. The login page asks the user for the user's own
credentials, so a URL that a model shows to another user signs no user in under a foreign name.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import Field, ValidationError

from ringback.domain.login_urls import login_page_url
from ringback.domain.upstreams import LOGIN_REQUIRED_PROBLEM, UpstreamInfo
from ringback.mcp_server.builtin_tools.call_tools import build_validation_result
from ringback.mcp_server.builtin_tools.tool_schemas import BuiltinToolArguments, generate_input_schema
from ringback.mcp_server.call_text import ask_for_login
from ringback.mcp_server.gateway import BuiltinTool, Feature, Gateway, Result
from ringback.mcp_server.jsonrpc_errors import build_error_result
from ringback.mcp_server.request_context import RequestContext
from ringback.schemas.fields import Label

LOGIN_TOOL_NAME: Final = "ringback_login"


class LoginArguments(BuiltinToolArguments):
    upstream: Label | None = Field(
        default=None, description="The name of the upstream. Leave it out if only one requires a login."
    )


LOGIN_DEFINITION: Final[Mapping[str, Any]] = {
    "name": LOGIN_TOOL_NAME,
    "title": "Sign in to an upstream",
    "description": "An upstream MCP server requires a login before its tools are listed. Returns the URL at which the user "
    "signs in, and the state of the upstream. Show the next step to the user; do not open the URL yourself. The tools are "
    "listed after the login.",
    "inputSchema": generate_input_schema(LoginArguments),
    "outputSchema": {
        "type": "object",
        "properties": {
            "upstream": {"type": "string"},
            "state": {
                "type": "string",
                "description": "The state of the upstream; login_required until the user signs in.",
            },
            "login_url": {"type": "string"},
            "next_step": {"type": "string"},
        },
        "required": ["upstream", "state", "login_url", "next_step"],
    },
    "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
}


def build_feature(gateway: Gateway) -> Feature:
    tool = LoginTool(gateway)
    return Feature(
        builtin_tools=[BuiltinTool(definition=LOGIN_DEFINITION, handler=tool.call, is_listed=tool.is_needed)]
    )


class LoginTool:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def find(self, context: RequestContext) -> Sequence[UpstreamInfo]:
        """The upstreams of this endpoint that require a login, also those whose connection has not noticed it."""
        return await self._gateway.login_states.list_missing(self._list_upstreams(context), context.caller.principal)

    async def is_needed(self, context: RequestContext) -> bool:
        return bool(await self.find(context))

    async def call(self, context: RequestContext, arguments: Mapping[str, Any]) -> Result:
        try:
            name = LoginArguments.model_validate(arguments).upstream
        except ValidationError as problem:
            return build_validation_result(problem, LoginArguments)
        required = await self.find(context)
        candidates = required if name is None else self._list_upstreams(context)
        infos = [info for info in candidates if name in {None, info.name}]
        if len(infos) == 1:
            return self._describe(infos[0], is_required=infos[0] in required)
        names = ", ".join(info.name for info in infos or required) or "none"
        return build_error_result(f"Name one upstream. Upstreams that require a login now: {names}.")

    def _list_upstreams(self, context: RequestContext) -> Sequence[UpstreamInfo]:
        endpoint = context.endpoint.upstream
        return [
            info
            for info in self._gateway.catalog.list_upstreams(context.caller.principal)
            if endpoint in {None, info.name} and context.caller.may_use_upstream(info.name)
        ]

    def _describe(self, info: UpstreamInfo, *, is_required: bool) -> Result:
        login_url = login_page_url(self._gateway.config.public_url, info.name)
        described = {
            "upstream": info.name,
            "state": LOGIN_REQUIRED_PROBLEM if is_required else info.state,
            "login_url": login_url,
            "next_step": (
                f"{ask_for_login(info.name, login_url)} Then list the tools again."
                if is_required
                else f"'{info.name}' requires no login now. List its tools."
            ),
        }
        return {"content": [{"type": "text", "text": described["next_step"]}], "structuredContent": described}

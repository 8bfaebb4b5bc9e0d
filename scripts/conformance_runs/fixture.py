"""The server that the suite expects, built on the SDK: `python -m scripts.conformance_runs.fixture PORT`."""

import sys
from collections.abc import Sequence
from typing import Any, Final

import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp_types import INVALID_PARAMS
from starlette.types import ASGIApp

from ringback.domain.clock import SystemClock
from scripts.conformance_runs.fixture_tasks import FixtureTasks
from scripts.conformance_runs.fixture_tools import (
    PNG,
    Context,
    FixtureTool,
    Json,
    ListChangeTools,
    core_tools,
    make_input_required,
    question,
)

TEMPLATE_PREFIX: Final = "test://template/"
TEMPLATE_SUFFIX: Final = "/data"

RESOURCES: Final[dict[str, Json]] = {
    "test://static-text": {
        "mimeType": "text/plain",
        "text": "This is the content of the static text resource.",
    },
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "This resource is watched."},
}

_ARGUMENTS: Final[dict[str, Sequence[str]]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


class Fixture:
    def __init__(self) -> None:
        self._bus = InMemorySubscriptionBus()
        self._switches = ListChangeTools(self._bus)
        self._tasks = FixtureTasks(SystemClock())
        self._tools: dict[str, FixtureTool] = {**core_tools(self._switches), **self._tasks.tools()}

    def app(self) -> ASGIApp:
        server: Server[Any] = Server(
            "conformance-fixture",
            version="1.0.0",
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=_list_resources,
            on_list_resource_templates=_list_templates,
            on_read_resource=_read_resource,
            on_subscribe_resource=_subscribe,
            on_unsubscribe_resource=_subscribe,
            on_subscriptions_listen=ListenHandler(self._bus),
            on_list_prompts=self._list_prompts,
            on_get_prompt=_get_prompt,
            on_completion=_complete,
        )
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _subscribe)
        server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="fixture"))
        self._tasks.serve(server)
        return server.streamable_http_app()

    def _input_schema(self, name: str) -> dict[str, Any] | None:
        return self._tools[name].listed(name).input_schema if name in self._tools else None

    async def _list_tools(self, _context: Context, _params: Any) -> types.ListToolsResult:
        extra = [
            types.Tool(name=f"extra_{number}", description="Was added", input_schema={"type": "object"})
            for number in range(self._switches.extra_tools)
        ]
        return types.ListToolsResult(tools=[*(tool.listed(name) for name, tool in self._tools.items()), *extra])

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> Any:
        if params.name not in self._tools:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        return await self._tools[params.name].run(context, params)

    async def _list_prompts(self, _context: Context, _params: Any) -> types.ListPromptsResult:
        extra = [f"extra_{number}" for number in range(self._switches.extra_prompts)]
        return types.ListPromptsResult(prompts=[_prompt(name) for name in [*_ARGUMENTS, *extra]])


async def _subscribe(_context: Context, _params: Any) -> types.EmptyResult:
    return types.EmptyResult()


# -- resources -------------------------------------------------------------------------------------------------------------


async def _list_resources(_context: Context, _params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(
        resources=[
            types.Resource(uri=uri, name=uri.removeprefix("test://"), description=uri, mime_type=each["mimeType"])
            for uri, each in RESOURCES.items()
        ]
    )


async def _list_templates(_context: Context, _params: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        uri_template=f"{TEMPLATE_PREFIX}{{id}}{TEMPLATE_SUFFIX}",
        name="template",
        description="Data by its id",
        mime_type="application/json",
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def _read_resource(_context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    found = RESOURCES.get(uri)
    if uri.startswith(TEMPLATE_PREFIX) and uri.endswith(TEMPLATE_SUFFIX):
        id_ = uri.removeprefix(TEMPLATE_PREFIX).removesuffix(TEMPLATE_SUFFIX)
        text = f'{{"id":"{id_}","templateTest":true,"data":"Data for ID: {id_}"}}'
        found = {"mimeType": "application/json", "text": text}
    if found is None:
        raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri})
    return types.ReadResourceResult.model_validate({"contents": [{"uri": uri, **found}]})


# -- prompts ---------------------------------------------------------------------------------------------------------------


def _prompt(name: str) -> types.Prompt:
    arguments = [
        types.PromptArgument(name=argument, description=argument, required=True)
        for argument in _ARGUMENTS.get(name, ())
    ]
    return types.Prompt(name=name, description=f"Prompt {name}", arguments=arguments)


async def _get_prompt(_context: Context, params: types.GetPromptRequestParams) -> Any:
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return _messages({"type": "text", "text": "This is a simple prompt for testing."})
        case "test_prompt_with_arguments":
            text = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
            return _messages({"type": "text", "text": text})
        case "test_prompt_with_embedded_resource":
            resource = {
                "uri": given.get("resourceUri"),
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            }
            text = "Please process the embedded resource above."
            return _messages({"type": "resource", "resource": resource}, {"type": "text", "text": text})
        case "test_prompt_with_image":
            image = {"type": "image", "data": PNG, "mimeType": "image/png"}
            return _messages(image, {"type": "text", "text": "Please analyze the image above."})
        case "test_input_required_result_prompt":
            return get_asking_prompt(params)
        case _:
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {params.name}")


def get_asking_prompt(params: types.GetPromptRequestParams) -> Any:
    if "user_context" in (params.input_responses or {}):
        return _messages({"type": "text", "text": "Use this context."})
    context = question("What context should the prompt use?", {"context": {"type": "string"}})
    return make_input_required({"user_context": context})


def _messages(*blocks: Json) -> types.GetPromptResult:
    return types.GetPromptResult.model_validate({"messages": [{"role": "user", "content": block} for block in blocks]})


async def _complete(_context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    values = [value for value in ("paris", "park", "test") if value.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


if __name__ == "__main__":
    uvicorn.run(Fixture().app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", http="h11")

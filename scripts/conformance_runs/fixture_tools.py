"""The tools of the suite's core scenarios, with the names and results that it expects.

Tools that sample or list roots are missing: Ringback never declares these capabilities to an upstream.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import PromptsListChanged, SubscriptionBus, ToolsListChanged
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context = ServerRequestContext[Any, Any]
Json = dict[str, Any]
Run = Callable[[Context, types.CallToolRequestParams], Awaitable[Any]]

PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
STEP_SECONDS: Final = 0.05
"""Between two notifications, as the suite requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixtureTool:
    run: Run
    description: str
    properties: Mapping[str, Any] = field(default_factory=dict[str, Any])
    required: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    """The whole inputSchema, if it has more than properties."""

    def listed(self, name: str) -> types.Tool:
        schema: Json = {"type": "object", "properties": dict(self.properties)}
        if self.required:
            schema["required"] = list(self.required)
        return types.Tool(name=name, description=self.description, input_schema=dict(self.schema or schema))


def text(words: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)])


def content(*blocks: Json, **rest: Any) -> Run:
    """A tool that always returns these blocks."""
    result = types.CallToolResult.model_validate({"content": list(blocks), **rest})

    async def run(_context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
        return result

    return run


def is_modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


# -- elicitation -----------------------------------------------------------------------------------------------------------


def question(message: str, properties: Json, *, required: bool = True) -> Json:
    schema = {"type": "object", "properties": properties, **({"required": list(properties)} if required else {})}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def make_input_required(questions: Mapping[str, Json], state: str | None = None) -> types.InputRequiredResult:
    requests: types.InputRequests = {
        key: types.ElicitRequest.model_validate(request) for key, request in questions.items()
    }
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def read_answers(params: types.CallToolRequestParams) -> dict[str, Json]:
    return {key: each.model_dump(exclude_none=True) for key, each in (params.input_responses or {}).items()}


def eliciting(make: Callable[[Json], Json]) -> Run:
    """A tool with one elicitation, in either era, that returns the answer."""

    async def run(context: Context, params: types.CallToolRequestParams) -> Any:
        request = make(params.arguments or {})
        if is_modern(context):
            answer = read_answers(params).get("answer")
            if answer is None:
                return make_input_required({"answer": request})
        else:
            words = await context.session.elicit_form(
                request["params"]["message"],
                request["params"]["requestedSchema"],
                related_request_id=context.request_id,
            )
            answer = words.model_dump(exclude_none=True)
        return text(f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content'))}")

    return run


NAME_QUESTION: Final = question("What is your name?", {"name": {"type": "string"}})
CONFIRM_QUESTION: Final = question("Please confirm", {"ok": {"type": "boolean"}})


async def greet_with_elicitation(_context: Context, params: types.CallToolRequestParams) -> Any:
    answer = read_answers(params).get("user_name")
    if answer is None:
        return make_input_required({"user_name": NAME_QUESTION})
    return text(f"Hello, {answer.get('content', {}).get('name')}!")


async def confirm(_context: Context, params: types.CallToolRequestParams) -> Any:
    """Accepts only the state that it sent."""
    if params.request_state is None or "confirm" not in read_answers(params):
        return make_input_required({"confirm": CONFIRM_QUESTION}, state="confirming")
    return text(f"state-ok: {params.request_state}")


async def ask_in_two_rounds(_context: Context, params: types.CallToolRequestParams) -> Any:
    match params.request_state:
        case None:
            return make_input_required(
                {"step1": question("Step 1: What is your name?", {"name": {"type": "string"}})}, state="1"
            )
        case "1":
            colour = question("Step 2: What is your favorite color?", {"color": {"type": "string"}})
            return make_input_required({"step2": colour}, state="2")
        case _:
            return text("Both steps are done.")


DEFAULTS: Final[Json] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}


def _titled(*names: str) -> list[Json]:
    return [{"const": f"value{number}", "title": name} for number, name in enumerate(names, start=1)]


ENUMS: Final[Json] = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {"type": "string", "oneOf": _titled("First Option", "Second Option", "Third Option")},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {"type": "array", "items": {"anyOf": _titled("First Choice", "Second Choice", "Third Choice")}},
}
USER_QUESTION: Final[Json] = {
    "username": {"type": "string", "description": "User's response"},
    "email": {"type": "string", "description": "User's email address"},
}


# -- notifications ---------------------------------------------------------------------------------------------------------


async def logging(context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        # Deprecated with 2026-07-28, but its logging scenarios still test it.
        send = context.session.send_log_message  # pyright: ignore[reportDeprecated] - see above
        await send("info", line, "fixture", related_request_id=context.request_id)
        await asyncio.sleep(STEP_SECONDS)
    return text("Logged.")


async def progressing(context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
    for progress in (0, 50, 100):
        await context.session.report_progress(progress, 100)
        await asyncio.sleep(STEP_SECONDS)
    return text("Done.")


async def failing(_context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
    block = types.TextContent(type="text", text="This tool intentionally returns an error for testing")
    return types.CallToolResult(content=[block], is_error=True)


async def needs_sampling(_context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
    raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "This tool samples.", {"requiredCapabilities": {"sampling": {}}})


async def region(_context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    return text(f"Region: {(params.arguments or {}).get('region')}")


class ListChangeTools:
    """Tools that change the fixture's lists and notify subscribers."""

    def __init__(self, bus: SubscriptionBus) -> None:
        self._bus = bus
        self.extra_tools = 0
        self.extra_prompts = 0

    async def more_tools(self, context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
        self.extra_tools += 1
        await self._bus.publish(ToolsListChanged())
        if not is_modern(context):
            await context.session.send_tool_list_changed()
        return text("There is one tool more.")

    async def more_prompts(self, context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
        self.extra_prompts += 1
        await self._bus.publish(PromptsListChanged())
        if not is_modern(context):
            await context.session.send_prompt_list_changed()
        return text("There is one prompt more.")


# -- the list of tools ------------------------------------------------------------------------------------------------------

IMAGE: Final[Json] = {"type": "image", "data": PNG, "mimeType": "image/png"}
JSON_SCHEMA: Final[Json] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def _resource(uri: str, mime_type: str, words: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": words}}


def core_tools(switches: ListChangeTools) -> dict[str, FixtureTool]:
    simple = "This is a simple text response for testing."
    mixed = _resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    embedded = _resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    message: Json = {"message": {"type": "string"}}
    headed: Json = {"region": {"type": "string", "x-mcp-header": "Region"}}
    return {
        "test_simple_text": FixtureTool(run=content({"type": "text", "text": simple}), description="Simple text"),
        "test_image_content": FixtureTool(run=content(IMAGE), description="An image"),
        "test_audio_content": FixtureTool(
            run=content({"type": "audio", "data": WAV, "mimeType": "audio/wav"}), description="A sound"
        ),
        "test_embedded_resource": FixtureTool(run=content(embedded), description="A resource"),
        "test_multiple_content_types": FixtureTool(
            run=content({"type": "text", "text": "Multiple content types test:"}, IMAGE, mixed),
            description="Several kinds of content",
        ),
        "test_tool_with_logging": FixtureTool(run=logging, description="Logs while it works"),
        "test_logging_tool": FixtureTool(run=logging, description="Logs while it works"),
        "test_error_handling": FixtureTool(run=failing, description="Always fails"),
        "test_tool_with_progress": FixtureTool(run=progressing, description="Reports its progress"),
        "test_elicitation": FixtureTool(
            run=eliciting(lambda arguments: question(str(arguments["message"]), USER_QUESTION)),
            description="Asks for a user",
            properties=message,
            required=("message",),
        ),
        "test_elicitation_sep1034_defaults": FixtureTool(
            run=eliciting(lambda _: question("Please review", DEFAULTS, required=False)),
            description="Asks with defaults",
        ),
        "test_elicitation_sep1330_enums": FixtureTool(
            run=eliciting(lambda _: question("Please choose", ENUMS, required=False)), description="Asks for choices"
        ),
        "test_streaming_elicitation": FixtureTool(run=greet_with_elicitation, description="Asks on its stream"),
        "json_schema_2020_12_tool": FixtureTool(
            run=content({"type": "text", "text": "ok"}),
            description="Tool with JSON Schema 2020-12 features",
            schema=JSON_SCHEMA,
        ),
        "test_x_mcp_header": FixtureTool(
            run=region, description="Mirrors an argument in a header", properties=headed, required=("region",)
        ),
        "test_missing_capability": FixtureTool(run=needs_sampling, description="Cannot do without sampling"),
        "test_trigger_tool_change": FixtureTool(run=switches.more_tools, description="Adds a tool"),
        "test_trigger_prompt_change": FixtureTool(run=switches.more_prompts, description="Adds a prompt"),
        "test_input_required_result_elicitation": FixtureTool(run=greet_with_elicitation, description="Asks once"),
        "test_input_required_result_request_state": FixtureTool(run=confirm, description="Keeps state between rounds"),
        "test_input_required_result_tampered_state": FixtureTool(run=confirm, description="Guards its state"),
        "test_input_required_result_multi_round": FixtureTool(run=ask_in_two_rounds, description="Asks twice"),
    }

"""The built-in tools as clients see them: names, descriptions, and schemas of arguments and results.

They serve clients that support neither tasks nor webhooks: a model can read its call, wait for it, answer its questions and get
its result with tools alone. One pydantic model makes both the inputSchema and the validation, so that the two cannot differ.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field, Strict, StrictBool, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from ringback.domain.call import CallStatus, WaitCause
from ringback.domain.cursor import CURSOR_LENGTH_MAX
from ringback.schemas.fields import Id, Label, RequestBody, limit_size
from ringback.services.calls.input_answers import INPUT_RESPONSES_MAX
from ringback.services.long_polling import LONG_POLL_SECONDS_MAX
from ringback.signing.resume_token import TOKEN_LENGTH_MAX

TOOL_WAIT_SECONDS_MAX: Final = LONG_POLL_SECONDS_MAX
"""Larger waits than RINGBACK_WAIT_SECONDS_MAX are accepted, as everywhere, and end earlier."""
LIST_LIMIT_DEFAULT: Final = 20
LIST_LIMIT_MAX: Final = 50
"""A model reads the page: fifty calls are about five thousand tokens."""


class BuiltinToolName(StrEnum):
    GET_CALL = "ringback_get_call"
    WAIT_FOR_CALL = "ringback_wait_for_call"
    CANCEL_CALL = "ringback_cancel_call"
    ANSWER_CALL = "ringback_answer_call"
    RESUME = "ringback_resume"
    LIST_CALLS = "ringback_list_calls"


# -- arguments -------------------------------------------------------------------------------------------------------------


CallIdField = Annotated[Id, Field(description="The id of the call: `call_…`.")]
StatusName = Annotated[CallStatus, WithJsonSchema({"type": "string", "enum": [str(status) for status in CallStatus]})]
"""Written out: not every host follows a `$ref`."""
ToolWaitSeconds = Annotated[float, Strict(), Field(ge=0, le=TOOL_WAIT_SECONDS_MAX, allow_inf_nan=False)]


class BuiltinToolArguments(RequestBody):
    pass


class GetCallArguments(BuiltinToolArguments):
    call_id: CallIdField


class WaitForCallArguments(BuiltinToolArguments):
    call_id: CallIdField
    wait_seconds: ToolWaitSeconds | None = Field(
        default=None,
        description="The longest wait, in seconds; no longer than the service's maximum (45 by default). Leave it out if you "
        "do not know how long your client waits for a tool: the default, 4 s, suits most clients.",
    )


class CancelCallArguments(BuiltinToolArguments):
    call_id: CallIdField


class AnswerCallArguments(BuiltinToolArguments):
    call_id: CallIdField
    responses: Annotated[dict[str, dict[str, Any]], limit_size(INPUT_RESPONSES_MAX)] = Field(
        min_length=1,
        max_length=INPUT_RESPONSES_MAX,
        description="One answer for each key of the call's `input_requests`: "
        '`{"r1.1": {"action": "accept", "content": {…}}}`, where content matches the `requestedSchema` of that '
        'question; or `{"action": "decline"}`, or `{"action": "cancel"}`.',
    )


class ResumeCallArguments(BuiltinToolArguments):
    resume_token: str = Field(min_length=1, max_length=TOKEN_LENGTH_MAX, description="The resume token of a callback.")
    wait_seconds: ToolWaitSeconds = Field(
        default=0.0, description="The longest wait for an end or a question, in seconds."
    )


class ListCallsArguments(BuiltinToolArguments):
    client_session_id: Label | None = Field(default=None, description="Only calls of your session with this id.")
    correlation_id: Label | None = Field(default=None, description="Only calls with this correlation id.")
    status: StatusName | None = Field(default=None, description="Only calls with this status.")
    upstream: Label | None = Field(default=None, description="Only calls of this upstream MCP server.")
    tool: Label | None = Field(default=None, description="Only calls of this tool, by its name at the upstream.")
    started: StrictBool | None = Field(
        default=None,
        description="Only calls that were sent to their upstream (true), or only calls that were not (false). With status "
        "`working`, false finds the calls that wait to start.",
    )
    limit: int = Field(default=LIST_LIMIT_DEFAULT, ge=1, le=LIST_LIMIT_MAX, strict=True)
    cursor: str | None = Field(
        default=None,
        min_length=1,
        max_length=CURSOR_LENGTH_MAX,
        description="`next_cursor` of the previous page. An empty page can have one too.",
    )


class _ToolSchemaGenerator(GenerateJsonSchema):
    """Omits titles made from names, and null as the type of an optional argument."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default") is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def generate(self, schema: core_schema.CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        generated = super().generate(schema, mode)
        return {key: value for key, value in generated.items() if key not in {"title", "description"}}


def generate_input_schema(arguments: type[BuiltinToolArguments]) -> Mapping[str, Any]:
    return arguments.model_json_schema(schema_generator=_ToolSchemaGenerator)


# -- results ---------------------------------------------------------------------------------------------------------------

_CALL_PROPERTIES: Final[Mapping[str, Any]] = {
    "call_id": {"type": "string"},
    "upstream": {"type": "string"},
    "tool": {"type": "string"},
    "status": {"enum": [str(status) for status in CallStatus]},
    "waits_for": {
        "enum": [str(cause) for cause in WaitCause],
        "description": "Why the call does not run now: it starts later, waits for its turn, or is not sent yet.",
    },
    "outcome": {"type": ["string", "null"], "description": "Why the call ended; `unknown`: the tool may have run."},
    "client_session_id": {"type": ["string", "null"]},
    "correlation_id": {"type": ["string", "null"]},
    "progress": {"type": ["object", "null"]},
    "input_requests": {"type": "object", "description": "The tool's open questions by key."},
    "cancel_requested": {"type": "boolean"},
    "created_at": {"type": "string", "format": "date-time"},
    "not_before": {
        "type": "string",
        "format": "date-time",
        "description": "When a call that starts later is queued.",
    },
    "updated_at": {"type": "string", "format": "date-time"},
    "finished_at": {"type": ["string", "null"], "format": "date-time"},
    "error": {"type": "object", "description": "The JSON-RPC error of a failed call."},
    "result": {"type": "object", "description": "The tool's result (a CallToolResult), once the call has ended."},
    "next_step": {"type": "string", "description": "What to do now."},
}
_CALL_REQUIRED: Final = ["call_id", "upstream", "tool", "status"]

CALL_OUTPUT_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": _CALL_PROPERTIES,
    "required": [*_CALL_REQUIRED, "next_step"],
}
_ANSWER_OUTPUT_SCHEMA: Final[Mapping[str, Any]] = {
    **CALL_OUTPUT_SCHEMA,
    "properties": {
        **_CALL_PROPERTIES,
        "accepted": {"type": "array", "items": {"type": "string"}},
        "ignored": {"type": "array", "items": {"type": "string"}},
    },
}
_RESUME_OUTPUT_SCHEMA: Final[Mapping[str, Any]] = {
    **CALL_OUTPUT_SCHEMA,
    "properties": {
        **_CALL_PROPERTIES,
        "events": {
            "type": "array",
            "items": {"type": "object"},
            "description": "The call's events since the token was made.",
        },
        "truncated": {
            "type": "boolean",
            "description": "True after a restored backup: then `events` are all events of the call.",
        },
        "resume_token": {"type": "string", "description": "A new token, positioned after these events."},
    },
}
_LIST_OUTPUT_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "calls": {
            "type": "array",
            "items": {"type": "object", "properties": _CALL_PROPERTIES, "required": _CALL_REQUIRED},
        },
        "next_cursor": {"type": ["string", "null"]},
    },
    "required": ["calls", "next_cursor"],
}


# -- the tools -------------------------------------------------------------------------------------------------------------

ARGUMENT_MODELS: Final[Mapping[BuiltinToolName, type[BuiltinToolArguments]]] = {
    BuiltinToolName.GET_CALL: GetCallArguments,
    BuiltinToolName.WAIT_FOR_CALL: WaitForCallArguments,
    BuiltinToolName.CANCEL_CALL: CancelCallArguments,
    BuiltinToolName.ANSWER_CALL: AnswerCallArguments,
    BuiltinToolName.RESUME: ResumeCallArguments,
    BuiltinToolName.LIST_CALLS: ListCallsArguments,
}

_READ_ONLY_ANNOTATIONS: Final = {"readOnlyHint": True, "openWorldHint": False}
_DESTRUCTIVE_ANNOTATIONS: Final = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": True,
    "openWorldHint": False,
}
_ADDITIVE_ANNOTATIONS: Final = {
    "readOnlyHint": False,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}


def _define_tool(
    name: BuiltinToolName, title: str, description: str, annotations: Mapping[str, Any], output: Mapping[str, Any]
) -> Mapping[str, Any]:
    return {
        "name": str(name),
        "title": title,
        "description": description,
        "inputSchema": generate_input_schema(ARGUMENT_MODELS[name]),
        "outputSchema": output,
        "annotations": {"title": title, **annotations},
    }


TOOL_DEFINITIONS: Final[Mapping[BuiltinToolName, Mapping[str, Any]]] = {
    BuiltinToolName.GET_CALL: _define_tool(
        BuiltinToolName.GET_CALL,
        "Get a call",
        "Get the status of a tool call that runs in the background, and its result once it has ended. Use it when you got a "
        "call_id instead of a result. It responds at once. Do not repeat it in a loop: use ringback_wait_for_call if you have "
        "nothing else to do.",
        _READ_ONLY_ANNOTATIONS,
        CALL_OUTPUT_SCHEMA,
    ),
    BuiltinToolName.WAIT_FOR_CALL: _define_tool(
        BuiltinToolName.WAIT_FOR_CALL,
        "Wait for a call",
        "Wait a few seconds until a tool call that runs in the background ends or requests input, and get its result: the "
        "tool's own result comes first, and is an error if the tool failed. The call continues after the wait, so you can call "
        "this again, and you lose nothing if you end your turn. If next_step says to stop polling, stop: tell the user that "
        "the call continues, and come back after a callback or when the user asks.",
        _READ_ONLY_ANNOTATIONS,
        CALL_OUTPUT_SCHEMA,
    ),
    BuiltinToolName.CANCEL_CALL: _define_tool(
        BuiltinToolName.CANCEL_CALL,
        "Cancel a call",
        "Request that a tool call in the background stops. Use it only if the user wants it: work may be lost. It can take a "
        "moment or come too late: get the call to see how it ended. You can repeat it.",
        _DESTRUCTIVE_ANNOTATIONS,
        CALL_OUTPUT_SCHEMA,
    ),
    BuiltinToolName.ANSWER_CALL: _define_tool(
        BuiltinToolName.ANSWER_CALL,
        "Answer a call's questions",
        "Answer the questions of a tool call in the background (status input_required). Get the call first: each question has "
        "a key and a schema for its answer. Ask the user; do not invent answers, and decline only if the user says so. The "
        "call continues when all questions are answered.",
        _ADDITIVE_ANNOTATIONS,
        _ANSWER_OUTPUT_SCHEMA,
    ),
    BuiltinToolName.RESUME: _define_tool(
        BuiltinToolName.RESUME,
        "Resume from a callback",
        "Get a call by the resume token of a callback: the call, its result if it has ended, its events since the token was "
        "made, and a new token for the next time.",
        _READ_ONLY_ANNOTATIONS,
        _RESUME_OUTPUT_SCHEMA,
    ),
    BuiltinToolName.LIST_CALLS: _define_tool(
        BuiltinToolName.LIST_CALLS,
        "List calls",
        "List your tool calls, newest first, including ended ones. Use it to find a lost call_id. Filter by client session id, "
        "correlation id, status, upstream, tool, or whether the call has started. The list contains no results; get one with "
        "ringback_get_call.",
        _READ_ONLY_ANNOTATIONS,
        _LIST_OUTPUT_SCHEMA,
    ),
}

"""Ringback's own tools as clients see them: names, descriptions, and what they take and give.

They are for clients that speak neither tasks nor webhooks: a model that was told that its call goes on can look at it, wait for
it, answer its questions and take its result with nothing but tools. One declaration of the arguments makes both the
inputSchema and the check, so that the two cannot differ.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from ringback.domain.call import LABEL_LENGTH_MAX, CallStatus
from ringback.domain.cursor import CURSOR_LENGTH_MAX
from ringback.domain.validation import require_printable
from ringback.services.input_answers import INPUT_RESPONSES_MAX
from ringback.signing.resume_token import TOKEN_LENGTH_MAX

TOOL_WAIT_SECONDS_MAX: Final = 50.0
"""Clients give up on a tool after 60 s (the SDKs' default); what waits so long at most still answers them."""
TOOL_WAIT_SECONDS_DEFAULT: Final = 30.0
LIST_LIMIT_DEFAULT: Final = 20
LIST_LIMIT_MAX: Final = 50
"""A page is read by a model: fifty calls are some five thousand tokens."""
CALL_ID_LENGTH_MAX: Final = 64
"""Twice the length of ours; what is longer is no id."""


class BuiltinToolName(StrEnum):
    GET_CALL = "ringback_get_call"
    WAIT_FOR_CALL = "ringback_wait_for_call"
    CANCEL_CALL = "ringback_cancel_call"
    ANSWER_CALL = "ringback_answer_call"
    RESUME = "ringback_resume"
    LIST_CALLS = "ringback_list_calls"


# -- what they take --------------------------------------------------------------------------------------------------------


CallIdField = Annotated[
    str,
    Field(min_length=1, max_length=CALL_ID_LENGTH_MAX, description="The call's id, as you were told it: `call_…`."),
    AfterValidator(require_printable),
]
Label = Annotated[str, Field(min_length=1, max_length=LABEL_LENGTH_MAX), AfterValidator(require_printable)]
StatusName = Annotated[CallStatus, WithJsonSchema({"type": "string", "enum": [str(status) for status in CallStatus]})]
"""Spelled out: not every model's host follows a `$ref`."""
ToolWaitSeconds = Annotated[float, Strict(), Field(ge=0, le=TOOL_WAIT_SECONDS_MAX, allow_inf_nan=False)]


class BuiltinToolArguments(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GetCallArguments(BuiltinToolArguments):
    call_id: CallIdField


class WaitForCallArguments(BuiltinToolArguments):
    call_id: CallIdField
    wait_seconds: ToolWaitSeconds = Field(default=TOOL_WAIT_SECONDS_DEFAULT, description="How long to wait at most.")


class CancelCallArguments(BuiltinToolArguments):
    call_id: CallIdField


class AnswerCallArguments(BuiltinToolArguments):
    call_id: CallIdField
    responses: dict[str, dict[str, Any]] = Field(
        min_length=1,
        max_length=INPUT_RESPONSES_MAX,
        description="Answers by the keys in the call's `input_requests`: "
        '`{"r1.1": {"action": "accept", "content": {…}}}`, with content in the form of that question\'s '
        '`requestedSchema`; or `{"action": "decline"}`, or `{"action": "cancel"}`.',
    )


class ResumeCallArguments(BuiltinToolArguments):
    resume_token: str = Field(min_length=1, max_length=TOKEN_LENGTH_MAX, description="As a callback brought it.")
    wait_seconds: ToolWaitSeconds = Field(default=0.0, description="How long to wait for the call's end at most.")


class ListCallsArguments(BuiltinToolArguments):
    client_session_id: Label | None = Field(default=None, description="Only calls of this session of yours.")
    correlation_id: Label | None = Field(default=None, description="Only calls with this name of your work.")
    status: StatusName | None = Field(default=None, description="Only calls that stand so now.")
    upstream: Label | None = Field(default=None, description="Only calls of this MCP server's tools.")
    tool: Label | None = Field(default=None, description="Only calls of this tool, by its server's own name for it.")
    limit: int = Field(default=LIST_LIMIT_DEFAULT, ge=1, le=LIST_LIMIT_MAX, strict=True)
    cursor: str | None = Field(
        default=None,
        min_length=1,
        max_length=CURSOR_LENGTH_MAX,
        description="`next_cursor` of the page before, which may be empty and still have one.",
    )


class _ToolSchemaGenerator(GenerateJsonSchema):
    """Without what pydantic adds for readers of Python: titles made of names, and nulls for what may be left out."""

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


# -- what they give --------------------------------------------------------------------------------------------------------

_CALL_PROPERTIES: Final[Mapping[str, Any]] = {
    "call_id": {"type": "string"},
    "upstream": {"type": "string"},
    "tool": {"type": "string"},
    "status": {"enum": [str(status) for status in CallStatus]},
    "outcome": {"type": ["string", "null"], "description": "Why it ended; `unknown` means that it may have run."},
    "client_session_id": {"type": ["string", "null"]},
    "correlation_id": {"type": ["string", "null"]},
    "progress": {"type": ["object", "null"]},
    "input_requests": {"type": "object", "description": "What the tool wants to know now, by keys."},
    "cancel_requested": {"type": "boolean"},
    "created_at": {"type": "string", "format": "date-time"},
    "updated_at": {"type": "string", "format": "date-time"},
    "finished_at": {"type": ["string", "null"], "format": "date-time"},
    "error": {"type": "object", "description": "The JSON-RPC error of a failed call."},
    "result": {"type": "object", "description": "The tool's own result (a CallToolResult), once there is one."},
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
        "events": {"type": "array", "items": {"type": "object"}, "description": "What happened since the token."},
        "truncated": {
            "type": "boolean",
            "description": "Whether a backup was restored since: these are all its events.",
        },
        "resume_token": {"type": "string", "description": "A fresh token, standing after these events."},
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
        "inputSchema": ARGUMENT_MODELS[name].model_json_schema(schema_generator=_ToolSchemaGenerator),
        "outputSchema": output,
        "annotations": {"title": title, **annotations},
    }


TOOL_DEFINITIONS: Final[Mapping[BuiltinToolName, Mapping[str, Any]]] = {
    BuiltinToolName.GET_CALL: _define_tool(
        BuiltinToolName.GET_CALL,
        "Look at a call",
        "Look at a tool call that goes on in the background, and take its result once it has ended. Use it when you were given "
        "a call_id instead of a result. It answers at once; do not repeat it in a loop: while there is nothing else to do, "
        "use ringback_wait_for_call.",
        _READ_ONLY_ANNOTATIONS,
        CALL_OUTPUT_SCHEMA,
    ),
    BuiltinToolName.WAIT_FOR_CALL: _define_tool(
        BuiltinToolName.WAIT_FOR_CALL,
        "Wait for a call",
        "Wait until a tool call in the background ends or asks something, at most 50 seconds, and take its result. The call "
        "goes on when the wait is over, so nothing is lost by ending your turn. When you are told to stop, stop: tell the user "
        "that the work goes on, and come back when you are called back or asked.",
        _READ_ONLY_ANNOTATIONS,
        CALL_OUTPUT_SCHEMA,
    ),
    BuiltinToolName.CANCEL_CALL: _define_tool(
        BuiltinToolName.CANCEL_CALL,
        "Cancel a call",
        "Ask a tool call in the background to stop. Only do so when the user wants it: work that was done may be lost. It may "
        "take a moment, or come too late; look at the call to see how it ended. May be repeated.",
        _DESTRUCTIVE_ANNOTATIONS,
        CALL_OUTPUT_SCHEMA,
    ),
    BuiltinToolName.ANSWER_CALL: _define_tool(
        BuiltinToolName.ANSWER_CALL,
        "Answer a call's question",
        "Answer what a tool call in the background asks (status input_required). Look at it first: each question has a key and "
        "the form of its answer. Ask the user, and do not make answers up; decline for them only when they say so. The call "
        "goes on once nothing is open any more.",
        _ADDITIVE_ANNOTATIONS,
        _ANSWER_OUTPUT_SCHEMA,
    ),
    BuiltinToolName.RESUME: _define_tool(
        BuiltinToolName.RESUME,
        "Resume from a callback",
        "Take up a call by the resume token that a callback brought: the call, its result if it has ended, and what happened "
        "since the token was made. You get a fresh token for the next time.",
        _READ_ONLY_ANNOTATIONS,
        _RESUME_OUTPUT_SCHEMA,
    ),
    BuiltinToolName.LIST_CALLS: _define_tool(
        BuiltinToolName.LIST_CALLS,
        "List calls",
        "List your tool calls, newest first, also those that have ended: the way back when you have lost a call_id. Narrow it "
        "by your session, by the name of your work, by status, server or tool. Results are not in the list; take one with "
        "ringback_get_call.",
        _READ_ONLY_ANNOTATIONS,
        _LIST_OUTPUT_SCHEMA,
    ),
}

"""The built-in tool `ringback_notify_me`: a model registers a callback for a call, for a session, or for what follows.

It is for clients that can set neither `_meta` nor a header nor the URL. The same registration again is the same webhook,
because models repeat themselves. The result contains no secret: what a model reads ends up in transcripts, and the owner gets
the generated secret with `ringback webhooks rotate-secret`. The tool offers no `include_result`: text that a model has read
could make it send later results to an attacker's URL. A callback without the result contains little, because its resume token
also needs the owner's API key.

The webhook counts as registered by an MCP client: its URL must be verified (`RINGBACK_VERIFY_CALLBACKS`) before it receives
callbacks.
"""

from collections.abc import Mapping
from typing import Any, Final, Self

from pydantic import Field, ValidationError, model_validator

from ringback.domain.clock import format_iso
from ringback.domain.errors import NotFound, RingbackError
from ringback.domain.ids import CallId
from ringback.domain.principal import Caller
from ringback.domain.retry import DAY
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_text import describe_webhook
from ringback.mcp_server.builtin_tools.call_tools import UNKNOWN_CALL_MESSAGE, build_validation_result
from ringback.mcp_server.builtin_tools.tool_schemas import BuiltinToolArguments, generate_input_schema
from ringback.mcp_server.gateway import BuiltinTool, Feature, Gateway
from ringback.mcp_server.jsonrpc_errors import build_error_result
from ringback.mcp_server.request_context import RequestContext
from ringback.schemas.fields import ExpirySeconds, Id, Label, Url
from ringback.services.calls.calls import Calls
from ringback.services.webhooks.registrations import WebhookRegistration, WebhookRegistrations

NOTIFY_ME_TOOL_NAME: Final = "ringback_notify_me"
EXPIRES_IN_SECONDS_DEFAULT: Final = 30.0 * DAY
"""As the longest call (`services.calls.new_calls.TIMEOUT_SECONDS_MAX`): a model does not remove what it has registered."""


class NotifyMeArguments(BuiltinToolArguments):
    url: Url = Field(
        description="The https URL that gets a POST for each event. Ask the user for it; do not invent one."
    )
    call_id: Id | None = Field(
        default=None, description="Only this call, also if it has ended already. Leave out the other filters then."
    )
    client_session_id: Label | None = Field(default=None, description="Only calls of your session with this id.")
    upstream: Label | None = Field(default=None, description="Only calls of this upstream MCP server.")
    correlation_id: Label | None = Field(
        default=None, description="A label of yours: each callback contains it as `webhook_correlation_id`."
    )
    expires_in_seconds: ExpirySeconds = Field(
        default=EXPIRES_IN_SECONDS_DEFAULT, description="When the registration ends, in seconds."
    )

    @model_validator(mode="after")
    def _require_one_kind(self) -> Self:
        if self.call_id is not None and (self.client_session_id or self.upstream):
            raise ValueError("call_id selects one call: leave out client_session_id and upstream")
        return self

    def to_registration(self) -> WebhookRegistration:
        call_id = None if self.call_id is None else CallId(self.call_id)
        return WebhookRegistration(**self.to_arguments(call_id=call_id))


NOTIFY_ME_DEFINITION: Final[Mapping[str, Any]] = {
    "name": NOTIFY_ME_TOOL_NAME,
    "title": "Register a callback",
    "description": "Get a signed HTTP callback when a tool call ends or requests input, so that you need not poll. Give a "
    "call_id for one call, a client_session_id for the calls of your session, or neither for every later call of yours. Use it "
    "when the user names a callback URL. The same registration again changes nothing but its end.",
    "inputSchema": generate_input_schema(NotifyMeArguments),
    "outputSchema": {
        "type": "object",
        "properties": {
            "webhook_id": {"type": "string", "description": "The registration's id: `wh_…`."},
            "state": {"enum": [str(state) for state in WebhookState]},
            "hears": {"type": "string", "description": "Which events the URL receives."},
            "call_id": {"type": ["string", "null"]},
            "client_session_id": {"type": ["string", "null"]},
            "correlation_id": {"type": ["string", "null"]},
            "expires_at": {"type": ["string", "null"], "format": "date-time"},
            "next_step": {"type": "string", "description": "What to do now."},
        },
        "required": ["webhook_id", "state", "hears", "next_step"],
    },
    "annotations": {
        "title": "Register a callback",
        "readOnlyHint": False,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": True,
    },
}


def build_feature(gateway: Gateway) -> Feature:
    tool = NotifyMeTool(calls=gateway.calls, registrations=gateway.registrations)

    async def handle(context: RequestContext, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return await tool.register_callback(context.caller, arguments)

    return Feature(builtin_tools=[BuiltinTool(definition=NOTIFY_ME_DEFINITION, handler=handle)])


class NotifyMeTool:
    def __init__(self, *, calls: Calls, registrations: WebhookRegistrations) -> None:
        self._calls = calls
        self._registrations = registrations

    async def register_callback(self, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """A CallToolResult, as JSON; every error is one too."""
        try:
            registration = NotifyMeArguments.model_validate(arguments).to_registration()
            if registration.call_id is not None:
                await self._calls.get_call(caller, registration.call_id)
            return _build_result(await self._registrations.register_once(caller, registration))
        except ValidationError as problem:
            return build_validation_result(problem, NotifyMeArguments)
        except NotFound:
            return build_error_result(UNKNOWN_CALL_MESSAGE)
        except RingbackError as problem:
            return build_error_result(problem.detail)


def _build_result(webhook: Webhook) -> dict[str, Any]:
    hears, next_step = describe_webhook(webhook), _get_next_step(webhook)
    return {
        "content": [{"type": "text", "text": f"Registered as {webhook.id}. {hears} {next_step}"}],
        "structuredContent": {
            "webhook_id": webhook.id,
            "state": str(webhook.state),
            "hears": hears,
            "call_id": webhook.call_id,
            "client_session_id": webhook.client_session_id,
            "correlation_id": webhook.correlation_id,
            "expires_at": None if webhook.expires_at is None else format_iso(webhook.expires_at),
            "next_step": next_step,
        },
        "isError": False,
    }


def _get_next_step(webhook: Webhook) -> str:
    return (
        "Tell the user that callbacks are signed, and that this command prints the secret to verify them with: "
        f"`ringback webhooks rotate-secret {webhook.id}`. {_get_verification_step(webhook)}"
        "Do not wait for the callback: end your turn."
    )


def _get_verification_step(webhook: Webhook) -> str:
    if webhook.state is not WebhookState.PENDING_VERIFICATION:
        return ""
    return (
        "Tell the user too that the receiver must answer a challenge first, with this secret, and that this command sends it "
        f"again: `ringback webhooks verify {webhook.id}`. "
    )

"""Questions of servers that ask on the connection of the call (2025-11-25 and earlier)."""

import logging
from typing import Final

import mcp_types
from mcp.client.session import ClientRequestContext, ElicitationFnT
from pydantic import ValidationError

from ringback.client.durable.direct.server import AnswerInput
from ringback.client.durable.handle import CallHandle
from ringback.client.models import InputRequest

_METHOD: Final = "elicitation/create"
_NOT_ANSWERED: Final = mcp_types.ErrorData(
    code=mcp_types.INTERNAL_ERROR, message="The client could not ask a person. The tool may go on without the answer."
)

log = logging.getLogger(__name__)


def make_elicitation_callback(answer_input: AnswerInput, handle: CallHandle) -> ElicitationFnT:
    """The SDK's form of `answer_input`. If that fails, the server gets an error, and its tool decides what to do."""

    async def answer(
        context: ClientRequestContext,  # noqa: ARG001 - the SDK's signature
        params: mcp_types.ElicitRequestParams,
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        request = InputRequest(method=_METHOD, params=params.model_dump(by_alias=True, mode="json", exclude_none=True))
        try:
            return mcp_types.ElicitResult.model_validate(await answer_input(handle, request))
        except ValidationError as error:
            log.error("answer_input of the call %s returned no ElicitResult: %s", handle.id, error)  # noqa: TRY400 - it was not raised there
        except Exception:  # the boundary to the owner's code
            log.exception("answer_input of the call %s failed", handle.id)
        return _NOT_ANSWERED

    return answer

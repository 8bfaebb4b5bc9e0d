"""Questions in the middle of a call (2026-07-28): the client sends its request again with the answers, and it is one call.

    tools/call ──▶ input_required, requestState: ours around the tool's ──▶ tools/call again, requestState ──▶ the result

The client hands back the requestState as it came, and the SDK seals it on its way out and checks it on its way in, so what is
in it can be believed.
"""

import json
from typing import Final

from mcp_types import CallToolRequestParams, InputRequiredResult

_REQUEST_STATE_PREFIX: Final = "ringback:"


def pop_report_key(params: CallToolRequestParams) -> str | None:
    """The call that this request goes on with. The tool's own requestState is put back where the tool looks for it."""
    state = params.request_state
    if state is None or not state.startswith(_REQUEST_STATE_PREFIX):
        return None
    key, params.request_state = json.loads(state.removeprefix(_REQUEST_STATE_PREFIX))
    return str(key)


def with_report_key(result: InputRequiredResult, key: str) -> InputRequiredResult:
    state = _REQUEST_STATE_PREFIX + json.dumps([key, result.request_state])
    return result.model_copy(update={"request_state": state})

"""Recovers calls that nothing runs any more: their process died, or lost its lease, or never learned of it."""

from collections.abc import Sequence

from ringback.domain.call import Call
from ringback.domain.call_completion import recover_call
from ringback.domain.call_outcome import CallCompletion
from ringback.domain.call_rows import CallChange
from ringback.domain.ports import Transaction
from ringback.domain.signals import CALL_QUEUED_TOPIC, call_changed_topic
from ringback.notifier.call_ends import CompletionRequest
from ringback.notifier.recorder import Recorder


async def recover_calls(tx: Transaction, recorder: Recorder, lost: Sequence[Call]) -> None:
    """Queue the calls that can go on without the process that ran them, and finish the others (`recover_call`)."""
    requests: list[CompletionRequest] = []
    for call in lost:
        recovered = recover_call(call, now=tx.now())
        if isinstance(recovered, CallCompletion):
            requests.append(CompletionRequest(call=call, completion=recovered, lease_token=None))
        else:
            await tx.calls.update(recovered, CallChange.QUEUED, expected=call.status, lease_token=None)
            tx.notify(CALL_QUEUED_TOPIC, call_changed_topic(call.id))
    await recorder.finish_calls(tx, requests)

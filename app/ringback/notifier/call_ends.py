"""Ends of calls as values: what a caller of the recorder requests, and the row that each request makes of its call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from ringback.domain.call import Call, CallPhase, Progress, apply_completion
from ringback.domain.call_outcome import CallCompletion
from ringback.domain.call_rows import EndedCall
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.domain.record_inits import quick_init


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """The end of a call, and the call's row as the same transaction has read it."""

    call: Call
    completion: CallCompletion
    lease_token: str | None
    """The end is written only under this lease; None for a call without a lease."""


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedCompletion:
    """The end of a call that a runner holds. It has values only: the recorder reads the row in its own transaction."""

    call_id: CallId
    principal: Principal
    lease_token: str
    completion: CallCompletion
    progress: Progress | None
    """The latest progress that the runner received; None keeps the progress of the row."""


class AppliedEnd(NamedTuple):
    """A requested end, and the row that it makes of the call."""

    request: CompletionRequest
    row: EndedCall


def build_completion_request(call: Call | None, leased: LeasedCompletion) -> CompletionRequest | None:
    """None if the lease is lost."""
    if call is None or call.phase is not CallPhase.RUNNING or call.lease_token != leased.lease_token:
        return None
    if leased.progress is not None:
        call = replace(call, progress=leased.progress)
    return CompletionRequest(call=call, completion=leased.completion, lease_token=leased.lease_token)


def apply_completions(
    requests: Sequence[CompletionRequest | None], *, now: datetime, result_retention_seconds: float
) -> dict[int, AppliedEnd]:
    """By the places of the requests. The first of two ends of one call counts."""
    ends: dict[int, AppliedEnd] = {}
    named: set[CallId] = set()
    for place, request in enumerate(requests):
        if request is not None and request.call.id not in named:
            named.add(request.call.id)
            finished = apply_completion(
                request.call,
                request.completion,
                now=now,
                result_retention_seconds=result_retention_seconds,
            )
            row = EndedCall(call=finished, expected=request.call.status, lease_token=request.lease_token)
            ends[place] = AppliedEnd(request, row)
    return ends


def list_finished(
    requests: Sequence[CompletionRequest | None], ends: Mapping[int, AppliedEnd]
) -> Sequence[Call | None]:
    """The calls after their ends; None for each that was not written."""
    return [None if (end := ends.get(place)) is None else end.row.call for place in range(len(requests))]

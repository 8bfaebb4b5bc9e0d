"""Calls: start, follow, answer, cancel, and come back for the result.

    calls           start, read, list, join and cancel calls; wait for them; read results
    call_starts     the checks of a start, and its part of the transaction
    given_up_starts  calls that must not start any more, because their clients were answered that there are none
    new_calls       the request, the checks and the response that start, adoption and report share
    adoption        follow a task that exists at an upstream as a call
    reports         record calls that run elsewhere, as their servers report them
    attended_waits  the wait of an open request for the call that it has started
    input_answers   answer the questions of a call
    cancellation    cancel a call, or the calls that match a filter
    call_reads      read a principal's call, and stored results, large ones beside the event loop
    call_histories  read the history of a call, and the calls of a session for a chart
    resume          exchange a resume token for a call, its result and its events; issue and revoke tokens
    resume_recorder  record when clients came back for their calls

Starting, adopting and reporting a call end in one response: `new_calls.StartedCall`. How a running call ends is the matter of
the runner and of `notifier.recorder`.
"""

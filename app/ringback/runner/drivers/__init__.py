"""Drivers carry a call over a session: one driver for each way in which an upstream runs a call.

                          ┌────── CallContext: the call under its lease ──────┐
    execution ──▶ Driver.run_call(session, context)                           │
                          │   save_handle                     durable before the driver waits
                          │   request_input, wait_for_answers questions while the session is open
                          │   report_progress                                 │
                          ├──▶ CallCompletion   how the call ended            │
                          ├──▶ ParkedCall       waits for answers; no process runs it
                          └──▶ LoginRequired    waits for a login (`RefusedForLogin`); no process runs it
    execution ──▶ Driver.cancel_call(session, call): a cancel request to the upstream

    driver        handle (`Handle.data`)                 after this process dies
    plain         none                                   `unknown`, or run again if the rerun policy allows it
    mrtr          request_state, round, asked            parked: sent again with the answers; a round in flight: as plain
    task          task_id                                polling goes on
    legacy_task   task_id, session                       polling goes on, in that session
    stream        session, request_id, event_id          the stream is resumed after that event, in that session

    driver               the interfaces
    selection            selects the driver of a call
    completions          maps responses and errors to completions
    legacy_elicitation   the questions of a tool in a legacy session
    url_elicitation      pages that a user has to open before a legacy upstream takes the call
    task_polling         poll interval and lost tasks, for both task drivers
    created_task         a cancellation that comes before the id of the task, for both, too

To add a driver, write one file with a class that has `run_call` and `cancel_call` and a name for its handles, and add it to
`selection`. A handle is JSON of at most `HANDLE_BYTES_MAX` bytes. It names its driver, so a call with a handle always goes on
with the same driver. Between sending a request and saving its handle the state of the call is uncertain: a call that was
dispatched and has no handle becomes `unknown` (`domain.call_completion.recover_call`).
"""

"""How a call is carried over a session: one driver for each way of doing it.

                         ┌────────────── Desk: the call, under its lease ──────────────┐
    runner.drive ──▶ Driver.run(session, desk)                                           │
                         │   keep(handle)     durable, before the driver waits           │
                         │   ask, answers     input_required while the session lives     │
                         │   progress                                                    │
                         ├──▶ Ending          how it ended, truthfully                   │
                         └──▶ Parked          waits for answers, driven by nobody        │
    runner.drive ──▶ Driver.cancel(session, call): the upstream is told to stop

    driver        handle (`Handle.data`)                 after this process died
    plain         none                                   `unknown`, or run again by policy
    mrtr          request_state, round                   parked: answer and retry; a retry in flight: as plain
    task          task_id                                go on polling and listening
    legacy_task   task_id, session                       go on polling, in that session
    stream        session, request_id, event_id          read on after that event, in that session

    base       the interfaces      choice   which driver suits a call      results   a raw result as an ending
    rounds     tools/call with input_required rounds: shared by mrtr and task
    questions  what a tool asks in a session of its call's own: shared by all drivers of before 2026-07-28

A new driver: one file with a class that has `run` and `cancel`, a name for its handles, and a line in `choice`. A handle is
JSON of at most `HANDLE_BYTES_MAX`; it names its driver, so a call that has one is always driven on by the same driver. Between
sending a request and keeping its handle lies the one window in which nobody can know: a call that was dispatched and has no
handle becomes `unknown` (`domain.recovery`).
"""

from ringback.runner.drivers.driver import BoundDriver, BoundDriverPort, CallContext, Driver, LeaseLost, ParkedCall
from ringback.runner.drivers.selection import BoundDriverProvider, predict_driver_name, select_driver

__all__ = [
    "BoundDriver",
    "BoundDriverPort",
    "BoundDriverProvider",
    "CallContext",
    "Driver",
    "LeaseLost",
    "ParkedCall",
    "predict_driver_name",
    "select_driver",
]

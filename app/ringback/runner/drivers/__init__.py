"""How a call is carried over a session: one driver for each way of doing it.

    Session   what drivers need of a connection: raw requests
    Driver    run(call, session, on_progress) -> Ending
    plain     one tools/call; nothing can be rejoined

The runner sees only `CallSession`, a session with the driver that suits it.
"""

from ringback.runner.drivers.base import CallSession, DrivenSession, Driver, OnProgress, Session
from ringback.runner.drivers.plain import PlainDriver

__all__ = ["CallSession", "DrivenSession", "Driver", "OnProgress", "PlainDriver", "Session"]

"""The signal by which a runner stops its executions when the process stops."""

from dataclasses import dataclass, field

from ringback.waits import ObservableFlag


@dataclass(frozen=True, slots=True)
class ShutdownSignal:
    """The two steps of a shutdown, shared by all executions: first no new dispatch, then the running requests are aborted."""

    drain_requested: ObservableFlag = field(default_factory=ObservableFlag)
    abort_requested: ObservableFlag = field(default_factory=ObservableFlag)

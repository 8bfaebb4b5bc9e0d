"""A call under a lease of this process, without its runner."""

from ringback.domain.call import Call
from ringback.domain.ports import Store
from ringback.runner.lease_end import LeaseEnd
from ringback.runner.leased_call import LeasedCall
from ringback.waits import ObservableFlag
from tests.support.engine import Engine


def make_leased_call(engine: Engine, call: Call, *, store: Store | None = None) -> LeasedCall:
    return LeasedCall(
        call,
        store=store or engine.store,
        clock=engine.clock,
        recorder=engine.recorder,
        notification_hub=engine.notification_hub,
        abort_requested=ObservableFlag(),
    )


def make_lease_end(engine: Engine, leased: LeasedCall, *, store: Store | None = None) -> LeaseEnd:
    return LeaseEnd(
        leased,
        store=store or engine.store,
        recorder=engine.recorder,
        completion_batcher=engine.make_completion_batcher(store),
        login_waits=engine.login_waits,
    )

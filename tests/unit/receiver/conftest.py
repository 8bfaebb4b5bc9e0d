import pytest

from ringback.receiver import EventSubscriber
from tests.support.clock import ManualClock
from tests.support.subscription_server import EventServer, make_subscriber


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> EventServer:
    return EventServer(clock)


@pytest.fixture
def subscriber(server: EventServer) -> EventSubscriber:
    return make_subscriber(server)

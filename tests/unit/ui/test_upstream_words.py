from ringback.domain.call import MRTR_DRIVER
from ringback.runner.drivers.legacy_task import LEGACY_TASK_DRIVER
from ringback.runner.drivers.plain import PLAIN_DRIVER
from ringback.runner.drivers.stream import STREAM_DRIVER
from ringback.runner.drivers.task import TASK_DRIVER
from ringback.ui.pages.upstreams import DRIVER_MEANINGS


def test_the_page_of_an_upstream_explains_each_driver() -> None:
    drivers = {PLAIN_DRIVER, MRTR_DRIVER, TASK_DRIVER, LEGACY_TASK_DRIVER, STREAM_DRIVER}

    assert drivers == set(DRIVER_MEANINGS)

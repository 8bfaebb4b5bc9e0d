from jinja2 import Environment, PackageLoader, StrictUndefined

from ringback.domain.call import MRTR_DRIVER
from ringback.runner.drivers.legacy_task import LEGACY_TASK_DRIVER
from ringback.runner.drivers.plain import PLAIN_DRIVER
from ringback.runner.drivers.stream import STREAM_DRIVER
from ringback.runner.drivers.task import TASK_DRIVER
from ringback.ui.pages.upstreams import DRIVER_MEANINGS
from ringback.upstreams.connection_status import ConnectionState


def test_the_page_of_an_upstream_explains_each_driver() -> None:
    drivers = {PLAIN_DRIVER, MRTR_DRIVER, TASK_DRIVER, LEGACY_TASK_DRIVER, STREAM_DRIVER}

    assert drivers == set(DRIVER_MEANINGS)


def test_a_state_that_needs_someone_is_marked() -> None:
    environment = Environment(loader=PackageLoader("ringback.ui"), autoescape=True, undefined=StrictUndefined)
    template = "{% from 'macros.html' import state_badge %}{{ state_badge(state) }}"

    def find_tone(state: str) -> str:
        html = environment.from_string(template).render(state=state)
        return html.partition('class="badge ')[2].partition('"')[0]

    assert {state: find_tone(state) for state in (*ConnectionState, "skipped")} == {
        "idle": "",
        "connecting": "busy",
        "ready": "good",
        "unresponsive": "warn",
        "failing": "bad",
        "skipped": "bad",
    }

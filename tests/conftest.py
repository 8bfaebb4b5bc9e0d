"""What every test stands on: one event loop back end, and the profile that decides how much is tried.

`default` is what CI runs; `deep` (scripts/test --deep) has the large counts that the issues name.
"""

import functools
import gc
import importlib
import os
import signal
from collections.abc import Generator
from contextlib import ExitStack
from itertools import chain, islice
from math import ceil
from pathlib import Path
from typing import Final

import pytest
import starlette.routing
from hypothesis import HealthCheck, Phase, settings
from pydantic_settings import EnvSettingsSource

from ringback.api import app as ringback_api
from ringback.cli import app as ringback_cli
from ringback.server import GARBAGE_THRESHOLD
from ringback.storage.sqlite import database
from ringback.storage.sqlite import store as sqlite_store
from tests.support.authorities import trust_one_authority
from tests.support.databases import TEST_DATABASES, StoreKind
from tests.support.forked_workers import SLOW_FILES
from tests.support.hang_watch import HangWatch
from tests.support.kept_connections import FOLDER_CONNECTIONS, keep_connections
from tests.support.limits import WAIT_SECONDS
from tests.support.shared_setup import (
    copy_and_migrate,
    load_migrations_once,
    make_copying_create_file,
    make_remembering,
    make_sharing_describe_app,
)

trust_one_authority()
# A shell ignores it for commands in the background, and their children then ignore it too: tests that interrupt one would wait.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

for profile, examples in {"default": 25, "deep": 2000}.items():
    settings.register_profile(
        profile,
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
        # Explaining a failure traces each line. For a state machine with a store that takes minutes, until the test is ended
        # for its time, and the failing example is never printed.
        phases=set(Phase) - {Phase.explain},
    )
PROFILE = os.environ.get("RINGBACK_TEST_PROFILE", "default")
settings.load_profile(PROFILE)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(HangWatch())
    config.pluginmanager.register(FOLDER_CONNECTIONS)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collection, which takes a fifth of the CPU of it in each worker, and finds hardly anything.

    What was collected lives as long as the process, so later collections leave it out. They are as rare as in a service:
    Python's usual threshold of 700 objects takes 4 % of the CPU of tests with requests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD, *gc.get_threshold()[1:])
        gc.enable()


BROWSER_TESTS: Final = Path(__file__).parent / "browser"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With pytest-xdist, each worker begins with its share of the slow files: each gets an equal part of the list."""
    workers: int = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers == 1:
        return
    slow = [item for item in items if item.path.name in SLOW_FILES]
    others = (item for item in items if item.path.name not in SLOW_FILES)
    parts = [slow[worker::workers] for worker in range(workers)]
    for part in parts:
        part.extend(islice(others, max(0, ceil(len(items) / workers) - len(part))))
    items[:] = [*chain.from_iterable(parts), *others]


BOTH_STORES: Final = (
    # What a store promises: every statement, lock, constraint and order of commits.
    "tests/conformance/",
    # A wrong lease or a lost commit shows after kills.
    "tests/crash/test_kill_at_random.py",
    # Leases, batches and recovery: the store decides who runs a call or sends a delivery, and what a second holder may write.
    *(
        f"tests/interaction/engine/test_{name}.py"
        for name in (
            *(
                "runner_leases",
                "runner_locked_rows",
                "execution_leases",
                "dispatcher_leases",
                "dispatched_by_lease",
                "frozen_process",
            ),
            *("janitor", "janitor_rounds", "janitor_outages", "post_commit_calls", "post_commit_deliveries"),
            *("runner_fairness", "scheduled_calls"),
            *("completion_batcher", "recorder", "fan_out_steps", "ordered_webhooks", "catch_up_order"),
            *("cancelled_while_running", "verification_races", "encryption_key_rotation", "suspension"),
            *("event_subscriptions", "event_subscription_challenges", "event_subscription_refreshes"),
        )
    ),
    # Rounds of one call: between them it is parked, answered, queued and leased again, while its holder reads it.
    "tests/interaction/drivers/test_mrtr.py",
    "tests/interaction/engine/test_leased_call.py",
    # Checks that must hold for requests at the same time, waits that a commit ends, cursors, and counts that are shown.
    *(
        f"tests/interaction/rest/test_{name}.py"
        for name in (
            *("calls", "call_batches", "idempotency", "adoption", "quotas", "named_webhooks", "unreported_calls"),
            *("event_streams", "long_polling", "wait_for_calls", "webhook_timing", "webhook_removal", "replays"),
            *("restored_backup", "many_webhooks", "deliveries", "metrics"),
        )
    ),
    # The whole service: each way in, its wake-ups, its commits, and a store that fails.
    *(
        f"tests/interaction/loop/test_{name}.py"
        for name in ("loop", "outcomes", "failures", "commits_per_call", "server")
    ),
    *(f"tests/interaction/gateway_sessions/test_{name}.py" for name in ("surplus_sessions", "sealing", "costs")),
    *(f"tests/interaction/gateway_tasks/test_{name}.py" for name in ("modern_tasks", "subscriptions")),
)
"""What runs on SQLite and on PostgreSQL by default: tests whose result depends on how the store locks, orders and notifies.

All else that opens a store runs on SQLite by default, and with --deep or --store on PostgreSQL: it checks requests, formats
answers or speaks a protocol above the ports, and the conformance tests show that both stores keep what the ports promise."""
KEPT_IN_FOLDER: Final = ("tests/conformance", "tests/interaction/engine")
KEPT_IN_MODULE: Final = ("tests/interaction/rest",)
"""Folders whose tests leave their connections to PostgreSQL to the next one. They leave no task behind."""
STORE_FOLDERS: Final = (
    "tests/conformance",
    "tests/interaction",
    "tests/crash",
    "tests/fundamentals",
    "tests/properties",
)
"""Folders with tests that open a store."""


def pytest_addoption(parser: pytest.Parser) -> None:
    kinds = [*StoreKind, "both"]
    parser.addoption("--store", choices=kinds, help="the store of all tests; by default, some files run on both")
    parser.addoption("--browser", action="store_true", help="collect tests/browser, which need Chromium")
    parser.addoption("--screenshots", help="the folder for the pictures of tests/browser (build/screenshots)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without --browser, leave out the tests that need one."""
    return True if collection_path == BROWSER_TESTS and not config.getoption("--browser") else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on the stores that the options and its folder name."""
    option = metafunc.config.getoption("--store")
    kinds = choose_stores(metafunc.definition, option)
    if kinds != [StoreKind.SQLITE] or option == StoreKind.POSTGRES:
        metafunc.parametrize("store_kind", kinds, indirect=True, scope="module")


def choose_stores(test: pytest.Item, option: str | None) -> list[StoreKind]:
    folder = test.path.relative_to(test.config.rootpath).as_posix()
    if test.get_closest_marker("postgres_only"):
        return [StoreKind.POSTGRES]
    if not folder.startswith(STORE_FOLDERS) or test.get_closest_marker("sqlite_only"):
        return [StoreKind.SQLITE]
    if option in tuple(StoreKind):
        return [StoreKind(option)]
    return list(StoreKind) if option or PROFILE == "deep" or folder.startswith(BOTH_STORES) else [StoreKind.SQLITE]


@pytest.fixture(scope="module", autouse=True)
def store_kind(request: pytest.FixtureRequest) -> Generator[StoreKind]:
    """The kind of the databases that the module's tests open."""
    # Test cases of unittest, as Hypothesis makes them of state machines, have no parameters.
    only = StoreKind.POSTGRES if request.config.getoption("--store") == StoreKind.POSTGRES else StoreKind.SQLITE
    kind: StoreKind = getattr(request, "param", only)
    with ExitStack() as stack:
        stack.enter_context(TEST_DATABASES.of_kind(kind))
        path = request.path.relative_to(request.config.rootpath).as_posix()
        if path.startswith(KEPT_IN_FOLDER):
            FOLDER_CONNECTIONS.keep()
        elif kind is StoreKind.POSTGRES and path.startswith(KEPT_IN_MODULE):
            stack.enter_context(keep_connections())
        yield kind


@pytest.fixture(scope="module")
def module_path_factory(store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> pytest.TempPathFactory:
    """For fixtures of a module that open a store: they depend on its kind, and are set up again for the other one."""
    return tmp_path_factory


@pytest.fixture(autouse=True)
def own_databases(store_kind: StoreKind) -> Generator[None]:
    """Each test has databases of its own."""
    with TEST_DATABASES.scope():
        yield


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def without_garbage_collector() -> Generator[None]:
    """What a test counts in memory afterwards is what something still refers to, and what is in reference cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


SERVICE_TIMEOUTS: Final = {
    "ringback.upstreams.proxy": ["CONNECT_WAIT_SECONDS"],
    "ringback.upstreams.catalog.catalog_refresher": ["LIST_TIMEOUT_SECONDS"],
    "ringback.upstreams.catalog.tool_catalog": ["FIRST_LIST_TIMEOUT_SECONDS", "LIST_TOOLS_TIMEOUT_SECONDS"],
    "ringback.cli.installation_checks.network": ["CHECK_TIMEOUT_SECONDS"],
}
"""How long the service waits for a peer that is expected to respond at once, by module. Two to five seconds suffice for
people; beside four busy processes a test's own server may need more. A test of such a limit sets its own."""


@pytest.fixture(scope="session", autouse=True)
def patient() -> Generator[None]:
    """In this process the service waits for slow servers as long as the tests themselves wait."""
    with pytest.MonkeyPatch.context() as patch:
        for module, names in SERVICE_TIMEOUTS.items():
            for name in names:
                patch.setattr(importlib.import_module(module), name, WAIT_SECONDS)
        yield


@pytest.fixture(scope="session", autouse=True)
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Stores copy their empty tables, applications share their routes, and a command is run again as it was made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ringback_api, "create_documented_app", make_sharing_describe_app(ringback_api.create_documented_app)
        )
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setattr(sqlite_store, "apply_migrations", copy_and_migrate)
        patch.setattr(sqlite_store, "load_migrations", load_migrations_once)
        patch.setattr(database, "create_database_file", make_copying_create_file(database.create_database_file))
        for name in ("_extract_field_info", "_field_is_complex"):
            patch.setattr(EnvSettingsSource, name, make_remembering(getattr(EnvSettingsSource, name)))
        # Typer makes a validator for each option of a command that runs.
        patch.setattr(ringback_cli, "_make_command", functools.cache(ringback_cli._make_command))  # pyright: ignore[reportPrivateUsage]
        # The dashboard has 90 paths.
        patch.setattr(starlette.routing, "compile_path", functools.cache(starlette.routing.compile_path))
        yield


@pytest.fixture(scope="session")
def deep() -> bool:
    """Whether the large counts are wanted."""
    return PROFILE == "deep"

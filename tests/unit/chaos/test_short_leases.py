"""Leases of chaos and crash tests are shorter where the product reads their lengths."""

import subprocess
import sys

CODE = """
from inspect import signature
from ringback.janitor.config import BatchRows, JanitorConfig
from ringback.janitor.recovery import RecoveryTasks
from ringback.storage.postgres import driver
from tests.support.short_leases import SHORTENED_BY, shorten_leases

def lengths():
    tasks = RecoveryTasks(None, JanitorConfig(), BatchRows(1), None).tasks
    yield next(iter(tasks[0].needs.values()))
    yield signature(driver.connect).parameters["transaction_seconds"].default

before = list(lengths())
shorten_leases()
print([old / new / SHORTENED_BY for old, new in zip(before, lengths())])
"""


def test_the_grace_of_a_dead_nodes_calls_and_the_time_of_a_transaction_are_shorter() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[1.0, 1.0]", done.stderr

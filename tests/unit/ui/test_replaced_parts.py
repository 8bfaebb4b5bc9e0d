"""The parts of pages that are replaced while a user reads them."""

import re
from importlib.resources import files

import pytest

PARTS = (
    "call_rows",
    "call_state",
    "charts",
    "delivery_rows",
    "event_rows",
    "home_state",
    "session_state",
    "webhook_rows",
)


@pytest.mark.parametrize("name", PARTS)
def test_a_fold_has_the_key_by_which_the_script_unfolds_it_again(name: str) -> None:
    """`restorePlaces` of ringback.js: without a key, a reader's fold would close itself with the next change."""
    template = (files("ringback.ui") / "templates" / f"{name}.html").read_text(encoding="utf-8")

    assert re.findall(r"<details(?![^>]*data-key=)[^>]*>", template) == []
    assert all("key=" in each for each in re.findall(r"\{\{ folded\(.*?\}\}", template))

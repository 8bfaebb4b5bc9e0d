import re
from collections.abc import Iterator

import pytest

from ringback.domain import errors
from ringback.domain.errors import InvalidRequest, QuotaExceeded, RingbackError


def kinds() -> Iterator[type[RingbackError]]:
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, RingbackError) and value is not RingbackError:
            yield value


KINDS = list(kinds())


def test_the_drawn_tree_is_the_real_one() -> None:
    """Each error stands in the module's drawing, one level below its parent."""
    drawn = {
        name: len(branch) // 4
        for branch, name in re.findall(r"^ {4}([│├└─ ]*)([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)
    }
    real = {kind.__name__: kind.__mro__.index(RingbackError) for kind in KINDS}
    assert drawn == {"RingbackError": 0, **real}


def test_every_kind_has_a_slug_of_its_own_that_can_end_a_url() -> None:
    slugs = [kind.slug for kind in KINDS]
    assert len(slugs) == len(set(slugs))
    assert [slug for slug in slugs if not re.fullmatch(r"[a-z]+(-[a-z]+)*", slug)] == []


@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
def test_every_kind_has_a_title_fit_for_a_problem_document(kind: type[RingbackError]) -> None:
    title = kind.title()
    assert title
    assert title != RingbackError.title()
    assert not title.endswith(".")


def test_an_error_says_what_to_do_and_keeps_what_a_program_needs() -> None:
    error = InvalidRequest("Send JSON.", content_type="text/plain")
    assert (str(error), error.detail, error.extra) == ("Send JSON.", "Send JSON.", {"content_type": "text/plain"})


def test_a_quota_says_when_to_come_back() -> None:
    error = QuotaExceeded("Too many webhooks.", retry_after_seconds=60, limit=100)
    assert (error.retry_after_seconds, error.extra) == (60, {"limit": 100})

"""The numbers of the first page: each is the number of what its link lists."""

from dataclasses import replace

from ringback.domain.call import CallStatus
from ringback.domain.delivery import DeliveryState
from ringback.domain.insights import InsightsOverview
from ringback.ui.pages.home_cards import draw_cards
from tests.support.clock import START

OVERVIEW = InsightsOverview(
    open_calls={CallStatus.WORKING: 5},
    queued_calls=1,
    scheduled_calls=2,
    open_deliveries={DeliveryState.HELD: 1, DeliveryState.PENDING: 2, DeliveryState.LEASED: 4},
    dead_deliveries=8,
    failing_webhooks=0,
    since=START,
    until=START,
    is_complete=True,
    hours=(),
    upstreams=(),
)


def test_the_card_of_calls_names_some_paused_upstreams() -> None:
    notes = [
        draw_cards(replace(OVERVIEW, scheduled_calls=0, paused_upstreams=names), None)[0].note
        for names in (["git"], ["a", "b", "c", "d", "e"])
    ]

    assert notes == ["1 waits for a runner (paused: git)", "1 waits for a runner (a, b, c and 2 more are paused)"]


def test_calls_that_wait_for_a_sign_in_are_not_said_to_wait_for_an_answer_only() -> None:
    cards = draw_cards(replace(OVERVIEW, open_calls={CallStatus.INPUT_REQUIRED: 2}), None)

    assert (cards[1].number, cards[1].note) == ("2", "wait for an answer or a sign-in")


def test_a_card_counts_those_that_its_link_lists() -> None:
    cards = {card.path: (card.number, card.note) for card in draw_cards(OVERVIEW, None)}

    assert cards["/calls?status=working"] == ("5", "1 waits for a runner; 2 start later")
    assert cards["/deliveries?state=held"][0] == "1"
    assert cards["/deliveries?state=pending"] == ("2", "until their time; 4 more are being sent")
    assert cards["/deliveries?state=dead&latest=true"][0] == "8"

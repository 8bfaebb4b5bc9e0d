"""An observable flag runs its callbacks once each time it is set."""

from functools import partial

from ringback.waits import ObservableFlag


def test_callbacks_run_once_and_in_their_order_when_the_flag_is_set() -> None:
    """A simulated node sets it when it stops: in an order of memory addresses, its seed would replay differently."""
    flag, notified = ObservableFlag(), list[int]()
    for number in range(50):
        flag.add_callback(partial(notified.append, number))

    flag.set()
    flag.set()

    assert flag.is_set()
    assert notified == list(range(50))


def test_callbacks_run_again_when_a_cleared_flag_is_set() -> None:
    flag, notified = ObservableFlag(is_set=True), list[int]()
    flag.add_callback(lambda: notified.append(1))

    flag.set()
    assert notified == []
    flag.clear()
    assert not flag.is_set()
    flag.set()

    assert notified == [1]


def test_a_removed_callback_does_not_run() -> None:
    flag, notified = ObservableFlag(), list[int]()

    def notify() -> None:
        flag.remove_callback(notify)
        notified.append(1)

    flag.add_callback(notify)
    flag.set()
    flag.clear()
    flag.set()

    assert notified == [1]

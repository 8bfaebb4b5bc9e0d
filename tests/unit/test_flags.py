"""A flag tells whoever watches it, once each time that it is set."""

from ringback.waits import ObservableFlag


def test_whoever_watches_is_told_when_it_is_set_and_not_again_while_it_is() -> None:
    flag, told = ObservableFlag(), list[str]()
    flag.add_callback(lambda: told.append("first"))
    flag.add_callback(lambda: told.append("second"))

    flag.set()
    flag.set()

    assert flag.is_set()
    assert sorted(told) == ["first", "second"]


def test_what_was_cleared_is_told_when_it_is_set_again() -> None:
    flag, told = ObservableFlag(is_set=True), list[int]()
    flag.add_callback(lambda: told.append(1))

    flag.set()
    assert told == []
    flag.clear()
    assert not flag.is_set()
    flag.set()

    assert told == [1]


def test_whoever_stopped_watching_is_told_nothing() -> None:
    flag, told = ObservableFlag(), list[int]()

    def tell() -> None:
        flag.remove_callback(tell)
        told.append(1)

    flag.add_callback(tell)
    flag.set()
    flag.clear()
    flag.set()

    assert told == [1]

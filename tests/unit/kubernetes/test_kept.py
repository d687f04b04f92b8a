"""What is kept survives late, repeated and reordered events."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kubernetes.kept import Kept


@dataclass(frozen=True, slots=True)
class Thing:
    """An object of some kind."""

    uid: str
    version: int


_HISTORY = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=12)


@given(_HISTORY, st.data())
def test_repeated_events_change_nothing(history: list[tuple[str, bool]], data: st.DataObject) -> None:
    """A watch that goes back some versions and tells them again ends where it was."""
    events: list[tuple[Thing, bool]] = []
    gone: set[str] = set()
    for version, (uid, ends) in enumerate(history, start=1):
        if uid not in gone:
            events.append((Thing(uid, version), ends))
            gone |= {uid} if ends else set()
    kept: Kept[Thing] = Kept()
    for position, (thing, ends) in enumerate(events):
        back = data.draw(st.integers(0, position), label="events told again")
        for each, ended in [*events[position - back : position], (thing, ends)]:
            if ended:
                kept.drop(each.uid)
            else:
                kept.put(each)

    last = {thing.uid: thing for thing, ends in events if not ends}
    assert {each.uid: each for each in kept.all()} == {uid: each for uid, each in last.items() if uid not in gone}


def test_a_whole_list_is_the_truth() -> None:
    """Also where its versions are lower, as after a restored backup, and where it has what was said to be gone."""
    kept: Kept[Thing] = Kept()
    kept.put(Thing("a", 9))
    kept.put(Thing("b", 9))
    kept.drop("c")

    kept.replace([Thing("a", 2), Thing("c", 1)])

    assert {each.uid: each.version for each in kept.all()} == {"a": 2, "c": 1}
    assert kept.get("b") is None
    assert len(kept) == 2

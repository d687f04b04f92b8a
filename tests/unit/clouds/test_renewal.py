"""Credentials that are made again: once for all who were refused, and never without end."""

from gpuwatch.clouds import AuthFailedError
from gpuwatch.clouds.renewal import Renewable
from gpuwatch.runtime.clock import ManualClock


class Chain:
    """Makes keys: each time another one, until it has no more others."""

    def __init__(self, *keys: str) -> None:
        """With these, the last for ever; "" raises."""
        self.keys, self.made = list(keys), 0
        self.clock = ManualClock()
        self.own: Renewable[str, str] = Renewable(self.make(""), self.make, self.ask, self.clock)

    def make(self, before: str) -> str:
        """The next key."""
        del before
        self.made += 1
        return self.keys.pop(0) if len(self.keys) > 1 else self.keys[0]

    @staticmethod
    def ask(key: str) -> str:
        """The key itself."""
        if not key:
            raise AuthFailedError("there is no key")
        return key


def test_all_who_were_refused_with_one_key_get_the_same_other_one() -> None:
    """The second finds that another call was faster."""
    chain = Chain("one", "two", "three")
    assert [chain.own.renew("one"), chain.own.renew("one"), chain.own.proof()] == [True, True, "two"]
    assert chain.made == 2


def test_a_key_that_comes_back_the_same_is_made_again_once_a_minute() -> None:
    """Somebody may write another one into its file; until then each refused call would look there."""
    chain = Chain("one")
    assert [chain.own.renew("one") for _ in range(5)] == [False] * 5
    assert chain.made == 2

    chain.clock.advance(61)
    chain.keys = ["two"]
    assert (chain.own.renew("one"), chain.own.proof()) == (True, "two")


def test_credentials_that_are_not_there_leave_those_that_were() -> None:
    """What was refused is said, and not that nothing was found in its place."""
    chain = Chain("one", "")
    assert (chain.own.renew("one"), chain.own.proof()) == (False, "one")

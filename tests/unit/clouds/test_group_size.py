"""A group whose size was taken back at the very moment at which it got a member."""

import pytest

from gpuwatch.clouds import CloudError, CloudUnavailableError
from gpuwatch.clouds.groups import TOO_MANY_MEMBERS, raise_again
from gpuwatch.clouds.permit import in_force, permit_in_force
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit


@pytest.mark.parametrize(("members", "raised"), [(0, None), (2, None), (3, 3), (4, 4), (9, 4)])
def test_a_size_below_the_members_is_raised_again_and_never_beyond_what_it_was(
    members: int, raised: int | None
) -> None:
    """Four were wanted, two were there before; what came until the look after the call keeps its place."""
    sizes: list[int] = []
    if raised is None:
        raise_again("trainers", 2, 4, lambda: members, sizes.append)
        assert sizes == []
        return
    with pytest.raises(CloudError, match="its size is") as refused:
        raise_again("trainers", 2, 4, lambda: members, sizes.append)
    assert refused.value.code == TOO_MANY_MEMBERS
    assert sizes == [raised]


def test_raising_again_takes_no_permit() -> None:
    """The permit of the change may be over by now; what was changed is taken back all the same."""
    clock, seen = ManualClock(), []
    permit = a_permit(clock)
    with in_force(permit):
        with pytest.raises(CloudError):
            raise_again("trainers", 2, 4, lambda: 3, lambda _: seen.append(permit_in_force()))
        assert permit_in_force() is permit
    assert seen == [None]


def test_a_silent_cloud_leaves_the_accepted_change_as_it_is() -> None:
    """The next round looks again."""

    def silent() -> int:
        raise CloudUnavailableError("no answer")

    raise_again("trainers", 2, 4, silent, lambda _: pytest.fail("it was raised"))

"""What can be the value of a tag on Tencent Cloud."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.tencent.settings import check_tag_value

MOMENTS = st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat())


@given(MOMENTS)
def test_every_time_that_is_written_fits(text: str) -> None:
    """Those of notices and stops, in whatever zone."""
    check_tag_value("gpuwatch:stop-at", text)


@pytest.mark.parametrize("value", ["lab", "研究", "lab 2", "a/b:c@d", ""])
def test_usual_names_fit(value: str) -> None:
    """In any script."""
    check_tag_value("fleet", value)


@pytest.mark.parametrize("value", ["a" * 256, "lab!", "50%", "a\nb", "🚀"])
def test_other_names_are_refused_by_their_key(value: str) -> None:
    """Before anything is asked."""
    with pytest.raises(CloudError, match=r"^fleet: ") as caught:
        check_tag_value("fleet", value)

    assert caught.value.code == "TagValue"

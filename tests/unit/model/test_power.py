"""Whether two UUIDs are of one host: the proof on which a BMC is believed."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.power import is_of_one_host, same_host

HOSTS = st.uuids(version=4)


@given(HOSTS, HOSTS)
def test_two_hosts_are_never_one_and_one_is_itself_in_every_order_of_bytes(one: UUID, other: UUID) -> None:
    """BMCs write the first three parts, or all of it, backwards; case and white space do not count."""
    for written in (one, UUID(bytes=one.bytes_le), UUID(bytes=one.bytes[::-1]), UUID(bytes=one.bytes_le[::-1])):
        assert same_host(str(one), f" {str(written).upper()}\n")
        assert same_host(str(written), str(one))
    assert same_host(str(one), str(other)) is (one == other)


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "Not Specified", "0" * 32, "ff" * 16, "x" * 9999),
        *("03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009"),
    ],
)
def test_what_makers_write_on_all_boards_names_no_host(text: str | None) -> None:
    """Two hosts would have it, and each BMC would fit either."""
    assert not is_of_one_host(text)
    assert not same_host(text, text)

"""Which agents `gpuwatch doctor` calls old."""

from itertools import pairwise

from gpuwatch.cli.doctor import signals


def test_candidates_are_older_than_their_release() -> None:
    """Each is older than the next one; what comes after the numbers of a development version does not count."""
    versions = ["", "0.9", "0.9.1", "0.10.0", "1.0.0a2", "1.0.0b1", "1.0.0rc1", "1.0.0rc2", "1.0.0", "1.0.1rc1"]

    assert all(signals._number(older) < signals._number(newer) for older, newer in pairwise(versions))
    assert signals._number("0.9.1.dev2") == signals._number("0.9.1")

"""runtime/flags.py: what is right is read without argparse (test_later.py), and means the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.probe import main as probe
from gpuwatch.runtime.flags import Flags, wrong_value

WORDS = st.sampled_from(
    [
        *("--once", "--once=1", "--on-request", "--interval", "--interval=2.5", "--interval=", "--inter", "--cycles"),
        *("--skip", "--skip=GPU-a", "--known", "GPU-a=3=00:1", "--root", "--root=/x", "--source", "replay", "nvml"),
        *(
            "2",
            "0.5",
            "-1",
            "-x",
            "",
            "--",
            "a b",
            "auto",
            "power,ecc",
            "--metrics",
            "--seed",
            "--version",
            "--nothing",
        ),
    ]
)


def read_by_argparse(argv: list[str]) -> object:
    """What argparse makes of it, or its exit status."""
    try:
        return vars(probe.flags().parse_args(argv))
    except SystemExit as end:
        return end.code


@given(argv=st.lists(WORDS, max_size=6))
def test_flags_mean_what_they_mean_to_argparse(argv: list[str]) -> None:
    """Also what argparse alone understands, and what it refuses."""
    try:
        found: object = vars(probe._flags().parse(argv))
    except SystemExit as end:
        found = end.code

    assert found == read_by_argparse(argv)


def test_a_mistake_is_told_as_argparse_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    """With the usage, the flag, and what would be right."""

    def even(text: str) -> int:
        if int(text) % 2:
            raise wrong_value(f"{text!r} is odd")
        return int(text)

    taken = Flags(prog="p", description="d")
    taken.add("--even", type=even, help="an even number")
    taken.add("--hidden", action="store_true")

    assert vars(taken.parse(["--even", "4", "--hidden"])) == {"even": 4, "hidden": True}
    with pytest.raises(SystemExit) as end:
        taken.parse(["--even", "3"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "usage: p [-h] [--even EVEN]\np: error: argument --even: '3' is odd\n"

"""agent/probe/command.py: what a probe is told about GPUs that it must not touch, it understands."""

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.probe.command import leaving_out
from gpuwatch.agent.probe.main import flags
from gpuwatch.model.gpu import GpuInfo
from tests.support.builders.gpu import a_gpu

BUSES = st.none() | st.from_regex(r"[0-9A-F]{8}:[0-9A-F]{2}:[01][0-9A-F]\.[0-7]", fullmatch=True)
NAMES = st.from_regex(r"[A-Za-z0-9:-]{1,40}", fullmatch=True).filter(lambda name: not name.startswith("-"))


@given(
    st.lists(st.tuples(NAMES, st.none() | st.integers(0, 99), BUSES), unique_by=lambda each: each[0]),
    st.data(),
)
def test_places_survive_the_command_line(places: list[tuple[str, int | None, str | None]], data: st.DataObject) -> None:
    """Who is left out, and where each GPU is that has a place."""
    infos = {uuid: GpuInfo(uuid=uuid, index=index, pci_bus_id=bus) for uuid, index, bus in places}
    left_out = data.draw(st.lists(st.sampled_from(sorted(infos)), unique=True) if infos else st.just([]))
    arguments = flags().parse_args(leaving_out([], left_out, infos))

    assert arguments.skip == left_out
    if left_out:
        assert arguments.known == [info for info in infos.values() if info.index is not None or info.pci_bus_id]


def test_a_healthy_host_has_a_plain_probe() -> None:
    """Nothing is told where nothing is left out."""
    assert leaving_out(["probe"], [], {"GPU-0": a_gpu(0)}) == ["probe"]
    assert leaving_out(["probe"], [], {}, careful=True) == ["probe", "--no-attach"]

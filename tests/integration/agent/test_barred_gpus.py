"""A probe that must not touch a GPU: the real one, on a driver where any call about that GPU blocks for ever."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.agent.devices.messages import Cycle, Down, End, Message, Reading, Step
from gpuwatch.agent.probe.command import leaving_out
from gpuwatch.model.gpu import DownCause, GpuInfo
from tests.support.fakes.nvml import NOT_FOUND, UNKNOWN, StubDriver
from tests.support.real.probe import lines, streaming, until

NAMELESS = "unidentified-1"


def who(slot: int) -> GpuInfo:
    """A GPU of the stand-in driver."""
    return GpuInfo(
        uuid=f"GPU-00000000-0000-4000-8000-{slot:012}", index=slot, pci_bus_id=f"00000000:{slot + 1:02X}:00.0"
    )


def flags(*barred: GpuInfo, known: tuple[GpuInfo, ...] = (), root: Path = Path("/")) -> list[str]:
    """What a supervisor passes on."""
    infos = {info.uuid: info for info in (*known, *barred)}
    return [*leaving_out(["--steps", "--root", str(root)], [info.uuid for info in barred], infos)]


def cycle(messages: Iterator[Message]) -> list[Message]:
    """The next whole one, with the steps before it."""
    return until(messages, lambda message: isinstance(message, End))


def read(messages: list[Message]) -> dict[str, bool]:
    """Whether each GPU of a cycle was read."""
    found = {message.reading.info.uuid: True for message in messages if isinstance(message, Reading)}
    return found | {message.down.info.uuid: False for message in messages if isinstance(message, Down)}


def steps(messages: list[Message]) -> list[tuple[str, int | None, str | None]]:
    """What was opened."""
    return [(each.what, each.index, each.pci_bus_id) for each in messages if isinstance(each, Step)]


@pytest.fixture
def four(driver: StubDriver) -> StubDriver:
    """A host of four GPUs, the second of which blocks all that touches it, and who attaches it."""
    driver.gpus(4)
    driver.gpu(1).block().set(attach_blocks=1)
    return driver


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A file system in which the kernel shows the four."""
    for slot in range(4):
        plug(tmp_path, slot)
    return tmp_path


def plug(root: Path, slot: int) -> Path:
    """The kernel's entry of a GPU."""
    folder = root / "proc/driver/nvidia/gpus" / f"0000:{slot + 1:02x}:00.0"
    folder.mkdir(parents=True)
    return folder


def test_it_is_not_touched(four: StubDriver) -> None:
    """The others are opened where they are known to be; it is down without having been asked anything."""
    with streaming(four, *flags(who(1), known=(who(0), who(2), who(3)))) as process:
        first = cycle(lines(process))

    assert read(first) == {who(0).uuid: True, who(1).uuid: False, who(2).uuid: True, who(3).uuid: True}
    assert [message.down.cause for message in first if isinstance(message, Down)] == [DownCause.HANG]
    assert steps(first)[0] == ("init", None, None)
    assert [bus for _, _, bus in steps(first)[1:]] == [who(slot).pci_bus_id for slot in (0, 2, 3)]
    assert [message.reading.info.index for message in first if isinstance(message, Reading)] == [0, 2, 3]


def test_the_kernel_knows_where_the_others_are(four: StubDriver, root: Path) -> None:
    """Also where nobody has seen them before."""
    with streaming(four, *flags(who(1), root=root)) as process:
        first = cycle(lines(process))

    assert [uuid for uuid, up in read(first).items() if up] == [who(slot).uuid for slot in (0, 2, 3)]


def test_one_that_never_said_who_it_is(four: StubDriver, root: Path) -> None:
    """It is left out by its number, and its place is the one that the others leave."""
    nameless = GpuInfo(uuid=NAMELESS, index=1)
    with streaming(four, *flags(nameless, root=root)) as process:
        messages = lines(process)
        first, second = cycle(messages), cycle(messages)
    (listed,) = (message for message in second if isinstance(message, Cycle))

    assert read(first) == {who(0).uuid: True, NAMELESS: False, who(2).uuid: True, who(3).uuid: True}
    assert [info.pci_bus_id for info in listed.gpus if info.uuid == NAMELESS] == [who(1).pci_bus_id]


def test_others_come_and_go(four: StubDriver, root: Path) -> None:
    """A GPU that is unplugged vanishes by itself, one that is plugged in appears with its own number."""
    folder = root / "proc/driver/nvidia/gpus/0000:01:00.0"
    with streaming(four, *flags(who(1), known=(who(0), who(2), who(3)), root=root)) as process:
        messages = lines(process)
        cycle(messages)
        folder.rmdir()
        four.unplug(0)
        gone = until(messages, lambda message: isinstance(message, Down) and message.down.cause is DownCause.MISSING)
        plug(root, 4)
        four.gpus(5)
        until(messages, lambda message: isinstance(message, Reading) and message.reading.info.uuid == who(4).uuid)
        cycle(messages)
        later = cycle(messages)
    (listed,) = (message for message in later if isinstance(message, Cycle))

    assert [message.down.info.uuid for message in gone if isinstance(message, Down)][-1] == who(0).uuid
    assert {info.uuid: info.index for info in listed.gpus}[who(4).uuid] == 3
    assert read(later)[who(1).uuid] is False


def test_it_goes_itself(four: StubDriver, root: Path) -> None:
    """Unplugged, it is no longer listed."""
    with streaming(four, *flags(who(1), known=(who(0), who(2), who(3)), root=root)) as process:
        messages = lines(process)
        cycle(messages)
        (root / "proc/driver/nvidia/gpus/0000:02:00.0").rmdir()
        four.unplug(1)
        until(messages, lambda message: isinstance(message, Cycle) and len(message.gpus) == 3)
        after = cycle(messages)

    assert set(read(after).values()) == {True}


@pytest.mark.parametrize("code", [UNKNOWN, NOT_FOUND])
def test_a_driver_that_wants_its_gpus_attached(driver: StubDriver, code: int) -> None:
    """Where nothing but errors, or no GPU, comes without that, they are attached after all: better a risk than none."""
    driver.gpus(3)
    driver.gpu(1).block()
    driver.write({"unattached": str(code)})
    with streaming(driver, *flags(who(1), known=(who(0), who(2)))) as process:
        messages = lines(process)
        first, second = cycle(messages), cycle(messages)

    assert read(first) == dict.fromkeys([who(0).uuid, who(1).uuid, who(2).uuid], False)
    assert read(second) == {who(0).uuid: True, who(1).uuid: False, who(2).uuid: True}


def test_a_careful_probe_shows_at_which_gpu_it_hangs(four: StubDriver) -> None:
    """Where to attach them all blocks, without that the last step before the silence names the GPU."""
    with streaming(four, "--steps") as process:
        plain = until(lines(process), lambda message: isinstance(message, Step))
    with streaming(four, "--steps", "--no-attach") as process:
        careful = until(lines(process), lambda message: isinstance(message, Step) and message.index == 1)

    assert steps(plain) == [("init", None, None)]
    assert steps(careful) == [("init", None, None), ("gpu", 0, None), ("gpu", 1, None)]

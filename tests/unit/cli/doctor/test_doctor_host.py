"""The doctor on a GPU host: the driver, what its user may touch, the metadata service, the clock."""

import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from gpuwatch.agent.evidence.settings import EvidenceSettings
from gpuwatch.agent.metadata.settings import MetadataSettings
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.cli.doctor import devices, host
from gpuwatch.cli.doctor.context import AgentCase
from gpuwatch.cli.doctor.report import Finding
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.doctor_findings import codes, the
from tests.support.fakes.host import FolderHost
from tests.support.fakes.metadata_services import EC2_DOCUMENT, TOKEN_PATH, Alibaba, Ec2, MetadataService, serving
from tests.support.fakes.nvml import DRIVER_NOT_LOADED, NO_PERMISSION, OPERATING_SYSTEM, VERSION_MISMATCH, StubDriver

PROBE = (sys.executable, "-m", "gpuwatch", "probe", "--cycles", "1")


def a_host(folder: Path, probe: tuple[str, ...] = PROBE, **settings: Any) -> AgentCase:  # noqa: ANN401  settings are anything
    """One whose /dev and /proc lie in the folder."""
    for name in ("dev", "proc", "dmi"):
        (folder / name).mkdir(exist_ok=True)
    given: dict[str, Any] = {"control_socket": str(folder / "agent.sock"), **settings}
    return AgentCase(
        settings=AgentSettings(**given),
        clock=SystemClock(),
        dev=folder / "dev",
        proc=folder / "proc",
        dmi=folder / "dmi",
        probe=probe,
    )


@pytest.fixture
def stub(driver: StubDriver, monkeypatch: pytest.MonkeyPatch) -> StubDriver:
    """The stand-in driver, which the probes of this test see."""
    for name in ("LD_LIBRARY_PATH", "NVML_STUB_STATE", "NVML_STUB_COUNTS"):
        monkeypatch.setenv(name, driver.environment[name])
    return driver


def kernel(folder: Path, *gpus: str, version: str = "580.65.06") -> None:
    """What the kernel module tells in /proc."""
    path = folder / "proc/driver/nvidia"
    (path / "gpus").mkdir(parents=True)
    (path / "version").write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Sun Jul 27\n")
    for gpu in gpus:
        (path / "gpus" / gpu).mkdir()


def test_a_driver_that_works_is_fine(stub: StubDriver, tmp_path: Path) -> None:
    """Its version, the kernel module's, and as many GPUs as the module knows."""
    stub.gpus(2)
    kernel(tmp_path, "0000:01:00.0", "0000:02:00.0")
    findings = list(devices.driver(a_host(tmp_path)))

    assert codes(findings) == []
    assert "580.65.06" in the(findings, "driver").seen
    assert the(findings, "gpus").seen == "NVML shows 2, the kernel module 2"


@pytest.mark.parametrize(("wanted", "told"), [("13.0", []), ("13.2", ["driver.cuda_minor"]), (None, [])])
def test_a_cuda_runtime_is_held_against_the_driver(
    stub: StubDriver, tmp_path: Path, wanted: str | None, told: list[str]
) -> None:
    """The stand-in has CUDA 13.0; without a question nothing is said."""
    stub.gpus(1)
    findings = list(devices.driver(replace(a_host(tmp_path), cuda=wanted)))

    assert codes(findings) == told
    assert any(each.code.endswith("cuda") for each in findings) == (wanted == "13.0")


def test_no_library_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host, or a container, without the driver's library."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    seen = the(devices.driver(a_host(tmp_path)), "driver.library_not_found").seen

    assert "no kernel module is loaded" in seen


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DRIVER_NOT_LOADED, "driver.driver_not_loaded"),
        (NO_PERMISSION, "driver.no_permission"),
        (OPERATING_SYSTEM, "driver.no_permission"),
        (VERSION_MISMATCH, "driver.version_mismatch"),
        (999, "driver.unavailable"),
    ],
)
def test_what_is_wrong_with_the_driver_is_told(stub: StubDriver, tmp_path: Path, error: int, code: str) -> None:
    """Each of NVML's own reasons has its remedy, and the kernel module's version stands beside it."""
    stub.remove(error)
    kernel(tmp_path)

    assert "580.65.06" in the(devices.driver(a_host(tmp_path)), code).seen


def test_a_gpu_that_the_library_does_not_show_is_missed(stub: StubDriver, tmp_path: Path) -> None:
    """The kernel module knows more than NVML."""
    stub.gpus(1)
    kernel(tmp_path, "0000:01:00.0", "0000:02:00.0")

    assert "shows 1" in the(devices.driver(a_host(tmp_path)), "gpus.missing").seen


def test_a_driver_without_gpus_is_a_problem(stub: StubDriver, tmp_path: Path) -> None:
    """There is nothing to watch."""
    stub.gpus(0)

    assert codes(devices.driver(a_host(tmp_path))) == ["gpus.none"]


def test_a_lost_gpu_is_told_with_its_number(stub: StubDriver, tmp_path: Path) -> None:
    """The others are fine."""
    stub.gpus(2)
    stub.lose(1)

    assert codes(devices.driver(a_host(tmp_path))) == ["gpus.unreadable"]


def test_what_is_wrong_with_a_gpu_at_once_is_told_with_its_remedy(stub: StubDriver, tmp_path: Path) -> None:
    """A board to be exchanged and a fabric that lacks bandwidth, of one GPU of two."""
    stub.gpus(2)
    stub.gpu(1).set(sram_exceeded=1, fabric_mask=0x1A9)
    found = [each for each in devices.driver(a_host(tmp_path)) if each.code == "gpus.sick"]

    assert [each.seen.partition(":")[0] for each in found] == ["sram_ecc_threshold", "fabric_degraded_bandwidth"]
    assert "replace_hardware" in found[0].seen


@pytest.mark.parametrize("words", ["", "import time; time.sleep(60)"])
def test_a_driver_that_says_nothing_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """A probe that ends, or waits, without a word is left behind in time."""
    monkeypatch.setattr(devices, "PROBE_SECONDS", 0.5)

    assert codes(devices.driver(a_host(tmp_path, (sys.executable, "-c", words)))) == ["driver.hangs"]


@pytest.mark.parametrize(
    ("step", "code", "where"),
    [('"init"', "driver.init_hang", "NVML"), ('"gpu","index":3', "driver.hangs", "GPU 3")],
)
def test_where_a_driver_hangs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: str, where: str
) -> None:
    """The last step of the probe before its silence: opening the driver, or one GPU."""
    monkeypatch.setattr(devices, "PROBE_SECONDS", 2.0)
    words = f'import time; print(\'{{"kind":"step","what":{step}}}\', flush=True); time.sleep(60)'
    finding = the(devices.driver(a_host(tmp_path, (sys.executable, "-c", words))), code)

    assert where in finding.looked_at


def test_device_nodes_are_looked_for(tmp_path: Path) -> None:
    """None is a problem, and so is one that is closed to this user."""
    case = a_host(tmp_path)

    assert codes(devices.nodes(case)) == ["devices.missing"]

    for name in ("nvidiactl", "nvidia0", "nvidia-uvm", "null"):
        (tmp_path / "dev" / name).touch()

    assert "3 nodes" in the(devices.nodes(case), "devices").seen


def as_nobody(look: "Iterator[Finding]") -> list[str]:
    """What a check finds for a user without privileges; root may do everything."""
    if os.geteuid() != 0:
        return codes(look)
    os.seteuid(65534)
    try:
        return codes(look)
    finally:
        os.seteuid(0)


def test_what_is_closed_to_the_user_is_told(tmp_path: Path) -> None:
    """Device nodes, the kernel log and the folders of state, each with its own remedy."""
    closed = tmp_path / "dev/nvidiactl"
    case = a_host(tmp_path, kernel_log=str(tmp_path / "kmsg"), health_file="/proc/gpuwatch/health.json")
    (tmp_path / "kmsg").touch(mode=0)
    closed.touch(mode=0)

    assert "kernel_log.closed" in as_nobody(host.kernel_log(case))
    assert "files.closed" in as_nobody(host.files(case))


def test_hidden_processes_are_told(tmp_path: Path) -> None:
    """hidepid, and a PID namespace that is not the host's."""
    case = a_host(tmp_path)
    (tmp_path / "proc/mounts").write_text("proc /proc proc rw,relatime,hidepid=invisible 0 0\n")

    assert "hidepid=invisible" in the(host.processes(case), "processes.hidden").seen

    (tmp_path / "proc/mounts").write_text("proc /proc proc rw 0 0\n")
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026532999]")

    assert codes(host.processes(case)) == ["processes.namespace"]


def test_what_an_agent_of_this_user_cannot_see_is_told(tmp_path: Path) -> None:
    """Each with its remedy; where the evidence is switched off, nothing is missed."""
    made = FolderHost(tmp_path / "host")
    made.write("sys/fs/cgroup/cgroup.controllers", "cpu")
    case = replace(a_host(tmp_path), roots=made.roots)

    assert codes(host.blind(case)) == ["blind.network"]

    (tmp_path / "host/sys/fs/cgroup/cgroup.controllers").unlink()
    shutil.rmtree(tmp_path / "host/run/systemd")
    (tmp_path / "host/proc/1/io").mkdir()

    assert codes(host.blind(case)) == ["blind.cgroups", "blind.run", "blind.process_io", "blind.network"]
    assert codes(host.blind(a_host(tmp_path, evidence=EvidenceSettings(enabled=False)))) == []


@pytest.fixture
def seen_by_all() -> Iterator[Path]:
    """A folder that a user without privileges may enter, unlike tmp_path."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_terminals_that_cannot_be_written_are_told(seen_by_all: Path) -> None:
    """Those with `mesg n` do not count; where nobody has one open, the group decides; switched off, nothing is."""
    case, folder = a_host(seen_by_all), seen_by_all / "dev/pts"
    folder.mkdir()

    assert as_nobody(host.terminals(case)) == ["terminals.closed"]
    assert as_nobody(host.terminals(a_host(seen_by_all, wall=False))) == []

    (folder / "0").touch(mode=0o600)
    (folder / "1").touch()
    if os.geteuid() == 0:
        os.chown(folder / "1", 65533, 65533)
    (folder / "1").chmod(0o020)
    (folder / "ptmx").touch()

    assert as_nobody(host.terminals(case)) == ["terminals.closed"]

    (folder / "1").chmod(0o622)

    assert as_nobody(host.terminals(case)) == []


def metadata(folder: Path, service: MetadataService, provider: Literal["aws", "alibaba"] = "aws") -> list[Finding]:
    """What is found of a metadata service."""
    settings = MetadataSettings(provider=provider, endpoint=service.url)
    return list(host.metadata(a_host(folder, metadata=settings)))


def test_a_hardened_metadata_service_is_fine(tmp_path: Path) -> None:
    """It answers with a token and refuses without one."""
    with serving(Ec2()) as service:
        findings = metadata(tmp_path, service)

    assert codes(findings) == []
    assert len(findings) == 2


def test_a_token_that_never_comes_is_the_hop_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container behind one hop: the connection stands and the answer to PUT is lost."""
    monkeypatch.setattr(host, "METADATA_SECONDS", 0.3)
    with serving(Ec2()) as service:
        service.silent.add(TOKEN_PATH)

        assert codes(metadata(tmp_path, service)) == ["metadata.hop_limit"]


def test_a_service_that_is_switched_off_is_told(tmp_path: Path) -> None:
    """HttpEndpoint disabled."""
    with serving(Ec2()) as service:
        service.enabled = False

        assert codes(metadata(tmp_path, service)) == ["metadata.disabled"]


def test_imds_version_1_is_a_warning(tmp_path: Path) -> None:
    """It answers without a token as well: HttpTokens=optional."""

    class Old(Ec2):
        def refuse(self, request: object) -> int:
            del request
            return 0

    with serving(Old()) as service:
        findings = metadata(tmp_path, service)

    assert codes(findings) == ["metadata.v1"]
    assert EC2_DOCUMENT not in str(findings)


def test_a_cloud_whose_token_is_optional_is_not_blamed(tmp_path: Path) -> None:
    """Alibaba's service answers without by design."""
    with serving(Alibaba(hardened=False)) as service:
        assert codes(metadata(tmp_path, service, "alibaba")) == []


def test_a_service_that_cannot_be_reached_is_a_problem(tmp_path: Path) -> None:
    """The provider was set, and nobody is there."""
    with serving(Ec2()) as service:
        gone = service
    gone.server_close()

    assert codes(metadata(tmp_path, gone)) == ["metadata.failed"]


def test_a_machine_of_ones_own_asks_nobody(tmp_path: Path) -> None:
    """No cloud's mark is on its board."""
    assert codes(host.metadata(a_host(tmp_path))) == []


def test_the_clock_is_the_kernels_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adjtimex says TIME_ERROR where nothing synchronizes it; asking changes nothing."""

    class Libc:
        state = 5

        def adjtimex(self, asked: "ctypes.Array[ctypes.c_char]") -> int:
            assert asked.raw == bytes(512), "modes other than 0 would set the clock"
            return self.state

    libc = Libc()
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: libc)

    assert codes(host.clock(None)) == ["clock.unsynchronized"]
    libc.state = 0
    assert codes(host.clock(None)) == []


def test_another_source_needs_no_driver(tmp_path: Path) -> None:
    """A simulated agent is asked for neither NVML nor device nodes nor the kernel log."""
    case = a_host(tmp_path, source="simulated")

    assert codes([*devices.driver(case), *devices.nodes(case), *host.kernel_log(case)]) == []

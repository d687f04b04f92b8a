"""The doctor on a host with AMD GPUs: driver, device nodes, the kernel's list of processes."""

import sys
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.cli.doctor import amd, devices
from gpuwatch.cli.doctor.context import AgentCase
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.doctor_findings import codes, the
from tests.support.fakes.amd import DRIVER_NOT_LOADED, FILE_ERROR, NO_PERM, UNEXPECTED_DATA, AmdHost


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AmdHost:
    """Two MI300X with their device nodes, which the probes of this test see."""
    made = AmdHost(tmp_path, gpus=2)
    monkeypatch.setenv("AMDSMI_STUB", str(made.state_file))
    (made.root / "dev/dri").mkdir(parents=True)
    for name in ("kfd", "dri/renderD128", "dri/renderD129", "dri/card0"):
        (made.root / "dev" / name).touch()
    return made


def a_case(host: AmdHost, **settings: Any) -> AgentCase:  # noqa: ANN401  settings are anything
    """The agent on that host."""
    root = host.root
    probe = (sys.executable, "-m", "gpuwatch", "probe", "--cycles", "1", "--root", str(root))
    return AgentCase(
        settings=AgentSettings(**settings),
        clock=SystemClock(),
        dev=root / "dev",
        proc=root / "proc",
        sys=root / "sys",
        probe=probe,
    )


def test_a_driver_that_works_is_fine(host: AmdHost) -> None:
    """Without a word about NVIDIA's, which is not there."""
    case = a_case(host)
    findings = [*amd.driver(case), *amd.nodes(case), *devices.driver(case), *devices.nodes(case)]

    assert codes(findings) == []
    assert the(findings, "amd_driver").seen == "AMD SMI shows 2, the kernel 2; driver 6.14.14"
    assert the(findings, "amd_devices").seen == "3 nodes can be read and written"
    assert len(findings) == 2


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"init_error": DRIVER_NOT_LOADED}, "amd.driver_not_loaded"),
        ({"init_error": NO_PERM}, "amd.no_permission"),
        ({"init_error": UNEXPECTED_DATA}, "amd.unavailable"),
        ({"library": "absent"}, "amd.library_not_found"),
        ({"gpus": []}, "amd.none"),
    ],
)
def test_what_is_wrong_with_the_driver_is_told(host: AmdHost, facts: dict[str, object], code: str) -> None:
    """Each reason has its remedy."""
    host.set(**facts)

    assert codes(amd.driver(a_case(host))) == [code]


def test_gpus_that_are_not_shown_or_read(host: AmdHost) -> None:
    """One that the kernel knows alone, and one that answers nothing."""
    host.pci("0000:99:00.0")
    host.gpu(1).error(FILE_ERROR)

    assert codes(amd.driver(a_case(host))) == ["amd.missing", "amd.unreadable"]


@pytest.mark.parametrize(("facts", "where"), [({"init_blocks": True}, "AMD SMI"), ({}, "GPU 1")])
def test_where_a_driver_hangs_is_told(
    host: AmdHost, monkeypatch: pytest.MonkeyPatch, facts: dict[str, object], where: str
) -> None:
    """At the opening, or at one GPU."""
    monkeypatch.setattr(devices, "PROBE_SECONDS", 2.0)
    host.set(**facts)
    host.gpu(1).hang("amdsmi_get_gpu_activity")

    assert where in the(amd.driver(a_case(host)), "amd.hangs").looked_at


@pytest.mark.parametrize("gone", ["kfd", "dri/renderD*"])
def test_device_nodes_are_looked_for(host: AmdHost, gone: str) -> None:
    """KFD's, and one for each GPU; a card's own node is for screens."""
    for path in (host.root / "dev").glob(gone):
        path.unlink()

    assert codes(amd.nodes(a_case(host))) == ["amd.nodes_missing"]


def test_a_closed_node(host: AmdHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is named."""
    monkeypatch.setattr(amd, "may_write", lambda path: path.name != "renderD129")

    assert "renderD129" in the(amd.nodes(a_case(host)), "amd.nodes_closed").seen


def test_without_the_kernels_list(host: AmdHost) -> None:
    """A container that does not see the host's /sys."""
    (host.root / "sys/class/kfd/kfd/proc").rmdir()

    assert codes(amd.nodes(a_case(host))) == ["amd.holders_unseen"]


def test_who_is_asked(host: AmdHost) -> None:
    """The settings' driver alone; a simulation asks nobody."""
    assert list(amd.driver(a_case(host, source="nvml"))) == []
    assert list(amd.nodes(a_case(host, source="simulated"))) == []
    assert [finding.code for finding in devices.driver(a_case(host, source="simulated"))] == ["driver"]

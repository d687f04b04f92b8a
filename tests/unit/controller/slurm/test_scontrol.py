"""controller/slurm/scontrol.py: what scontrol prints, what it is started with, and each way in which it fails."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError, NotFoundError
from gpuwatch.clouds.errors import PermitExpiredError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.slurm.scontrol import Scontrol, parse_nodes
from gpuwatch.controller.slurm.settings import SlurmSettings
from gpuwatch.model.slurm import SlurmNode, reason_of
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW
from tests.support.builders.slurm import KEY

# As Slurm 22.05 prints it, shortened.
BLOCK = """NodeName=gpu-1 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=1 CPUTot=1 CPULoad=0.01
   NodeAddr=10.0.0.1 NodeHostName=host-1 Version=22.05.8
   OS=Linux 6.1.0 State=fake
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=all
   LastBusyTime=2026-11-23T21:45:46
   Gres=gpu:h200:8(S:0-1)
{more}
"""
CONFIG = """Configuration data as of 2026-11-23T22:20:02
ResumeFailProgram       = (null)
ResumeProgram           = {resume}
SuspendExcNodes         = (null)
SuspendProgram          = {suspend}
SuspendTime             = INFINITE
"""
OURS = f"   Reason={reason_of('Its GPU 0 is failing.', KEY)} [root@2026-11-23T21:45:46]"


def block(state: str = "IDLE", more: str = "") -> str:
    """One node."""
    return BLOCK.format(state=state, more=more)


def permit(seconds: float = 60.0) -> Permit:
    """One that holds for so long."""
    return Permit.asked_now(ManualClock(wall=NOW), seconds, lambda: seconds > 0)


def scontrol(folder: Path, script: str, **settings: object) -> Scontrol:
    """The shell script in place of the program; it writes its arguments to `asked`, one a line."""
    program = folder / "scontrol"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" --- >>"{folder}/asked"\n{script}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Scontrol(SlurmSettings(scontrol=str(program), pools=("default",), **settings))  # type: ignore[arg-type]


def asked(folder: Path) -> list[list[str]]:
    """The arguments of each start."""
    calls = (folder / "asked").read_text().split("---\n")
    return [call.splitlines() for call in calls if call]


def showing(folder: Path, text: str, *, update: str = "exit 0") -> Scontrol:
    """It shows that text."""
    (folder / "shown").write_text(text)
    return scontrol(folder, f'[ "$1" = show ] && exec cat "{folder}/shown"\n{update}')


@pytest.mark.parametrize(("cpus", "read"), [("64", 64), ("1", None), ("N/A", None)])
def test_the_cpus_of_a_node_are_read(cpus: str, read: int | None) -> None:
    """CPUTot also has those that are kept for the system; 1 is what Slurm says where slurm.conf names none."""
    (node,) = parse_nodes(block().replace("CPUTot=1", f"CPUTot={cpus}"))
    assert node.cpus == read


def test_a_node_is_read_with_its_states_and_our_reason() -> None:
    """The person and the time behind a reason are Slurm's own."""
    (node,) = parse_nodes(block("IDLE+DRAIN", OURS))
    assert node == SlurmNode(
        name="gpu-1",
        host="host-1",
        address="10.0.0.1",
        states=("IDLE", "DRAIN"),
        reason=f"gpuwatch: Its GPU 0 is failing. {KEY}",
        gpus=8,
        partitions=("all",),
        gpu_kinds=(("h200", 8),),
    )
    assert node.drained_by == KEY


@pytest.mark.parametrize(
    ("reason", "ours"),
    [
        ("fan [ann@2026-11-23T21:45:46]", False),
        (f"gpuwatch: sick {KEY}, and ann looks at it [ann@2026-11-23T21:45:46]", False),
        (f"gpuwatch: sick {KEY} [me@home] [ann@2026-11-23T21:45:46]", False),
        (f"see gpuwatch: sick {KEY} [ann@2026-11-23T21:45:46]", False),
        (f"gpuwatch: sick {KEY}", True),
    ],
)
def test_a_reason_that_says_more_is_somebody_elses(reason: str, *, ours: bool) -> None:
    """Only the whole of it is ours."""
    (node,) = parse_nodes(block("IDLE+DRAIN", f"   Reason={reason}"))
    assert (node.drained_by is not None) is ours


@pytest.mark.parametrize(
    "text",
    [
        block("IDLE*"),
        block("idle"),
        block("IDLE", "   Comment=x\n   State=IDLE"),
        block("IDLE+DRAIN", f"{OURS}\n   Comment=x\n{OURS}"),
        "NodeName=gpu-1 CoresPerSocket=1\n   CPUAlloc=0\n",
    ],
)
def test_what_cannot_be_read_for_certain_is_a_doubt(text: str) -> None:
    """A comment that looks like a field, states in other words, a block that ends too soon."""
    (node,) = parse_nodes(text)
    assert node.doubt is not None
    assert not node.sound


@given(st.text())
def test_any_output_is_a_list_of_nodes_or_an_error(text: str) -> None:
    """Never anything else."""
    try:
        nodes = parse_nodes(text)
    except CloudUnavailableError:
        return
    assert all(node.doubt is not None or node.states for node in nodes)


@given(st.text())
def test_any_cause_becomes_a_reason_in_one_line_that_is_known_as_ours(cause: str) -> None:
    """Plain characters, no quotation mark, no bracket."""
    reason = reason_of(cause, KEY)
    assert reason.isascii()
    assert reason.isprintable()
    assert SlurmNode(name="a", states=("IDLE", "DRAIN"), reason=reason).drained_by == KEY
    (read,) = parse_nodes(block("IDLE+DRAIN", f"   Reason={reason} [root@2026-11-23T21:45:46]"))
    assert read.drained_by == KEY


def test_a_drain_is_one_update_with_each_argument_as_it_is(tmp_path: Path) -> None:
    """No shell sees the cause."""
    showing(tmp_path, block()).drain("gpu-1", "GPU 0: $(reboot); `x` 'y'", KEY, permit=permit())
    assert asked(tmp_path) == [
        ["show", "node", "gpu-1"],
        ["update", "NodeName=gpu-1", "State=DRAIN", f"Reason=gpuwatch: GPU 0: $(reboot); `x` y {KEY}"],
    ]


def test_a_resume_is_one_update_under_our_own_drain(tmp_path: Path) -> None:
    """After a look at it."""
    showing(tmp_path, block("MIXED+DRAIN", OURS)).resume("gpu-1", KEY, permit=permit())
    assert asked(tmp_path)[-1] == ["update", "NodeName=gpu-1", "State=RESUME"]


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DOWN", "DOWN+DRAIN", "IDLE+FAIL", "IDLE+MAINT", "UNKNOWN"])
def test_what_somebody_takes_out_between_look_and_update_is_left_alone(tmp_path: Path, state: str) -> None:
    """The update is not sent."""
    with pytest.raises(NotFoundError, match="somebody else's"):
        showing(tmp_path, block(state, "   Reason=fan [ann@x]")).drain("gpu-1", "sick", KEY, permit=permit())
    assert len(asked(tmp_path)) == 1


@pytest.mark.parametrize("more", ["", "   Reason=fan [ann@x]", OURS.replace(KEY, f"{KEY[:-1]}0")])
def test_another_drain_is_not_undone(tmp_path: Path, more: str) -> None:
    """Nor a drain of ours that is not that one."""
    with pytest.raises(NotFoundError, match="not under that drain"):
        showing(tmp_path, block("IDLE+DRAIN", more)).resume("gpu-1", KEY, permit=permit())
    assert len(asked(tmp_path)) == 1


@pytest.mark.parametrize("name", ["gpu-[1-4]", "gpu-1,gpu-2", "ALL", "all", "--help", "", "gpu 1", "NONE\n"])
def test_a_name_that_may_be_several_nodes_is_never_sent(tmp_path: Path, name: str) -> None:
    """NodeName= takes lists, ranges and ALL."""
    with pytest.raises(NotFoundError):
        showing(tmp_path, block()).drain(name, "sick", KEY, permit=permit())
    assert not (tmp_path / "asked").exists()


def test_an_expired_permit_sends_nothing(tmp_path: Path) -> None:
    """The look took too long, or another controller leads."""
    with pytest.raises(PermitExpiredError):
        showing(tmp_path, block()).drain("gpu-1", "sick", KEY, permit=permit(0.0))
    assert len(asked(tmp_path)) == 1


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("echo 'slurm_update error: Invalid user id' >&2; exit 1", AuthFailedError, "operator of Slurm"),
        ("echo 'slurm_update error: Invalid node name specified' >&2; exit 1", NotFoundError, "Invalid node name"),
        ("echo 'slurm_update error: Invalid node state specified' >&2; exit 1", CloudUnavailableError, "state"),
        ("exec sleep 9", CloudUnavailableError, "did not end within"),
    ],
)
def test_an_update_that_fails_says_how(tmp_path: Path, script: str, error: type[CloudError], words: str) -> None:
    """Scontrol's words are kept; what may have been carried out is not called refused."""
    made = showing(tmp_path, block(), update=script)
    made = Scontrol(SlurmSettings(scontrol=made.settings.scontrol, pools=("default",), timeout=0.5))
    with pytest.raises(error, match=words):
        made.drain("gpu-1", "sick", KEY, permit=permit())


def test_an_unknown_node_is_none_and_other_failures_are_no_answer(tmp_path: Path) -> None:
    """Scontrol tells of an unknown node in its output."""
    assert scontrol(tmp_path, "echo Node gpu-1 not found; exit 1").node("gpu-1") is None
    failing = scontrol(tmp_path, "echo 'slurm_load_node error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(CloudUnavailableError, match="Unable to contact"):
        failing.nodes()
    with pytest.raises(CloudUnavailableError, match="cannot be started: No such file"):
        Scontrol(SlurmSettings(scontrol=str(tmp_path / "none"), pools=("default",))).nodes()
    with pytest.raises(CloudUnavailableError, match="shows 0 nodes"):
        scontrol(tmp_path, "exit 0").node("gpu-1")


def test_only_the_settings_say_which_cluster_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the controller's own environment change neither the cluster nor the output."""
    for name in ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SCONTROL_ALL"):
        monkeypatch.setenv(name, "elsewhere")
    made = scontrol(tmp_path, f'env >"{tmp_path}/env"', conf="/etc/slurm-2/slurm.conf")
    assert made.nodes() == ()
    lines = [line for line in (tmp_path / "env").read_text().splitlines() if line.startswith(("SLURM", "SCONTROL"))]
    assert lines == ["SLURM_CONF=/etc/slurm-2/slurm.conf"]


@pytest.mark.parametrize(
    ("suspend", "resume", "power"),
    [
        ("(null)", "(null)", None),
        ("/opt/suspend", "/opt/resume", "SuspendProgram=/opt/suspend"),
        ("/opt/suspend -q", "(null)", "SuspendProgram=/opt/suspend -q"),
        ("(null)", "/opt/resume", "ResumeProgram=/opt/resume"),
    ],
)
def test_one_program_of_slurm_conf_makes_slurm_the_owner_of_the_power(
    tmp_path: Path, suspend: str, resume: str, power: str | None
) -> None:
    """Whatever SuspendTime says: people may power nodes down by it as well."""
    (tmp_path / "config").write_text(CONFIG.format(suspend=suspend, resume=resume))
    assert scontrol(tmp_path, f'exec cat "{tmp_path}/config"').power() == power
    assert asked(tmp_path) == [["show", "config"]]


@pytest.mark.parametrize("text", ["", "SuspendProgram = (null)\n", CONFIG + CONFIG])
def test_settings_that_do_not_name_both_programs_are_no_answer(tmp_path: Path, text: str) -> None:
    """Nobody knows then whose the power is."""
    (tmp_path / "config").write_text(text)
    with pytest.raises(CloudUnavailableError, match="SuspendProgram and ResumeProgram"):
        scontrol(tmp_path, f'exec cat "{tmp_path}/config"').power()

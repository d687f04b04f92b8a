"""What is handed out: a wheel that has everything, and one file that runs on a GPU host where nothing is installed."""

import os
import shlex
import signal
import subprocess
import sys
import tomllib
import venv
import zipfile
from contextlib import suppress
from importlib.metadata import distribution
from pathlib import Path

import pytest

from gpuwatch.cli.main import commands
from gpuwatch.runtime.installed import DISTRIBUTION
from tests.support.bare_install import needed
from tests.support.paths import ROOT
from tests.support.real.agents import RunningAgent, eventually

SHIPPED = ("alerts", "dashboards", "deploy/helm", "deploy/kustomize", "docs/examples/starter.yaml", "systemd")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder))
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """A folder with the wheel and what it needs without any extra, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    for name in needed(DISTRIBUTION, set()):
        if name == DISTRIBUTION:
            continue
        for file in distribution(name).files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(Path(str(file.locate())).read_bytes())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has nothing installed."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True, with_pip=False)
    return folder / "bin/python"


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Path:
    """The file of `make shiv`: made by its own command, but from what lies here."""
    made = tmp_path_factory.mktemp("pyz") / "gpuwatch.pyz"
    planned = subprocess.run(["make", "--dry-run", "shiv"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (command,) = (shlex.split(line) for line in planned.splitlines() if "--console-script" in line)
    assert command[-2:] == ["dist/gpuwatch.pyz", "."]
    shiv = [sys.executable, "-m", "shiv", *command[1:-2], str(made), "--site-packages", str(installed)]
    subprocess.run(shiv, cwd=ROOT, capture_output=True, check=True)
    return made


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    """Tables of prices, pages, templates, the mark of typed code, and what `gpuwatch export` writes; nothing else."""
    ours = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "gpuwatch").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert packed - ours == {"gpuwatch/revision.txt", *(f"gpuwatch/shipped/{name}" for name in shipped_files())}
    assert ours <= packed
    assert "gpuwatch/py.typed" in packed
    assert {"gpuwatch/runtime/base.html", "gpuwatch/money/report/report.html"} <= packed


def shipped_files() -> set[str]:
    """The files beside the package that a wheel has, by their paths in the repository: no tests, no sources."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *SHIPPED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return {name for name in listed if not name.endswith("_test.yml") and not name.startswith("dashboards/source/")}


def test_the_wheel_of_a_clone_holds_its_commit(wheel: Path) -> None:
    """`gpuwatch version` shows it after `pip install .`; nothing is left beside the wheel."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("gpuwatch/revision.txt").decode() == head
    assert [each.name for each in wheel.parent.iterdir()] == [wheel.name]


def test_the_wheel_is_small(wheel: Path) -> None:
    """Each GPU host downloads it, most of them for the agent alone."""
    assert wheel.stat().st_size < 2_850_000


def test_the_images_have_what_the_wheel_has() -> None:
    """The Dockerfile copies each folder that the wheel is made of; hatchling would leave out a missing one silently."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packed = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    copied = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()

    assert set(packed) == {"gpuwatch", *SHIPPED}
    wanted = [*packed, project["tool"]["hatch"]["build"]["hooks"]["custom"]["path"]]
    assert [each for each in wanted if f"COPY {each} {each}" not in copied] == []


def test_the_wheel_names_its_program_and_its_extras(wheel: Path) -> None:
    """`gpuwatch`, and what the README tells to install."""
    with zipfile.ZipFile(wheel) as archive:
        named = {Path(name).name: name for name in archive.namelist() if ".dist-info/" in name}
        entry_points = archive.read(named["entry_points.txt"]).decode()
        metadata = archive.read(named["METADATA"]).decode()

    assert "gpuwatch = gpuwatch.__main__:main" in entry_points
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {f"Provides-Extra: {extra}" for extra in extras} <= set(metadata.splitlines())


def test_an_agent_needs_no_extra(bare_python: Path, installed: Path) -> None:
    """It judges its settings, reads, and serves with the wheel's own requirements alone."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    with RunningAgent(environment, (str(bare_python), "-P", "-m", "gpuwatch"), source="simulated") as agent:
        eventually(lambda: agent.health()["gpus_up"], lambda: agent.log)


def test_one_file_is_an_agent(bare_python: Path, pyz: Path, tmp_path: Path) -> None:
    """Its probe and the judge of its settings come out of the same file, and metrics are served."""
    environment = {**os.environ, "SHIV_ROOT": str(tmp_path)}
    with RunningAgent(environment, (str(bare_python), str(pyz)), source="simulated") as agent:
        eventually(lambda: agent.health()["gpus_up"], lambda: agent.log)
        (first,) = agent.children()
        os.kill(first, signal.SIGKILL)  # it is a fork of the agent; those that follow are started
        eventually(lambda: [str(pyz), "probe"] in started(agent), lambda: agent.log)

        assert "gpuwatch_gpu_up" in agent.get("/metrics")


def started(agent: RunningAgent) -> list[list[str]]:
    """File and command of each child; a child shows its parent's until it runs its own program."""
    found = []
    for each in agent.children():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            found.append(Path(f"/proc/{each}/cmdline").read_text(encoding="utf-8").split("\0")[2:4])
    return found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("probe", "--once", "--source", "simulated"), '"uuid"'),
        (("snooze", "--list"), "No snooze holds."),
        (("top", "--once"), "Simulated GPU"),
        (("--version",), "gpuwatch"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_one_file_is_what_a_host_needs(
    bare_python: Path, pyz: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    """Probe, snooze and top, too."""
    environment = {**os.environ, "SHIV_ROOT": str(tmp_path / "shiv"), "HOME": str(tmp_path)}
    environment |= {"GPUWATCH_AGENT__PORT": "1", "GPUWATCH_AGENT__SOURCE": "simulated"}  # no agent is there
    environment["GPUWATCH_AGENT__EVIDENCE__SNOOZE__DIRECTORY"] = str(tmp_path / "snoozes")
    done = subprocess.run([bare_python, pyz, *arguments], env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert words in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("status",), 2, "pip install 'gpuwatch-fleet[aws]'"),
        (("explain", "x"), 2, "pip install 'gpuwatch-fleet[aws]'"),
        (("backtest", "--trace", "load.csv"), 2, "pip install 'gpuwatch-fleet[aws]'"),
        (("controller",), 2, "pip install 'gpuwatch-fleet[aws]'"),
        (("demo",), 2, "pip install 'gpuwatch-fleet[demo]'"),
        (("config", "check"), 0, "the ledger cannot be read here"),
        (("prices", "--gpu", "H100"), 0, "p5.48xlarge"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_bare_install_says_what_to_install(
    bare_python: Path, installed: Path, tmp_path: Path, arguments: tuple[str, ...], status: int, words: str
) -> None:
    """The wheel with its own requirements alone; tests/unit/cli/test_bare_install.py tries every command."""
    (tmp_path / "load.csv").write_text("node,gpu,time,utilization\na,0,0,90\na,0,60,0\n", encoding="utf-8")
    (tmp_path / "gpuwatch.yaml").write_text("limits: {require_backtest: 30d}\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(installed), "GPUWATCH_CONFIG": str(tmp_path / "gpuwatch.yaml")}
    command = [str(bare_python), "-P", "-m", "gpuwatch", *arguments]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "Traceback" not in done.stderr
    assert done.returncode == status, done.stderr
    assert words in done.stdout + done.stderr


def _written_by(command: list[str | Path], folder: Path, **variables: str) -> dict[str, str]:
    """What every export and `config init` write, by its path below the folder; the configuration passes its check."""
    kinds = commands.commands["export"].commands  # type: ignore[attr-defined]  # a group has some
    more = {"join": ("10.0.0.5",)}
    reads_no_ledger = [kind for kind in kinds if kind != "focus"]
    wanted = [("export", kind, str(folder / kind), *more.get(kind, ())) for kind in reads_no_ledger]
    file = str(folder / "gpuwatch.yaml")
    for arguments in (*wanted, ("config", "init", file), ("config", "check", "--config", file)):
        done = subprocess.run(
            [*command, *arguments],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_export_works_wherever_gpuwatch_was_installed_from(
    bare_python: Path, installed: Path, pyz: Path, tmp_path: Path
) -> None:
    """A wheel without extras and the one file write what a checkout writes."""
    checkout = _written_by([sys.executable, "-m", "gpuwatch"], tmp_path / "checkout", PYTHONPATH=str(ROOT))
    wheel = _written_by([bare_python, "-P", "-m", "gpuwatch"], tmp_path / "wheel", PYTHONPATH=str(installed))
    file = _written_by([bare_python, pyz], tmp_path / "file", SHIV_ROOT=str(tmp_path / "shiv"))

    assert {"dashboards/fleet.json", "units/gpuwatch-agent.service", "iam/observe.json", "gpuwatch.yaml"} <= set(
        checkout
    )
    assert wheel == checkout
    assert file == checkout

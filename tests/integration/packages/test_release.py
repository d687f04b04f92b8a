"""tools/release: what a release is made of, without a network: version, shared libraries, files, packages, sums."""

import io
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version

import gpuwatch
from tests.support.components import require
from tests.support.paths import ROOT
from tools.release import debian, inventory, libraries, staging
from tools.release.source import NotReadyError, Source, checked, cut, released, tilde

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n- A thing.\n\n## [0.9.0] - 2026-01-01\n- Old.\n"


def test_the_changelog_and_the_package_have_one_version() -> None:
    """The newest version in the changelog, and nothing may wait; a cut makes it so, and loses no line."""
    with pytest.raises(NotReadyError, match=r"1\.0\.0rc1.*0\.9\.0"):
        checked(CHANGELOG, "1.0.0rc1")
    with pytest.raises(NotReadyError, match="Unreleased"):
        checked(CHANGELOG, "0.9.0")
    ready = cut(CHANGELOG, "1.0.0rc1", "2026-11-23")

    checked(ready, "1.0.0rc1")
    assert released(ready) == (Version("1.0.0rc1"), "")
    assert "## [Unreleased]\n\n## [1.0.0-rc1] - 2026-11-23\n\n### Added\n- A thing." in ready
    assert [line for line in CHANGELOG.splitlines() if line not in ready.splitlines()] == []


@pytest.mark.parametrize(("version", "date"), [("0.9.0", "2026-11-23"), ("1.0.0", "23.11.2026")])
def test_a_cut_that_makes_no_sense_is_refused(version: str, date: str) -> None:
    """The same version twice, and a date that no changelog has."""
    with pytest.raises(NotReadyError):
        cut(CHANGELOG, version, date)


def test_our_own_changelog_can_be_read() -> None:
    """Its headings are of the form that the tool knows."""
    newest, waiting = released((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))

    assert waiting or newest == Version(gpuwatch.__version__)


def test_a_candidate_is_older_than_its_release_for_dpkg_and_rpm() -> None:
    """Both order `~` before the end of a version."""
    assert tilde(Version("1.0.0rc1")) == "1.0.0~rc1"
    assert tilde(Version("1.0.0")) == "1.0.0"


def _installation(folder: Path, python: str, code: str = "x = 1\n") -> Path:
    """What uv makes of a library with a compiled part."""
    (folder / "lib").mkdir(parents=True)
    (folder / "lib-1.dist-info").mkdir()
    (folder / "bin").mkdir()
    (folder / "bin/lib").touch()
    (folder / "lib/__init__.py").write_text(code, encoding="utf-8")
    (folder / f"lib/_c.cpython-{python}-x86_64-linux-gnu.so").write_bytes(python.encode())
    (folder / "lib-1.dist-info/METADATA").write_text("Name: lib\n", encoding="utf-8")
    (folder / "lib-1.dist-info/WHEEL").write_text(f"Tag: cp{python}\n", encoding="utf-8")
    return folder


def test_libraries_of_two_pythons_share_what_is_equal(tmp_path: Path) -> None:
    """Each Python finds its compiled part; files of installers and programs are left out."""
    for python in ("311", "312"):
        libraries.merge(_installation(tmp_path / python, python), tmp_path / "merged")

    files = {str(path.relative_to(tmp_path / "merged")) for path in (tmp_path / "merged").rglob("*") if path.is_file()}
    compiled = {f"lib/_c.cpython-{python}-x86_64-linux-gnu.so" for python in ("311", "312")}
    assert files == {"lib/__init__.py", "lib-1.dist-info/METADATA", *compiled}


def test_libraries_that_differ_are_never_mixed(tmp_path: Path) -> None:
    """A module that is another one for another Python ends the release."""
    libraries.merge(_installation(tmp_path / "a", "311"), tmp_path / "merged")
    with pytest.raises(libraries.MixedError, match=r"lib/__init__\.py"):
        libraries.merge(_installation(tmp_path / "b", "312", "x = 2\n"), tmp_path / "merged")


def test_locks_that_disagree_are_refused(tmp_path: Path) -> None:
    """The controller's package adds to the agent's, so both have each library at one version."""
    whole, known = _installation(tmp_path / "whole", "311"), _installation(tmp_path / "known", "311")
    (known / "other-2.dist-info").mkdir()
    with pytest.raises(libraries.MixedError, match="other-2"):
        libraries.only(whole, known, tmp_path / "rest")


def test_both_locks_have_the_same_versions() -> None:
    """So that `make release` can be run at any time."""
    agent, controller = inventory.locked("agent"), inventory.locked("controller")

    assert agent
    assert {name: controller.get(name) for name in agent} == agent


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """This tree, of a time in the past."""
    folder = tmp_path_factory.mktemp("source")
    for name in ("docs", "packaging", "systemd"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("README.md", "SECURITY.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, folder / name)
    return Source(folder=folder, version=Version("1.0.0rc1"), revision="0" * 40, epoch=1_700_000_000)


@pytest.fixture(scope="module")
def packages(source: Source, tmp_path_factory: pytest.TempPathFactory) -> tuple[staging.Package, staging.Package]:
    """Both packages with one library in place of all."""
    folder = tmp_path_factory.mktemp("packages")
    tree = libraries.Tree(
        agent=_installation(folder / "app", "311"), controller=_installation(folder / "controller", "312")
    )
    return staging.stage(source, tree, folder / "staged")


def test_a_package_has_its_unit_its_settings_and_its_pages(packages: tuple[staging.Package, staging.Package]) -> None:
    """The unit starts the package's own program; nothing lies where administrators' files belong, but the settings."""
    base, controller = packages
    files = {str(file) for file in base.files()}
    unit = (base.root / staging.UNITS / "gpuwatch-agent.service").read_text(encoding="utf-8")

    assert "ExecStart=/usr/bin/gpuwatch agent\n" in unit
    assert {"usr/lib/sysusers.d/gpuwatch.conf", "usr/bin/gpuwatch", "usr/lib/gpuwatch/app/__main__.py"} <= files
    assert "usr/share/doc/gpuwatch/systemd.md" in files
    assert {file for file in files if file.startswith("etc/")} == {"etc/gpuwatch/gpuwatch.yaml"}
    assert not {str(file) for file in controller.files()} & files
    assert not any("local" in file.parts for file in base.files())


def test_the_launcher_names_every_supported_python(packages: tuple[staging.Package, staging.Package]) -> None:
    """The newest one first; where the system has none of them it says which it needs, and ends with 1."""
    script = packages[0].root / "usr/lib/gpuwatch/python"
    text = script.read_text(encoding="utf-8")
    done = subprocess.run(
        ["sh", "-c", text.replace("/usr/bin/", "/nowhere/")], capture_output=True, text=True, check=False
    )

    assert [text.index(f"/usr/bin/python{each}") for each in reversed(libraries.pythons())] == sorted(
        text.index(f"/usr/bin/python{each}") for each in libraries.pythons()
    )
    assert done.returncode == 1
    assert f"needs Python {libraries.pythons()[0]} to {libraries.pythons()[-1]}" in done.stderr


@pytest.mark.component("dpkg-deb")
def test_a_deb_is_what_debian_expects(
    source: Source, packages: tuple[staging.Package, staging.Package], tmp_path: Path
) -> None:
    """Settings are conffiles, files are root's, the controller needs its own version of the base, scripts are sh."""
    made = [debian.build(source, package, "amd64", tmp_path) for package in packages]
    dpkg = str(require("dpkg-deb"))

    def field(deb: Path, name: str) -> str:
        return subprocess.run([dpkg, "--field", deb, name], capture_output=True, text=True, check=True).stdout.strip()

    assert [deb.name for deb in made] == [
        "gpuwatch_1.0.0~rc1-1_amd64.deb",
        "gpuwatch-controller_1.0.0~rc1-1_amd64.deb",
    ]
    assert "python3 (>= 3.11) | python3." in field(made[0], "Depends")
    assert field(made[1], "Depends").startswith("gpuwatch (= 1.0.0~rc1-1)")
    data = subprocess.run([dpkg, "--fsys-tarfile", made[0]], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert {(each.uname, each.gname) for each in archive} == {("root", "root")}
        assert {each.mtime for each in archive if each.isfile()} == {source.epoch}
        programs = {each.name for each in archive if each.isfile() and each.mode & stat.S_IXUSR}
    assert programs == {"./usr/bin/gpuwatch", "./usr/lib/gpuwatch/python", "./usr/lib/gpuwatch/compile"}
    subprocess.run([dpkg, "--control", made[0], tmp_path / "control"], check=True)
    assert (tmp_path / "control/conffiles").read_text(encoding="utf-8") == "/etc/gpuwatch/gpuwatch.yaml\n"
    for script in ("postinst", "prerm", "postrm"):
        subprocess.run(["sh", "-n", tmp_path / "control" / script], check=True)
    assert "enable" not in (tmp_path / "control/postinst").read_text(encoding="utf-8").replace("enabled", "")


@pytest.mark.component("dpkg-deb")
def test_the_same_commit_gives_the_same_deb(
    source: Source, packages: tuple[staging.Package, staging.Package], tmp_path: Path
) -> None:
    """Byte for byte."""
    made = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        made.append(debian.build(source, packages[1], "amd64", tmp_path / name).read_bytes())

    assert made[0] == made[1]


def test_sums_are_what_sha256sum_checks(tmp_path: Path) -> None:
    """Every file but the sums themselves; a file that was changed is found."""
    (tmp_path / "a.whl").write_bytes(b"a")
    (tmp_path / "b.deb").write_bytes(b"b")
    inventory.sums(tmp_path)
    check = ["sha256sum", "--check", "--quiet", inventory.SUMS]

    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    (tmp_path / "b.deb").write_bytes(b"c")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 1


@pytest.mark.nightly  # test_packages.py has what is in the wheel
def test_the_wheel_and_the_sdist_have_what_is_exported(tmp_path: Path) -> None:
    """Alerts, dashboards, units and the Helm chart; a wheel can be made of the sdist."""
    sdists: list[str | Path] = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "sdist",
        "--directory",
        tmp_path,
    ]
    subprocess.run(sdists, cwd=ROOT, capture_output=True, check=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    wheel: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path]
    subprocess.run(wheel, cwd=unpacked, capture_output=True, check=True)
    (made,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(made) as archive_of_wheel:
        names = archive_of_wheel.namelist()

    for folder in ("alerts", "dashboards", "systemd", "deploy/helm", "deploy/kustomize"):
        assert any(name.startswith(f"gpuwatch/shipped/{folder}/") for name in names)

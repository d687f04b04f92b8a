"""`python -m tools.release`: write dist/, and say what was left out and why."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import gpuwatch
from tools.release import debian, images, inventory, libraries, rpm, single, staging
from tools.release.programs import FailedError, run
from tools.release.source import ROOT, NotReadyError, Source, checked, cut, export, uncommitted

_LOCKS = ("agent", "controller")


def main() -> int:
    """The exit status: 0, 1 where a step failed, 2 where the tree is not ready."""
    options = _arguments()
    try:
        if options.cut:
            changelog = ROOT / "CHANGELOG.md"
            changed = cut(changelog.read_text(encoding="utf-8"), gpuwatch.__version__, options.cut)
            changelog.write_text(changed, encoding="utf-8")
            _say(f"CHANGELOG.md: {gpuwatch.__version__} of {options.cut}. Read it, then commit it.")
            return 0
        if not options.draft:
            checked((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), gpuwatch.__version__)
        if uncommitted():
            _say("Warning: changes that are not committed are not in this release.")
        return _release(options)
    except NotReadyError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except FailedError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _release(options: argparse.Namespace) -> int:
    """Everything into a new folder, which then replaces the old one."""
    done: list[str] = []
    out: Path = options.out.absolute()
    with tempfile.TemporaryDirectory(prefix="gpuwatch-release-") as temporary:
        work, made = Path(temporary), Path(temporary) / "dist"
        made.mkdir()
        source = export(work / "source")
        for line in _steps(options, source, work, made):
            done.append(line)
            _say(line)
        inventory.sums(made)
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(made, out)
    left_out = [line for line in done if line.startswith("left out")]
    _say(f"gpuwatch {source.version}, {source.revision[:12]}: {len(list(out.iterdir()))} files in {options.out}")
    for line in left_out:
        _say(line)
    return 0


def _steps(options: argparse.Namespace, source: Source, work: Path, made: Path) -> Iterator[str]:
    """Make one thing after the other; a line for each."""
    wheel = _wheel(source, made)
    yield f"made {wheel.name} and the sdist"
    for lock in _LOCKS:
        yield f"made {inventory.bill(options.tools / 'cyclonedx-py', source, lock, made).name}"
    for architecture in options.architectures:
        folder = work / architecture
        yield f"fetching the locked libraries for {architecture}: Python {', '.join(libraries.pythons())}"
        tree = libraries.build(options.tools / "uv", wheel, architecture, folder)
        yield f"made {single.build(source, tree, architecture, made).name}"
        packages = staging.stage(source, tree, folder / "staged")
        for package in packages:
            if shutil.which("dpkg-deb"):
                yield f"made {debian.build(source, package, architecture, made).name}"
            if shutil.which("rpmbuild"):
                yield f"made {rpm.build(source, package, architecture, made).name}"
        shutil.rmtree(folder)
    for tool, kind in (("dpkg-deb", ".deb (Debian package dpkg)"), ("rpmbuild", ".rpm (Debian package rpm)")):
        if not shutil.which(tool):
            yield f"left out: {kind}: {tool} is not installed here"
    if options.no_images:
        yield "left out: the images' builds were not checked (--no-images)"
    else:
        yield images.check(source.folder)


def _wheel(source: Source, made: Path) -> Path:
    """Wheel and sdist."""
    command: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "--directory", made]
    run(command, cwd=source.folder, env=source.environment())
    (wheel,) = made.glob("*.whl")
    return wheel


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder that is written anew")
    parser.add_argument("--tools", type=Path, default=Path(sys.executable).parent, help="folder with uv, cyclonedx-py")
    parser.add_argument("--architectures", nargs="+", choices=("amd64", "arm64"), default=["amd64", "arm64"])
    parser.add_argument("--draft", action="store_true", help="build though the changelog is not cut")
    parser.add_argument("--no-images", action="store_true", help="do not check that both images build")
    parser.add_argument("--cut", metavar="YYYY-MM-DD", help="only write the version and this date into CHANGELOG.md")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

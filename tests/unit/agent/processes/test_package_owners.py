"""Whose a file is, by the databases of packages: nothing is nobody's that was not proved so."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.agent import command
from gpuwatch.agent.processes import packages
from gpuwatch.agent.processes.package_owners import find_owners
from gpuwatch.agent.processes.packages import Owner, PackageOwners
from gpuwatch.agent.processes.rpm_database import FOLDERS
from tests.support.fakes.package_databases import (
    COMPANY,
    DEBIAN,
    ROCKY,
    UBUNTU,
    APackage,
    base_files,
    put_dpkg,
    put_rpm,
)
from tests.support.nightly import examples

DISTRIBUTION, VENDOR, NOBODY, UNKNOWN = "distribution", "vendor", "nobody", "unknown"
CRON = "30 3 * * 0 root e2scrub_all\n"


def owner(root: Path, path: str) -> str:
    """Of one file."""
    return find_owners(str(root), [path])[0]


def put(root: Path, path: str, text: str = "") -> None:
    """A file of the host."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


# Who maintains a package · its priority · whose it is.
MAINTAINERS = [
    (DEBIAN, "optional", DISTRIBUTION),
    (UBUNTU, "optional", DISTRIBUTION),
    ("Michael Vogt <mvo@debian.org>", "optional", DISTRIBUTION),
    ("Canonical <snappy-devel@canonical.com>", "optional", DISTRIBUTION),
    ("Theodore Y. Ts'o <tytso@mit.edu>", "required", DISTRIBUTION),
    (COMPANY, "optional", VENDOR),
    ("<root@ip-10-0-1-5.ec2.internal>", "extra", VENDOR),  # fpm
    ("NVIDIA <cudatools@nvidia.com>", "optional", VENDOR),
    ("Equivs Dummy Package Generator <root@ubuntu>", "optional", VENDOR),
    ("Acme <ops@notdebian.org>", "optional", VENDOR),
    ("", "optional", VENDOR),
]


@pytest.mark.parametrize(("by", "priority", "whose"), MAINTAINERS)
def test_a_company_s_deb_is_not_the_distribution_s(tmp_path: Path, by: str, priority: str, whose: str) -> None:
    """What is not proved to be the distribution's is another vendor's."""
    put_dpkg(tmp_path, base_files(), APackage(name="acme-inference", files=("/usr/bin/a",), by=by, priority=priority))

    assert owner(tmp_path, "/usr/bin/a") == whose
    assert owner(tmp_path, "/usr/bin/b") == NOBODY


def test_debian_s_archive_proves_a_maintainer_who_writes_from_home(tmp_path: Path) -> None:
    """By apt's lists, where package and maintainer are the same; other archives prove nothing."""
    home = "Lance Lin <lq27267@gmail.com>"
    put_dpkg(
        tmp_path,
        base_files(),
        APackage(name="anacron", files=("/usr/sbin/anacron",), by=home),
        APackage(name="nginx", files=("/usr/sbin/nginx",), by="NGINX <np@nginx.example>"),
        APackage(name="acme", files=("/usr/bin/acme",), by=COMPANY),
    )
    for site, origin, listed in (
        ("deb.debian.org_debian_dists_trixie_", "Debian", [("0ad", DEBIAN), ("anacron", home), ("nginx", DEBIAN)]),
        ("apt.acme.example_", "Acme", [("acme", COMPANY)]),
    ):
        put(tmp_path, f"/var/lib/apt/lists/{site}InRelease", f"Hash: SHA256\n\nOrigin: {origin}\nLabel: x\n")
        text = "\n".join(f"Package: {name}\nVersion: 1\nMaintainer: {by}\n" for name, by in listed)
        put(tmp_path, f"/var/lib/apt/lists/{site}main_binary-amd64_Packages", text)

    asked = ["/usr/sbin/anacron", "/usr/sbin/nginx", "/usr/bin/acme"]
    assert find_owners(str(tmp_path), asked) == [DISTRIBUTION, VENDOR, VENDOR]


def test_the_names_of_one_file(tmp_path: Path) -> None:
    """/bin leads to /usr/bin, lists have either name; what links lead to is meant, too. Where /bin is a folder, not."""
    put_dpkg(tmp_path, base_files(), APackage(name="old", files=("/bin/ls", "/lib/systemd/x", "/usr/bin/vim.basic")))
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "etc/alternatives").mkdir(parents=True)
    (tmp_path / "usr/bin/vi").symlink_to("../../etc/alternatives/vi")
    (tmp_path / "etc/alternatives/vi").symlink_to("../../usr/bin/vim.basic")
    (tmp_path / "usr/bin/train").symlink_to("../../opt/x/train")

    assert [owner(tmp_path, each) for each in ("/usr/bin/ls", "/bin/ls", "/usr/lib/systemd/x", "/usr/bin/vi")] == [
        DISTRIBUTION
    ] * 4
    assert owner(tmp_path, "/usr/bin/train") == NOBODY
    (tmp_path / "bin").unlink()
    (tmp_path / "bin").mkdir()
    assert (owner(tmp_path, "/usr/bin/ls"), owner(tmp_path, "/bin/ls")) == (NOBODY, DISTRIBUTION)


def test_a_file_that_an_administrator_edited_is_the_administrator_s(tmp_path: Path) -> None:
    """By the sums of configuration files and of all others."""
    put_dpkg(
        tmp_path,
        base_files(),
        APackage(
            name="e2fsprogs",
            configuration={"/etc/cron.d/e2scrub_all": CRON},
            texts={"/usr/lib/systemd/system/e2.timer": "[Timer]\n"},
        ),
    )
    put(tmp_path, "/etc/cron.d/e2scrub_all", CRON)
    put(tmp_path, "/usr/lib/systemd/system/e2.timer", "[Timer]\n")
    both = ["/etc/cron.d/e2scrub_all", "/usr/lib/systemd/system/e2.timer"]
    as_it_came = find_owners(str(tmp_path), both)
    put(tmp_path, both[0], CRON + "0 2 * * * root /srv/train.sh\n")
    put(tmp_path, both[1], "[Timer]\nOnCalendar=02:00\n")

    assert as_it_came == [DISTRIBUTION] * 2
    assert find_owners(str(tmp_path), both) == [NOBODY] * 2


def test_diversions(tmp_path: Path) -> None:
    """A diverted name is the other package's, or the administrator's; the file itself has the new name."""
    diverted = "/usr/bin/perf\n/usr/bin/perf.real\nlinux-perf\n/usr/bin/top\n/usr/bin/top.real\n:\n"
    put_dpkg(
        tmp_path,
        base_files(),
        APackage(name="tools", files=("/usr/bin/perf", "/usr/bin/top"), by=COMPANY),
        APackage(name="linux-perf", files=("/usr/bin/perf",)),
        diversions=diverted,
    )

    asked = ["/usr/bin/perf", "/usr/bin/perf.real", "/usr/bin/top", "/usr/bin/top.real"]
    assert find_owners(str(tmp_path), asked) == [DISTRIBUTION, VENDOR, NOBODY, VENDOR]


def test_what_a_package_s_script_makes_is_the_package_s(tmp_path: Path) -> None:
    """/etc/cron.d/popularity-contest is in no list; a longer name of somebody's is not meant."""
    script = "CRON=/etc/cron.d/popularity-contest\necho x > $CRON\n"
    put_dpkg(tmp_path, base_files(), APackage(name="popularity-contest", script=script))

    assert owner(tmp_path, "/etc/cron.d/popularity-contest") == DISTRIBUTION
    assert owner(tmp_path, "/etc/cron.d/popularity") == NOBODY
    assert owner(tmp_path, "/etc/cron.d/popularity-contest.d") == NOBODY


def test_rpm_s_database_knows_the_distribution_by_its_release_file(tmp_path: Path) -> None:
    """Another vendor's package, EPEL's, an edited file, a file of nobody's."""
    cron = {"/etc/cron.d/0hourly": "01 * * * * root run-parts /etc/cron.hourly\n"}
    put_rpm(
        tmp_path,
        APackage(name="rocky-release", files=("/usr/lib/os-release",), by=ROCKY),
        APackage(name="cronie", files=("/usr/sbin/crond", "/usr/bin/crond-x"), by=ROCKY, configuration=cron),
        APackage(name="htop", files=("/usr/bin/htop",), by="Fedora Project"),
        APackage(name="acme", files=("/usr/bin/acme",), by="Acme"),
        APackage(name="docs", files=("/usr/share/doc/crond",), by="Acme"),
    )
    put(tmp_path, "/etc/cron.d/0hourly", cron["/etc/cron.d/0hourly"])
    asked = ["/usr/sbin/crond", "/usr/bin/htop", "/usr/bin/acme", "/etc/cron.d/0hourly", "/usr/bin/crond"]
    as_it_came = find_owners(str(tmp_path), asked)
    put(tmp_path, "/etc/cron.d/0hourly", "0 2 * * * root /srv/train.sh\n")

    assert as_it_came == [DISTRIBUTION, DISTRIBUTION, VENDOR, DISTRIBUTION, NOBODY]
    assert owner(tmp_path, "/etc/cron.d/0hourly") == NOBODY
    put(tmp_path, "/var/lib/rpm/rpmdb.sqlite-wal", "what was written lately")
    assert owner(tmp_path, "/usr/bin/crond") == UNKNOWN


def test_a_package_of_the_other_family_is_no_distribution_s(tmp_path: Path) -> None:
    """An rpm on Debian (alien): what it brought is another vendor's, and all else is dpkg's matter."""
    put_dpkg(tmp_path, base_files(), APackage(name="bash", files=("/usr/bin/bash",)))
    put_rpm(tmp_path, APackage(name="tool", files=("/opt/tool/bin/tool",), by="Fedora Project"))

    asked = ["/opt/tool/bin/tool", "/usr/bin/bash", "/usr/bin/other"]
    assert find_owners(str(tmp_path), asked) == [VENDOR, DISTRIBUTION, NOBODY]


@pytest.mark.parametrize(
    "there", ["nothing", "an empty status", "an image's list", "Berkeley DB", "no SQLite", "damaged"]
)
def test_without_a_database_of_this_system_nothing_is_known(tmp_path: Path, there: str) -> None:
    """Flatcar, Bottlerocket, COS, NixOS; Red Hat 8 and SUSE, whose databases are not read; a database that broke."""
    if there == "an empty status":
        put_dpkg(tmp_path)
    elif there == "an image's list":  # a tool of another family that somebody has installed
        put_dpkg(tmp_path, APackage(name="acme", files=("/usr/bin/acme",)))
    elif there == "Berkeley DB":
        put(tmp_path, "/var/lib/rpm/Packages", "\0\1\2")
    elif there == "no SQLite":
        put(tmp_path, "/var/lib/rpm/rpmdb.sqlite", "")
    elif there == "damaged":
        put_rpm(tmp_path, APackage(name="rocky-release", files=("/usr/lib/os-release",), by=ROCKY))
        file = tmp_path / "var/lib/rpm/rpmdb.sqlite"
        os.truncate(file, 4096)

    assert find_owners(str(tmp_path), ["/usr/bin/acme", "/usr/bin/other"]) == [UNKNOWN] * 2


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_file_of_a_package_is_nobody_s(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever is asked together, in whatever order: the answer of each file is its own."""
    root = tmp_path_factory.mktemp("host")
    names = st.text(st.characters(exclude_characters="/\n\0", codec="utf-8"), min_size=1, max_size=9)
    folders = st.sampled_from(("/usr/bin", "/usr/lib/x", "/opt/a", "/etc/cron.d", "/usr/local/bin"))
    paths = st.lists(st.builds("{}/{}".format, folders, names), unique=True, max_size=8)
    paths = paths.map(lambda found: [each for each in found if each == os.path.normpath(each)])
    theirs, ours = data.draw(paths), data.draw(paths)
    put_dpkg(root, base_files(), APackage(name="made", files=theirs), APackage(name="acme", files=(), by=COMPANY))
    asked = data.draw(st.permutations(list(dict.fromkeys([*theirs, *ours]))))

    answers = dict(zip(asked, find_owners(str(root), asked), strict=True))
    assert answers == {path: DISTRIBUTION if path in theirs else NOBODY for path in asked}


def test_the_agent_asks_a_program_that_ends(tmp_path: Path) -> None:
    """More paths than a pipe holds, and one with a line's end; the answer is kept until the file changes."""
    put_dpkg(tmp_path, base_files(), APackage(name="a", files=("/usr/bin/a",), texts={"/usr/bin/s": "one\n"}))
    put(tmp_path, "/usr/bin/s", "one\n")
    asked = ["/usr/bin/a", "/usr/bin/s", "/usr/bin/b\nc", *(f"/usr/bin/{'x' * 200}{number}" for number in range(400))]
    owners = PackageOwners(tmp_path)
    first = owners.owners(asked, 1.0)
    put(tmp_path, "/usr/bin/s", "another\n")

    assert [first[each] for each in asked[:3]] == [Owner.DISTRIBUTION, Owner.DISTRIBUTION, Owner.NOBODY]
    assert set(first.values()) == {Owner.DISTRIBUTION, Owner.NOBODY}
    assert owners.owners(asked[:2], 2.0) == {"/usr/bin/a": Owner.DISTRIBUTION, "/usr/bin/s": Owner.NOBODY}


def test_answers_last_until_a_database_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each path is asked about once; all again at most a minute after packages were installed."""
    asked: list[list[str]] = []

    def answer(root: str, paths: Sequence[str]) -> list[str]:
        asked.append(list(paths))
        return find_owners(root, paths)

    monkeypatch.setattr(packages, "ask_databases", answer)
    put_dpkg(tmp_path, base_files())
    owners = PackageOwners(tmp_path)
    at_first = [owners.owners(["/usr/bin/a"], at)["/usr/bin/a"] for at in (0.0, 10.0, 20.0)]
    put_dpkg(tmp_path, base_files(), APackage(name="a", files=("/usr/bin/a",)))
    soon, later = (owners.owners(["/usr/bin/a"], at)["/usr/bin/a"] for at in (30.0, 61.0))

    assert at_first == [Owner.NOBODY] * 3
    assert (soon, later, owners.turn) == (Owner.NOBODY, Owner.DISTRIBUTION, 1)
    assert asked == [["/usr/bin/a"]] * 2


def test_a_database_that_does_not_answer_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again after five minutes; one of an image, where the agent runs in a container, never."""
    asked: list[object] = []

    def silent(root: str, paths: object) -> list[str]:
        del root
        asked.append(paths)
        raise command.CommandError("nothing")

    monkeypatch.setattr(packages, "ask_databases", silent)
    put_dpkg(tmp_path, base_files())
    owners, contained = PackageOwners(tmp_path), PackageOwners(tmp_path, lambda: True)

    assert {owners.owners(["/usr/bin/a"], at)["/usr/bin/a"] for at in (0.0, 10.0, 299.0, 301.0)} == {Owner.UNKNOWN}
    assert len(asked) == 2
    assert contained.owners(["/usr/bin/a"], 0.0)["/usr/bin/a"] is Owner.UNKNOWN
    assert len(asked) == 2


def test_a_change_of_each_database_is_noticed() -> None:
    """Those that are read, and no other, are watched."""
    rpm = {f"{folder}/rpmdb.sqlite" for folder in FOLDERS}
    assert {each for each in packages.DATABASES if "rpm" in each and not each.endswith("-wal")} == rpm


def test_what_no_package_of_these_has_is_not_asked(tmp_path: Path) -> None:
    """Snaps, Nix, homes, and paths that are none."""
    owners = PackageOwners(tmp_path)
    for path in ("/snap/x/1/bin/x", "/nix/store/x/bin/x", "/home/alice/x", "x", "/usr/../home/x", "/usr//bin/x"):
        assert owners.owner(path) is Owner.UNKNOWN
    assert owners.misses == 0

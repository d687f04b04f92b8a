"""The owner of a file, by dpkg's database (Debian, Ubuntu and what descends from them).

1. `info/PACKAGE.list` names a package's files. A diversion gives a name to another package, or to the administrator.
2. A package is the distribution's by its maintainer's address, or because the system needs it (Priority). On Debian,
   where many maintainers write from addresses of their own, also because apt's lists of the distribution's archive
   have it with the same maintainer. Whatever is not proved so is another vendor's.
3. A small file with another sum than the package's was edited: it is the administrator's.
4. What a package's own script makes in /etc is in no list, and the package's.
"""

import hashlib
import mmap
import os
import re
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:  # as typing has it, which a program that ends at once need not load
    from collections.abc import Iterable

DISTRIBUTION, VENDOR, NOBODY, UNKNOWN = "distribution", "vendor", "nobody", "unknown"
_ADDRESSES = (b"debian.org", b"debian.net", b"ubuntu.com", b"canonical.com")
_NEEDED = (b"required", b"important")
_ARCHIVES = re.compile(rb"^Origin: (?:Debian|Ubuntu|Raspbian)\b", re.MULTILINE)
_BASE = "base-files"  # every one of these systems has it
_LARGEST_EDITED_BYTES = 1 << 18
_LARGEST_LIST_BYTES = 1 << 28
_MOST_LISTED = 16  # packages that apt's lists are asked for
_MERGED = re.compile(r"(?:/usr)?(/(?:s?bin|lib|lib32|lib64|libx32)/.*)")
_MADE_BY_SCRIPTS = ("/etc/cron.", "/etc/systemd/", "/etc/init.d/")
_SCRIPTS = (".postinst", ".config")
_FIRST_BYTES = 4096


class Package:
    """What `status` says of a package: its maintainer, and the sums of its files of configuration by path."""

    __slots__ = ("maintainer", "needed", "sums")

    def __init__(self, paragraph: bytes) -> None:
        """Read its paragraph of that file."""
        self.maintainer = _field(paragraph, b"Maintainer")
        self.needed = _field(paragraph, b"Priority") in _NEEDED
        listed = re.findall(rb"^ (/.*) ([0-9a-f]{32})(?: [a-z-]+)*$", paragraph, re.MULTILINE)
        self.sums: dict[str, str] = {os.fsdecode(path): found.decode() for path, found in listed}

    @property
    def domain(self) -> bytes:
        """Of its maintainer's address."""
        return self.maintainer.rpartition(b"@")[2].partition(b">")[0].strip().lower()


class DpkgDatabase:
    """One that is open."""

    def __init__(self, root: str) -> None:
        """Open the database of the host that has its files there.

        Raises:
            OSError: there is no database, or it may not be read.

        """
        self._root = root.rstrip("/")
        self._folder = f"{self._root}/var/lib/dpkg"
        self._status = b"\n" + _read_file(f"{self._folder}/status")
        self._diverted = self._diversions()
        self._packages: dict[str, Package | None] = {}

    @property
    def of_this_host(self) -> bool:
        """Whether the system itself came by it."""
        return self._package(_BASE) is not None

    def owners(self, paths: "Iterable[str]") -> dict[str, str]:
        """The owners of these files; without those that it does not know."""
        spelt = {path: spellings(self._root, path) for path in paths}
        wanted: dict[bytes, set[str]] = {}
        for path, names in spelt.items():
            for name in names:
                wanted.setdefault(os.fsencode(self._diverted.names.get(name, name)), set()).add(path)
        found: dict[str, str] = {}
        for package, listed in self._packages_with(wanted):
            for path in wanted[listed]:
                if self._is_there(package, os.fsdecode(listed), spelt[path]):
                    found[path] = package
        missing = {path for path in spelt if path not in found and path.startswith(_MADE_BY_SCRIPTS)}
        made = self._made_by_scripts(missing)
        edited = {path for path, package in found.items() if self._is_edited(package, path, spelt[path])}
        owners = self._whose({*found.values(), *made.values()})
        return {
            path: NOBODY if path in edited else owners[package]
            for path, package in {**made, **found}.items()
            if package in owners
        }

    def _packages_with(self, wanted: "dict[bytes, set[str]]") -> "Iterable[tuple[str, bytes]]":
        names = set(wanted)
        with os.scandir(f"{self._folder}/info") as entries:
            lists = [entry.path for entry in entries if entry.name.endswith(".list")]
        for path in lists:
            for name in names.intersection(_read_file(path).split(b"\n")):
                yield path.rpartition("/")[2].removesuffix(".list").partition(":")[0], name

    def _is_there(self, package: str, name: str, spelt: set[str]) -> bool:
        """Whether a package that lists this name has its file there: a diversion gives the name to another one."""
        by = self._diverted.by.get(name)
        return by is None or (by == package) is (name in spelt)

    def _diversions(self) -> "_Diversions":
        found = _Diversions()
        try:
            lines = _read_file(f"{self._folder}/diversions").decode("utf-8", "replace").splitlines()
        except OSError:
            return found
        for original, to, by in zip(lines[::3], lines[1::3], lines[2::3], strict=False):
            found.names[to] = original
            found.by[original] = by
        return found

    def _made_by_scripts(self, paths: set[str]) -> dict[str, str]:
        """The packages with scripts that name these paths."""
        found: dict[str, str] = {}
        if not paths:
            return found
        with os.scandir(f"{self._folder}/info") as entries:
            scripts = [entry.path for entry in entries if entry.name.endswith(_SCRIPTS)]
        for script in scripts:
            text = _read_file(script)
            for path in paths:
                if re.search(rb"%s(?![\w.-])" % re.escape(os.fsencode(path)), text):
                    found[path] = script.rpartition("/")[2].rpartition(".")[0].partition(":")[0]
        return found

    def _package(self, name: str) -> Package | None:
        if name not in self._packages:
            at = self._status.find(b"\nPackage: %s\n" % name.encode())
            end = self._status.find(b"\n\n", at + 1)
            self._packages[name] = None if at < 0 else Package(self._status[at : None if end < 0 else end + 1])
        return self._packages[name]

    def _is_edited(self, package: str, path: str, spelt: set[str]) -> bool:
        known = self._package(package)
        sums = {} if known is None else known.sums
        wanted = next((sums[name] for name in spelt if name in sums), None) or self._sum_listed(package, spelt)
        if wanted is None:
            return False
        text = read_whole(f"{self._root}{path}", _LARGEST_EDITED_BYTES)
        return text is not None and hashlib.md5(text, usedforsecurity=False).hexdigest() != wanted

    def _sum_listed(self, package: str, spelt: set[str]) -> str | None:
        """Of a file that is no configuration."""
        with os.scandir(f"{self._folder}/info") as entries:
            names = [e.path for e in entries if e.name.endswith(".md5sums") and e.name[: len(package)] == package]
        for name in names:
            if name.rpartition("/")[2].removesuffix(".md5sums").partition(":")[0] == package:
                text = b"\n" + _read_file(name)
                for each in spelt:
                    at = text.find(b"  %s\n" % os.fsencode(each.lstrip("/")))
                    if at >= 32:  # noqa: PLR2004  the letters of a sum
                        return text[at - 32 : at].decode("ascii", "replace")
        return None

    def _whose(self, packages: set[str]) -> dict[str, str]:
        known = {name: found for name in packages if (found := self._package(name)) is not None}
        base = self._package(_BASE)
        addresses = _ADDRESSES if base is None else (*_ADDRESSES, base.domain)
        ours = {
            name
            for name, package in known.items()
            if package.needed
            or any(package.domain == each or package.domain.endswith(b"." + each) for each in addresses)
        }
        left = {name: package.maintainer for name, package in known.items() if name not in ours}
        if left and base is not None and base.domain.endswith(b"debian.org"):
            ours |= self._in_archives(left)
        return {name: DISTRIBUTION if name in ours else VENDOR for name in known}

    def _in_archives(self, packages: dict[str, bytes]) -> set[str]:
        """Those that apt's lists of the distribution's archives have, with the same maintainer."""
        folder, found = f"{self._root}/var/lib/apt/lists", set[str]()
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError:
            return found
        releases = [name for name in names if name.endswith("Release") and _is_archive(f"{folder}/{name}")]
        sites = tuple(name.removesuffix("InRelease").removesuffix("Release") for name in releases)
        for name in names:
            if name.startswith(sites) and name.endswith("_Packages") and sites:
                found |= _listed_in(f"{folder}/{name}", {k: v for k, v in packages.items() if k not in found})
        return found


class _Diversions:
    """Original names by those that files were diverted to; and who diverted each (`:` is the administrator)."""

    __slots__ = ("by", "names")

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.by: dict[str, str] = {}


def spellings(root: str, path: str) -> set[str]:
    """The names that a database may have for a file: where /bin leads to /usr/bin both, and where a link leads to."""
    found = {path}
    try:
        real = os.path.realpath(f"{root}{path}")
        if real.startswith(f"{root}/"):
            found.add(real.removeprefix(root))
    except OSError:
        pass
    for each in tuple(found):
        merged = _MERGED.fullmatch(each)
        top = "" if merged is None else f"{root}/{merged[1].split('/')[1]}"
        if merged is not None and (os.path.islink(top) or not os.path.isdir(top)):  # noqa: PTH112, PTH114  no pathlib
            found |= {merged[1], f"/usr{merged[1]}"}
    return found


def read_whole(path: str, most_bytes: int) -> bytes | None:
    """A regular file of at most so many bytes; None: it is something else, larger, or may not be read."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            return None
        return os.read(opened, most_bytes + 1)
    except OSError:
        return None
    finally:
        os.close(opened)


def _is_archive(path: str) -> bool:
    try:
        with open(path, "rb") as file:  # noqa: PTH123  no pathlib
            return _ARCHIVES.search(file.read(_FIRST_BYTES)) is not None
    except OSError:
        return False


def _listed_in(path: str, packages: dict[str, bytes]) -> set[str]:
    """Those of the packages that a list of an archive has with that maintainer."""
    found: set[str] = set()
    try:
        with open(path, "rb") as file:  # noqa: PTH123  no pathlib
            if not 0 < os.fstat(file.fileno()).st_size <= _LARGEST_LIST_BYTES:
                return found
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
                for name, maintainer in list(packages.items())[:_MOST_LISTED]:
                    begin = b"Package: %s\n" % name.encode()
                    at = 0 if text[: len(begin)] == begin else text.find(b"\n" + begin)
                    end = text.find(b"\n\n", at)
                    if at >= 0 and _field(text[at : None if end < 0 else end], b"Maintainer") == maintainer:
                        found.add(name)
    except (OSError, ValueError):
        pass
    return found


def _field(paragraph: bytes, name: bytes) -> bytes:
    found = re.search(rb"^%s: *(.*)$" % name, paragraph, re.MULTILINE)
    return b"" if found is None else found[1].strip()


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123  no pathlib
        return file.read()

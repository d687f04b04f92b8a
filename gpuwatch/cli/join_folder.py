"""The folder in which an agent keeps what joining has given, as root writes in it: the agent's user owns it.

So whatever is there may be a trap. No link is followed, only what was made here is given to the agent, and two commands
at the same time take turns.
"""

import errno
import fcntl
import os
import pwd
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

USER = "gpuwatch-agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFolder:
    """The folder, open; `owner` has its files: None is who runs this."""

    path: Path
    descriptor: int
    owner: tuple[int, int] | None

    def read(self, name: str) -> bytes | None:
        """A file; None if it is not there.

        Raises:
            OSError: it cannot be read, or is a link.

        """
        try:
            opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path / name)) from error
        with os.fdopen(opened, "rb") as file:
            return file.read(65536)

    @contextmanager
    def prepare_file(self, name: str, text: str) -> Iterator[Path]:
        """A file under another name, for its owner alone; `put_in_place` gives it its own, else it is gone.

        Raises:
            OSError: it cannot be written.

        """
        fresh = f".{name}.{secrets.token_hex(4)}"
        try:
            opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self.descriptor)
            with os.fdopen(opened, "w", encoding="ascii") as file:
                if self.owner is not None:
                    os.fchown(file.fileno(), *self.owner)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            yield self.path / fresh
        finally:
            with suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=self.descriptor)

    def put_in_place(self, fresh: Path, name: str) -> None:
        """Replace the file of that name, whole."""
        os.replace(fresh.name, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        os.fsync(self.descriptor)

    def write(self, name: str, text: str) -> None:
        """Write a file; raises OSError."""
        with self.prepare_file(name, text) as fresh:
            self.put_in_place(fresh, name)


@contextmanager
def open_folder(path: Path) -> Iterator[AgentFolder]:
    """The folder, made where it is missing; nobody else joins in it meanwhile.

    Raises:
        OSError: it cannot be made or opened.
        ValueError: the agent could not renew in it.

    """
    owner, made = _agents_user(), False
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
        made = True
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:
            raise ValueError(f"{path} is a link or a file; name a folder by --folder") from error
        raise
    try:
        if owner is not None and made:
            os.fchown(descriptor, *owner)
        elif owner is not None and os.fstat(descriptor).st_uid != owner[0]:
            words = f"{path} is not the folder of {USER}, who renews the certificate in it: give it to that user"
            raise ValueError(words)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield AgentFolder(path=path, descriptor=descriptor, owner=owner)
    finally:
        os.close(descriptor)


def _agents_user() -> tuple[int, int] | None:
    """User and group that renew, where root joins for them."""
    if os.geteuid() != 0:
        return None
    try:
        user = pwd.getpwnam(USER)
    except KeyError:
        return None
    return user.pw_uid, user.pw_gid

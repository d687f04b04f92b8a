"""A socket at a path of this machine: the mode of its file says who may ask; clients are served one after the other."""

import contextlib
import logging
import os
import socket
import sys
import threading
from pathlib import Path
from socketserver import BaseRequestHandler, UnixStreamServer

_LOG = logging.getLogger(__name__)

_PATIENCE_SECONDS = 2.0  # for a listener that is there
_END_SECONDS = 5.0  # for the client that is being served when all ends


class UnixServer(UnixStreamServer):
    """Gives each client to a handler, in a thread of its own."""

    def __init__(self, path: Path, handler: type[BaseRequestHandler], *, mode: int, whose: str) -> None:
        """Listen at `path`; what a dead process left there is replaced. `whose` names such programs in errors.

        Raises:
            OSError: it cannot be made, or another process listens there.

        """
        self._path, self._mode, self._whose = path, mode, whose
        _clear(path, whose)
        super().__init__(str(path), handler)
        self._made = path.stat().st_ino

    def server_bind(self) -> None:
        """Bind, with the right permissions from the first moment."""
        with contextlib.suppress(OSError):  # Linux gives the file the mode of the socket, less the umask
            os.fchmod(self.socket.fileno(), self._mode)
        super().server_bind()
        self._path.chmod(self._mode)

    def start(self) -> None:
        """Serve clients from now on."""
        name = f"{self._whose} socket"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.5}, name=name, daemon=True).start()

    def close(self) -> None:
        """Serve no more clients, and remove the socket; one that is being served is not waited for without end."""
        ending = threading.Thread(target=self.shutdown, daemon=True)
        ending.start()
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wake:
            wake.settimeout(0)  # nobody takes clients from a full queue any more
            wake.connect(str(self._path))  # or it would look up at the next poll only
        ending.join(_END_SECONDS)
        self.server_close()
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._made:
                self._path.unlink()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that went away; whatever else happens is a mistake of ours."""
        del request, client_address
        gone = isinstance(sys.exception(), OSError)
        level = logging.DEBUG if gone else logging.ERROR
        _LOG.log(level, "a client of the %s's socket got no whole answer", self._whose, exc_info=True)


def _clear(path: Path, whose: str) -> None:
    """Remove a socket without a listener."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PATIENCE_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise OSError(f"another {whose} listens there")

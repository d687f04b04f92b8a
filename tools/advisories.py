"""Whether `make audit` can look anything up from here: exits 0 if so, else says in a sentence why not, and exits 1."""

import socket
import sys

_OSV = ("api.osv.dev", 443)  # https://osv.dev: the advisories of all open-source packages
_SECONDS = 10.0


def main() -> int:
    """Try to connect, and no more."""
    try:
        socket.create_connection(_OSV, timeout=_SECONDS).close()
    except OSError as error:
        why = error.strerror or type(error).__name__
        sys.stderr.write(
            f"No audit of the locked packages: their advisories ({_OSV[0]}) cannot be reached from here ({why}). "
            "Run `make audit` where they can.\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

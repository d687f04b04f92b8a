"""How a connection to PostgreSQL is kept from others: beyond this machine by TLS with a verified certificate.

libpq's own default, sslmode=prefer, gives the password in the clear to a server that says that it knows no TLS. Less
than verify-full holds where it is written in the URL, and nowhere else: not in PGSSLMODE, nor in a service file.
"""

import ipaddress
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuwatch.ledger.records import LedgerError

FULL = "verify-full"
_VERIFIES = frozenset({FULL, "verify-ca"})
_SYSTEM_SINCE = 160000  # libpq 16 knows sslrootcert=system
_OWN_ROOT = "~/.postgresql/root.crt"  # where libpq looks by itself
HINT = "see docs/ledger.md, TLS, for sslmode and sslrootcert in the URL"


def guarded_parameters(about: Mapping[str, Any], environ: Mapping[str, str], version: int) -> dict[str, Any]:
    """The parameters of a connection with what they leave to libpq's defaults; `version` is libpq's.

    Raises:
        LedgerError: there is no list of authorities that could be believed.

    """
    parameters = dict(about)
    if "sslmode" not in parameters:
        if is_local(parameters, environ):
            return parameters
        parameters["sslmode"] = FULL
    if parameters["sslmode"] in _VERIFIES and "sslrootcert" not in parameters and not _has_own_root(environ):
        parameters["sslrootcert"] = _system_root(version)
    return parameters


def is_local(about: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Whether it stays on this machine: a Unix socket, or loopback."""
    addresses = about.get("hostaddr") or ("" if about.get("host") else environ.get("PGHOSTADDR", ""))
    if addresses:
        return all(map(_is_loopback, str(addresses).split(",")))
    hosts = about.get("host")
    if not hosts:
        if about.get("service") or environ.get("PGSERVICE"):
            return False  # its file may name any
        hosts = environ.get("PGHOST", "")
    return all(
        each == "localhost" or each[:1] in {"", "/", "@"} or _is_loopback(each) for each in str(hosts).split(",")
    )


def weaker(about: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """The sslmode of a URL that leaves this machine and believes less than a whole certificate; None: it does not."""
    mode = about.get("sslmode", FULL)
    return None if mode == FULL or is_local(about, environ) else str(mode)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _has_own_root(environ: Mapping[str, str]) -> bool:
    """Whether libpq finds authorities by itself."""
    if "PGSSLROOTCERT" in environ:
        return True
    try:
        return Path(_OWN_ROOT).expanduser().exists()
    except (OSError, RuntimeError):  # nobody's home
        return False


def _system_root(version: int) -> str:
    """The authorities that this machine believes; a file first, for the driver's own OpenSSL may look elsewhere."""
    file = ssl.get_default_verify_paths().cafile
    if file is not None:
        return file
    if version >= _SYSTEM_SINCE:
        return "system"
    raise LedgerError("this machine has no list of certificate authorities; name one as sslrootcert=FILE in the URL")

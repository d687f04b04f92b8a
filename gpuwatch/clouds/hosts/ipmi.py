"""A BMC by IPMI: ipmitool, one run for each question.

Rules, all of them:

1. The password goes into the environment of that run, never into its arguments. The session asks for the rights of an
   operator, and no more.
2. A change is tried once. What ipmitool could not open a session for was not sent; what the BMC refused was not done;
   all else is a doubt. Only with `-v` ipmitool shows that a login was refused.
3. Only `chassis power soft` and `chassis power on` are ever sent.
4. The first question finds out which suite of ciphers the BMC takes: 17, else 3, which every IPMI 2.0 has. ipmitool
   would ask for it each time, and wait longer for some BMCs than a permit holds.
"""

import os
import re
import subprocess
from collections.abc import Callable

from gpuwatch.clouds.errors import AuthFailedError, CloudError, CloudUnavailableError, NotSentError
from gpuwatch.clouds.hosts.bmc import LOGIN_CODE, REFUSED_LOGIN, Shown
from gpuwatch.clouds.permit import Permit
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.printable import legible

_SECONDS = 15.0
_LONGEST = 200  # characters of ipmitool's own words
_GUID = re.compile(r"^System GUID\s*:\s*([0-9a-fA-F-]{36})\s*$", re.MULTILINE)
_POWER = re.compile(r"^Chassis Power is (on|off)\s*$", re.MULTILINE)
_STATES = {"on": NodeState.RUNNING, "off": NodeState.STOPPED}
_SUITES: tuple[str, ...] = ("17", "3")
_NO_SESSION = "Unable to establish"
_LOGIN = re.compile(  # other errors there are of the session, such as that the BMC has none free
    r"RAKP [24] (?:HMAC is invalid|message has invalid integrity"
    r"|message indicates an error : (?:unauthorized|invalid (?:role|name|integrity check)))"
)
_REFUSED = re.compile(r"Set Chassis Power Control to .* failed: (?!.*[Tt]imeout)")
_CODE = "Ipmi"


class Ipmi:
    """One BMC, with ipmitool."""

    def __init__(self, host: str, port: int | None, *, user: str, password: Callable[[], bytes]) -> None:
        """Nothing is asked yet."""
        self._reached = ("-v", "-I", "lanplus", "-H", host, "-p", str(port or 623), "-U", user, "-L", "OPERATOR", "-E")
        self._password, self._name, self._suites = password, f"its BMC {host}", _SUITES

    def show(self, uuid: str | None) -> Shown:
        """Its machine: the system's GUID, and whether the chassis is on."""
        del uuid
        try:
            said = self._run("mc", "guid")
        except NotSentError:
            if len(self._suites) == 1:
                raise
            self._suites = self._suites[1:]
            try:
                said = self._run("mc", "guid")
            except CloudError:
                self._suites = _SUITES
                raise
        self._suites = self._suites[:1]
        power = _first_of(_POWER, self._run("chassis", "power", "status"))
        return Shown(uuid=_first_of(_GUID, said), state=_STATES.get(power or "", NodeState.UNKNOWN))

    def switch_off(self, permit: Permit) -> None:
        """Ask for a clean shutdown, `soft`."""
        self._run("chassis", "power", "soft", permit=permit, change=True)

    def switch_on(self, permit: Permit | None) -> None:
        """Ask for power, `on`."""
        self._run("chassis", "power", "on", permit=permit, change=True)

    def _run(self, *words: str, permit: Permit | None = None, change: bool = False) -> str:
        try:
            secret = self._password().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise AuthFailedError(f"{self._name} cannot be asked: {error}", code="NoPassword") from None
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "IPMI_PASSWORD": secret}
        tries = ("-C", self._suites[0], "-N", "3", "-R", "1" if change else "2")
        seconds = _SECONDS
        if permit is not None:
            permit.check()
            seconds = min(seconds, permit.max_age_seconds - permit.age_seconds)
        try:
            done = subprocess.run(  # noqa: S603  without a shell
                ["ipmitool", *self._reached, *tries, *words],  # noqa: S607  wherever the system has it
                env=environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CloudUnavailableError(f"{self._name} did not answer in time (ipmitool)", code=_CODE) from None
        except OSError as error:
            raise AuthFailedError(f"ipmitool cannot be run ({error.strerror}); install it", code=_CODE) from None
        if done.returncode == 0:
            return done.stdout.decode("utf-8", "replace")
        said = done.stderr.decode("utf-8", "replace").strip()
        if _LOGIN.search(said):
            raise AuthFailedError(f"{self._name}: {REFUSED_LOGIN}", code=LOGIN_CODE)
        unsure = CloudError if _REFUSED.search(said) else CloudUnavailableError
        kind = NotSentError if _NO_SESSION in said else unsure
        last = legible(said.rpartition("\n")[2], _LONGEST)
        raise kind(f"{self._name}: ipmitool says {last!r}", code=_CODE)


def _first_of(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return None if found is None else found[1]

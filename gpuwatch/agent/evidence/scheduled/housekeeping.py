"""PURE: commands of crontabs and units that only keep a machine tidy: nobody loses anything if a night is left out.

An agent of a cloud or a vendor is one of them.
A command that does anything else besides (a second command, a pipe, a substitution) is not one of them.
"""

import re

from gpuwatch.agent.processes.kinds import is_agents_file

_SILENCED = re.compile(r"\s*(?:[12&]?>>?\s*(?:/dev/null|/var/log/\S+|&[12])|2>&1)")
_OPERATORS = re.compile(r"[;|&$`()<>\n]")
# Of Debian's cron and of Alpine's.
_FOLDERS = (
    *("cron.hourly", "cron.daily", "cron.weekly", "cron.monthly"),
    *("periodic/15min", "periodic/hourly", "periodic/daily", "periodic/weekly", "periodic/monthly"),
)
_CLEANS = frozenset({"update", "upgrade", "check-update", "makecache", "autoremove", "autoclean", "clean"})
# By program: words of which one must be there; none: whatever it is asked.
_TIDIES: dict[str, frozenset[str]] = {
    "logrotate": frozenset(),
    "savelog": frozenset(),
    "tmpreaper": frozenset(),
    "tmpwatch": frozenset(),
    "rm": frozenset(),
    "fstrim": frozenset(),
    "updatedb": frozenset(),
    "freshclam": frozenset(),
    "ntpdate": frozenset(),
    "run-parts": frozenset(f"/etc/{folder}" for folder in _FOLDERS),
    "find": frozenset({"-delete"}),
    "certbot": frozenset({"renew"}),
    "acme.sh": frozenset({"--cron"}),
    **dict.fromkeys(("apt-get", "apt", "yum", "dnf"), _CLEANS),
    **dict.fromkeys(("aide", "chkrootkit", "clamscan", "etckeeper", "lynis", "mandb", "rkhunter"), frozenset[str]()),
    **dict.fromkeys(("debian-sa1", "hwclock", "reboot", "sa1", "sa2", "sync"), frozenset[str]()),
    "snap": frozenset({"refresh"}),
    "docker": frozenset({"prune"}),
    "podman": frozenset({"prune"}),
}
_RUNS_OTHERS = ("-exec", "-execdir", "-ok", "-okdir", "--deploy-hook", "--post-hook", "--renew-hook", "--pre-hook")


def tidies(command: str) -> bool:
    """Whether a crontab's command only keeps the machine tidy. What it prints may go to a log."""
    plain = _SILENCED.sub("", command).strip().removesuffix("&").rstrip()
    if not plain or _OPERATORS.search(plain):
        return False
    program, *words = plain.split()
    if is_agents_file(program):
        return True
    wanted = _TIDIES.get(program.rpartition("/")[2])
    if wanted is None or any(word.startswith(_RUNS_OTHERS) for word in words):
        return False
    return not wanted or not wanted.isdisjoint(words)

"""`gpuwatch agent`: the settings are validated in another process, while this one loads the code that it will run.

The validator (pydantic, YAML) is needed for a moment, but would stay in memory for years. Its process hands the valid
settings over through a pipe and ends. The first probe is forked before and begins as soon as they are there (ADR 2).
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, NoReturn

from gpuwatch import __version__
from gpuwatch.agent import closed_reader
from gpuwatch.runtime.flags import Flags, wrong_value
from gpuwatch.runtime.later import load_without_more
from gpuwatch.runtime.printable import printable_text
from gpuwatch.runtime.program import own_command

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from gpuwatch.agent.probe.preforked import PreforkedProbe
    from gpuwatch.agent.settings import AgentHandover, AgentSettings

_FAILED = 1
# Of glibc's malloc.h. What is freed goes back to the kernel from 32 KiB on: else 0.6 MiB more stay for ever.
_M_ARENA_MAX = -8
_GIVE_BACK = {-1: 1 << 15, -2: 1 << 14, -3: 1 << 15}  # M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD
_LARGEST_REQUEST = 4096
_JUDGED_SECONDS = 30.0  # a file on a dead mount must not keep the agent from stopping

# Each flag stands for a variable and is validated by the same rules.
_FLAGS = {
    "source": "GPUWATCH_AGENT__SOURCE",
    "script": "GPUWATCH_AGENT__SCRIPT",
    "seed": "GPUWATCH_AGENT__SEED",
    "capture": "GPUWATCH_AGENT__CAPTURE",
    "interval": "GPUWATCH_AGENT__INTERVAL",
}
_BEFORE_STOP = "before-stop"
ORDERS = {
    "release": "Make the agent of this host release its GPUs: for a reset, a MIG change or a driver upgrade.",
    "acquire": "Make the agent of this host read its GPUs again.",
    _BEFORE_STOP: "Run the commands of `agent.before_stop` now, as before a stop of this host: to try them, as root.",
}
_LISTEN = ("GPUWATCH_AGENT__HOST", "GPUWATCH_AGENT__PORT")


def main(argv: Sequence[str]) -> int:
    """Run the agent until SIGTERM or SIGINT, or give a running one an order; the result is the exit status."""
    if argv and argv[0] in ORDERS:
        return (_run_before_stop if argv[0] == _BEFORE_STOP else _order)(argv[0], argv[1:])
    arguments = _flags().parse(argv)
    _frugal_malloc()
    if closed_reader.begin():
        _become_agent(argv)
    overrides = _overrides(arguments)
    judge = _judge(arguments.config, overrides, stderr=subprocess.PIPE)
    preforked = _prefork()
    try:
        # All that the thread needs is loaded before it starts: two threads that import may wait for each other.
        import gpuwatch.agent.probe.supervisor  # noqa: F401, PLC0415

        judging = _Judging(judge, preforked)
        judging.start()
        from gpuwatch.agent.daemon import serve  # noqa: PLC0415  loaded meanwhile

        judging.join()
        sys.stderr.write(printable_text(_as_typed(judging.mistakes, overrides)))
        if judging.begin is None:
            return judge.returncode if judge.returncode > 0 else _FAILED
        begin = judging.begin
        status = serve(begin.agent, lambda: _reread(arguments.config, overrides), begin.log_format)
    finally:
        if preforked is not None:
            preforked.dismiss()
    return _begin_anew(argv) if status is None else status


def _prefork() -> "PreforkedProbe | None":
    """The first probe, as a fork of this process that has loaded what both need; None: it could not be forked."""
    load_without_more("msgspec")
    from gpuwatch.agent.probe.main import main as probe  # noqa: PLC0415  loaded while the settings are judged
    from gpuwatch.agent.probe.preforked import PreforkedProbe  # noqa: PLC0415  as above

    try:
        return PreforkedProbe(probe, _load_nvml)
    except (OSError, RuntimeError):
        return None  # then it is started as a program, and says why if that fails, too


def _load_nvml() -> None:
    """What the probe of an NVIDIA GPU needs, and the agent never does: 1.2 MiB of it."""
    from gpuwatch.agent.devices.nvml.unused import forget_unused  # noqa: PLC0415  in the probe alone

    forget_unused()
    import gpuwatch.agent.devices.nvml.source  # noqa: F401, PLC0415  takes the place of what is forgotten

    _give_back_holes()


class _Judging(threading.Thread):
    """Waits for the settings, and lets the probe begin as soon as they are there, while the agent still loads."""

    def __init__(self, judge: "subprocess.Popen[bytes]", preforked: "PreforkedProbe | None") -> None:
        super().__init__(name="judging", daemon=True)
        self._judge, self._preforked = judge, preforked
        self.mistakes = ""
        self.begin: AgentHandover | None = None  # None: there are mistakes

    def run(self) -> None:
        """Until the judge has ended."""
        handed, mistakes = self._judge.communicate()
        self.mistakes = mistakes.decode(errors="replace")
        if self._judge.returncode != 0:
            return
        from gpuwatch.agent.probe.child import ProbeChild  # noqa: PLC0415  loaded by now
        from gpuwatch.agent.probe.command import probe_command  # noqa: PLC0415  as above

        begin = _handed_settings(handed)
        if self._preforked is not None:
            command = probe_command(begin.agent)
            ProbeChild.runs(command, self._preforked)
            self._preforked.begin(command[command.index("probe") + 1 :])
        self.begin = begin


def _reread(config: Path | None, overrides: Mapping[str, str]) -> "AgentSettings":
    """The settings as they are now.

    Raises:
        ValueError: they are not valid; the message has every mistake.

    """
    return _handed_settings(_judge_settings(_judge(config, overrides, stderr=subprocess.PIPE))).agent


def _handed_settings(judged: bytes) -> "AgentHandover":
    """What the judge has printed."""
    import msgspec  # noqa: PLC0415  loaded while the settings are judged

    from gpuwatch.agent.settings import AgentHandover  # noqa: PLC0415  as above

    return msgspec.json.decode(judged, type=AgentHandover)


def _frugal_malloc() -> None:
    """Let malloc have one arena, here and in every child, and give back what is free, here and in the first probe."""
    options = dict(_GIVE_BACK)
    if "MALLOC_ARENA_MAX" not in os.environ:  # else whoever has started us has seen to it
        os.environ["MALLOC_ARENA_MAX"] = "1"
        options[_M_ARENA_MAX] = 1
    import ctypes  # noqa: PLC0415  not for an order

    with contextlib.suppress(AttributeError, OSError):  # musl has no such options
        libc = ctypes.CDLL(None)
        for option, value in options.items():
            libc.mallopt(option, value)


def _give_back_holes() -> None:
    """Give back the pages that are free between others in use: malloc does so below the top of its heap alone."""
    import ctypes  # noqa: PLC0415  as above

    with contextlib.suppress(AttributeError, OSError):  # musl has no such call
        ctypes.CDLL(None).malloc_trim(0)


def _begin_anew(argv: Sequence[str]) -> NoReturn:
    """Replace this process by a fresh agent, under the same pid."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it is handled again; by default it would end us
    _become_agent(argv)


def _become_agent(argv: Sequence[str]) -> NoReturn:
    command = own_command("agent", *argv)
    closed_reader.before_exec()
    os.execv(command[0], command)  # noqa: S606  ours, without a shell


def _order(verb: str, argv: Sequence[str]) -> int:
    """Have the agent of this host release the GPUs or read them again."""
    from gpuwatch.agent.control import order  # noqa: PLC0415  loaded by this command only

    taken = Flags(prog=f"gpuwatch agent {verb}", description=ORDERS[verb])
    taken.add("--config", type=Path, metavar="FILE", help="where agent.control_socket is set, as the agent's")
    taken.add("--socket", type=Path, metavar="PATH", help="the agent's control socket; no file is read then")
    taken.add("--reason", default="", metavar="TEXT", help="shown by the agent's verdict and health page")
    arguments = taken.parse(argv)
    path: Path | None = arguments.socket
    if path is None:
        judge = _judge(arguments.config, {})
        handed, _ = judge.communicate()
        if judge.returncode != 0:
            return judge.returncode if judge.returncode > 0 else _FAILED
        path = Path(_handed_settings(handed).agent.control_socket)
    try:
        answer = order(path, verb, arguments.reason)
    except (OSError, ValueError) as error:
        sys.stderr.write(printable_text(f"gpuwatch agent {verb}: {error}\n"))
        return _FAILED
    (sys.stdout if answer.done else sys.stderr).write(printable_text(f"{answer.text}\n"))
    return 0 if answer.done else _FAILED


def _run_before_stop(verb: str, argv: Sequence[str]) -> int:
    """Run what is to run before a stop, for the agent that asks through the socket unit, or for a person."""
    taken = Flags(prog=f"gpuwatch agent {verb}", description=ORDERS[verb])
    taken.add("--config", type=Path, metavar="FILE", help="where agent.before_stop is set, as the agent's")
    taken.add("--action", choices=("stop", "terminate"), default="stop", help="what the commands are given")
    taken.add("--socket", action="store_true")  # standard input is the agent's
    arguments = taken.parse(argv)
    judge = _judge(arguments.config, {})
    handed, _ = judge.communicate()
    if judge.returncode != 0:
        return judge.returncode if judge.returncode > 0 else _FAILED
    from gpuwatch.agent import before_stop, before_stop_runs  # noqa: PLC0415  loaded by this command only
    from gpuwatch.runtime.clock import SystemClock  # noqa: PLC0415  as above

    settings = _handed_settings(handed).agent.before_stop
    if arguments.socket:
        try:
            sys.stdout.buffer.write(
                before_stop_runs.answer(settings, sys.stdin.buffer.read(_LARGEST_REQUEST), SystemClock())
            )
        except ValueError as error:
            sys.stderr.write(printable_text(f"gpuwatch agent {verb}: not a request: {error}\n"))
            return _FAILED
        return 0
    request = before_stop_runs.StopRequest(verb=arguments.action, node_id=socket.gethostname())
    well, sentence = before_stop.outcome_of(before_stop_runs.run_commands(settings, request, SystemClock()))
    (sys.stdout if well else sys.stderr).write(printable_text(f"{sentence}\n"))
    return 0 if well else _FAILED


def _judge(config: Path | None, overrides: Mapping[str, str], stderr: int | None = None) -> subprocess.Popen[bytes]:
    """Start the validator: it prints the settings, or prints every mistake on stderr and ends with status 2."""
    command = own_command("handover", *([str(config)] if config else []))
    # pydantic would look through all that is installed here for plugins, of which none is ours.
    environment = {"PYDANTIC_DISABLE_PLUGINS": "__all__", **os.environ, **overrides}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=stderr)  # noqa: S603  ours


def _judge_settings(judge: subprocess.Popen[bytes]) -> bytes:
    """The validated settings as JSON.

    Raises:
        ValueError: they are not valid; the message has every mistake.

    """
    try:
        handed, mistakes = judge.communicate(timeout=_JUDGED_SECONDS)
    except subprocess.TimeoutExpired:
        judge.kill()
        raise ValueError(f"they could not be read within {_JUDGED_SECONDS:.0f} s") from None
    if judge.returncode != 0:
        raise ValueError(mistakes.decode(errors="replace").strip())
    return handed


def _overrides(arguments: SimpleNamespace) -> dict[str, str]:
    """The flags as variables."""
    given = {variable: getattr(arguments, flag) for flag, variable in _FLAGS.items()}
    given |= dict(zip(_LISTEN, arguments.listen or (None, None), strict=True))
    given["GPUWATCH_AGENT__COMPAT"] = ",".join(arguments.compat) if arguments.compat else None
    return {variable: value for variable, value in given.items() if value is not None}


def _as_typed(mistakes: str, overrides: Mapping[str, str]) -> str:
    """The mistakes with the flags that the user typed; the validator names variables."""
    typed = {variable: f"--{flag}" for flag, variable in _FLAGS.items()} | dict.fromkeys(_LISTEN, "--listen")
    typed["GPUWATCH_AGENT__COMPAT"] = "--compat"
    for variable in overrides:
        mistakes = mistakes.replace(f"environment variable {variable}:", f"{typed[variable]}:")
    return mistakes


def flags() -> "ArgumentParser":
    """The flags of `gpuwatch agent`."""
    return _flags().parser()


def _flags() -> Flags:
    taken = Flags(
        prog="gpuwatch agent",
        description="Read the GPUs of this host; serve metrics and a verdict on their use.",
        epilog="A running agent obeys `gpuwatch agent release` and `gpuwatch agent acquire`; `gpuwatch agent join` "
        "gets a certificate from the controller; see their --help.",
    )
    taken.add("--version", action="version", version=f"gpuwatch {__version__}", help="show the version")
    taken.add("--config", type=Path, metavar="FILE", help="settings ($GPUWATCH_CONFIG, /etc/gpuwatch/…)")
    taken.add("--listen", type=_listen, metavar="HOST:PORT", help="where to serve (127.0.0.1:9460)")
    taken.add("--source", metavar="NAME", help="auto, nvml, amdsmi, both, simulated or replay (auto)")
    taken.add("--script", metavar="FILE", help="simulated: what the GPUs do")
    taken.add("--seed", metavar="N", help="simulated: the same seed gives the same")
    taken.add("--capture", metavar="FILE", help="replay: a recorded output of `gpuwatch probe`")
    taken.add("--interval", metavar="DURATION", help="from cycle to cycle (1s)")
    taken.add("--compat", action="append", metavar="NAME", help="also as dcgm, nvidia_smi or nvitop")
    return taken


def _listen(text: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise wrong_value(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9460 or [::1]:9460")
    return host.strip("[]") or "127.0.0.1", port

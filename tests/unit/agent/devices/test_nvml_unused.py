"""devices/nvml/unused.py: a probe forgets what it does not need of NVML's binding, and nothing else."""

import re
import subprocess
import sys
from types import CodeType, FunctionType

import pynvml

from gpuwatch.agent.devices.nvml.unused import unused_names
from tests.support.fakes.nvml import StubDriver
from tests.support.paths import ROOT

UNUSED = unused_names()
READ = """
import pynvml
from gpuwatch.agent.launch import _load_nvml
{begin}
from dataclasses import asdict
from gpuwatch.agent.devices.nvml.source import NvmlSource
from gpuwatch.runtime.clock import SystemClock
source = NvmlSource(SystemClock())
for _ in range(2):
    (reading,) = map(source.read, source.gpus())
    events = source.events()
source.close()
known = {{name for name, value in asdict(reading).items() if value is not None}}
print(hasattr(pynvml, "nvmlDeviceSetPersistenceMode"), sorted(known), events)
"""


def test_what_the_source_names_stays() -> None:
    """Every word of its modules that is a name of the binding."""
    modules = (ROOT / "gpuwatch" / "agent" / "devices" / "nvml").glob("*.py")
    words = {word for module in modules for word in re.findall(r"\w+", module.read_text(encoding="utf-8"))}

    assert UNUSED & words == set()
    assert "nvmlDeviceGetSamples" in words


def test_what_stays_refers_to_nothing_that_is_forgotten() -> None:
    """A function that needs a structure, or another function, has it: also inside of what it wraps or defines."""

    def names(code: CodeType) -> set[str]:
        return set(code.co_names).union(*(names(each) for each in code.co_consts if isinstance(each, CodeType)))

    for name, thing in vars(pynvml).items():
        if name not in UNUSED and isinstance(thing, FunctionType):
            inner = getattr(thing, "__wrapped__", thing)
            assert (names(thing.__code__) | names(inner.__code__)) & UNUSED == set(), name


def test_much_of_the_binding_is_forgotten() -> None:
    """What writes settings, virtual GPUs, and structures of calls that nobody makes."""
    assert {"nvmlDeviceSetPowerManagementLimit", "nvmlVgpuInstanceGetUUID", "nvmlUnitGetCount"} <= UNUSED
    assert len(UNUSED) > 250


def test_a_lean_probe_reads_as_much(driver: StubDriver) -> None:
    """Each field that a whole binding reads of the same GPU, and events."""

    def said(begin: str) -> str:
        command = [sys.executable, "-c", READ.format(begin=begin)]
        environment = driver.environment
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    whole, lean = said("pass"), said("_load_nvml()")

    assert whole.startswith("True ['at', ")
    assert lean == whole.replace("True ", "False ", 1)

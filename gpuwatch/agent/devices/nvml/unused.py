"""What a probe does not need of NVML's binding: nearly half of its functions and structures, half a megabyte.

A binding writes settings, knows virtual GPUs and has each structure in all its versions; the probe only reads. What the
rest needs is found by the names in its code, so no list has to follow the binding.
"""

import gc
from collections.abc import Iterator
from types import CodeType, FunctionType

import pynvml

# How the names begin that the modules of this package use.
_USED = (
    *("nvmlDeviceGet", "nvmlDeviceRegister", "nvmlEvent", "nvmlGpm", "nvmlInit", "nvmlShutdown", "nvmlSystemGet"),
    *("nvmlMemory", "c_nvmlEccSram", "c_nvmlFieldValue", "c_nvmlGpm", "c_nvmlGpuFabric", "c_nvmlMemory"),
)
_NEVER = "Vgpu"
_OWN = ("nvml", "c_nvml", "struct_c_nvml")  # of the driver; what is called otherwise is the binding's own


def forget_unused() -> None:
    """Take them out of the binding. Whatever this process loads next takes their place in memory."""
    for name in unused_names():
        delattr(pynvml, name)
    gc.collect()


def unused_names() -> frozenset[str]:
    """Names of functions and structures that neither this package nor a kept function needs."""
    things = vars(pynvml)
    kept = {name for name in things if not name.startswith(_OWN) or (name.startswith(_USED) and _NEVER not in name)}
    found = list(kept)
    while found:
        fresh = {name for name in _names_in(things[found.pop()]) if name in things} - kept
        kept |= fresh
        found += fresh
    return frozenset(name for name, thing in things.items() if isinstance(thing, FunctionType | type)) - kept


def _names_in(thing: object) -> Iterator[str]:
    """Each name in the code of a function, with what it wraps, or of a class's methods."""
    functions = (
        [thing, *vars(thing).values()] if isinstance(thing, type) else [thing, getattr(thing, "__wrapped__", None)]
    )
    codes = [each.__code__ for each in functions if isinstance(each, FunctionType)]
    while codes:
        code = codes.pop()
        yield from code.co_names
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]

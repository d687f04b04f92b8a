"""Modules of the standard library that others import at their top and that a lean process may never need.

The agent and its probe run for years on every host. `dataclasses` imports `inspect`, `http.client` imports `ssl`,
`email` imports `random`, and so on: 3 MB in the agent and 3 in the probe, and time at each start. `loaded_later` puts a
stand-in in their place, which loads the module when somebody takes something out. `from ssl import …` does so
at once: there it saves nothing.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_SELDOM = (
    *("ast", "bz2", "calendar", "decimal", "dis", "hashlib", "hmac", "html", "ipaddress", "json", "linecache"),
    *("locale", "logging", "lzma", "mimetypes", "quopri", "random", "secrets", "shutil", "socket", "ssl"),
    *("subprocess", "tempfile", "textwrap", "tokenize", "traceback", "uuid", "zoneinfo"),
    *("email.header", "msgspec.inspect", "msgspec.msgpack", "msgspec.toml", "msgspec.yaml"),
)
_PACKAGES = frozenset({"html", "json", "logging", "zoneinfo"})
_SWITCH = threading.Lock()


class _StandIn(ModuleType):
    """Takes a module's place until it is needed, and hands out what that has from then on."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  a module holds anything
        """Whatever the module has."""
        if name == "__path__" and self.__name__ not in _PACKAGES:  # `from … import` asks whether it is one
            raise AttributeError(name)
        with _SWITCH:  # not held while it is loaded: that has the lock of the import
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


class _Inspect(_StandIn):
    """`inspect`, of which `dataclasses` wants a text for the help of each class that has no docstring."""

    def signature(self, of: object) -> object:
        """No help with classes: nobody reads it in these processes, and it takes 0.3 ms a class."""
        return "(...)" if isinstance(of, type) else self.__getattr__("signature")(of)


class _Gettext(_StandIn):
    """`gettext`, which `argparse` asks for the words of its messages; nobody has ever translated them."""

    def gettext(self, message: str) -> str:
        """As it is; the real one reads a table of all locales first."""
        return message

    def ngettext(self, one: str, many: str, count: int) -> str:
        """As it is, for so many."""
        return one if count == 1 else many


class _Platform(_StandIn):
    """`platform`, which `uuid` asks for the name of the system."""

    def system(self) -> str:
        """As the kernel says it."""
        return os.uname().sysname


class _ByName(_StandIn):
    """A module of which others take functions by name at their top, and never call them here."""

    _FUNCTIONS = frozenset({"quote_from_bytes", "schema", "schema_components"})

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  as above
        """The module is loaded when such a function is called."""
        if name not in self._FUNCTIONS:
            return super().__getattr__(name)

        def function(*given: object, **named: object) -> object:
            return _StandIn.__getattr__(self, name)(*given, **named)

        return function


class _Hollow(ModuleType):
    """Takes a module's place while a library is loaded that wants to know its types."""

    def __getattr__(self, name: str) -> type:
        """A type that no value has."""
        return type(name, (), {"unknown": None})


class _Bounds(_StandIn):
    """`annotated_types`, the bounds of settings: only their judge, another process, reads them."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        """A bound that says nothing."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


_SPECIAL = {
    "inspect": _Inspect,
    "gettext": _Gettext,
    "platform": _Platform,
    "annotated_types": _Bounds,
    "urllib.parse": _ByName,
    "msgspec._json_schema": _ByName,
}
_SLIGHT = frozenset({"email", "urllib"})  # packages that take nothing: their parts are found in them


def loaded_later() -> None:
    """Put stand-ins in the place of what has not been loaded yet. Call it before other imports."""
    for name in (*_SPECIAL, *_SELDOM):
        if name not in sys.modules:
            module = _SPECIAL.get(name, _StandIn)(name)
            module.__spec__ = ModuleSpec(name, None)
            sys.modules[name] = module
            package, _, part = name.rpartition(".")
            if package in _SLIGHT:
                setattr(import_module(package), part, module)


def load_without_more(library: str) -> None:
    """Load a library that takes typing_extensions where it is there, and has all it needs without it."""
    with missing("typing_extensions"), _hollow("decimal"), _hollow("uuid"):
        import_module(library)


@contextmanager
def _hollow(name: str) -> Iterator[None]:
    """Within it a module that has not been loaded has types that nothing is of."""
    before = sys.modules.get(name)
    if not isinstance(before, _StandIn):
        yield
        return
    sys.modules[name] = _Hollow(name)
    try:
        yield
    finally:
        sys.modules[name] = before


@contextmanager
def missing(name: str) -> Iterator[None]:
    """Within it a module cannot be imported, as if it were not installed; nothing changes if it is loaded already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # so Python's import system has it
    try:
        yield
    finally:
        del sys.modules[name]

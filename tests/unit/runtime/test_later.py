"""runtime/later.py: what a lean process does not use is not loaded, and is there as soon as it is used."""

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

BEGIN = """
import sys
from gpuwatch.runtime.later import load_without_more, loaded_later, missing
loaded_later()
load_without_more("msgspec")
import msgspec
loaded = lambda *names: [name for name in names if type(sys.modules.get(name)).__module__ == "builtins"]
"""


def said(program: str) -> str:
    """What a fresh process with stand-ins prints."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("room", "unused"),
    [
        (
            "gpuwatch.agent.daemon, gpuwatch.agent.launch",
            "inspect ssl html hashlib hmac platform tempfile zoneinfo annotated_types uuid decimal",
        ),
        (
            "gpuwatch.agent.probe.main, gpuwatch.agent.devices.nvml.source",
            "inspect ssl subprocess ipaddress random platform socket logging decimal urllib.parse",
        ),
    ],
    ids=["agent", "probe"],
)
def test_what_is_seldom_used_is_not_loaded(room: str, unused: str) -> None:
    """Neither by the agent nor by its probe; prometheus-client, typing_extensions and the clouds are not even found."""
    absent = {"prometheus_client", "_ssl", "gpuwatch.agent.metadata.aws", "statistics", "gzip"}
    program = f"import {room}; print(loaded(*{unused.split()!r}), sys.modules.keys() & {absent!r})"

    assert said(program) == "[] set()"
    assert said(f"import {room}; print('typing_extensions' in sys.modules)") == "False"


def test_what_is_used_is_there() -> None:
    """By attribute, by name, after others have taken it, from several threads; and it is one module for all."""
    program = """
import ssl, json, hashlib, threading, random as first
found = []
threads = [threading.Thread(target=lambda: found.append(ssl.SSLContext)) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
from random import Random
import random as second, uuid, platform, logging.handlers, socket
print(json.dumps([1]), hashlib.sha256(b"").hexdigest()[:4], len({id(each) for each in found}), len(found))
print(first.Random is Random is second.Random, loaded("ssl", "json", "hashlib", "random"))
print(platform.system(), platform.python_implementation(), logging.getLogger("a").name, socket.AF_INET.name)
"""

    assert said(program).splitlines() == [
        "[1] e3b0 1 8",
        "True ['ssl', 'json', 'hashlib', 'random']",
        "Linux CPython a AF_INET",
    ]


def test_what_a_module_lacks_is_an_attribute_error() -> None:
    """As it is without a stand-in."""
    assert said("import json\ntry: json.nothing\nexcept AttributeError as error: print(error)").endswith("'nothing'")


def test_classes_without_a_docstring_are_not_described() -> None:
    """`dataclasses` makes do with a placeholder; the signature of a function is the real one."""
    program = """
from dataclasses import dataclass
@dataclass
class A: x: int
print(A.__doc__, loaded("inspect"))
import inspect
print(inspect.signature(lambda a, b: 0), loaded("inspect"))
"""

    assert said(program).splitlines() == ["A(...) []", "(a, b) ['inspect']"]


def test_settings_have_their_values_and_no_bounds() -> None:
    """The judge has compared them already, in a process that has the real bounds."""
    program = """
from gpuwatch.agent.settings import AgentSettings
from typing import get_type_hints
print(msgspec.convert({"interval": 2.0}, AgentSettings).interval, loaded("annotated_types"))
print(get_type_hints(AgentSettings, include_extras=True)["interval"].__metadata__[1:-1])
"""

    assert said(program).splitlines() == ["2.0 []", "(None, None)"]


def test_the_words_of_argparse_are_its_own() -> None:
    """In whatever language the system speaks; `gettext` itself is loaded for whoever wants more of it."""
    program = """
import argparse
parser = argparse.ArgumentParser(prog="p", description="d")
parser.add_argument("--a", nargs=2)
print(parser.format_help().split()[0], loaded("gettext", "locale"))
import gettext
print(gettext.ngettext("one", "many", 1), gettext.ngettext("one", "many", 2), gettext.NullTranslations.__name__)
"""

    assert said(program).splitlines() == ["usage: []", "one many NullTranslations"]


def test_flags_that_are_right_are_read_without_argparse() -> None:
    """The agent's and the probe's; it would stay in both for years, with what asks for a terminal's width."""
    program = """
from gpuwatch.agent import launch
from gpuwatch.agent.probe import main as probe
agent = launch._flags().parse(["--listen", "[::1]:9460", "--interval=1s", "--compat", "dcgm", "--compat", "nvitop"])
print(agent.listen, agent.interval, agent.compat, agent.config)
read = probe._flags().parse(["--on-request", "--source", "nvml", "--interval", "1.0", "--skip", "GPU-a"])
print(read.on_request, read.source, read.interval, read.skip, read.root, read.seed, read.once)
print("argparse" in sys.modules, loaded("shutil"))
"""

    assert said(program).splitlines() == [
        "('::1', '9460') 1s ['dcgm', 'nvitop'] None",
        "True nvml 1.0 ['GPU-a'] / 0 False",
        "False []",
    ]


def test_a_type_that_a_library_wants_to_know_is_the_real_one_for_others() -> None:
    """Before and after msgspec, which hears of no such type: these processes hold no value of it."""
    program = """
print(msgspec.json.encode({"a": 1}), loaded("uuid", "decimal"))
from uuid import UUID
import decimal
print(UUID(int=7), decimal.Decimal("1.50") + 1, msgspec.json.decode(b'"x"'))
"""

    assert said(program).splitlines() == [
        "b'{\"a\":1}' []",
        "00000000-0000-0000-0000-000000000007 2.50 x",
    ]


def test_functions_that_are_named_and_never_called_are_real_when_they_are() -> None:
    """`pathlib` takes the one that writes addresses, msgspec those that write schemas."""
    program = """
from pathlib import Path
print(loaded("urllib.parse", "msgspec._json_schema"))
print(Path("/a b").as_uri(), msgspec.json.schema(int), loaded("urllib.parse", "msgspec._json_schema"))
import urllib.parse, email.header
print(urllib.parse.quote("a b"), email.header.Header("x"))
"""

    assert said(program).splitlines() == [
        "[]",
        "file:///a%20b {'type': 'integer'} ['urllib.parse', 'msgspec._json_schema']",
        "a%20b x",
    ]
    assert said("import urllib.parse, email.header; print(urllib.parse.quote('a b'))") == "a%20b"


def test_parts_of_a_package_can_be_imported() -> None:
    """Before anything else has been taken out of it."""
    program = """
import json.decoder, html.entities
from zoneinfo import _tzpath
print(json.decoder.JSONDecoder().decode('1'))
"""

    assert said(program) == "1"


def test_a_missing_module_is_missing_for_a_while() -> None:
    """Afterwards it can be imported, and one that was loaded before never is missing."""
    program = """
with missing("zlib"), missing("typing_extensions"):
    try: import typing_extensions; print("there")
    except ImportError: print("missing")
    import zlib
import typing_extensions
print(zlib.crc32(b""), typing_extensions.__name__)
"""

    assert said("import zlib" + program).splitlines() == ["missing", "0 typing_extensions"]

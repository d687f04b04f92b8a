"""Flags of the processes that start on every host. `argparse` reads them where something is unusual: help, a mistake.

It takes 0.4 MiB, and would stay in the agent and in its probe for years.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Flags:
    """What a command takes: flags alone, as `argparse` knows them, of one value or none."""

    def __init__(self, *, prog: str, description: str, epilog: str | None = None) -> None:
        self._prog, self._description, self._epilog = prog, description, epilog
        self._options: dict[str, dict[str, Any]] = {}

    def add(self, flag: str, **options: Any) -> None:  # noqa: ANN401  argparse's own
        """Take this one, with the options of `ArgumentParser.add_argument`; without `help` it is not shown."""
        self._options[flag] = options

    def parse(self, argv: Sequence[str]) -> SimpleNamespace:
        """The values by name. Help and a mistake end the process, as with `argparse`."""
        values = self._plain_values(argv)
        return SimpleNamespace(**(vars(self.parser().parse_args(argv)) if values is None else values))

    def parser(self) -> "ArgumentParser":
        """All of them for `argparse`."""
        import argparse  # noqa: PLC0415  for what is unusual alone

        parser = argparse.ArgumentParser(prog=self._prog, description=self._description, epilog=self._epilog)
        for flag, options in self._options.items():
            parser.add_argument(flag, **{"help": argparse.SUPPRESS, **options})
        return parser

    def error(self, text: str) -> NoReturn:
        """End the process with the usage and this sentence."""
        self.parser().error(text)

    def _plain_values(self, argv: Sequence[str]) -> dict[str, Any] | None:
        """The values, if each flag is written out and each value is right; None: let `argparse` see to it."""
        stored = {flag: options for flag, options in self._options.items() if options.get("action") != "version"}
        values: dict[str, Any] = {_name(flag): _default(options) for flag, options in stored.items()}
        words = iter(argv)
        for word in words:
            flag, equals, value = word.partition("=")
            options = stored.get(flag)
            if options is None:
                return None
            if options.get("action") == "store_true":
                if equals:
                    return None
                values[_name(flag)] = True
                continue
            text = value if equals else next(words, "")
            if not text or text.startswith("-"):
                return None
            try:
                read = options.get("type", str)(text)
            except Exception:  # noqa: BLE001  argparse knows which of them is a mistake, and says so
                return None
            if "choices" in options and read not in options["choices"]:
                return None
            values[_name(flag)] = [*(values[_name(flag)] or ()), read] if options.get("action") == "append" else read
        return values


def wrong_value(text: str) -> Exception:
    """What a flag's type raises for a value that it does not take; the text is shown."""
    import argparse  # noqa: PLC0415  as above

    return argparse.ArgumentTypeError(text)


def _name(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _default(options: Mapping[str, Any]) -> object:
    return options.get("default", False if options.get("action") == "store_true" else None)

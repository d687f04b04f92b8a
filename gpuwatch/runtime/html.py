"""HTML pages from the package's templates: everything is escaped, and a name that a template lacks is an error.

A template is named by its path in the package, such as `money/report/report.html`; `runtime/base.html` is the frame of
all. jinja2 is loaded when the first page is made.
"""

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from gpuwatch.runtime.printable import legible

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: object) -> str:
    """The page that the template makes of the values."""
    return _environment().get_template(template).render(values)


def _source(name: str) -> str | None:
    file = files("gpuwatch").joinpath(name)
    return file.read_text(encoding="utf-8") if file.is_file() else None


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415  only who makes a page needs it
    from markupsafe import Markup  # noqa: PLC0415  likewise

    def printable(value: object) -> object:
        """Names come from others: a page holds no control character."""
        return legible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    return Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )

"""Options that are numbers: amounts of money, shares, and how a mistake in one is answered."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation

import click

from gpuwatch.cli.base import print_text
from gpuwatch.model.slips import as_share, is_amount, nearest, right_way

_EXAMPLE = "0.35"


def amount(context: click.Context, param: click.Parameter, value: str | None) -> Decimal | None:
    """A decimal number, kept exactly."""
    try:
        number = None if value is None else Decimal(value)
    except InvalidOperation:
        number = Decimal("nan")
    if number is not None and not number.is_finite():
        right = right_way(str(value), _EXAMPLE)
        raise click.BadParameter(f"{value!r} is not a number; {right}", ctx=context, param=param)
    if number is not None and not is_amount(number):
        size = "large" if abs(number) > 1 else "small"
        raise click.BadParameter(f"{value!r} is too {size}; write for example {_EXAMPLE}", ctx=context, param=param)
    return number


def usd(context: click.Context, param: click.Parameter, value: str | None) -> Decimal | None:
    """An amount above zero."""
    number = amount(context, param, value)
    if number is not None and number <= 0:
        raise click.BadParameter(f"{value!r} is not above 0; write for example 0.35", ctx=context, param=param)
    return number


def none_below(context: click.Context, param: click.Parameter, value: str | None) -> Decimal | None:
    """An amount of 0 or more."""
    number = amount(context, param, value)
    if number is not None and number < 0:
        raise click.BadParameter(f"{value!r} is below 0; write for example 1500", ctx=context, param=param)
    return number


def factor(context: click.Context, param: click.Parameter, value: str | None) -> Decimal | None:
    """A factor of 1 or more, such as a building's PUE."""
    number = amount(context, param, value)
    if number is not None and number < 1:
        raise click.BadParameter(f"{value!r} is below 1; write for example 1.4", ctx=context, param=param)
    return number


def share(context: click.Context, param: click.Parameter, value: str | None) -> Decimal | None:
    """A part of a whole, from 0 to 1."""
    number = amount(context, param, value)
    if number is not None and not 0 <= number <= 1:
        part = as_share(number)
        right = "write for example 0.35" if part is None else f"write {part} for {number:f} %"
        raise click.BadParameter(f"{value!r} is not from 0 to 1; {right}", ctx=context, param=param)
    return number


@contextmanager
def explain_series_errors(place: object) -> Iterator[None]:
    """Turn what is wrong with a series, or with numbers about that place, into a message and exit status 2."""
    from gpuwatch.money.forecast.csv import SeriesError

    try:
        yield
    except ValueError as error:
        print_text(error if isinstance(error, SeriesError) else f"{place}: {error}", err=True)
        sys.exit(2)


def price_of(price: Decimal | None, instance_type: str | None, option: str = "--price") -> tuple[Decimal, str]:
    """The price of a unit for an hour, and its source."""
    if (price is None) == (instance_type is None):
        raise click.UsageError(f"give one of {option} and --instance-type")
    if price is not None:
        return price, "as given"
    from gpuwatch.model.money import day_with_age
    from gpuwatch.money.prices import catalogue
    from gpuwatch.runtime.clock import SystemClock

    listed = catalogue.list_price(str(instance_type))
    if listed is None:
        known = {kind for provider, kind in catalogue.machine_types() if provider == "aws"}
        near = None if instance_type in known else nearest(str(instance_type), known)
        raise click.BadParameter(
            f"no list price of {instance_type!r} is known"
            + (f". The nearest is {near!r}, else give {option}" if near else f"; give {option}"),
            param_hint="--instance-type",
        )
    return listed.usd_per_hour, f"{listed.source}, {day_with_age(listed.as_of, SystemClock().now().date())}"

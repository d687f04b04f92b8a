"""The command that says what spot would have cost, and how often its nodes would have worked."""

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.amounts import explain_series_errors, share, usd
from gpuwatch.cli.base import duration_or_none, json_option, print_text, progress
from gpuwatch.cli.recommend import recommend
from gpuwatch.runtime.json_document import json_text
from gpuwatch.runtime.table import align_rows

if TYPE_CHECKING:
    from gpuwatch.simulate.spot.advice import SpotAdvice
    from gpuwatch.simulate.spot.recording import Recording

_MOST_NODES = 10_000
_MINUTE = 60.0
_LONGEST = 86_400.0


def _short(context: click.Context, param: click.Parameter, value: str | None) -> float:
    """A duration of a day at most, in minutes."""
    seconds = duration_or_none(context, param, value) or 0.0
    if seconds > _LONGEST:
        raise click.BadParameter(f"{value!r} is longer than a day; write for example 4m", param=param)
    return seconds / _MINUTE


@recommend.command()
@click.option(
    "--csv",
    "csv_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="Lines of time,offer,nodes[,usd_per_hour]: what could be had when; plain or .gz "
    "[docs/policies/spot.md#what-it-would-have-cost].",
)
@click.option(
    "--nodes", type=click.IntRange(1, _MOST_NODES), default=4, show_default=True, help="So many nodes are wanted."
)
@click.option(
    "--price", callback=usd, help="What a node costs per hour on demand, in US dollars [1: only parts of it]."
)
@click.option(
    "--spot-price-ratio",
    callback=share,
    default="0.40",
    show_default="0.40, assumed",
    help="Price of spot as a share of on demand, where the file has no prices.",
)
@click.option("--base", type=click.IntRange(0, _MOST_NODES), default=0, show_default=True, help="Always on demand.")
@click.option(
    "--spot-share",
    callback=share,
    default="1",
    show_default=True,
    help="Share of the nodes above the base that are spot.",
)
@click.option("--boot", callback=_short, default="4m", show_default=True, help="From the launch to the work.")
@click.option("--notice", callback=_short, default="2m", show_default=True, help="Before an interruption.")
@click.option("--lost", callback=_short, default="10m", show_default=True, help="Work done again after one.")
@click.option("--work", callback=duration_or_none, help="Work of one job on one node, such as 12h, instead of a pool.")
@click.option("--by", "allowed", callback=duration_or_none, help="The job ends by then after its start, such as 18h.")
@json_option
def spot(  # noqa: PLR0913  one option each
    *,
    csv_path: Path,
    nodes: int,
    price: Decimal | None,
    spot_price_ratio: Decimal,
    base: int,
    spot_share: Decimal,
    boot: float,
    notice: float,
    lost: float,
    work: float | None,
    allowed: float | None,
    as_json: bool,
) -> None:
    """Recommend spot or on demand, from a recording of what could be had: cost, time with all nodes, losses."""
    from gpuwatch.policies.spot.mix import MixRules
    from gpuwatch.simulate.spot import advice
    from gpuwatch.simulate.spot.fleet import Terms
    from gpuwatch.simulate.spot.recording import read_recording

    if (work is None) != (allowed is None):
        raise click.UsageError("give both of --work and --by, or neither")
    if base > nodes:
        raise click.BadParameter(f"{base} on demand are more than the {nodes} of --nodes", param_hint="--base")
    with explain_series_errors(csv_path):
        recording = read_recording(csv_path)
        if recording.usd_per_hour is not None and price is None:
            raise click.UsageError("the file has prices of spot: give --price, of a node for an hour on demand")
        if work is not None and allowed is not None:
            found = _job(recording, work, allowed, boot + lost, float(spot_price_ratio))
        else:
            terms = Terms(
                on_demand_usd_per_hour=1.0 if price is None else float(price),
                spot_price_ratio=float(spot_price_ratio),
                boot_minutes=round(boot),
                notice_minutes=round(notice),
                lost_minutes=lost,
            )
            rules = MixRules(on_demand_base=base, spot_share=float(spot_share))
            with progress("Playing the recording") as advance:
                found = advice.advise(recording, nodes, rules, terms, advance)
    print_text(json_text("recommend.spot", found) if as_json else _as_text(found))


def _job(recording: "Recording", work: float, allowed: float, move: float, ratio: float) -> "SpotAdvice":
    """The advice for a job.

    Raises:
        ValueError: the times do not fit together, or not into the recording.

    """
    from gpuwatch.simulate.spot.advice import advise_job
    from gpuwatch.simulate.spot.job import JobTerms

    terms = JobTerms(
        work_minutes=round(work / _MINUTE),
        allowed_minutes=round(allowed / _MINUTE),
        move_minutes=max(1, round(move)),
        spot_price_ratio=ratio,
    )
    return advise_job(recording, terms)


def _long(days: float) -> str:
    return f"{days:.1f} days" if days >= 1 else f"{days * 24:.1f} hours"


def _as_text(found: "SpotAdvice") -> str:
    offers = f"{found.offers} offer{'s' if found.offers > 1 else ''}"
    lines = [*found.advice, "", f"Recorded: {_long(found.days)}, {offers}."]
    if found.policies:
        lines.append(f"No policy can cost less than {found.bound_ratio:.1%} of on demand there.")
        rows = [
            (
                row.name,
                f"{row.cost_ratio:.1%}",
                f"{row.useful_cost_ratio:.1%}",
                f"{row.full_ratio:.1%}",
                f"{row.working_ratio:.1%}",
                f"{row.interruptions_per_node_day:.1f}",
                f"{row.failed_launches_per_day:.0f}",
                f"{row.lost_node_hours:,.0f} h",
            )
            for row in found.policies
        ]
        titles = ("policy", "cost", "useful", "all work", "mean", "lost/day", "failed/day", "done again")
        lines += ["", *align_rows([titles, *rows]), "", *_POOL_WORDS]
    if found.jobs:
        jobs = [
            (
                row.name,
                f"{row.mean_cost_ratio:.1%}",
                f"{row.high_cost_ratio:.1%}",
                f"{row.missed_ratio:.0%}",
                f"{row.mean_hours:.1f} h",
            )
            for row in found.jobs
        ]
        heads = ("rule", "mean cost", "9 of 10 below", "missed", "mean time")
        lines += [
            "",
            *align_rows([heads, *jobs]),
            "",
            f"From {found.starts} starts. Costs are parts of on demand alone.",
        ]
    return "\n".join([*lines, *(f"Warning: {each}" for each in found.warnings)])


_POOL_WORDS = (
    "cost, useful: of on demand, for each hour and for each hour of work that counts.",
    "all work, mean: the time with all nodes at work, and the mean part of them.",
    "lost/day: interruptions of a spot node a day. failed/day: launches without stock.",
)

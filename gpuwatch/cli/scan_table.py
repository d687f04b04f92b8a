"""The text of `gpuwatch scan`: what nobody watches first, with what it costs."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from gpuwatch.model.currency import display_currency
from gpuwatch.model.duration import format_duration
from gpuwatch.model.money import bare_usd, format_usd, price_note
from gpuwatch.model.readable import how_many, legible
from gpuwatch.money.scan import ScanDocument, ScanMachine, ScanSum
from gpuwatch.runtime.columns import Column, laid_out

_LAST_CELLS = 16  # of the last column, before others go
_NAMED = 5  # regions in one sentence
_UNITS = ("B/s", "kB/s", "MB/s", "GB/s")


def table(found: ScanDocument, width: int | None) -> list[Text]:
    """One row a machine, the unknown first and of these the dearest; in a narrow terminal columns shrink or go."""
    rows = found.machines
    if not rows:
        answered = any(place.refused is None and place.trouble is None for place in found.places) or not found.places
        return [Text("No GPU machine was found." if answered else "No region answered.")]
    return laid_out(_columns(rows), width, lines=None, wanted=_LAST_CELLS)


def _columns(rows: Sequence[ScanMachine]) -> list[Column]:
    several = len({row.cloud for row in rows}) > 1
    alike = all(row.name == row.id for row in rows)
    styles = ["" if row.known else "tint.idle" for row in rows]
    return [
        Column(title=f"{display_currency().head}/H", cells=[_usd(row) for row in rows], right=True, styles=styles),
        Column(title="MACHINE", cells=[legible(row.id) for row in rows]),
        Column(title="NAME", cells=["" if alike else legible(row.name) for row in rows], spare=9, least=8),
        Column(title="CLOUD", cells=[legible(row.cloud) if several else "" for row in rows], spare=5, least=4),
        Column(title="REGION", cells=[row.region for row in rows], spare=1),
        Column(title="TYPE", cells=[legible(row.instance_type) for row in rows], spare=2),
        Column(title="GPUS", cells=[_count(row.gpu_count) for row in rows], spare=8, right=True),
        Column(title="STATE", cells=[row.state.value for row in rows], spare=6),
        Column(title="AGE", cells=[_age(row) for row in rows], spare=4, right=True),
        Column(title="CPU", cells=[_cpu(row) for row in rows], spare=3, right=True),
        Column(title="NET", cells=[_net(row) for row in rows], spare=7, right=True),
        Column(title="OWNER", cells=[legible(row.owner or "-") for row in rows], spare=10, least=6),
        Column(title="KNOWN AS", cells=[legible(row.why) for row in rows], styles=styles),
    ]


def remarks(found: ScanDocument, monitors: Sequence[str]) -> Iterator[str]:
    """The sums, where nobody looks, what could not be looked at, and what the numbers mean."""
    places = found.places
    looked = sum(place.refused is None and place.trouble is None for place in places)
    yield f"{how_many(len(found.machines), 'GPU machine')} in {how_many(looked, 'region')} that answered."
    yield f"Known to this controller: {_sum(found.known)}. Unknown: {_sum(found.unknown)}."
    yield from filter(None, [price_note(row.price_source for row in found.machines)])
    unwatched = list(dict.fromkeys(row.region for row in found.machines if not row.watched))
    if unwatched:
        yield f"No controller looks at {_some(unwatched)}: add the region to the settings, or remove its machines."
    if monitors:
        yield (
            f"CPU (mean/highest) and NET (in and out) of the last {how_many(found.days, 'day')} are from "
            f"{', '.join(monitors)}, which does not see GPUs: low values do not prove that a machine is idle."
        )
    for place in places:
        if place.refused is not None:
            yield f"Warning: {place.where}: we may not look there ({place.refused})."
        if place.trouble is not None:
            yield f"Warning: {place.where}: {place.trouble}"
    silent: dict[str, list[str]] = {}
    for place in places:
        if place.unmonitored is not None:
            silent.setdefault(place.unmonitored, []).append(place.where)
    for why, names in silent.items():
        yield f"The cloud's monitor says nothing of {_some(names)}: {why}"


def _sum(part: ScanSum) -> str:
    words = f"{part.machines}, {format_usd(part.usd_per_hour)}/h, {format_usd(part.usd_per_day)}/day"
    return words + (f" (the price of {part.unpriced} is not known)" if part.unpriced else "")


def _usd(row: ScanMachine) -> str:
    if not row.billed:
        return "-"
    return "?" if row.usd_per_hour is None else bare_usd(row.usd_per_hour)


def _count(gpus: int | None) -> str:
    return "?" if gpus is None else str(gpus)


def _age(row: ScanMachine) -> str:
    return "-" if row.age_seconds is None else format_duration(row.age_seconds)


def _cpu(row: ScanMachine) -> str:
    """Return mean and highest CPU use, such as `2%/31%`."""
    use = row.use
    if use is None or use.cpu_mean_ratio is None or use.cpu_max_ratio is None:
        return "-"
    return f"{use.cpu_mean_ratio:.0%}/{use.cpu_max_ratio:.0%}"


def _net(row: ScanMachine) -> str:
    """`3.1 MB/s`, both directions together."""
    use = row.use
    if use is None or (use.received_bytes_per_second is None and use.sent_bytes_per_second is None):
        return "-"
    rate = (use.received_bytes_per_second or 0.0) + (use.sent_bytes_per_second or 0.0)
    for unit in _UNITS[:-1]:
        if rate < 1000:  # noqa: PLR2004  the next unit
            return f"{rate:.0f} {unit}" if unit == _UNITS[0] else f"{rate:.1f} {unit}"
        rate /= 1000
    return f"{rate:.1f} {_UNITS[-1]}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")

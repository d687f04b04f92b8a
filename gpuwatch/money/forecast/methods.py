"""Ways to forecast: values up to now in, one value for each coming step out.

A method reads holes as holes: it leaves them out and never takes them for zeros. Each is equivariant: were the past
doubled or shifted by a constant, so would be its forecast. Those with a season work on the values without the season's
profile, which is added again. A profile is shrunk by what of it chance alone would give (positive-part James-Stein,
stricter the fewer cycles it was seen in), so that a series without a season gets no profile.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from gpuwatch.money.forecast.series import Rhythm

Values = Sequence[float | None]

LONGEST = 1500  # steps that a method looks back at most
_CYCLES = 14
_DAYS = 7  # the season of days
_APART = 4  # ranges by which a level has shifted; at one or two, bursts were taken for shifts
LASTS = 3  # days after which what stopped as a whole is gone
DARK = 0.1  # of what was before: as good as nothing
_STAYS = 0.5  # of a step's height: what the days since may vary by
_CALM = 0.25  # the same of the days before it, until there are three since
_STRAIGHT = 0.95  # of how days differ: what a line must explain
_STEADY = 0.5  # of its slope: what each half must have
_SPEEDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def known_values(values: Values) -> list[float]:
    """The values that are known."""
    return [value for value in values if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What methods know, and what several of them would work out alike."""

    values: Values
    rhythm: Rhythm
    month_steps: int  # since the month began
    plain: Values  # without the season's profile
    season: Callable[[int], float]  # to be added so many steps past the end
    level: float  # of the plain values, smoothed

    @classmethod
    def from_values(cls, values: Values, rhythm: Rhythm, month_steps: int = 0) -> "Past":
        """Of values of which at least one is known."""
        plain, season = _seasons(values, rhythm)
        level = _level(plain, window(rhythm))
        return cls(values=values, rhythm=rhythm, month_steps=month_steps, plain=plain, season=season, level=level)


def window(rhythm: Rhythm) -> int:
    """A season, or where none is seen four steps."""
    return rhythm.season if rhythm.season > 1 else 4


def _lately(values: Values, last: int) -> list[float]:
    """The known values of the last so many steps; where they are all holes, all that are known."""
    return known_values(values[-last:] if last else ()) or known_values(values)


def _mean(values: Values, last: int) -> float:
    return fmean(_lately(values, last))


def since_change(values: Values, rhythm: Rhythm) -> Values:
    """The values since the level last shifted, of days also since it stepped, three days ago or earlier."""
    values = since_shift(values, rhythm)
    if rhythm.season != _DAYS:
        return values
    known, places = known_values(values), [at for at, value in enumerate(values) if value is not None]
    since = len(known) if straight_line(known[-rhythm.memory :]) else len(since_step(known))
    return values if since == len(known) or since + 1 < LASTS else values[places[-since] :]


def since_shift(values: Values, rhythm: Rhythm) -> Values:
    """The values since the level last shifted, or all of them.

    It shifted where the last season and more lie close together, and the median of the season before that lies apart
    from them by more than four times their range. What a method takes from before, such as a mean, would only mislead.
    A calm of less than a week that was there a week earlier, too, is a weekend.
    """
    size, season = len(values), window(rhythm)
    last = known_values(values[-season:])
    if 2 * len(last) <= season:
        return values
    reach = _APART * (max(last) - min(last))
    least, most = min(last) - reach, max(last) + reach

    def near(value: float | None) -> bool:
        return value is None or least <= value <= most

    begin = next((at + 1 for at in range(size - season - 1, -1, -1) if not near(values[at])), 0)
    before = known_values(values[max(0, begin - season) : begin])
    if not before or near(median(before)):
        return values
    earlier = known_values(values[max(0, size - season - rhythm.week) : max(0, size - rhythm.week)])
    calm_then = bool(earlier) and near(median(earlier))
    return values if rhythm.week > season and begin > size - rhythm.week and calm_then else values[begin:]


def since_step(days: Sequence[float]) -> Sequence[float]:
    """The days since their level last stepped: they are apart from all before by more than these varied.

    The day of the step itself has a part of both, and belongs to neither. What climbs or bursts does not stay at its
    new level: the days since a step vary by less than half of it, and until there are three, the days before it did by
    less than a quarter. What is dark as a whole may be so for maintenance: that it is gone takes three days.
    """
    for run in range(1, len(days) - 1):
        before, since = days[: -run - 1], days[-run:]
        spread, height = max(before) - min(before), max(min(since) - max(before), min(before) - max(since))
        if height <= spread or max(since) - min(since) > _STAYS * height:
            continue
        if run >= LASTS or (spread <= _CALM * height and not since[-1] < DARK * min(before)):
            return since
    return days


def straight_line(values: Sequence[float]) -> tuple[float, float] | None:
    """Where the straight line through days ends, and its slope; None: they are on none, or on a flat one."""
    size = len(values)
    if size < 14:  # noqa: PLR2004  two weeks
        return None
    points = [(float(at), value) for at, value in enumerate(values)]
    middle, mean, slope = (size - 1) / 2, fmean(values), _slope(points)
    explained = slope**2 * sum((at - middle) ** 2 for at, _ in points)
    if not slope or explained < _STRAIGHT * sum((value - mean) ** 2 for value in values):
        return None
    steady = all(_slope(part) / slope > _STEADY for part in (points[: size // 2], points[size // 2 :]))
    return (mean + slope * middle, slope) if steady else None


def _level(values: Values, begin: int) -> float:
    """The smoothed level, at the speed of smoothing that would have forecast the next value best all along."""
    measured = known_values(values)
    first = fmean(measured[:begin])
    found: list[tuple[float, float]] = []
    for speed in _SPEEDS:
        level, squares = first, 0.0
        for value in measured:
            error = value - level
            squares += error * error
            level += speed * error
        found.append((squares, level))
    least = min(squares for squares, _ in found)
    return next(level for squares, level in found if squares <= least * (1 + 1e-9))  # rounding breaks no tie


def _fading(past: Past, steps: int) -> list[float]:
    """The last value's distance from the usual level, fading as it faded so far: an AR(1) that ends at the median.

    A burst lifts the mean of four weeks for four weeks; their median it leaves where it was.
    """
    memory = past.rhythm.memory
    recent = past.plain[-memory:] if known_values(past.plain[-memory:]) else past.plain
    measured = known_values(recent)
    mean, usual = fmean(measured), median(measured)
    spread = sum((value - mean) ** 2 for value in measured)
    pairs = [(a, b) for a, b in pairwise(recent) if a is not None and b is not None]
    together = sum((a - mean) * (b - mean) for a, b in pairs)
    stays = min(1.0, max(0.0, together / spread)) if spread > 0 else 0.0
    return [usual + (measured[-1] - usual) * stays**ahead for ahead in range(1, steps + 1)]


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the straight line through points with the least squares; 0 of fewer than two."""
    if not points:
        return 0.0
    middle, usual = fmean(at for at, _ in points), fmean(value for _, value in points)
    spread = sum((at - middle) ** 2 for at, _ in points)
    return sum((at - middle) * (value - usual) for at, value in points) / spread if spread > 0 else 0.0


def _theta(past: Past, steps: int) -> list[float]:
    """The smoothed level with half of the trend (Assimakopoulos and Nikolopoulos 2000; Hyndman and Billah 2003)."""
    slope = _slope([(float(at), value) for at, value in enumerate(past.plain) if value is not None])
    return [past.level + slope / 2 * ahead for ahead in range(1, steps + 1)]


def _trend(past: Past, steps: int) -> list[float]:
    """The smoothed level with the trend of lately: four weeks of days, a week of hours."""
    lately = past.plain[-past.rhythm.memory :]
    slope = _slope([(float(at), value) for at, value in enumerate(lately) if value is not None])
    return [past.level + slope * ahead for ahead in range(1, steps + 1)]


def _blend(past: Past, steps: int) -> list[float]:
    """The middle one of three: smoothed level, fading, and the median of two seasons; of days on a line, the line."""
    line = straight_line(known_values(past.plain[-past.rhythm.memory :])) if past.rhythm.season == _DAYS else None
    if line is not None:
        end, slope = line
        return [end + slope * ahead for ahead in range(1, steps + 1)]
    usual = median(_lately(past.plain, 2 * window(past.rhythm)))
    return [median((past.level, usual, fading)) for fading in _fading(past, steps)]


def profile(values: Values, period: int) -> list[float]:
    """How the positions of a period differ from its mean, counted from the end; zeros where that is chance."""
    count = min(len(values) // period, _CYCLES)
    whole = [values[len(values) - number * period :][:period] for number in range(count, 0, -1)]
    measured = [
        (number, fmean(known_values(cycle)), cycle)
        for number, cycle in enumerate(whole)
        if 2 * len(known_values(cycle)) > period
    ]
    # Growth from cycle to cycle is growth within each, and no season.
    slope = _slope([(float(number), mean) for number, mean, _ in measured]) / period
    cycles = [
        [None if value is None else value - mean - slope * (at - (period - 1) / 2) for at, value in enumerate(cycle)]
        for _, mean, cycle in measured
    ]
    columns = [known_values([cycle[place] for cycle in cycles]) for place in range(period)]
    if any(len(column) < 2 for column in columns):  # noqa: PLR2004  one cycle does not distinguish a season from chance
        return [0.0] * period
    shape = [fmean(column) for column in columns]
    strength = fmean(height**2 for height in shape)
    chance = fmean(
        sum((value - mean) ** 2 for value in column) / (len(column) - 1) / len(column)
        for column, mean in zip(columns, shape, strict=True)
    )
    # Two cycles look alike by chance far more often than ten do.
    doubt = 1 + 4 / (len(cycles) - 1)
    keep = max(0.0, 1 - doubt * chance / strength) if strength > 0 else 0.0
    return [height * keep for height in shape]


def _seasons(values: Values, rhythm: Rhythm) -> tuple[list[float | None], Callable[[int], float]]:
    """The values without day and week (of months: year), and what to add to the step so many past the end."""
    plain, season = list(values), max(rhythm.season, rhythm.year)
    if season == 1:
        return plain, lambda _: 0.0
    shape = profile(plain, season)
    plain = _without_shape(plain, shape, 1)
    week = [0.0]
    if rhythm.week == 7 * season:
        days = [
            known_values(plain[end - season : end])
            for end in range(len(plain) - len(plain) // season * season + season, len(plain) + 1, season)
        ]
        week = profile([fmean(day) if day else None for day in days], 7)
        plain = _without_shape(plain, week, season)
    return plain, lambda ahead: shape[ahead % season] + week[ahead // season % len(week)]


def _without_shape(values: Sequence[float | None], shape: Sequence[float], block: int) -> list[float | None]:
    """Less a shape that ends where the values end; each place of it is `block` steps long."""
    size = len(values)
    return [
        None if value is None else value - shape[((at - size) // block) % len(shape)] for at, value in enumerate(values)
    ]


def _repeat_season(values: Values, period: int, steps: int) -> list[float]:
    """The last known value of the same place in the period; where no value is known, the mean."""
    places: list[float | None] = []
    for place in range(period):
        same = range(len(values) - period + place, -1, -period)
        places.append(next((values[at] for at in same if values[at] is not None), None))
    usual = fmean(known_values(values))
    filled = [usual if place is None else place for place in places]
    return [filled[ahead % period] for ahead in range(steps)]


Method = Callable[[Past, int], list[float]]


def _flat(level: Callable[[Past], float]) -> Method:
    return lambda past, steps: [level(past)] * steps


def _seasonal(core: Method) -> Method:
    return lambda past, steps: [value + past.season(ahead) for ahead, value in enumerate(core(past, steps))]


BLEND = "blend"
SEVEN_DAY_MEAN = "7-day mean"
METHODS: Mapping[str, Method] = {
    BLEND: _seasonal(_blend),
    SEVEN_DAY_MEAN: _flat(lambda past: _mean(past.values, past.rhythm.week)),
    "run rate": _flat(lambda past: _mean(past.values, past.month_steps or past.rhythm.week)),
    "naive": _flat(lambda past: known_values(past.values)[-1]),
    "seasonal naive (day)": lambda past, steps: _repeat_season(past.values, past.rhythm.season, steps),
    "seasonal naive (week)": lambda past, steps: _repeat_season(past.values, past.rhythm.week, steps),
    "median": _flat(lambda past: median(_lately(past.values, window(past.rhythm)))),
    "smoothing": _seasonal(lambda past, steps: [past.level] * steps),
    "theta": _seasonal(_theta),
    "trend": _seasonal(_trend),
    "fading": _seasonal(_fading),
}


# Nothing is chosen: on 146 held-out series of days the blend always won, and on hours what won by luck was no better.
# The others are what others forecast by; benchmarks/forecast.py measures them, too.
CANDIDATES: Mapping[str, Method] = {BLEND: METHODS[BLEND]}

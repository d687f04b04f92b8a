"""The waits and graces that pages state are those of the profiles: who changes one is shown every sentence about it."""

import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwatch.model.duration import format_duration
from gpuwatch.policies.idle_timeout.break_even import MINIMUM_WAIT_SECONDS
from gpuwatch.policies.idle_timeout.node_wait import ATTENDED_WAIT_SECONDS, OLD_NODE_WAIT_SECONDS
from gpuwatch.policies.profiles import DECIDED, OWNED, PROFILES, Profile, ProfileName
from tests.support.paths import ROOT
from tools.docs.__main__ import PAGES

_WORDS: dict[float, str] = {1: "one", 2: "two", 5: "five", 10: "ten", 20: "twenty", 30: "thirty"}
_GAP = r'[\s"#]+'  # between two words of a page, of a comment, or of a text in the code


class Stated(float):
    """A time as pages write it: `16 h`; with `long` 16 hours, with `short` 16h, with `words` ten minutes."""

    def __format__(self, form: str) -> str:
        """As the form says."""
        if form == "short":
            return format_duration(self)
        count, unit = (self / 3600, "hour") if self >= 3600 else (self / 60, "minute")
        if form == "words":
            return "half an hour" if count == 30 and unit == "minute" else f"{_WORDS.get(count, f'{count:g}')} {unit}s"
        return f"{count:g} {unit}s" if form == "long" else f"{count:g} {'h' if unit == 'hour' else 'min'}"


# By page: sentences, each after an empty line, wherever their own lines break.
HELD = {
    "docs/idle-detection.md": """
12:18 UTC (in 18m) and be stopped at 12:28 UTC (in 28m) at the earliest, unless somebody uses it before. It
has been idle for 12m of {attended:short} (until its pool is known

a database with nothing but keep-alives for {balanced.whole:long}.

What a person's program that rests for {balanced.whole:long} waits for.
""",
    "docs/policies/idle.md": """
| {cautious.wait} | {attended}; where nobody is there, stop after {balanced.wait}; [later
learned](timing.md#until-a-pool-is-known) | as `balanced` |

(`grace_period`) | {cautious.grace_period} | {balanced.grace_period} | {eager.grace_period} |

| the same | the same, later {balanced.unattended_grace_period} | the same, later
{eager.unattended_grace_period} |

first notice of a machine lasts `owner_grace_period` at least ({balanced.owner_grace_period}; `eager`
{eager.owner_grace_period}), also of an idle one, and comes

| {cautious.owned}, if you set `stop` | {balanced.owned} | {eager.owned} |

| {cautious.owner_grace_period}, if you set `stop` | {balanced.owner_grace_period} |
{eager.owner_grace_period} |

{balanced.owned} and {balanced.owner_grace_period} are {balanced.whole}: a machine left at 18:00 is untouched
the next morning, its notice comes at {notice_of_the_evening:%H:%M},

withdrawn; then {balanced.owned} and a notice of {balanced.owner_grace_period} (`balanced`)

waits {old:words} once it is idle.
""",
    "docs/policies/timing.md": """
| {balanced.wait}; {eager.wait}, the notice included ({attended} before the notice where a session is open or
nobody looked) | `grace_period`: {balanced.grace_period} |

| {balanced.wait}; {eager.wait}, the notice included |

`unattended_grace_period`: {balanced.unattended_grace_period}; else {balanced.grace_period} |

*It has been idle for 12m of {attended:short} (until its pool is known

a session keeps a node for {attended:words}. A new node's first pause is {balanced.wait:long} long;

`unattended_grace_period`: {balanced.unattended_grace_period} by the profiles that learn;

| anybody else, or not known | `grace_period`: {balanced.grace_period} |

the notice comes after {attended} of idleness at the earliest
""",
    "docs/faq.md": """
Not within {balanced.whole:long} if its process lives

is stopped after {balanced.owned:long} and a notice of {balanced.owner_grace_period:long} ([prof

After {attended:long} it gets its notice and is stopped {balanced.grace_period:words} later ({balanced.wait:long}
after its last trace if nobody can be there).

may be as short as {shortest:words}.

Parked: stopped after {balanced.owned:long} without a touch and {balanced.owner_grace_period:long} of notice

somebody's process or memory within its first {balanced.whole:long},
""",
    "docs/demo.md": """
its notice after {balanced.owned:long} and stops {balanced.owner_grace_period:long} later
""",
    "docs/examples/gpuwatch.yaml": """
after {balanced.owned:long} in which nothing computed, their owner has {balanced.owner_grace_period:long} to
""",
    "alerts/gpuwatch.yml": """
It may hold work, so a `balanced` pool waits {balanced.owned} with {balanced.owner_grace_period} of notice

process may wait for something, so a `balanced` pool waits {balanced.owned} with {balanced.owner_grace_period} of notice
""",
    "gpuwatch/policies/profiles.py": """
balanced stops them after {balanced.owned}, {balanced.owner_grace_period} after

{balanced.whole} in all.

comes back: {eager.owned}, and {eager.owner_grace_period} of notice.
""",
    "gpuwatch/policies/__init__.py": """
also what somebody left behind, after {balanced.whole};
""",
    "gpuwatch/policies/idle_settings.py": """
waits at most {old:words} once idle.
""",
    "gpuwatch/cli/demo.py": """
or never [after {balanced.owned}; traces: stop].
""",
}
# A line with one of these and a time that a profile has is about the profiles, in the pages by hand.
_NAMES = ("balanced", "cautious", "eager", "profile", *(f"`{each}`" for each in DECIDED))
# Records of measurements, of decisions and of versions, which say what was.
_RECORDS = ("docs/adr/", "docs/benchmarks.md", "CHANGELOG.md")
_OTHERS = {("docs/idle-detection.md", "`stalled_timeout` (10m) is stalled")}  # the agent's setting of that name


def sentences() -> Iterator[tuple[str, str]]:
    """Each with its page."""
    yield from ((page, " ".join(sentence.split())) for page, held in HELD.items() for sentence in held.split("\n\n"))


def words(profiles: dict[ProfileName, Profile]) -> dict[str, object]:
    """What the sentences name."""
    found: dict[str, object] = {}
    for name, profile in profiles.items():
        assert len({getattr(profile, f"{each}_timeout") for each in OWNED}) == 1, "pages state one wait for all three"
        values = {key: Stated(value) for key, value in asdict(profile).items() if isinstance(value, float)}
        values["wait"] = Stated(profile.timeout if profile.fresh_timeout is None else profile.fresh_timeout)
        values["owned"] = values["parked_timeout"]
        values["whole"] = Stated(values["owned"] + profile.owner_grace_period)
        found[name] = SimpleNamespace(**values)
    balanced = profiles["balanced"]
    evening = datetime(2026, 1, 1, 18)  # noqa: DTZ001  a time of day in a page
    return found | {
        "attended": Stated(ATTENDED_WAIT_SECONDS),
        "old": Stated(OLD_NODE_WAIT_SECONDS),
        "shortest": Stated(MINIMUM_WAIT_SECONDS + balanced.unattended_grace_period),
        "notice_of_the_evening": evening + timedelta(seconds=balanced.parked_timeout),
    }


def pattern(text: str) -> re.Pattern[str]:
    """The text wherever its lines break."""
    return re.compile(_GAP.join(map(re.escape, text.split())))


def wrong(profiles: dict[ProfileName, Profile]) -> Iterator[str]:
    """Each sentence that states another number, with its page and line."""
    named = words(profiles)
    for page, sentence in sentences():
        text = (ROOT / page).read_text(encoding="utf-8")
        right = sentence.format(**named)
        if pattern(right).search(text) is None:
            loose = re.sub(r"(\\{.*?\\})", r"[^|;,.]+?", _GAP.join(map(re.escape, sentence.split())))
            found = re.search(loose, text)
            line = "?" if found is None else text.count("\n", 0, found.start()) + 1
            yield f"{page}:{line}: should say {right!r}"


def test_pages_state_the_numbers_of_the_profiles() -> None:
    """Each sentence by its page and line."""
    found = list(wrong(PROFILES))

    assert not found, "\n".join(found)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_changed_default_is_found_on_the_pages(profile: ProfileName) -> None:
    """Each time that a profile has stands on some page, and a sentence with another one is named with its line."""
    before = {name: value for name, value in asdict(PROFILES[profile]).items() if isinstance(value, float)}
    owned = {f"{each}_timeout" for each in OWNED}  # pages state one wait for all three
    for name, value in before.items():
        if (profile, name) == ("cautious", "unattended_grace_period"):  # pages say "the same"
            continue
        changed: dict[str, Any] = dict.fromkeys(owned if name in owned else [name], value + 7200)
        found = list(wrong({**PROFILES, profile: replace(PROFILES[profile], **changed)}))

        assert found, f"no page states {name} of {profile}"
        assert not [each for each in found if ":?:" in each]


def test_no_line_about_profiles_is_held_by_nothing() -> None:
    """A line of a page by hand that names a profile or its setting, and a time of it, is one of the sentences."""
    named = words(PROFILES)
    times = {
        text
        for each in PROFILES
        for time in vars(named[each]).values()
        for text in (f"{time}", f"{time:long}", f"{time:short}")
    }
    time = re.compile(rf"(?<![\w=])({'|'.join(map(re.escape, sorted(times)))})(?![\w`])")
    loose = []
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        page = str(path.relative_to(ROOT))
        if page in PAGES or page.startswith(_RECORDS):
            continue
        text = path.read_text(encoding="utf-8")
        spans = [pattern(said.format(**named)).search(text) for held, said in sentences() if held == page]
        at = 0
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            start, at = at, at + len(line)
            if not any(each in line for each in _NAMES) or time.search(line) is None:
                continue
            held = any(each is not None and each.start() < at and each.end() > start for each in spans)
            if not held and not any(page == other and words_ in line for other, words_ in _OTHERS):
                loose.append(f"{page}:{number}: {line.strip()}")

    assert not loose

"""PURE: who stopped a machine: what its cloud answered to our call, and what it shows of the stop since.

A stop is ours only where the cloud says so. Its answer says that the machine ran until our call, and what it shows of
the last stop agrees with that answer, by the cloud's own clock. What is not proved is its owner's stop: that costs
nothing but a machine that stays as its owner left it.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

NOT_PROVED = "gpuwatch cannot prove that it was its own stop"
STILL_BILLED = "and still bills it"
_ACCEPTED = "the cloud accepted the stop"
_FORM = "%Y-%m-%dT%H:%M:%SZ"
_RAN = re.compile(
    rf"{_ACCEPTED} of a running machine"
    r"(?:, by its clock not before (?P<earliest>\S+Z))?(?: and not after (?P<latest>\S+Z))?"
    r"(?:, as request (?P<request>\S+))?"
)
_BEFORE = "; before it: "  # what ran on the machine follows
_DOWN = f"{_ACCEPTED}, and had nothing to do: the machine did not run any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAnswer:
    """What a cloud answered to a stop that it accepted.

    `ran` is whether the machine ran until this call, by the cloud's own word. Then the cloud's own time of the stop
    lies between `earliest` and `latest` (None: no such bound), and the cloud may show it under the id `request`.
    """

    ran: bool
    earliest: datetime | None = None
    latest: datetime | None = None
    request: str | None = None

    @property
    def words(self) -> str:
        """It as a clause, from which `read_answer` makes it again."""
        if not self.ran:
            return _DOWN
        bounds = "" if self.earliest is None else f", by its clock not before {self.earliest:{_FORM}}"
        bounds += "" if self.latest is None else f" and not after {self.latest:{_FORM}}"
        return (
            f"{_ACCEPTED} of a running machine{bounds}{'' if self.request is None else f', as request {self.request}'}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStop:
    """What a cloud shows of a machine's last stop, in its words and by its clock, where it shows that.

    `other` says, as a clause, why no call of ours can have been its cause.
    """

    at: datetime | None = None
    request: str | None = None
    other: str | None = None


def read_answer(words: str) -> StopAnswer | None:
    """Read an answer on record; None: it does not say whether the machine ran, as in records of earlier versions."""
    words = words.partition(_BEFORE)[0]
    if words == _DOWN:
        return StopAnswer(ran=False)
    found = _RAN.fullmatch(words)
    if found is None:
        return None
    try:
        return StopAnswer(
            ran=True, earliest=_time(found["earliest"]), latest=_time(found["latest"]), request=found["request"]
        )
    except ValueError:
        return None


def with_before(words: str, sentence: str | None) -> str:
    """What is on record of a removal that was accepted, and of what ran on its machine before; None: nothing did."""
    return words if sentence is None else f"{words}{_BEFORE}{sentence.rstrip('.')}"


def before_in(words: str) -> str | None:
    """What ran on the machine before, as `with_before` wrote it; None: nothing did."""
    return words.partition(_BEFORE)[2] or None


def why_not_ours(answer: StopAnswer | None, shown: LastStop | None) -> str | None:
    """Why a stop is not known to be ours, as a clause; None: it is, by the cloud's own word.

    `answer` is what the cloud said to our call, `shown` what it shows of the machine's last stop; None: it never shows
    that, and then its answer alone counts.
    """
    if answer is None:
        return "no answer of the cloud to its call is on record"
    if not answer.ran:
        return "the machine did not run any more when the cloud got the call"
    if shown is None:
        return None
    if shown.other is not None:
        return shown.other
    if answer.request is not None:
        same = shown.request == answer.request
        return None if same else "the cloud does not show gpuwatch's call as what stopped it"
    if answer.earliest is None or shown.at is None:
        return "the cloud does not say when it was stopped"
    if shown.at < answer.earliest or (answer.latest is not None and shown.at > answer.latest):
        asked = f"gpuwatch's call came at {answer.earliest:%Y-%m-%d %H:%M:%S} UTC"
        return f"the cloud shows a stop at {shown.at:%Y-%m-%d %H:%M:%S} UTC, and {asked}"
    return None


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.strptime(text, _FORM).replace(tzinfo=UTC)

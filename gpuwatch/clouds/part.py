"""One of several clouds: what it showed last, what is known of it from before, and lists that may go on without it."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.errors import CloudError, CloudUnavailableError
from gpuwatch.clouds.places import everywhere
from gpuwatch.clouds.silence import (
    Outlook,
    Recall,
    Recalling,
    as_last_seen,
    note_silence,
    of_cloud,
    partial,
    partial_here,
)
from gpuwatch.model.fleet import Node, NodeGroup
from gpuwatch.model.sight import Silence

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
# A mistake of ours in reading an answer, which may be one to a change: nobody knows then whether it was made.
_MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(eq=False, slots=True)
class Part:
    """One cloud, what it showed last, and whether it is silent; None: it has shown nothing yet."""

    name: str
    cloud: Cloud
    past: Recall | None = None
    nodes: Sequence[Node] | None = None
    groups: Sequence[NodeGroup] | None = None
    silent: bool = False
    trouble: CloudError | None = None  # of the newest list of nodes
    no_groups: CloudError | None = None
    answered: bool = False

    @contextmanager
    def asking(self) -> Iterator[Cloud]:
        """The cloud; its errors name it."""
        try:
            yield self.cloud
        except CloudError as error:
            if not str(error).startswith(f"cloud {self.name}: "):
                error.args = (f"cloud {self.name}: {error}", *error.args[1:])
            raise
        except _MISREAD as error:
            log.exception("The answer of the cloud %s cannot be read", self.name)
            kind = type(error).__name__
            raise CloudUnavailableError(f"cloud {self.name}: its answer cannot be read ({kind})", code=kind) from error

    def attempt(self, ask: Callable[[Cloud], Answer]) -> Answer | CloudError:
        """Its answer, or the error in its place; a mistake of ours in reading an answer is no answer, too."""
        try:
            with self.asking() as cloud:
                return ask(cloud)
        except CloudError as error:
            return error
        except Exception as error:  # such as of a ledger that is asked what was there before
            log.exception("The cloud %s cannot be asked", self.name)
            kind = type(error).__name__
            return CloudUnavailableError(f"cloud {self.name}: its answer cannot be read ({kind})", code=kind)

    def recall(self, past: Recall) -> None:
        """Ask this for what it showed before this process began."""
        self.past = lambda: past().of_cloud(self.name)
        if isinstance(self.cloud, Recalling):
            self.cloud.recall(self.past)

    def silence(self, error: CloudError, *, known: bool) -> Silence:
        """That it gave no answer."""
        return Silence(cloud=self.name, where="", reason=str(error).removeprefix(f"cloud {self.name}: "), known=known)

    def last_nodes(self, error: CloudError) -> list[Node]:
        """What it showed last, where it gives no answer.

        Raises:
            CloudError: nobody can say, and nobody has asked for a list that may lack it (`partial`).

        """
        if self.nodes is None:
            if self.past is None:
                note_silence(self.silence(error, known=False), error)
                return []
            self.nodes = self.past().nodes
        return [as_last_seen(node, str(error)) for node in self.nodes]

    def last_groups(self, error: CloudError) -> list[NodeGroup]:
        """The same of its groups, protected from every change; raises CloudError."""
        if self.groups is None:
            if self.past is None:
                raise error
            self.groups = self.past().groups
        why = f"its cloud gave no answer ({error})"
        return [replace(group, protected=why, seen_now=False) for group in self.groups]

    def outlook(self) -> Outlook:
        """What its newest lists rest on; without an answer from any of its places, one silence of all of it."""
        inner = of_cloud(self.cloud).of_cloud(self.name)
        error = self.trouble or self.no_groups
        if error is None:
            own = {f"{self.name}: "} if self.answered and not isinstance(self.cloud, Recalling) else set[str]()
            return Outlook(places=inner.places | own, silent=inner.silent)
        before = frozenset[str]() if self.past is None else self.past().places
        known = self.answered or (bool(before) and all(each.known for each in inner.silent))
        places = inner.places | {f"{self.name}: {place}" for place in before}
        return Outlook(places=places, silent=(self.silence(error, known=known),))

    def note_answer(self, error: CloudError | None) -> None:
        """Say once that it is silent, and once that it answers again."""
        if error is not None and not self.silent:
            log.warning("%s; its machines count as they were and are left alone", error)
        elif error is None and self.silent:
            log.warning("The cloud %s answers again", self.name)
        self.silent = error is not None


@dataclass(slots=True)
class Owners:
    """In which clouds an id was seen; more than one is a doubt."""

    of: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def add(self, name: str, cloud: str) -> None:
        """It was seen there."""
        known = self.of.get(name, ())
        self.of[name] = known if cloud in known else (*known, cloud)


def list_parts(parts: Sequence[Part], ask: Callable[[Cloud], Sequence[Answer]]) -> list[tuple[Part, Answer]]:
    """What all parts have, each with its part; within `partial` without those that give no answer, unless none does.

    Raises:
        CloudError: of the first part that failed, if all did, or if the list must not lack any.

    """
    may_lack = partial_here()  # the parts are asked in threads of their own, which do not see it

    def one(part: Part) -> tuple[Sequence[Answer] | CloudError, list[Silence]]:
        if not may_lack:
            return part.attempt(ask), []
        with partial() as silent:
            return part.attempt(ask), silent

    answers = everywhere(parts, one)
    failed = [answer for answer, _ in answers if isinstance(answer, CloudError)]
    if failed and len(failed) == len(answers):
        raise failed[0]
    found: list[tuple[Part, Answer]] = []
    for part, (answer, silent) in zip(parts, answers, strict=True):
        for each in silent:
            note_silence(replace(each, cloud=part.name), CloudUnavailableError(each.reason))
        if isinstance(answer, CloudError):
            note_silence(part.silence(answer, known=False), answer)
        else:
            found += [(part, each) for each in answer]
    return found

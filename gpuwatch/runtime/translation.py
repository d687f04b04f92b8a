"""Sentences in the reader's language: English text goes in where it is shown, and comes out by a catalogue.

Code, ledger and JSON stay in English. A catalogue (`locale/LANGUAGE.po`) has templates: `It is {state}.` matches a
sentence, and its parts go into the sentence of the other language. What has no entry stays English. The name of a
part, without the digits at its end, says what it holds: see `_SHAPES` and `_WORDS`. Any other part is kept as it is, so
no name that people gave is ever translated. Matching takes no step back, so no text makes it slow.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from json import loads

# What numbers and times look like. A duration is translated unit by unit: `{n}h`, `{n}m`.
_DURATION = r"\d+(?:\.\d+)?(?:e[-+]?\d+)?(?:ms|[smhdw])"
_SHAPES = {
    "n": re.compile(r"-?\d[\d,.]*"),
    "time": re.compile(rf"-?(?:{_DURATION})+"),
    "at": re.compile(r"(?:[A-Z][a-z]{2} )?(?:\d{4}-\d\d-\d\d )?\d\d:\d\d(?::\d\d)?(?: \S+)?(?: \(\d\d:\d\d UTC\))?"),
    "usd": re.compile(r"-?(?:[A-Z]{3} |[^\w\s])?\d[\d,.]*|-"),
    "word": re.compile(r"[A-Za-z][\w -]*"),
}
# What is looked up or translated in turn.
_WORDS = frozenset({"word", "text", "list"})
_PART = re.compile(r"\{(\w+)\}")
_PARTS_OF_DURATION = re.compile(_DURATION)
_ENTRY = re.compile(r'^msgid (".*")\nmsgstr (".*")$', re.MULTILINE)
_END = re.compile(r"(?<=[.;]) (?=\S)")  # of a sentence, or of a part of one
_SENTENCE = re.compile(r"\. \S")

_MOST = 5  # sentences of one template
# Templates within templates, and sentences of a text. What has more stays English: a text from outside has thousands.
_DEEPEST, _LONGEST = 8, 50
_SIMPLIFIED = re.compile(r"zh(?:[_-](?:CN|SG|Hans)\b.*)?(?:[.@].*)?", re.IGNORECASE)
CHINESE = "zh_CN"


@dataclass(frozen=True, slots=True)
class Template:
    """A sentence with its parts: `literals` stand around them, one more than there are `names`.

    `weight` is how much of it is given: of several that match, the heaviest counts.
    """

    literals: tuple[str, ...]
    names: tuple[str, ...]
    translated: str
    weight: int

    def match(self, text: str) -> dict[str, str] | None:
        """The parts of a text; None: it is another sentence."""
        first, *others = self.literals
        if not text.endswith(others[-1]) or not text.startswith(first) or len(text) <= self.weight:
            return None
        at, parts = len(first), dict[str, str]()
        for number, (name, literal) in enumerate(zip(self.names, others, strict=True)):
            last = number == len(others) - 1
            end = len(text) - len(literal) if last else text.find(literal, at + 1)
            part = text[at:end]
            if end <= at or not _fits(kind_of_part(name), part):
                return None
            parts[name], at = part, end + len(literal)
        return parts


def kind_of_part(name: str) -> str:
    """What a part holds, by its name: `time2` is a `time`."""
    return name.rstrip("0123456789")


def _fits(kind: str, part: str) -> bool:
    shape = _SHAPES.get(kind)
    if shape is not None:
        return shape.fullmatch(part) is not None
    return kind == "any" or not (_SENTENCE if kind == "text" else _END).search(part)


class Catalogue:
    """The templates of one language."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        """Of English sentences, each with its translation."""
        self._exact = {english: other for english, other in entries.items() if not _PART.search(english)}
        made = [_template(english, other) for english, other in entries.items() if english not in self._exact]
        made.sort(key=lambda each: -each.weight)
        self._begun: dict[str, list[Template]] = {}  # by their first two words, one, or none
        for each in made:
            self._begun.setdefault(" ".join(each.literals[0].split(" ")[:-1][:2]), []).append(each)
        self.translate = lru_cache(maxsize=16_384)(self._translate)

    def words(self) -> Mapping[str, str]:
        """Give the entries that are one word, such as states and verbs."""
        return {english: other for english, other in self._exact.items() if " " not in english}

    def _translate(self, text: str) -> str:
        """The text in this language; what has no entry stays as it is."""
        return self.translate_tracing(text, [])

    def translate_tracing(self, text: str, missed: list[str], depth: int = 0) -> str:
        """The same; also the sentences that have no entry."""
        indent = text[: len(text) - len(text.lstrip(" "))]
        if depth > _DEEPEST:
            return text
        if indent or not text:
            return indent + self.translate_tracing(text[len(indent) :], missed, depth) if text[len(indent) :] else text
        found = self._translate_whole(text, missed, depth)
        if found is not None:
            return found
        parts, done, at, glue = _END.split(text), "", 0, ""
        if len(parts) > _LONGEST:
            missed.append(text)
            return text
        while at < len(parts):
            for end in range(min(len(parts), at + _MOST), at, -1):
                piece = " ".join(parts[at:end])
                found = None if end - at == len(parts) else self._translate_whole(piece, missed, depth)
                if found is None:
                    found = self._translate_ended(piece, missed, depth)
                if found is not None:
                    break
            else:
                found, end = parts[at], at + 1
                missed.append(found)
            done += glue + found
            glue = "" if found[-1] in "。；" and found != parts[at] else " "
            at = end
        return done

    def _translate_ended(self, text: str, missed: list[str], depth: int) -> str | None:
        """An entry without an end, in a sentence that has one."""
        end = {".": "。", ";": "；"}.get(text[-1])
        found = None if end is None else self._translate_whole(text[:-1], missed, depth)
        return None if found is None else found + (end or "")

    def _translate_whole(self, text: str, missed: list[str], depth: int) -> str | None:
        """By the one entry that is all of the text; None: no entry is."""
        exact = self._exact.get(text)
        if exact is not None:
            return exact
        best, parts = None, None
        words = text.split(" ", 2)
        for begin in (" ".join(words[:2]), words[0], ""):
            for each in self._begun.get(begin, ()):
                if best is not None and each.weight <= best.weight:
                    break
                found = each.match(text)
                if found is not None:
                    best, parts = each, found
                    break
        if best is None or parts is None:
            return None
        return _PART.sub(lambda part: self._part(part[1], parts[part[1]], missed, depth + 1), best.translated)

    def _part(self, name: str, value: str, missed: list[str], depth: int) -> str:
        kind = kind_of_part(name)
        if kind == "time":
            units = (self._translate_whole(each, missed, depth) or each for each in _PARTS_OF_DURATION.findall(value))
            return ("-" if value[0] == "-" else "") + " ".join(units)
        if kind == "at":  # its weekday
            day, blank, rest = value.partition(" ")
            return self._exact.get(day, day) + blank + rest
        if kind == "word":
            return self._exact.get(value, value)
        if kind == "list":
            return "、".join(self.translate_tracing(each, missed, depth) for each in value.split(", "))
        return self.translate_tracing(value, missed, depth) if kind == "text" else value


def _template(english: str, other: str) -> Template:
    pieces = _PART.split(english)
    literals = tuple(pieces[::2])
    return Template(literals, tuple(pieces[1::2]), other, sum(map(len, literals)))


def entries_of(text: str) -> dict[str, str]:
    """What a catalogue file has: English, and its translation."""
    found = ((loads(english), loads(other)) for english, other in _ENTRY.findall(text))
    return {english: other for english, other in found if english}


@lru_cache
def catalogue(language: str) -> Catalogue:
    """The catalogue that gpuwatch ships for a language."""
    file = resources.files("gpuwatch.runtime").joinpath("locale", f"{language}.po")
    return Catalogue(entries_of(file.read_text(encoding="utf-8")))


def language_of(environ: Mapping[str, str]) -> str | None:
    """The language that somebody's environment asks for, of those that there are; None: English."""
    locale = next((found for key in ("LC_ALL", "LC_MESSAGES", "LANG") if (found := environ.get(key))), "C")
    if locale in {"C", "POSIX"} or locale.startswith("C."):
        return None
    return first_known((environ.get("LANGUAGE") or locale).split(":"))


def first_known(wanted: Iterable[str]) -> str | None:
    """The first language of these that there is; None: English."""
    for each in wanted:
        if _SIMPLIFIED.fullmatch(each):
            return CHINESE
        if each.lower().startswith("en"):
            return None
    return None


def translate_text(text: str) -> str:
    """The text in the language of this process. A daemon asks `catalogue` for its reader's instead."""
    language = language_of(os.environ)
    return text if language is None else catalogue(language).translate(text)

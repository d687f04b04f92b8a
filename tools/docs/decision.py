"""The stages of docs/decision.md, how a decision is made: its table and its picture, in English and Chinese.

Each stage names the code that it is about, so one that moves or goes is missed here.
"""

import inspect
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from gpuwatch.agent import daemon
from gpuwatch.agent.activity import fold
from gpuwatch.agent.evidence.settings import EvidenceSettings
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.clouds import permit
from gpuwatch.config.settings import Settings
from gpuwatch.controller import last_question, observation, settle
from gpuwatch.controller.observe import before_stop_client
from gpuwatch.guard import RULES, Limits, judge
from gpuwatch.model.duration import format_duration
from gpuwatch.policies import POLICIES, notices, propose
from tools.docs.svg import draw, text_at

Words = tuple[str, str]  # in English and in Chinese

_WIDTH, _TOP, _ROW, _PAD, _LEFT = 380, 12, 17, 16, 48  # narrow: on a telephone it is read as it is
_LETTERS = {"en": 45, "zh": 24}  # that fit in a line
_PLACE = re.compile(r"(<!-- stages -->)\n.*?(<!-- end of stages -->)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One step on the way of a machine from a reading to a stop that is seen."""

    name: Words
    does: Words
    keeps: Words
    code: object  # whose module the page names


def _stages() -> Sequence[Stage]:
    every: Any = next(each.default for each in fields(Settings) if each.name == "interval")
    agent, rounds, age = (
        format_duration(each) for each in (AgentSettings().interval, every, Limits().max_confirmation_age)
    )
    signals = len(fields(EvidenceSettings)) - 2  # `enabled` and `deadline` are about all of them
    named, rules = ", ".join(POLICIES), len(RULES)
    return (
        Stage(
            name=("Read", "读取"),
            does=(
                f"The agent on the machine reads each GPU every {agent}, and the host's processes, people and traffic.",
                f"机器上的 Agent 每 {agent} 读取每块 GPU，并查看主机上的进程、用户和流量。",
            ),
            keeps=(
                "A reading that fails or is old is not zero. It is unknown.",
                "读取失败或过旧的数据不算零，而是 unknown。",
            ),
            code=daemon,
        ),
        Stage(
            name=("Signals", "信号"),
            does=(
                f"{signals} groups of signals each say what they see, against which limit, and who owns the work.",
                f"{signals} 组信号各自说明看到了什么、限值是多少、是谁的工作。",
            ),
            keeps=("One sign of work is enough for busy.", "只要有一个工作迹象就是 busy。"),
            code=EvidenceSettings,
        ),
        Stage(
            name=("Verdict", "结论"),
            does=(
                "The machine is the first of busy, unknown, stalled, parked, occupied and idle that any part of it is.",
                "按 busy、unknown、stalled、parked、occupied、idle 的顺序，任何一部分最先符合的就是整台机器的状态。",
            ),
            keeps=("Any doubt makes it unknown. There are no weights.", "任何疑问都使它成为 unknown。没有权重。"),
            code=fold,
        ),
        Stage(
            name=("Round", "轮次"),
            does=(
                f"Every {rounds} the controller asks the cloud, the agents, the cluster, Slurm and its ledger.",
                f"控制器每 {rounds} 询问云、各个 Agent、集群、Slurm 和自己的账本。",
            ),
            keeps=("What does not answer is unknown, not gone.", "没有回答的是 unknown，而不是不存在。"),
            code=observation,
        ),
        Stage(
            name=("Policies", "策略"),
            does=(
                f"Each policy ({named}) proposes a step. The idle policy waits: longer, the less it knows.",
                f"每个策略（{named}）提出一个步骤。idle 策略会等待：知道得越少，等得越久。",
            ),
            keeps=(
                "A wait, a schedule, a minimum or waiting jobs hold it.",
                "等待时间、时间表、最小数量或排队的作业会保留它。",
            ),
            code=propose,
        ),
        Stage(
            name=("Guard", "防护规则"),
            does=(
                f"Each of {rules} rules that concerns the step answers yes or no, with a sentence and a remedy.",
                f"{rules} 条规则中与该步骤有关的每一条都回答是或否，并给出一句说明和解决办法。",
            ),
            keeps=("One no is enough. A rule without data says no.", "一个否就足够。没有数据的规则回答否。"),
            code=judge,
        ),
        Stage(
            name=("Notice", "通知"),
            does=(
                "The owner gets a message, on the machine and by mail or chat: what happens, when, and why.",
                "通过机器本身、邮件或聊天告诉所有者：会发生什么、什么时候、为什么。",
            ),
            keeps=("Any use of it, a snooze or a protection withdraws it.", "使用机器、snooze 或保护都会撤回通知。"),
            code=notices,
        ),
        Stage(
            name=("Own commands", "自己的命令"),
            does=(
                "When the grace is over, the commands of the administrator and of its people save what is to be saved.",
                "宽限期结束后，管理员和用户自己的命令保存需要保存的内容。",
            ),
            keeps=("A status other than 0 means: not now.", "退出状态不是 0 表示：现在不行。"),
            code=before_stop_client,
        ),
        Stage(
            name=("Last question", "最后的询问"),
            does=(
                "The ledger gets the intent. Cloud, cluster, Slurm and agent are asked, and all is judged again.",
                "账本先记录意图。然后云、集群、Slurm 和 Agent 说明此刻的情况，一切重新判断。",
            ),
            keeps=(f"No answer, or one older than {age}: it stays.", f"没有回答，或回答早于 {age}：机器保留。"),
            code=last_question,
        ),
        Stage(
            name=("Call", "调用"),
            does=(
                "The call leaves once, with a permit that ends after seconds.",
                "调用只发出一次，并带有几秒后到期的许可。",
            ),
            keeps=(f"A call that is not sent within {age} is not sent.", f"{age} 内没有发出的调用不再发出。"),
            code=permit,
        ),
        Stage(
            name=("Settled", "结清"),
            does=(
                "Later rounds see the outcome. Only a stop that was seen counts as saved.",
                "之后的轮次查看结果。只有看到了的停止才算节省。",
            ),
            keeps=(
                "A start by a person within an hour was our mistake: it waits longer.",
                "一小时内有人重新启动它，就是我们的错误：下次等得更久。",
            ),
            code=settle,
        ),
    )


_HEADS: dict[str, tuple[str, str, str, str]] = {
    "en": ("step", "what happens", "what keeps the machine", "code"),
    "zh": ("步骤", "发生什么", "什么会保留机器", "代码"),
}


def with_stages(language: str, page: str) -> str:
    """The page in English (`en`) or Chinese (`zh`) with the table of the stages; what people wrote stays.

    Raises:
        ValueError: the page has no place for it, or several.

    """
    which, heads = _which(language), _HEADS[language]
    rows = ["| " + " | ".join(heads) + " |", "| --- | --- | --- | --- |"]
    for number, stage in enumerate(_stages(), start=1):
        path = _path_of(stage.code)
        link = f"[{path.rpartition('/')[2]}](../{path})"
        rows.append(f"| {number}. {stage.name[which]} | {stage.does[which]} | {stage.keeps[which]} | {link} |")
    made, times = _PLACE.subn(lambda found: "\n".join([found[1], *rows, found[2]]), page)
    if times != 1:
        raise ValueError(f"the page has {times} places for the stages, expected 1")
    return made


def render_picture(language: str) -> str:
    """The picture, as SVG in light and dark."""
    which, letters = _which(language), _LETTERS[language]
    parts, y = list[str](), _TOP
    stages = _stages()
    for number, stage in enumerate(stages, start=1):
        does, keeps = (_lines(each[which], letters, language) for each in (stage.does, stage.keeps))
        middle, height = y + 10, _ROW * (1 + len(does) + len(keeps)) + _PAD
        if number < len(stages):
            parts.append(f'<line class="rule" x1="26" y1="{middle}" x2="26" y2="{middle + height}" stroke-width="2"/>')
        parts.append(f'<circle class="dot" cx="26" cy="{middle}" r="12"/>')
        parts.append(f'<text class="number" x="26" y="{middle + 4}" text-anchor="middle">{number}</text>')
        parts.append(text_at(_LEFT, y + 14, stage.name[which], "name"))
        parts += [text_at(_LEFT, y + 14 + _ROW * (row + 1), line) for row, line in enumerate(does)]
        parts += [text_at(_LEFT, y + 14 + _ROW * (1 + len(does) + row), line, "keep") for row, line in enumerate(keeps)]
        y += height
    return draw(_WIDTH, y, parts)


def _which(language: str) -> int:
    return tuple(_HEADS).index(language)


def _path_of(code: object) -> str:
    module = code if inspect.ismodule(code) else inspect.getmodule(code)
    assert module is not None  # noqa: S101  each is our own
    return module.__name__.replace(".", "/") + ("/__init__.py" if hasattr(module, "__path__") else ".py")


def _lines(words: str, letters: int, language: str) -> list[str]:
    """A sentence in lines; Chinese breaks anywhere but within a word of Latin letters."""
    if language == "en":
        return textwrap.wrap(words, letters)
    lines, now, width = list[str](), "", 0.0
    for piece in _pieces(words):
        size = sum(0.55 if letter.isascii() else 1.0 for letter in piece)
        if width + size > letters and piece not in "，。：、；":
            lines.append(now.rstrip())
            now, width = "", 0.0
        now, width = now + piece, width + size
    return [*lines, now]


def _pieces(words: str) -> list[str]:
    pieces = list[str]()
    for letter in words:
        if pieces and letter.isascii() and letter != " " and pieces[-1][-1].isascii() and pieces[-1][-1] != " ":
            pieces[-1] += letter
        else:
            pieces.append(letter)
    return pieces

"""What CONTRIBUTING.md promises: each addition touches as few files as it says.

A metric, a guard rule, a policy, a notification transport and a cloud are added to a copy of the repository, where the
files are counted. Then `make docs` and the golden files are written there, and each addition runs, in a process of its
own. In `make nightly` the copy's own tests of each room that was touched run as well, whole.
"""

import sys
from pathlib import Path

import pytest

from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent, eventually
from tests.support.real.repository_copies import RepositoryCopy

# The tests of all that the additions touch.
TOUCHED = (
    *("tests/unit/guard", "tests/unit/money/blocked", "tests/docs/test_guard_page.py"),
    *("tests/unit/agent/exporter", "tests/unit/agent/devices", "tests/unit/notify/transports"),
    "tests/unit/runtime/test_translation.py",
)
PYTEST = ("-m", "pytest", "-n0", "-q", "-x", "-p", "no:cacheprovider")
CHINESE = "gpuwatch/runtime/locale/zh_CN.po"


def test_an_addition_touches_no_more_files_than_promised(tmp_path: Path, driver: StubDriver) -> None:
    """What is generated from the code follows by itself, and every addition works."""
    tree = with_all_additions(tmp_path)

    the_metric_is_exported(tree, driver)
    the_rule_is_broken_by_make_mutate_too(tree)
    the_policy_proposes(tree)
    the_transport_sends(tree)
    the_cloud_is_reached(tree)


@pytest.mark.nightly
def test_with_all_additions_the_tests_of_what_they_touch_pass(tmp_path: Path) -> None:
    """Whole rooms, not some chosen files."""
    with_all_additions(tmp_path).run(*PYTEST, "--hypothesis-profile=quick", *TOUCHED)


def with_all_additions(folder: Path) -> RepositoryCopy:
    """A copy that has them, and what is written from them."""
    tree = RepositoryCopy(folder / "tree")
    add_a_metric(tree)
    stub = "tests/support/fakes/nvml_stub/fields.c"
    assert tree.changes() == {"gpuwatch/model/gpu.py", "gpuwatch/agent/devices/nvml/rows.py", stub}
    add_a_guard_rule(tree)
    rule = {"gpuwatch/guard/keepsake.py", "gpuwatch/guard/rules.py", "tests/support/builders/guard_cases.py"}
    assert tree.changes() == {*rule, CHINESE}
    add_a_policy(tree)
    assert tree.changes() == {"gpuwatch/policies/standby.py", "gpuwatch/policies/__init__.py", CHINESE}
    add_a_transport(tree)
    assert tree.changes() == {"gpuwatch/notify/transports/pager.py", "gpuwatch/notify/transports/registry.py"}
    add_a_cloud(tree)
    package = {f"gpuwatch/clouds/nimbus/{name}.py" for name in ("__init__", "settings", "cloud")}
    assert tree.changes() == {*package, "gpuwatch/clouds/settings.py", "pyproject.toml"}

    tree.run("-m", "tools.docs")
    generated = ("test_guard_sentences.py", "test_exporter.py", "test_docs_complete.py")
    chosen = ("-k", "golden or recorded or catalogue or follows or policy or setting")
    tree.run(*PYTEST, *chosen, *map(tree.find, generated), GPUWATCH_UPDATE_GOLDEN="1")
    written = tree.changes()
    assert {"docs/METRICS.md", "docs/guard.md", "docs/policies/README.md", "docs/settings/pools.md"} <= written
    assert "tests/golden/guard_sentences.txt" in written
    assert {name for name in written if not name.startswith(("docs/", "tests/golden/"))} == set()
    return tree


def add_a_metric(tree: RepositoryCopy) -> None:
    """A field, a row that says which function of NVML it comes from, and its value in the tests' stand-in."""
    tree.insert(
        "gpuwatch/model/gpu.py",
        "    clock_events: tuple[str, ...] | None = None\n",
        """    power_limit_requested_watts: Annotated[
        float | None,
        Metric("Power limit that somebody asked for.", "field POWER_REQUESTED_LIMIT (192)", group="limits"),
    ] = None
""",
    )
    tree.insert(
        "gpuwatch/agent/devices/nvml/rows.py",
        '    "power_limit_default_watts": _limit(\n',
        '    "power_limit_requested_watts": (Field(192, _milli),),\n',
    )
    tree.insert("tests/support/fakes/nvml_stub/fields.c", "{193, 0, -8}", "{192, 0, 450000}, ")


def the_metric_is_exported(tree: RepositoryCopy, driver: StubDriver) -> None:
    """By a real agent, on a stand-in driver."""
    driver.gpu(0).field(192, 450_000)
    command = (sys.executable, "-P", "-m", "gpuwatch")
    environment = {**tree.environment, **driver.environment, "PYTHONPATH": str(tree.root)}
    with RunningAgent(environment, command, metrics="all") as agent:
        eventually(lambda: "gpuwatch_gpu_power_limit_requested_watts{" in agent.get("/metrics"), lambda: agent.log)


def add_a_guard_rule(tree: RepositoryCopy) -> None:
    """A function, its registration, and its case in the tests."""
    tree.write(
        "gpuwatch/guard/keepsake.py",
        '''"""PURE: a rule about the names of machines."""

from gpuwatch.guard.case import Case, Finding, allow, refuse


def keepsake(case: Case) -> Finding:
    """Refuses the removal of a machine whose name begins with `keepsake-`.

    People give such names to machines that they want to keep. Rename the machine to let gpuwatch remove it.
    """
    if case.machine.name.startswith("keepsake-"):
        return refuse(f"Its name is {case.machine.name}.", "Rename it.")
    return allow("Its name does not keep it.")
''',
    )
    tree.insert("gpuwatch/guard/rules.py", "    kubernetes,\n", "    keepsake,\n")
    row = '    "keepsake": _machines(_LET_GO, keepsake.keepsake, Obstacle.PROTECTED),\n'
    tree.insert("gpuwatch/guard/rules.py", '    "snoozed": ', row)
    tree.insert(
        "tests/support/builders/guard_cases.py",
        '    ("no tag", "not_enrolled"',
        '    ("kept by name", "keepsake", lambda c: with_node(c, name="keepsake-1"), "keepsake-1"),\n',
    )
    say_in_chinese(
        tree,
        ("Its name is {name}.", "它的名称是 {name}。"),
        ("Rename it.", "请改名。"),
        ("Its name does not keep it.", "它的名称不保护它。"),
    )


def say_in_chinese(tree: RepositoryCopy, *sentences: tuple[str, str]) -> None:
    """Their entries, before another one."""
    entries = "".join(f'msgid "{english}"\nmsgstr "{chinese}"\n\n' for english, chinese in sentences)
    tree.insert(CHINESE, 'msgid "It warms up for {time}."\n', entries)


def the_rule_is_broken_by_make_mutate_too(tree: RepositoryCopy) -> None:
    """That the rule refuses is shown by its case, in the copy's own tests."""
    mutants = "from tests.mutation.mutate_guard import mutants; print(*(each.name for each in mutants()), sep='\\n')"
    assert "keepsake: never objects" in tree.run("-c", mutants)

    assert "## keepsake\n\nRefuses the removal" in (tree.root / "docs/guard.md").read_text(encoding="utf-8")


def add_a_policy(tree: RepositoryCopy) -> None:
    """A file with its settings, and its registration."""
    tree.write(
        "gpuwatch/policies/standby.py",
        '''"""PURE: a number of nodes that stay ready."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from gpuwatch.model.decision import Observation, Proposal, Reason
from gpuwatch.model.setting import STRICT, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyRules:
    """How many nodes stay ready."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    nodes: Annotated[int, Ge(0), Setting("So many nodes stay ready.")] = 0


def propose(observation: Observation, pool: str, rules: StandbyRules) -> Proposal:
    """At least so many nodes."""
    reason = Reason(code="standby", sentence=f"{rules.nodes} nodes stay ready.")
    return Proposal(policy="standby", pool=pool, reason=reason, min_nodes=rules.nodes)
''',
    )
    policies = "gpuwatch/policies/__init__.py"
    tree.insert(
        policies,
        "from gpuwatch.policies.health_settings",
        "from gpuwatch.policies import standby\nfrom gpuwatch.policies.standby import StandbyRules\n",
    )
    tree.insert(
        policies,
        "    start: Annotated[\n",
        "    standby: StandbyRules = field(default_factory=StandbyRules)\n",
    )
    tree.insert(
        policies,
        "def _bounds(",
        '''def _standby(observation: Observation, pool: str, rules: PoolRules) -> Proposal:
    """So many nodes stay ready.

    Set up by `pools.<name>.standby`.
    """
    return standby.propose(observation, pool, rules.standby)


''',
    )
    tree.insert(policies, '    "bounds": _bounds,\n', '    "standby": _standby,\n')
    say_in_chinese(tree, ("{n} nodes stay ready.", "{n} 个节点随时可用。"))


def the_policy_proposes(tree: RepositoryCopy) -> None:
    """Under its own setting: a machine that would be stopped stays."""
    tree.write("gpuwatch.yaml", "pools: {default: {standby: {nodes: 1}}}\n")
    proposed = """
from dataclasses import replace
from pathlib import Path
from gpuwatch.config import load
from gpuwatch.policies import propose, resolve
from tests.support.builders.fleet import a_node, a_notice, an_observation
rules = load(Path("gpuwatch.yaml"), {}).rulebook.pool("default")
observation = an_observation(a_node(), notices=(a_notice(),))
proposals = propose(observation, "default", rules)
print(*(each.reason.sentence for each in proposals))
for standing in (1, 0):
    chosen = [replace(each, min_nodes=standing) if each.policy == "standby" else each for each in proposals]
    print(*(step.verb for step in resolve(observation, "default", chosen, rules).steps))
"""
    sentences, with_it, without_it = tree.run("-c", proposed).splitlines()
    assert "1 nodes stay ready." in sentences
    assert (with_it, without_it) == ("hold", "stop")


def add_a_transport(tree: RepositoryCopy) -> None:
    """A file with its settings and its sending, and its registration."""
    tree.write(
        "gpuwatch/notify/transports/pager.py",
        '''"""Messages to a pager."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from gpuwatch.model.setting import STRICT, Setting
from gpuwatch.notify.transports.base import Delivery, Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class PagerSettings(Transport):
    """The settings of one pager."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    target: ClassVar[str] = "device"

    device: Annotated[str | None, Setting("The device that shows the message.")] = None

    def send(self, delivery: Delivery) -> str:
        """Write the title."""
        Path(self.device or "").write_text(delivery.content.title, encoding="utf-8")
        return f"pager {self.device}"
''',
    )
    registry = "gpuwatch/notify/transports/registry.py"
    tree.insert(
        registry,
        "from gpuwatch.notify.transports.web",
        "from gpuwatch.notify.transports.pager import PagerSettings\n",
    )
    tree.insert(registry, "    mail: MailSettings", "    pager: PagerSettings = field(default_factory=PagerSettings)\n")


def the_transport_sends(tree: RepositoryCopy) -> None:
    """A test message, after `config check` has read its settings."""
    tree.write("pager.yaml", "notify: {receivers: {ops: {pager: {device: page.txt}}}}\n")
    assert tree.run("-m", "gpuwatch", "config", "check", "--config", "pager.yaml").startswith("OK: ")
    assert "pager page.txt" in tree.run("-m", "gpuwatch", "notify", "test", "--config", "pager.yaml")
    assert "gpuwatch" in (tree.root / "page.txt").read_text(encoding="utf-8")


def add_a_cloud(tree: RepositoryCopy) -> None:
    """A package, a field of the settings, and an extra."""
    tree.write("gpuwatch/clouds/nimbus/__init__.py", '"""The cloud of Nimbus."""\n')
    tree.write(
        "gpuwatch/clouds/nimbus/settings.py",
        '''"""The section `cloud.nimbus`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Annotated, ClassVar

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.provider import ProviderSettings
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.runtime.clock import Clock


class NimbusSecrets:
    """The keeper of Nimbus."""

    forms: ClassVar[tuple[str, ...]] = ("keeper:NAME",)

    def fetch(self, store: str, name: str) -> bytes:
        """The secret."""
        return f"{store} of {name}".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class NimbusSettings(ProviderSettings):
    """What only Nimbus needs."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    project: Annotated[str, Setting("The project.")] = ""

    def connect(self, *, fleet: str, clock: Clock, regions: tuple[str, ...], endpoint_url: str | None) -> Cloud:
        """Its machines."""
        cloud: Cloud = resolve_name("gpuwatch.clouds.nimbus.cloud:NimbusCloud")(self.project, fleet, regions)
        return cloud

    def contradictions(self) -> Iterator[Contradiction]:
        """It needs a project."""
        if not self.project:
            keys = (("cloud", "nimbus", "project"),)
            yield Contradiction(keys=keys, wrong="no project is set", right="cloud.nimbus.project")

    def region_names(self) -> frozenset[str]:
        """All two."""
        return frozenset(("north", "south"))

    def secret_stores(self, *, regions: tuple[str, ...], endpoint_url: str | None) -> NimbusSecrets:
        """One."""
        return NimbusSecrets()
''',
    )
    tree.write(
        "gpuwatch/clouds/nimbus/cloud.py",
        '''"""The machines of Nimbus."""

import os

if "NIMBUS_SDK" not in os.environ:
    raise ModuleNotFoundError("No module named 'nimbus_sdk'", name="nimbus_sdk")


class NimbusCloud:
    """It has no machines yet."""

    def __init__(self, project: str, fleet: str, regions: tuple[str, ...]) -> None:
        """Where they are."""
        self.where = f"{project} {fleet} {regions}"

    def nodes(self) -> tuple[()]:
        """None."""
        print(self.where)
        return ()
''',
    )
    tree.insert(
        "gpuwatch/clouds/settings.py",
        "from gpuwatch.clouds.provider",
        "from gpuwatch.clouds.nimbus.settings import NimbusSettings\n",
    )
    tree.insert(
        "gpuwatch/clouds/settings.py",
        "    aws: AwsSettings",
        "    nimbus: NimbusSettings = field(default_factory=NimbusSettings)\n",
    )
    tree.insert("pyproject.toml", "aws = [", 'nimbus = ["gpuwatch-fleet[controller]", "nimbus-sdk"]\n')


def the_cloud_is_reached(tree: RepositoryCopy) -> None:
    """`config check` knows it with its settings, regions and secrets; `connect` reaches it, or names its extra."""
    tree.write(
        "right.yaml",
        "cloud: {provider: nimbus, regions: [north], nimbus: {project: lab}}\n"
        "prices: {live: {gcp: true, gcp_key_file: 'keeper:prices'}}\n",
    )
    tree.write("wrong.yaml", "cloud: {provider: nimbus, regions: [nroth]}\nledger: {url_file: 'keeper:'}\n")
    assert tree.run("-m", "gpuwatch", "config", "check", "--config", "right.yaml").startswith("OK: ")
    connected = """
from pathlib import Path
from gpuwatch.clouds.settings import connect
from gpuwatch.config import ConfigError, load
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.secrets import read_secret, use
settings = load(Path("right.yaml"), {})
use(settings.cloud.secret_stores)
print(read_secret("keeper:prices").decode())
try:
    connect(settings.cloud, fleet="lab", clock=SystemClock()).nodes()
except ImportError as error:
    print(error)
try:
    load(Path("wrong.yaml"), {})
except ConfigError as error:
    print(error)
"""
    missing = tree.run("-c", connected)
    assert missing.startswith("keeper of prices\nthe cloud 'nimbus' needs its extra: pip install '")
    assert missing.splitlines()[1].partition(" (")[0].endswith("[nimbus]'")
    assert "'nroth' is no region of nimbus\n    expected: north" in missing
    assert "no project is set" in missing
    assert "credential:NAME, keeper:NAME, or a file" in missing
    assert "lab lab ('north',)\n" in tree.run("-c", connected, NIMBUS_SDK="installed")

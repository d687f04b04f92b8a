"""docs/clouds/README.md, and docs/clouds/evidence.md from the table of `cloud_capabilities.py`."""

from gpuwatch.clouds.unseen import HEADING
from tools.docs.cloud_capabilities import CLOUDS, TABLE, Capability, Evidence
from tools.docs.cloud_roles import render_roles
from tools.docs.text import filled

_INTRO = (
    "How to set up gpuwatch on [AWS](aws.md), [Azure](azure.md), [Google Cloud](gcp.md), [Alibaba Cloud](alibaba.md) "
    "and [Tencent Cloud](tencent.md). On [Runpod, Lambda, OpenStack](drivers.md) and [any other cloud](driver.md) by a "
    "driver. Without a cloud on [hosts of your "
    "own](hosts.md). Several clouds at once: [several](several.md). gpuwatch has never run on a real cloud yet: "
    "[what is proven](evidence.md)."
)
_COMMON = """\
## From zero
The page of each cloud has the commands.

1. **Choose [roles](#roles)**, and begin with `observe`.
2. **Give them to the controller**, best to the identity of its machine: then there is no key.
3. **Say where**: `cloud.provider` and `cloud.regions`.
4. **Look**: `gpuwatch status` shows every GPU machine. [`gpuwatch doctor controller`](../doctor.md) tries the rights.
5. **Enrol** machines by [tags](#tags), one by one or in their launch template.
6. **Enforce**: set `mode: enforce` once `gpuwatch plan` was right for some days.

## Roles
`gpuwatch export iam DIR --provider CLOUD --fleet NAME` writes the files of [iam/](../../iam) for your fleet, and with
`--region` for changes in some regions alone. A *whole* file has the rights of `observe` too. Give a *part* in addition
to a whole one. `scan` stands *alone*: give it to a person who runs `gpuwatch scan`. The controller does not need it.

{roles}

On AWS, Alibaba Cloud and Tencent Cloud each change needs the tag `gpuwatch:fleet`, and a machine's `gpuwatch:protect`
denies its stop, start and end. Azure and Google Cloud know no such conditions: bind the roles there as their pages say.
[What a stolen controller can do](../threats.md#what-a-stolen-controller-can-do-in-a-cloud) compares the clouds.

## Several accounts
```yaml
cloud:
  provider: aws                     # or alibaba, tencent: the key below is the same word
  regions: [us-east-1]
  aws:
    accounts:
      own: {{}}                       # the credentials' own account
      prod:
        role_arn: arn:aws:iam::123456789012:role/gpuwatch-controller
        external_id: research-7     # where the trust policy asks for one
        regions: [us-east-1, us-west-2]
```

Give the controller's identity `assume`. In each account make a role with one of the other files that trusts this
identity. Azure has `azure.subscriptions`, Google Cloud `gcp.projects`.

## Tags
| tag | value | meaning |
| --- | --- | --- |
| `gpuwatch:fleet` | the fleet's name | gpuwatch may act on it; without it gpuwatch only looks |
| `gpuwatch:pool` | a pool | which rules; else `default`. An [unknown pool](../guard.md#unknown_pool) keeps them on |
| `gpuwatch:owner` | a name | who gets messages; limits for each owner |
| `gpuwatch:protect` | `true`, or a time such as `2026-01-31T18:00Z` | never touch it, or not until then |
| `gpuwatch:snooze-until` | a time | not until then, within `max_snooze` |

A misspelt key, such as `gpuwatch-protect`, protects the machine until you correct it; `gpuwatch status` names the right
key. gpuwatch itself writes `gpuwatch:notified-at`, `gpuwatch:stop-at` and `gpuwatch:decision-id`. Google Cloud has
[labels](gcp.md#labels-instead-of-tags).

## Every region
`regions: [all]` stands for each region that the account may use. gpuwatch looks there **and acts there**.
Restart gpuwatch after you enable a region. A pool that launches must name `launch.region`. If one region refuses to
list its machines from the start, gpuwatch does nothing: then name the regions.

## What is never touched
- machines without the fleet's tag, and machines that people protect or snooze; an unreadable value protects
- machines that another system owns (a cluster's node pools, batch services, Ray, autoscalers), by their tags and names
- members of groups that do not consent, and machines that their cloud protects from the change
- reserved, prepaid and dedicated capacity
- a start of machines that somebody else stopped, unless `pools.<name>.start: any` allows it
- machines in an unknown state, also [when a cloud gives no answer](several.md#when-a-cloud-gives-no-answer)

## Groups
- gpuwatch changes a group only if the **group itself** consents, by the tag `gpuwatch:fleet`. Let new members have the
  machines' tags.
- gpuwatch never stops a member, because its group would replace it. It ends the member by name, with its place, and not
  below the group's minimum.
- Growing never exceeds the group's maximum. With all members protected, gpuwatch also takes back
  [what the cloud does not give](../policies/spot.md#what-counts-as-coming).

## What a stop saves
The disks and addresses of a stopped machine still cost, and its start needs free capacity again. The cloud's page says
which machines are billed while they are stopped: gpuwatch does not stop these. On Azure and Tencent Cloud
`terminate_after` ends no stopped machine that no controller saw for more than ten minutes.

`gpuwatch unused` lists disks, addresses, snapshots of disks that are gone, and your own images older than 30 days that
nothing names. It removes nothing, and does not see whether other accounts or scripts use an image. gpuwatch limits its
calls to each account and region, and halves its pace after the cloud refuses one for their number."""
_EVIDENCE = (
    "gpuwatch has never run on a real cloud yet. For each thing that it does, the table shows the best evidence. "
    f"*{HEADING}* on the page of each cloud lists what is open."
)
_KINDS = """\
- **recorded**: others recorded the real cloud's answers, and `tests/contracts/test_recorded_*.py` play them: what
  stands in brackets.
- **model**: the test's cloud follows the cloud's own model of its API.
- **fake**: our own fake alone.
- **-**: the cloud has no such thing, or gpuwatch does not ask for it."""
_PAGE = """\
# Clouds

Generated by `make docs`; do not edit.

{intro}

{common}
"""
_EVIDENCE_PAGE = """\
# What is proven on each cloud, and how

Generated by `make docs` from `tools/docs/cloud_capabilities.py`; do not edit. [All clouds](README.md).

{evidence}

{kinds}

| what | {clouds} |
| --- | {lines} |
{rows}
"""


def render() -> str:
    """The page of what all clouds have in common."""
    return _PAGE.format(intro=filled(_INTRO), common=_COMMON.format(roles=render_roles()))


def render_evidence() -> str:
    """The page of what is proven."""
    return _EVIDENCE_PAGE.format(
        evidence=filled(_EVIDENCE),
        kinds=_KINDS,
        clouds=" | ".join(CLOUDS.values()),
        lines=" | ".join("---" for _ in CLOUDS),
        rows="\n".join(_row(each) for each in TABLE),
    )


def _row(each: Capability) -> str:
    return f"| {each.does} | {' | '.join(_cell(each.in_cloud(cloud)) for cloud in CLOUDS)} |"


def _cell(found: Evidence) -> str:
    words = ", ".join(found.paths)
    return f"{found.kind} ({words}{f'; {found.but}' if found.but else ''})" if words else found.kind

"""PURE: what cannot be known without a real cloud, in one table: `UNSEEN`.

No test of this repository meets a real cloud. Where documents, recorded answers and the code of others end, the
adapters take something for granted. Each row says what, why it matters, and how a first user can see it.
`gpuwatch doctor controller` names the rows of the clouds in the settings, and `make docs` writes them into the page of
each cloud. A row goes when somebody has sent what the real cloud answered, and a test plays it.
"""

from dataclasses import dataclass

HEADING = "Not yet seen on the real cloud"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """One thing of a cloud that nobody has seen there: a few words, what is taken for granted, how it can be seen."""

    cloud: str
    what: str
    taken: str
    see: str


def unseen_of(cloud: str) -> tuple[Unseen, ...]:
    """The rows of one cloud, in the order of the table; the simulated cloud has no row."""
    return tuple(each for each in UNSEEN if each.cloud == cloud)


_RECORD = "`gpuwatch doctor --record DIR`"
_DOCTOR = "`gpuwatch doctor controller` in mode `enforce`"
_BILL = "Compare `gpuwatch cost` with a bill: `gpuwatch cost reconcile --bill FILE`."

UNSEEN: tuple[Unseen, ...] = (
    # AWS: lists, groups, refusals and changes were recorded by others.
    Unseen(
        cloud="aws",
        what="group weights of mixed instances",
        taken="The end of a member takes its weight off the group's desired size. AWS documents no number: if less is "
        "taken off, the group launches another machine, and that is billed.",
        see="End a member of weight 2 or more that is not needed, and compare `DesiredCapacity` before and after (`aws "
        "autoscaling describe-auto-scaling-groups`).",
    ),
    Unseen(
        cloud="aws",
        what="StateReason after a failed start",
        taken="EC2 accepts a start and stops the machine again with `Client.InternalError` if it may not use the key "
        "of a volume. That code is known from public issues. After another code gpuwatch shows the reason as it is, "
        "and does not hold back other machines with the same key.",
        see=f"{_RECORD} while such a machine is stopped: `stateReason` in DescribeInstances.",
    ),
    Unseen(
        cloud="aws",
        what="IAM simulation of roles with a path",
        taken="STS leaves out the path of a role. gpuwatch asks IAM for the role without it, and after `NoSuchEntity` "
        "by the ARN that GetRole shows. After any other refusal, machines with volumes under your own key are not "
        "stopped.",
        see="`gpuwatch doctor controller` with such a role: `disks.may_not_start` has IAM's words.",
    ),
    Unseen(
        cloud="aws",
        what="a key's own policy against IAM's",
        taken="IAM's simulation does not see the policy of a key. If that policy refuses a grant that IAM allows, the "
        "first machine that does not start shows it; gpuwatch then stops no other with that key for a day.",
        see="Stop and start one machine with such a key by hand, with gpuwatch's role.",
    ),
    Unseen(
        cloud="aws",
        what="how IAM judges the shipped policies",
        taken="Every action and condition key of `iam/*.json` is in AWS's list of them, and an evaluator of our own "
        "says what they allow. AWS's has never judged them. A missing right is a refusal that gpuwatch names.",
        see=f"{_DOCTOR}: it tries each EC2 call by DryRun.",
    ),
    Unseen(
        cloud="aws",
        what="rights that depend on a launch template",
        taken="`scale.json` allows image, key pair, security group, snapshot, subnet, interface, placement group and "
        "reservation. An encrypted image needs `disks.json`, a role in the template `iam:PassRole`; a template with a "
        "license or a host group needs what the refusal names.",
        see=f"{_DOCTOR}: it tries a launch of each pool by DryRun.",
    ),
    Unseen(
        cloud="aws",
        what="what Service Quotas answers",
        taken="Limits are read from answers of the form that AWS documents. What is used is counted from the "
        "machines: `gpuwatch status` may show more as left than there is.",
        see="Compare `gpuwatch status` with the console's page of Service Quotas.",
    ),
    Unseen(
        cloud="aws",
        what="prices from third sources",
        taken="Prices outside of us-east-1 come from tables that others publish. A wrong one makes sums and "
        "`max_usd_per_hour` wrong, and stops no machine.",
        see=f"`gpuwatch prices` names source and day. {_BILL}",
    ),
    # Azure: machines, disks, locks and refusals were recorded by others; scale sets' members and launches were not.
    Unseen(
        cloud="azure",
        what="tags of members of Uniform scale sets",
        taken="The Tags API merges tags at a member's own scope. A public issue records a write of tags that was "
        "answered 200 and changed nothing. gpuwatch looks whether the tags are there. If not, the notice has "
        "failed and no member is removed, and `gpuwatch:protect` works on the whole set alone.",
        see="`az tag update --operation Merge --tags test=1 --resource-id MEMBER`, then `az tag list --resource-id "
        "MEMBER`.",
    ),
    Unseen(
        cloud="azure",
        what="protection of members of Uniform scale sets",
        taken="Protection from a scale-in is written with place, tags and policy of the member alone. If Azure takes "
        "the parts that are missing for a wish to remove them, it refuses; the member is then unprotected, and "
        "gpuwatch says so.",
        see="With `shield.json` and a busy member: `protectionPolicy` in `az vmss list-instances`.",
    ),
    Unseen(
        cloud="azure",
        what="a machine without stock shows no disk",
        taken="A launch that Azure had no place for stays as a machine without a disk and without a power state. If "
        "Azure shows a disk there, gpuwatch counts a machine in the state unknown, and launches none in its stead.",
        see=f"{_RECORD} after a launch that failed with `AllocationFailed`: `storageProfile` of that machine.",
    ),
    Unseen(
        cloud="azure",
        what="rights that depend on a template",
        taken="`launch.json` has the rights that are documented for a machine with an interface in a subnet. An image "
        "of a gallery, a disk encryption set, a public address, an identity of its own, a proximity group and a "
        "reservation need one more each. Azure refuses the launch and names it.",
        see="Launch once with the template and gpuwatch's role; nothing tries a launch beforehand on Azure.",
    ),
    Unseen(
        cloud="azure",
        what="rights at a subscription",
        taken="The doctor reads `permissions` at the subscription and at the fleet's resource groups, and compares "
        "them with what gpuwatch needs. A deny assignment is in no such answer.",
        see=f"{_DOCTOR}, then a stop of a machine that is not needed.",
    ),
    Unseen(
        cloud="azure",
        what="the list with statusOnly",
        taken="It has the states of all machines. A machine that it leaves out is read alone, which costs one call.",
        see=f"{_RECORD}: the list with `statusOnly=true` has as many machines as the other one.",
    ),
    Unseen(
        cloud="azure",
        what="how soon a start without stock fails",
        taken="An operation is followed for 20 seconds. A start that fails later is seen as a machine that is still "
        "deallocated, and is tried again at the pool's next need.",
        see="The activity log of a start that failed: the time between accepted and failed.",
    ),
    Unseen(
        cloud="azure",
        what="sizes with a part of a GPU",
        taken="The size's `GPUs` counts a part (NVadsA10 v5) as one GPU.",
        see=f"{_RECORD} on a fleet with such machines, and `gpuwatch status`.",
    ),
    Unseen(
        cloud="azure",
        what="notices before an end",
        taken="No list of Azure announces an eviction or a maintenance: only a machine's own agent can. A machine "
        "without an agent ends without notice.",
        see="`gpuwatch status` of a Spot machine while Azure evicts it (`az vm simulate-eviction`).",
    ),
    Unseen(
        cloud="azure",
        what="prices from third sources",
        taken="Prices come from a table that others make of the Retail Prices API. A wrong one makes sums and "
        "`max_usd_per_hour` wrong, and stops no machine.",
        see=f"`prices.live.azure` asks Azure itself. {_BILL}",
    ),
    # Google Cloud: lists, operations and limits were recorded by others.
    Unseen(
        cloud="gcp",
        what="how IAM judges the conditions",
        taken="Roles that change machines are bound with a condition on a tag or a name, and a deny policy protects. "
        "Both follow Google's pages; that a condition can ask for the name of a group is seen in others' projects "
        "alone. If Google judges otherwise, it refuses.",
        see=f"{_DOCTOR} (`testIamPermissions`), also for `permission.beyond`.",
    ),
    Unseen(
        cloud="gcp",
        what="rights that depend on a template",
        taken="`launch.json` is enough for a template without a service account. One with an account also needs "
        "`iam.serviceAccounts.actAs` on it, one with a placement policy `compute.resourcePolicies.use`; an own key, "
        "an image of another project, a shared network and a reservation need what the refusal names.",
        see="Launch once with the template and gpuwatch's role.",
    ),
    Unseen(
        cloud="gcp",
        what="a list while a zone cannot be reached",
        taken="With `returnPartialSuccess` Google answers and warns in that zone, or names it in `unreachables`. Its "
        "machines are then unknown. If a zone is left out without a word, its machines still stay: gpuwatch takes a "
        "machine for gone only after an operation that deleted it.",
        see=f"{_RECORD} during an outage of a zone.",
    ),
    Unseen(
        cloud="gcp",
        what="how late lists and operations are",
        taken="A list shows a change within seconds. A start that Google refuses for lack of stock fails within seven "
        "seconds; one that fails later is seen in the machine's state.",
        see="`gcloud compute operations list` after a start that failed: `insertTime` and `endTime`.",
    ),
    Unseen(
        cloud="gcp",
        what="error codes beyond public ones",
        taken="Codes are those of recorded answers and public issues. One that is not in the table is an error, and "
        "never a success or an empty list.",
        see="The log names each code that gpuwatch met; please send new ones.",
    ),
    Unseen(
        cloud="gcp",
        what="how many calls are allowed",
        taken="Each project gets a fixed pace, and half of it after a refusal. Google's limits of a project may be "
        "lower.",
        see="`rateLimitExceeded` in the log, and the console's page of quotas of the Compute Engine API.",
    ),
    Unseen(
        cloud="gcp",
        what="why a group lacks members",
        taken="`listManagedInstances` has the last error of each place without a machine. Without it a place is given "
        "back only after ten minutes.",
        see=f"{_RECORD} while a group waits for stock: `lastAttempt`.",
    ),
    Unseen(
        cloud="gcp",
        what="prices from third sources",
        taken="Prices come from tables that others publish; those of attached GPUs have no day of their own. A wrong "
        "one makes sums and `max_usd_per_hour` wrong, and stops no machine.",
        see=f"`gpuwatch prices --provider gcp` names source and day. {_BILL}",
    ),
    # Alibaba Cloud: nobody has published an answer of today's API.
    Unseen(
        cloud="alibaba",
        what="an answer of today's API",
        taken="Answers have the form of the official SDK's models. Recorded are old XML answers alone, with the same "
        "members. An answer of another form is an error, and its region unknown.",
        see=f"{_RECORD}; please send it.",
    ),
    Unseen(
        cloud="alibaba",
        what="an empty 200 without the right",
        taken="Until December 2025 lists of machines and disks answered a user without the right with HTTP 200 and an "
        "empty list. gpuwatch proves the right by DryRun before it believes an empty list of machines, disks, "
        "snapshots or images. Lists of addresses and groups have no such proof: they may look empty.",
        see=f"{_RECORD} with a user that lacks `vpc:DescribeEipAddresses`: DescribeEipAddresses.",
    ),
    Unseen(
        cloud="alibaba",
        what="conditions of RAM",
        taken="Which calls heed `acs:ResourceTag` and `acs:RequestTag` is known from lists of Alibaba Cloud that "
        "differ. RAM may also judge a launch as a whole: then `scale.json` allows none, and groups are the way to "
        "grow.",
        see=f"{_DOCTOR}: it tries changes and launches by DryRun. Try `reclaim.json` on one machine first.",
    ),
    Unseen(
        cloud="alibaba",
        what="members that ESS may not release",
        taken="gpuwatch ends no member with deletion protection, and no member that was put in by hand. "
        "Whether ESS would is not known, and not tried.",
        see="RemoveInstances by hand on such a member.",
    ),
    Unseen(
        cloud="alibaba",
        what="a machine while it is released",
        taken="With `ForceStop=false` the list shows Stopping and then Stopped before the machine is gone.",
        see=f"{_RECORD} within a minute after `gpuwatch` released a machine: `Status`.",
    ),
    Unseen(
        cloud="alibaba",
        what="a group's size that is taken back",
        taken="ScaleWithAdjustment by a negative number takes back what the group lacks before any member. All "
        "members are protected at that moment, so none can go for it.",
        see="Take back one place of a group that waits for stock, and look at its activities.",
    ),
    Unseen(
        cloud="alibaba",
        what="activities of a group",
        taken="The newest come first, and failed ones have an ErrorCode. Otherwise a group is left after ten minutes.",
        see=f"{_RECORD} while a group waits for stock: DescribeScalingActivities.",
    ),
    Unseen(
        cloud="alibaba",
        what="an account without Auto Scaling",
        taken="ESS answers an empty list where Auto Scaling was never opened. An error there makes the region "
        "unknown, and nothing is stopped in it.",
        see=f"{_RECORD} with such an account: DescribeScalingGroups.",
    ),
    Unseen(
        cloud="alibaba",
        what="codes of refusals",
        taken="A refusal has the code that the page of its call names. A code that is not known is an error, and "
        "never a success.",
        see="The log names each code that gpuwatch met; please send new ones.",
    ),
    Unseen(
        cloud="alibaba",
        what="the GPU metric of CloudMonitor",
        taken="The name of the metric is the documented one. Under another name `gpuwatch scan` shows no GPU use.",
        see=f"`gpuwatch scan`, or {_RECORD}: DescribeMetricList.",
    ),
    Unseen(
        cloud="alibaba",
        what="prices from third sources",
        taken="Prices come from a table of December 2024 that others publish. A wrong one makes sums and "
        "`max_usd_per_hour` wrong, and stops no machine.",
        see=f"`prices.live.alibaba` asks Alibaba Cloud itself. {_BILL}",
    ),
    # Tencent Cloud: machines were recorded by others, groups and changes were not.
    Unseen(
        cloud="tencent",
        what="states in the lists of TKE",
        taken="DescribeExistedInstances lists machines of every state that it is asked for by id. If it leaves "
        "stopped ones out, a stopped node of a cluster with a name of its own is taken for none of TKE's.",
        see=f"{_RECORD} while a node of a cluster is stopped: ExistedInstanceSet has its id.",
    ),
    Unseen(
        cloud="tencent",
        what="notices before an end",
        taken="No list of Tencent Cloud announces that a spot machine is taken: only a machine's own agent can. A "
        "machine without an agent ends without notice.",
        see="The agent's metadata of a spot machine while it is taken (docs/cloud-metadata.md).",
    ),
    Unseen(
        cloud="tencent",
        what="whether spot machines can stop charging",
        taken="A stop does not end the bill of a spot machine, so gpuwatch stops none.",
        see="Stop one by hand with `STOP_CHARGING`: `StopChargingMode` in DescribeInstances.",
    ),
    Unseen(
        cloud="tencent",
        what="the size of a group after RemoveInstances",
        taken="The desired size goes down with the member. If it does not, the group launches another machine, and "
        "that is billed.",
        see="Remove one member that is not needed, and compare `DesiredCapacity` before and after.",
    ),
    Unseen(
        cloud="tencent",
        what="how CAM judges tags in policies",
        taken="Conditions on tags hold as CAM's manual says. A launch is held to the tags of image, key pair and "
        "security group.",
        see="Stop a machine without the fleet's tag by hand, with gpuwatch's role: CAM must refuse.",
    ),
    Unseen(
        cloud="tencent",
        what="codes of refusals and of activities",
        taken="Codes are those of the SDK. Where an activity of a group names the code of CVM is known from one "
        "documented example: the detail's code and a code in its message are both read.",
        see=f"{_RECORD} while a group waits for stock: DescribeAutoScalingActivities.",
    ),
    Unseen(
        cloud="tencent",
        what="prices",
        taken="Tencent Cloud publishes no table, and none of others is known: machines have no price until "
        "`prices.live.tencent` is on, or `prices.file` has rows of your own. Live answers name no currency: "
        "`prices.live.tencent_currency` does.",
        see=f"`prices.live.tencent`. {_BILL}",
    ),
    # Hosts of one's own: no API, but networks that nobody of us has seen.
    Unseen(
        cloud="hosts",
        what="resolvers and networks of real labs",
        taken="An agent that gives no answer is tried again each round. A resolver that answers with a part of the "
        "addresses takes a host out of the fleet after a minute, as if its owner had.",
        see="`gpuwatch status` while a host is unplugged, and while the DNS server is down.",
    ),
    Unseen(
        cloud="hosts",
        what="BMCs of real makers",
        taken="A BMC shows `UUID` and `PowerState`, and takes `GracefulShutdown` and `On`, as DMTF's standard says.",
        see="`gpuwatch explain HOST` says what its BMC lacks.",
    ),
    # A driver is its author's; what gpuwatch takes for granted is that it keeps the protocol.
    Unseen(
        cloud="driver",
        what="whether a driver keeps the protocol",
        taken="A list is whole, a key is one machine, and `gone` is what the cloud says. If a driver says it without "
        "asking, a machine that runs counts as gone.",
        see="`gpuwatch cloud test` with `--machine` and `--launch`; then look in the cloud's console.",
    ),
)

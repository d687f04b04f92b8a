"""What somebody with a stolen controller could do in each cloud, by the policy documents that come with gpuwatch.

They have every document at once, for the fleet "default". A verb is the calls that it takes; a subject is what it is
done to. Each cloud fills in the conditions' keys that its documentation names for a call, and no others.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from gpuwatch.clouds import FLEET_TAG, PROTECT_TAG, STOP_AT
from gpuwatch.clouds.alibaba import iam as alibaba
from gpuwatch.clouds.aws import iam as aws
from gpuwatch.clouds.azure import iam as azure
from gpuwatch.clouds.gcp import iam as gcp
from gpuwatch.clouds.tencent import iam as tencent
from tests.support.clouds.policy_languages import (
    GoogleResource,
    Question,
    allowed_by_azure,
    allowed_by_google,
    allowed_by_statements,
)
from tests.support.clouds.subjects import GROUP_VERBS, GROUPS, LAUNCH, LAUNCHES, MACHINES, Launch, Subject

NAME = "gpuwatch-0123456789abcdef0123456789abcdef"  # of what a controller launches, on Google Cloud


class Cloud:
    """One cloud: a verb's questions about a subject, and whether all are answered with yes."""

    def __init__(self, *, only: Iterable[str] | None = None) -> None:
        """All roles, or these alone."""
        self._only = None if only is None else frozenset(only)
        self.asked: set[str] = set()  # the actions that verbs stand for

    def actions(self) -> frozenset[str]:
        """Every action that a document allows on something."""
        raise NotImplementedError

    def reach(self, verb: str) -> frozenset[str]:
        """What the documents allow the verb on."""
        if verb == LAUNCH:
            return frozenset(name for name, launch in LAUNCHES.items() if self.launch(launch))
        subjects = GROUPS if verb in GROUP_VERBS else MACHINES
        return frozenset(name for name, subject in subjects.items() if self.does(verb, subject))

    def does(self, verb: str, subject: Subject) -> bool:
        """Whether a machine or group can be changed so."""
        raise NotImplementedError

    def launch(self, launch: Launch) -> bool:
        """Whether such a machine can be launched."""
        raise NotImplementedError

    def _roles(self, every: Iterable[str]) -> list[str]:
        return [role for role in every if self._only is None or role in self._only]


class _ByStatements(Cloud):
    """The three clouds of statements: a verb is actions on one resource."""

    module: Any

    def _all(self, questions: Iterable[Question]) -> bool:
        documents = [self.module.policy(role) for role in self._roles(self.module.ROLES)]
        asked = list(questions)
        self.asked |= {each.action for each in asked}
        return bool(asked) and all(allowed_by_statements(documents, each) for each in asked)

    def _any(self, questions: Iterable[Question]) -> bool:
        return True in [self._all([each]) for each in questions]  # each is asked, for `asked`

    def actions(self) -> frozenset[str]:
        """Of the statements that allow."""
        roles = self._roles(self.module.ROLES)
        allowing = [each for role in roles for each in self.module.ROLES[role] if each.effect.lower() == "allow"]
        return frozenset(action for each in allowing for action in each.actions)


def _under(prefix: str, tags: Mapping[str, str]) -> dict[str, str | tuple[str, ...]]:
    return {f"{prefix}/{key}": value for key, value in tags.items()}


class Aws(_ByStatements):
    """Keys by the Service Authorization Reference of EC2 and EC2 Auto Scaling."""

    module = aws

    def does(self, verb: str, subject: Subject) -> bool:
        """One or another call suffices for each verb."""
        machine = partial(
            Question, resource="arn:aws:ec2:us-east-1:1:instance/i-1", context=_under("aws:ResourceTag", subject.tags)
        )
        group = partial(
            Question,
            resource="arn:aws:autoscaling:us-east-1:1:autoScalingGroup:u:autoScalingGroupName/train",
            context=_under("autoscaling:ResourceTag", subject.tags),
        )
        if verb in {"write a notice", "enrol or unprotect"}:
            keys = (STOP_AT,) if verb == "write a notice" else (FLEET_TAG,)
            tag = partial(Question, resource="arn:aws:ec2:us-east-1:1:instance/i-1")
            tags = {
                **_under("aws:ResourceTag", subject.tags),
                **_under("aws:RequestTag", dict.fromkeys(keys, "default")),
            }
            context = {**tags, "aws:TagKeys": keys}
            mixed = {**tags, "aws:TagKeys": (*keys, PROTECT_TAG)}
            asked = [tag(action="ec2:CreateTags", context=context)]
            if verb == "enrol or unprotect":
                asked += [tag(action="ec2:CreateTags", context=mixed), tag(action="ec2:DeleteTags", context=context)]
            return self._any(asked)
        asked = {
            "stop or end": [machine(action=f"ec2:{each}Instances") for each in ("Stop", "Terminate")],
            "start": [machine(action="ec2:StartInstances")],
            "change what it runs": [machine(action="ec2:ModifyInstanceAttribute"), machine(action="ec2:RunInstances")],
            "read user data": [machine(action="ec2:DescribeInstanceAttribute")],
            "resize a group": [group(action="autoscaling:SetDesiredCapacity")],
            "end a member of a group": [group(action="autoscaling:TerminateInstanceInAutoScalingGroup")],
            "unprotect a member of a group": [group(action="autoscaling:SetInstanceProtection")],
            "change what a group launches": [group(action="autoscaling:UpdateAutoScalingGroup")],
        }[verb]
        return self._any(asked)

    def launch(self, launch: Launch) -> bool:
        """EC2 asks about the new machine, each of its parts, and the template if there is one."""
        template = {} if launch.template is None else {"ec2:LaunchTemplate": f"{_EC2}:launch-template/lt-1"}
        anew = {} if launch.template is None else {"ec2:IsLaunchTemplateResource": "false" if launch.anew else "true"}
        run = partial(Question, action="ec2:RunInstances")
        tags = _under("aws:RequestTag", {FLEET_TAG: launch.fleet} if launch.fleet else {})
        part = {**template, **anew, **_under("aws:ResourceTag", {FLEET_TAG: launch.parts} if launch.parts else {})}
        asked = [
            run(resource=f"{_EC2}:instance/*", context={**template, **tags}),
            run(resource=f"{_EC2}:subnet/subnet-1", context=template),
            *(run(resource=f"{_EC2}:{each}/x-1", context=part) for each in ("image", "key-pair", "security-group")),
        ]
        if launch.template is not None:
            own = _under("aws:ResourceTag", {FLEET_TAG: launch.template})
            asked.append(run(resource=f"{_EC2}:launch-template/lt-1", context={**template, **own}))
        return self._all(asked)


_EC2 = "arn:aws:ec2:us-east-1:1"


class Alibaba(_ByStatements):
    """Keys by "RAM authorization" of ECS and "Use tags to restrict RAM users"; a new machine has the request's tags."""

    module = alibaba

    def does(self, verb: str, subject: Subject) -> bool:
        """One or another call suffices for each verb."""
        tags = _under("acs:ResourceTag", subject.tags)
        machine = partial(Question, resource=f"{_ECS}:instance/i-1")
        group = partial(Question, resource="acs:ess:cn-beijing:1:scalinggroup/asg-1", context=tags)
        written = (STOP_AT,) if verb == "write a notice" else (FLEET_TAG, PROTECT_TAG)
        calls = {
            "stop or end": ("ecs:StopInstance", "ecs:DeleteInstance"),
            "start": ("ecs:StartInstance",),
            "change what it runs": ("ecs:ModifyInstanceAttribute", "ecs:RunCommand", "ecs:AttachInstanceRamRole"),
            "read user data": ("ecs:DescribeUserData",),
        }
        of_groups = {
            "resize a group": ("ess:ScaleWithAdjustment",),
            "end a member of a group": ("ess:RemoveInstances",),
            "unprotect a member of a group": ("ess:SetInstancesProtection",),
            "change what a group launches": ("ess:ModifyScalingGroup", "ess:ModifyScalingConfiguration"),
        }
        if verb in calls:
            return self._any(machine(action=each, context=tags) for each in calls[verb])
        if verb in of_groups:
            return self._any(group(action=each) for each in of_groups[verb])
        asked = {**tags, **_under("acs:RequestTag", dict.fromkeys(written, "default"))}
        return self._any(
            [machine(action="ecs:TagResources", context=asked), machine(action="ecs:UntagResources", context=tags)]
        )

    def launch(self, launch: Launch) -> bool:
        """RAM knows tags of what is named, but of key pairs; a launch's template is one more resource."""
        tags = _under("acs:RequestTag", {FLEET_TAG: launch.fleet} if launch.fleet else {})
        run = partial(Question, action="ecs:RunInstances")
        own = _under("acs:ResourceTag", {FLEET_TAG: launch.parts or launch.template or ""})
        asked = [
            run(resource=f"{_ECS}:instance/*", context=tags),
            run(resource=f"{_ECS}:disk/*", context=tags),
            run(resource="acs:vpc:cn-beijing:1:vswitch/vsw-1", context=tags),
            *(run(resource=f"{_ECS}:{part}/x-1", context={**tags, **own}) for part in ("image", "securitygroup")),
        ]
        if launch.template is not None:
            mine = _under("acs:ResourceTag", {FLEET_TAG: launch.template})
            asked.append(run(resource=f"{_ECS}:launchtemplate/lt-1", context={**tags, **mine}))
        return self._all(asked)


_ECS = "acs:ecs:cn-beijing:1"


class Tencent(_ByStatements):
    """Keys by "Authorizable Resource Types" of CVM, and `qcs:resource_tag` and `qcs:request_tag` of CAM."""

    module = tencent

    def does(self, verb: str, subject: Subject) -> bool:
        """One or another call suffices for each verb."""
        tags = {"qcs:resource_tag": tuple(f"{key}&{value}" for key, value in subject.tags.items())}
        machine = partial(Question, resource=f"{_CVM}:instance/ins-1")
        group = partial(Question, resource="qcs::as:ap-beijing:uin/1:auto-scaling-group/asg-1", context=tags)
        calls = {
            "stop or end": ("cvm:StopInstances", "cvm:TerminateInstances"),
            "start": ("cvm:StartInstances",),
            "change what it runs": ("cvm:ResetInstance", "cvm:ModifyInstancesAttribute", "tat:RunCommand"),
            "read user data": ("cvm:DescribeInstancesAttributes",),
        }
        of_groups = {
            "resize a group": ("as:ModifyDesiredCapacity",),
            "end a member of a group": ("as:RemoveInstances",),
            "unprotect a member of a group": ("as:SetInstancesProtection",),
            "change what a group launches": ("as:ModifyAutoScalingGroup", "as:ModifyLaunchConfigurationAttributes"),
        }
        if verb in calls:
            return self._any(machine(action=each, context=tags) for each in calls[verb])
        if verb in of_groups:
            return self._any(group(action=each) for each in of_groups[verb])
        written = (STOP_AT,) if verb == "write a notice" else (STOP_AT, PROTECT_TAG)
        asked = {**tags, "qcs:request_tag": tuple(f"{key}&x" for key in written)}
        enrol = {**tags, "qcs:request_tag": (f"{FLEET_TAG}&default",)}
        questions = [
            machine(action="tag:TagResources", context=asked),
            machine(action="tag:UnTagResources", context=tags),
        ]
        return self._any(
            [*questions, machine(action="tag:TagResources", context=enrol)] if len(written) > 1 else questions
        )

    def launch(self, launch: Launch) -> bool:
        """A template is no resource of CAM; what it names is."""
        tags = {"qcs:request_tag": (f"{FLEET_TAG}&{launch.fleet}",) if launch.fleet else ()}
        run = partial(Question, action="cvm:RunInstances")
        own = {**tags, "qcs:resource_tag": (f"{FLEET_TAG}&{launch.parts or launch.template}",)}
        return self._all(
            [
                *(run(resource=f"{_CVM}:{each}/*", context=tags) for each in ("instance", "systemdisk", "datadisk")),
                *(run(resource=f"{_VPC}:{each}/x-1", context=tags) for each in ("vpc", "subnet")),
                *(run(resource=f"{_CVM}:{each}/x-1", context=own) for each in ("image", "keypair", "sg")),
            ]
        )


_CVM, _VPC = "qcs::cvm:ap-beijing:uin/1", "qcs::vpc:ap-beijing:uin/1"


class Azure(Cloud):
    """Roles are given where they say; a fleet has a resource group of its own, and its templates launch there."""

    def does(self, verb: str, subject: Subject) -> bool:
        """One or another action suffices for each verb."""
        apart = subject.elsewhere or subject.fleet == "other"
        home = f"{azure.NOBODYS}/resourceGroups/{'others' if apart else 'gpu-fleet'}/providers/Microsoft.Compute"
        machine, scale_set = "Microsoft.Compute/virtualMachines", "Microsoft.Compute/virtualMachineScaleSets"
        calls = {
            "stop or end": tuple(
                f"{each}/{verb}"
                for each in (machine, f"{scale_set}/virtualMachines")
                for verb in ("deallocate/action", "powerOff/action", "delete")
            ),
            "start": tuple(f"{each}/start/action" for each in (machine, f"{scale_set}/virtualMachines")),
            "write a notice": ("Microsoft.Resources/tags/write",),
            "enrol or unprotect": ("Microsoft.Resources/tags/write",),
            "change what it runs": (f"{machine}/write", f"{machine}/runCommand/action", f"{machine}/extensions/write"),
            "read user data": (f"{machine}/read",),
            "resize a group": (f"{scale_set}/write",),
            "end a member of a group": (f"{scale_set}/delete/action",),
            "unprotect a member of a group": (f"{scale_set}/virtualMachines/write",),
            "change what a group launches": (f"{scale_set}/write",),
        }
        kind = "virtualMachineScaleSets/train" if verb in GROUP_VERBS else "virtualMachines/gpu-1"
        return True in [self._allowed(each, f"{home}/{kind}") for each in calls[verb]]

    def launch(self, launch: Launch) -> bool:
        """A template is a file of the controller, so whatever has the roles has any: images can be read everywhere."""
        del launch
        made = f"{azure.NOBODYS_GROUP}/providers/Microsoft.Compute/virtualMachines/new"
        return all(self._allowed(each, made) for each in ("Microsoft.Compute/virtualMachines/write",))

    def actions(self) -> frozenset[str]:
        """Of all roles."""
        return frozenset(action for role in self._roles(azure.ROLES) for action in azure.ROLES[role])

    def _allowed(self, action: str, path: str) -> bool:
        self.asked.add(action)
        return allowed_by_azure([azure.role(role) for role in self._roles(azure.ROLES)], action, path)


class Gcp(Cloud):
    """One project; what is enrolled has the fleet's tag of the Resource Manager besides its label."""

    def does(self, verb: str, subject: Subject) -> bool:
        """One or another permission suffices for each verb."""
        project = gcp.NOBODYS.removeprefix("projects/")
        words = {FLEET_TAG: "gpuwatch-fleet", PROTECT_TAG: "gpuwatch-protect"}
        tags = {} if subject.launched else {f"{project}/{words[key]}": each for key, each in subject.tags.items()}
        name = f"projects/{project}/zones/us-central1-a/instances/{NAME if subject.launched else 'trainer-1'}"
        machine = GoogleResource(type="compute.googleapis.com/Instance", name=name, tags=tags)
        group_name = "train" if subject.fleet is None else f"gpuwatch-{subject.fleet}-train"
        group = GoogleResource(
            type="compute.googleapis.com/InstanceGroupManager",
            name=f"projects/{project}/zones/us-central1-a/instanceGroupManagers/{group_name}",
        )
        update = ("compute.instanceGroupManagers.update",)
        calls: Mapping[str, tuple[tuple[str, ...], GoogleResource]] = {
            "stop or end": (("compute.instances.stop", "compute.instances.delete"), machine),
            "start": (("compute.instances.start",), machine),
            "write a notice": (("compute.instances.setLabels",), machine),
            "enrol or unprotect": (("compute.instances.setLabels",), machine),
            "change what it runs": (("compute.instances.setMetadata", "compute.instances.setServiceAccount"), machine),
            "read user data": (("compute.instances.get",), machine),
            "resize a group": (update, group),
            "end a member of a group": (update, group),
            "unprotect a member of a group": ((), group),
            "change what a group launches": (update, group),
        }
        permissions, resource = calls[verb]
        return True in [self._allowed(each, resource) for each in permissions] and not subject.elsewhere

    def launch(self, launch: Launch) -> bool:
        """All of the project can be named; a new machine needs no tag, but a name of gpuwatch's."""
        del launch
        new = GoogleResource(type="compute.googleapis.com/Instance", name=f"projects/p/zones/z/instances/{NAME}")
        image = GoogleResource(type="compute.googleapis.com/Image", name="projects/p/global/images/other")
        return self._allowed("compute.instances.create", new) and self._allowed("compute.images.useReadOnly", image)

    def actions(self) -> frozenset[str]:
        """Permissions of all roles."""
        roles = [each for role in self._roles(gcp.ROLES) for each in gcp.ROLES[role][1]]
        return frozenset(permission for call in roles for permission in call.permissions)

    def _allowed(self, permission: str, resource: GoogleResource) -> bool:
        self.asked.add(permission)
        bound = [(gcp.role(role), self._condition(role)) for role in self._roles(gcp.ROLES)]
        return allowed_by_google(bound, [gcp.denial()], permission, resource)

    @staticmethod
    def _condition(role: str) -> str | None:
        name = gcp.CONDITION_OF.get(role)
        return None if name is None else str(gcp.condition(name)["expression"])


CLOUDS: Mapping[str, Callable[..., Cloud]] = {
    "AWS": Aws,
    "Alibaba Cloud": Alibaba,
    "Tencent Cloud": Tencent,
    "Azure": Azure,
    "Google Cloud": Gcp,
}

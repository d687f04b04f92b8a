"""The evaluators of policy documents that the tests rest on: what each language says; what is unknown is an error."""

from typing import Any

import pytest

from tests.support.clouds.policy_languages import (
    GoogleResource,
    Question,
    allowed_by_azure,
    allowed_by_google,
    allowed_by_statements,
    condition_holds,
)

OWN = {"aws:ResourceTag/fleet": "lab"}
VM = "compute.googleapis.com/Instance"


def a_policy(*statements: dict[str, Any]) -> dict[str, Any]:
    """A document of AWS."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def a_statement(effect: str = "Allow", **condition: dict[str, Any]) -> dict[str, Any]:
    """One that is about stops."""
    test = {operator.replace("_", ":"): keys for operator, keys in condition.items()}
    return {"Effect": effect, "Action": ["ec2:Stop*"], "Resource": ["arn:*:instance/*"], "Condition": test}


def may(document: dict[str, Any], action: str = "ec2:StopInstances", **context: str | tuple[str, ...]) -> bool:
    """Whether it is allowed on a machine."""
    keys = {key.replace("__", ":").replace("_", "/"): value for key, value in context.items()}
    return allowed_by_statements([document], Question(action=action, resource="arn:aws:instance/i-1", context=keys))


def test_nothing_is_allowed_that_no_statement_names() -> None:
    """Another action, another resource, and a condition on a key that is not there."""
    assert may(a_policy(a_statement()))
    assert not may(a_policy(a_statement()), action="ec2:StartInstances")
    assert not may(a_policy({**a_statement(), "Resource": ["arn:*:volume/*"]}))
    assert not may(a_policy(a_statement(StringEquals={"aws:ResourceTag/fleet": "lab"})))
    assert may(a_policy(a_statement(StringEquals={"aws:ResourceTag/fleet": "lab"})), aws__ResourceTag_fleet="lab")


def test_a_denial_outweighs_every_permission() -> None:
    """Wherever it stands, and in whatever document."""
    denied = a_statement("Deny", StringLike={"aws:ResourceTag/protect": "*"})
    question = Question(
        action="ec2:StopInstances", resource="arn:aws:instance/i-1", context={"aws:ResourceTag/protect": ""}
    )

    assert not allowed_by_statements([a_policy(denied), a_policy(a_statement())], question)
    assert may(a_policy(denied, a_statement()))


def test_a_key_that_is_missing_holds_only_where_all_values_are_asked_for() -> None:
    """`ForAllValues` holds of none; `Null` asks for just that."""
    all_of = a_statement(ForAllValues_StringEquals={"aws:TagKeys": ["a", "b"]})

    assert may(a_policy(all_of))
    assert may(a_policy(all_of), aws__TagKeys=("a", "b"))
    assert not may(a_policy(all_of), aws__TagKeys=("a", "c"))
    assert may(a_policy(a_statement(Null={"aws:TagKeys": "true"})))
    assert not may(a_policy(a_statement(Null={"aws:TagKeys": "false"})))


def test_an_operator_that_nobody_described_is_an_error() -> None:
    """No policy passes because it was not understood."""
    with pytest.raises(KeyError, match="StringNotLike"):
        may(a_policy(a_statement(StringNotLike={"aws:TagKeys": "x"})))


def test_tencents_resources_have_six_parts_and_an_empty_one_is_any() -> None:
    """A region that is not named is every region."""
    statement = {"effect": "allow", "action": ["cvm:StopInstances"], "resource": ["qcs::cvm:::instance/*"]}
    question = Question(action="cvm:StopInstances", resource="qcs::cvm:ap-beijing:uin/1:instance/ins-1")

    assert allowed_by_statements([{"statement": [statement]}], question)
    elsewhere = {**statement, "resource": ["qcs::cvm:ap-guangzhou::instance/*"]}
    assert not allowed_by_statements([{"statement": [elsewhere]}], question)


def test_an_azure_role_holds_below_its_scope() -> None:
    """Not in a resource group with a name that begins alike, and not for what it takes out again."""
    role = {"Actions": ["a/*"], "NotActions": ["a/delete"], "AssignableScopes": ["/subscriptions/s/resourceGroups/gpu"]}

    assert allowed_by_azure([role], "A/read", "/subscriptions/s/resourcegroups/GPU/providers/x")
    assert not allowed_by_azure([role], "a/read", "/subscriptions/s/resourceGroups/gpu-2/providers/x")
    assert not allowed_by_azure([role], "a/delete", "/subscriptions/s/resourceGroups/gpu/providers/x")


def test_a_google_condition_is_read_as_cel_reads_it() -> None:
    """`&&` binds closer than `||`; brackets, and not."""
    machine = GoogleResource(type=VM, name="projects/p/zones/z/instances/gpu-1", tags={"p/fleet": "lab"})
    is_machine, tagged = f"resource.type == '{VM}'", "resource.matchTag('p/fleet', 'lab')"
    named = "resource.name.extract('/instances/{name}').startsWith('cpu-')"

    assert condition_holds(f"{is_machine} || {named} && {named}", machine)
    assert not condition_holds(f"({is_machine} || {named}) && {named}", machine)
    assert condition_holds(f"!({named}) && {tagged}", machine)
    with pytest.raises(ValueError, match="nothing is known of"):
        condition_holds("resource.labels.fleet == 'lab'", machine)


def test_a_google_deny_policy_outweighs_every_binding() -> None:
    """Its permissions have the service in their names; without its tag it does nothing."""
    rule = {
        "deniedPermissions": ["compute.googleapis.com/instances.stop"],
        "denialCondition": {"expression": "resource.matchTag('p/protect', 'true')"},
    }
    role, denials = {"includedPermissions": ["compute.instances.stop"]}, [{"rules": [{"denyRule": rule}]}]

    assert allowed_by_google([(role, None)], denials, "compute.instances.stop", GoogleResource(type=VM))
    protected = GoogleResource(type=VM, tags={"p/protect": "true"})
    assert not allowed_by_google([(role, None)], denials, "compute.instances.stop", protected)

"""What AWS says and moto does not: ends by event.code, that nothing is reserved, that IAM allows a grant."""

from datetime import datetime

_PAGE = (
    '<DescribeInstanceStatusResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>'
    "<instanceStatusSet>{items}</instanceStatusSet></DescribeInstanceStatusResponse>"
)
_ITEM = (
    "<item><instanceId>{node_id}</instanceId><eventsSet><item><code>{code}</code><description>{text}</description>"
    "<notBefore>{at}</notBefore></item></eventsSet></item>"
)

_NO_RESERVATIONS = (
    '<DescribeCapacityReservationsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>'
    "<capacityReservationSet/></DescribeCapacityReservationsResponse>"
)

_MAY = (
    "<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult><EvaluationResults><member>"
    "<EvalActionName>kms:CreateGrant</EvalActionName><EvalDecision>{decision}</EvalDecision></member>"
    "</EvaluationResults></SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>"
)

Events = dict[str, tuple[str, datetime]]  # by machine: the code, and when it begins


def page(action: str, events: Events, fields: dict[str, str]) -> str | None:
    """The answer; None: moto has one."""
    if action == "SimulatePrincipalPolicy":
        return decided("allowed")
    if action == "DescribeCapacityReservations":
        return _NO_RESERVATIONS
    if action != "DescribeInstanceStatus":
        return None
    asked = {value for key, value in fields.items() if key.startswith("Filter.1.Value.")}
    items = [
        _ITEM.format(node_id=node_id, code=code, text="The host ends", at=f"{at:%Y-%m-%dT%H:%M:%S.000Z}")
        for node_id, (code, at) in events.items()
        if code in asked
    ]
    return _PAGE.format(items="".join(items))


def decided(decision: str) -> str:
    """IAM's answer about a grant: allowed, explicitDeny, implicitDeny."""
    return _MAY.format(decision=decision)

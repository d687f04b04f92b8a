"""What EC2 says of ends, which moto does not have: scheduled events by event.code, and that nothing is reserved."""

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

Events = dict[str, tuple[str, datetime]]  # by machine: the code, and when it begins


def page(action: str, events: Events, fields: dict[str, str]) -> str | None:
    """The answer; None: moto has one."""
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

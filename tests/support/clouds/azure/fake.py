"""A pretended Azure Resource Manager: `answer(request)` on a state, for `tests.support.clouds.server`.

Every request to Microsoft.Compute must be an operation of azure-mgmt-compute, and its body and its answer must fit that
package's models; those of Microsoft.Network likewise. Lists come in pages of two.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.support.clouds.azure import handlers, tokens
from tests.support.clouds.azure.described import check, check_network, check_route
from tests.support.clouds.azure.state import State
from tests.support.clouds.faults import Asked
from tests.support.clouds.server import Refused, Request, Response

TOKEN = "the-token"  # noqa: S105  of the pretended cloud
PAGE = 2
_REFUSALS = {
    Refused.THROTTLED: (429, "TooManyRequests", "The request is being throttled as the limit has been reached."),
    Refused.INTERNAL: (500, "InternalServerError", "Encountered internal server error."),
    Refused.EXPIRED: (401, "ExpiredAuthenticationToken", "The access token expiry is before the current time."),
}
_SUB = r"/subscriptions/(?P<sub>[^/]+)"
_RG = _SUB + r"/resourcegroups/(?P<rg>[^/]+)"
_VMS = r"/providers/microsoft\.compute/virtualmachines"
_SETS = r"/providers/microsoft\.compute/virtualmachinescalesets"
_VM = _RG + _VMS + r"/(?P<vm>[^/]+)"
_SET = _RG + _SETS + r"/(?P<set>[^/]+)"
_MEMBER = _SET + r"/virtualmachines/(?P<member>[^/]+)"

Handler = Callable[[State, handlers.Call], Response]


@dataclass(frozen=True, slots=True)
class Route:
    """One operation: its name, method and path, what answers it, and the models of its body and answer.

    A model with [] is of each item of a page.
    """

    name: str
    method: str
    path: str
    handler: Handler
    model: str = ""
    body: str = ""
    network: bool = False

    @property
    def change(self) -> bool:
        """Whether it changes anything."""
        return self.method != "GET" and self.name != "Token"


def _resource_groups(state: State, call: handlers.Call) -> Response:
    """Those that hold anything, and what manages them: only a managed one has the member."""
    paths = [*state.vms, *state.sets, *state.disks]
    named = {path.split("/")[4]: path.split("/")[2] for path in paths if "/resourcegroups/" in path}
    return Response(
        body=[
            {
                "id": f"/subscriptions/{call.sub}/resourceGroups/{name}",
                "name": name,
                "type": "Microsoft.Resources/resourceGroups",
                "location": "eastus",
                **({"managedBy": state.managers[name]} if name in state.managers else {}),
                "properties": {"provisioningState": "Succeeded"},
            }
            for name, sub in sorted(named.items())
            if sub == call.sub.lower()
        ]
    )


_NET = r"/providers/microsoft\.network"
_AUTH = r"/providers/microsoft\.authorization"
ROUTES = (
    Route("VirtualMachines_ListAll", "GET", _SUB + _VMS, handlers.vms, "VirtualMachine[]"),
    Route("VirtualMachines_Get", "GET", _VM, handlers.vm, "VirtualMachine"),
    Route("VirtualMachines_CreateOrUpdate", "PUT", _VM, handlers.put_vm, "VirtualMachine", "VirtualMachine"),
    Route("VirtualMachines_Deallocate", "POST", _VM + "/deallocate", handlers.deallocate),
    Route("VirtualMachines_PowerOff", "POST", _VM + "/poweroff", handlers.power_off),
    Route("VirtualMachines_Start", "POST", _VM + "/start", handlers.start),
    Route("VirtualMachines_Delete", "DELETE", _VM, handlers.delete),
    Route("Scale_ListAll", "GET", _SUB + _SETS, handlers.sets, "VirtualMachineScaleSet[]"),
    Route("Scale_Get", "GET", _SET, handlers.one_set, "VirtualMachineScaleSet"),
    Route("Scale_Update", "PATCH", _SET, handlers.resize, "VirtualMachineScaleSet", "VirtualMachineScaleSetUpdate"),
    Route(
        "Scale_DeleteInstances",
        "POST",
        _SET + "/delete",
        handlers.delete_members,
        "",
        "VirtualMachineScaleSetVMInstanceRequiredIDs",
    ),
    Route("ScaleVMs_List", "GET", _SET + "/virtualmachines", handlers.members, "VirtualMachineScaleSetVM[]"),
    Route("ScaleVMs_Get", "GET", _MEMBER, handlers.vm, "VirtualMachineScaleSetVM"),
    Route(
        "ScaleVMs_Update", "PUT", _MEMBER, handlers.put_member, "VirtualMachineScaleSetVM", "VirtualMachineScaleSetVM"
    ),
    Route("ScaleVMs_Deallocate", "POST", _MEMBER + "/deallocate", handlers.deallocate),
    Route("ScaleVMs_Start", "POST", _MEMBER + "/start", handlers.start),
    Route("ScaleVMs_Delete", "DELETE", _MEMBER, handlers.delete),
    Route(
        "ScaleNetworkInterfaces_List",
        "GET",
        _SET + "/networkinterfaces",
        handlers.member_interfaces,
        "NetworkInterface[]",
        network=True,
    ),
    Route("ResourceSkus_List", "GET", _SUB + r"/providers/microsoft\.compute/skus", handlers.skus, "ResourceSku[]"),
    Route(
        "Usage_List",
        "GET",
        _SUB + r"/providers/microsoft\.compute/locations/(?P<location>[^/]+)/usages",
        handlers.usages,
        "Usage[]",
    ),
    Route(
        "Operations_Get",
        "GET",
        _SUB + r"/providers/microsoft\.compute/locations/[^/]+/operations/(?P<operation>[^/]+)",
        handlers.operation,
    ),
    Route("Disks_List", "GET", _SUB + r"/providers/microsoft\.compute/disks", handlers.disks, "Disk[]"),
    Route("Snapshots_List", "GET", _SUB + r"/providers/microsoft\.compute/snapshots", handlers.snapshots, "Snapshot[]"),
    Route(
        "PublicIPAddresses_ListAll",
        "GET",
        _SUB + _NET + "/publicipaddresses",
        handlers.addresses,
        "PublicIPAddress[]",
        network=True,
    ),
    Route(
        "NetworkInterfaces_ListAll",
        "GET",
        _SUB + _NET + "/networkinterfaces",
        handlers.interfaces,
        "NetworkInterface[]",
        network=True,
    ),
    Route("Images_List", "GET", _SUB + r"/providers/microsoft\.compute/images", handlers.images, "Image[]"),
    Route("Resources_List", "GET", _SUB + "/resources", handlers.resources),
    Route("ResourceGroups_List", "GET", _SUB + "/resourcegroups", _resource_groups),
    Route("Locks_List", "GET", _SUB + _AUTH + "/locks", handlers.locks),
    Route("Permissions_List", "GET", r"(?P<scope>/subscriptions/.+)" + _AUTH + "/permissions", handlers.permissions),
    Route("Permissions_List", "GET", _SUB + _AUTH + "/permissions", handlers.permissions),
    Route("Tags_UpdateAtScope", "PATCH", r"(?P<scope>.+)/providers/microsoft\.resources/tags/default", handlers.tag),
    Route("Autoscale_List", "GET", _SUB + r"/providers/microsoft\.insights/autoscalesettings", handlers.autoscale),
    Route("Metrics_List", "GET", r"(?P<scope>.+)/providers/microsoft\.insights/metrics", handlers.metrics),
    Route("OpenId", "GET", r"/(?P<tenant>[^/]+)/v2\.0/\.well-known/openid-configuration", tokens.configuration),
    Route("Token", "POST", r"/(?P<tenant>[^/]+)/oauth2/v2\.0/token", tokens.token),
    Route("Applications_Get", "GET", r"/v1\.0/applications\(appid='(?P<app>[^']+)'\)", tokens.application),
    Route("Subscriptions_List", "GET", "/subscriptions", handlers.subscriptions),
    Route("Subscriptions_Get", "GET", _SUB, handlers.subscription),
)
# The operations by which the world is refused, or whose answer is lost.
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "stop": ("VirtualMachines_Deallocate", "ScaleVMs_Deallocate"),
    "start": ("VirtualMachines_Start", "ScaleVMs_Start"),
    "terminate": ("VirtualMachines_Delete", "ScaleVMs_Delete"),
    "launch": ("VirtualMachines_CreateOrUpdate",),
    "grow": ("Scale_Update",),
    "protect": ("ScaleVMs_Update",),
    "tag": ("Tags_UpdateAtScope",),
}


class FakeAzure:
    """One Azure. `refused` are errors that the next call of an operation gets: status, code and message."""

    def __init__(self) -> None:
        """Nothing is there."""
        self.state = State()
        self.token = TOKEN
        self.refused: dict[str, tuple[int, str, str]] = {}

    def asked(self, request: Request) -> Asked:
        """The operation, by method and path."""
        route, _ = _route(request)
        match = re.match(_SUB, request.path, re.IGNORECASE)
        return Asked(operation=route.name, region="" if match is None else match["sub"].lower(), change=route.change)

    def answer(self, request: Request) -> Response:
        """Carry it out, unless the token is wrong or the operation is to be refused."""
        route, parts = _route(request)
        if route.name in {"OpenId", "Token"}:
            return route.handler(self.state, handlers.Call(request=request, parts=parts, sub=""))
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return error(401, "InvalidAuthenticationToken", "The access token is invalid.")
        if "microsoft\\.compute" in route.path and route.name not in _UNDESCRIBED:
            check_route(request.method, request.path)
        if route.body:
            check(request.json, route.body)
        if route.name in self.refused:
            return error(*self.refused.pop(route.name))
        self.state.passes(request.at)
        call = handlers.Call(request=request, parts=parts, sub=parts.get("sub", ""))
        found = route.handler(self.state, call)
        return _paged(request, route, found) if found.status < 300 else found

    def refusal(self, request: Request, kind: Refused) -> Response:
        """Azure's own words."""
        del request
        return error(*_REFUSALS[kind])

    def continues(self, request: Request) -> bool:
        """Whether it asks for a page after the first."""
        return "$skiptoken" in request.query

    def without_token(self, response: Response) -> Response:
        """A first page without the way to the next one."""
        if not isinstance(response.body, dict):
            return response
        return replace(response, body={key: value for key, value in response.body.items() if key != "nextLink"})


_UNDESCRIBED = frozenset({"Operations_Get", "ScaleNetworkInterfaces_List"})  # of other services, under Compute's name


def error(status: int, code: str, message: str) -> Response:
    """An error as Resource Manager gives it."""
    return Response(status=status, body={"error": {"code": code, "message": message}}, headers=_always())


def _route(request: Request) -> tuple[Route, dict[str, str]]:
    for route in ROUTES:
        match = re.fullmatch(route.path, request.path, re.IGNORECASE)
        if match is not None and route.method == request.method:
            return route, {key: value or "" for key, value in match.groupdict().items()}
    raise AssertionError(f"nobody answers {request.method} {request.path}")


def _paged(request: Request, route: Route, found: Response) -> Response:
    """The page that is asked for, checked against its model."""
    body: Any = found.body
    if isinstance(body, list):
        begin = int(request.query.get("$skiptoken", "0"))
        page: dict[str, Any] = {"value": body[begin : begin + PAGE]}
        if len(body) > begin + PAGE:
            sep = "&" if "?" in request.target else "?"
            target = re.sub(r"[?&](\$|%24)skiptoken=\d+", "", request.target)
            host = request.host if ":" in request.host else f"{request.host}:443"  # as it was recorded
            page["nextLink"] = f"https://{host}{target}{sep}$skiptoken={begin + PAGE}"
        body = page
    checking = check_network if route.network else check
    model = route.model.removesuffix("[]")
    if model and body:
        for each in body["value"] if route.model.endswith("[]") else [body]:
            checking(json.loads(json.dumps(each)), model)
    return replace(found, body=body if body is not None else b"", headers={**_always(), **found.headers})


def _always() -> dict[str, str]:
    return {"x-ms-request-id": "00000000-0000-0000-0000-00000000f00d"}

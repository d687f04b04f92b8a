"""Microsoft's directory at the same address: tokens for an application's secret, as azure-identity asks for them."""

from tests.support.clouds.azure.handlers import Call
from tests.support.clouds.azure.state import State
from tests.support.clouds.server import Response

TENANT, CLIENT, SECRET = "44444444-4444-4444-8444-444444444444", "gpuwatch-app", "hunter2"
ISSUED = "the-token"


def configuration(state: State, call: Call) -> Response:
    """Where tokens are."""
    del state
    root = f"https://{call.request.host}/{call.parts['tenant']}"
    return Response(
        body={
            "issuer": f"{root}/v2.0",
            "authorization_endpoint": f"{root}/oauth2/v2.0/authorize",
            "token_endpoint": f"{root}/oauth2/v2.0/token",
        }
    )


def token(state: State, call: Call) -> Response:
    """For the right secret, for as long as the test says."""
    form = call.request.form
    if (form.get("client_id"), form.get("client_secret")) != (CLIENT, SECRET):
        said = {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."}
        return Response(status=401, body=said)
    return Response(body={"token_type": "Bearer", "expires_in": state.token_seconds, "access_token": ISSUED})


def application(state: State, call: Call) -> Response:
    """Microsoft Graph: the application of that id, as far as the caller may read applications."""
    assert call.request.query == {"$select": "passwordCredentials,keyCredentials"}, "Graph takes no api-version"
    if not state.may_read_applications:
        said = "Insufficient privileges to complete the operation."
        return Response(status=403, body={"error": {"code": "Authorization_RequestDenied", "message": said}})
    if call.parts["app"] not in state.applications:
        said = f"Resource '{call.parts['app']}' does not exist or one of its queried properties are not present."
        return Response(status=404, body={"error": {"code": "Request_ResourceNotFound", "message": said}})
    return Response(body={"@odata.context": "applications/$entity", **state.applications[call.parts["app"]]})

"""One way to ask Azure Resource Manager: azure-core's pipeline and azure-identity's tokens, one pace, strict answers.

azure-mgmt-compute is not used for this. Its lists take an answer without `value` for an empty list, follow a `nextLink`
to whatever host it names, and register resource providers by themselves; more than half of the calls here are of other
services. Its models are what the tests check every request and answer against.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from azure.core.credentials import AccessToken, TokenCredential
from azure.core.pipeline.policies import RequestIdPolicy, UserAgentPolicy
from azure.core.pipeline.transport import RequestsTransport
from azure.core.rest import HttpRequest, HttpResponse
from azure.identity import DefaultAzureCredential
from azure.mgmt.core import ARMPipelineClient
from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy
from requests import Session

from gpuwatch.clouds.azure.errors import asking, refusal
from gpuwatch.clouds.azure.settings import AUTHORITIES
from gpuwatch.clouds.errors import AuthFailedError, CloudError, CloudUnavailableError, ThrottledError, explain_error
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.rate_limit import RateLimiter
from gpuwatch.clouds.recording import note_exchange
from gpuwatch.clouds.renewal import Renewable
from gpuwatch.clouds.requests_sending import watch_session
from gpuwatch.clouds.sending import sending
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.address import same_server
from gpuwatch.runtime.json_document import read_json

# Credentials by azure-identity's own rules: environment, workload identity, managed identity, `az login`.

_AUTHORITY = "AZURE_AUTHORITY_HOST"

# It logs a paragraph about each way that did not work, at every try; the error that it raises is what people read.
logging.getLogger("azure.identity").setLevel(logging.ERROR)


def default_credential(national_cloud: str) -> TokenCredential:
    """The chain; nothing is asked yet. A managed identity comes before the tools of a person who is logged in."""
    authority = os.environ.get(_AUTHORITY) or AUTHORITIES[national_cloud]
    own = not any(authority.removeprefix("https://").startswith(known) for known in AUTHORITIES.values())
    return DefaultAzureCredential(
        authority=authority,
        disable_instance_discovery=own,  # of a private cloud, which Microsoft's own directory does not know
        exclude_shared_token_cache_credential=True,
        exclude_visual_studio_code_credential=True,
        exclude_interactive_browser_credential=True,
    )


class Renewing(Renewable[TokenCredential, str]):
    """Credentials that are made again where Azure does not take their token: they keep it until it ends by its word."""

    def __init__(self, found: TokenCredential | None, national_cloud: str, scope: str, clock: Clock) -> None:
        """Those that were given, or the chain of azure-identity; nothing is asked yet."""

        def token(credential: TokenCredential) -> str:
            with asking("a token"):
                return credential.get_token(scope).token

        first = found or default_credential(national_cloud)
        super().__init__(first, lambda _: found or default_credential(national_cloud), token, clock)

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:  # noqa: ANN401  azure-core's protocol
        """A token for these scopes; raises what azure-identity raises."""
        return self.found.get_token(*scopes, **options)


# Half of what a new subscription's bucket refills for one principal (page "Understand how Azure Resource Manager
# throttles requests"): 25 reads and 10 changes a second, buckets of 250 and 200.
_READS_PER_SECOND, _READS_AT_ONCE = 12.0, 125
_ACTS_PER_SECOND, _ACTS_AT_ONCE = 5.0, 100
_CONNECT_SECONDS, _READ_SECONDS = 5, 30  # a page of the list of machines may take many seconds

_ATTEMPTS = 3  # of a read
_LONGEST_WAIT = 10.0  # for which a read waits when Azure says how long; a longer wait is an error at once
_FIRST_WAIT = 0.5
_MOST_PAGES = 1000
_OK, _DONE = 200, frozenset({200, 201, 202, 204})
_TOKEN_REFUSED = 401  # ExpiredAuthenticationToken, InvalidAuthenticationToken and the like

# One version for each service: old enough for the national clouds, new enough for what is asked.
VERSIONS: Mapping[str, str] = {
    "compute": "2024-07-01",
    "disks": "2024-03-02",
    "skus": "2021-07-01",
    "network": "2023-11-01",
    "member_network": "2018-10-01",  # what the members of Uniform scale sets have in the network
    "locks": "2016-09-01",
    "tags": "2021-04-01",
    "permissions": "2022-04-01",
    "autoscale": "2022-10-01",
    "metrics": "2018-01-01",
    "subscriptions": "2022-12-01",
    "resources": "2021-04-01",
    "graph": "",  # Microsoft Graph has its version in the path
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back, with the names of the headers in small letters."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Line:
    """Reads are tried up to three times; a change is sent once: the ledger decides about trying again."""

    def __init__(
        self, credential: Renewing, base: str, *, scope: str, clock: Clock, options: Mapping[str, Any]
    ) -> None:
        """Nothing is sent yet; `base` is the address of Resource Manager, `scope` that of its tokens."""
        self._base = base.rstrip("/")
        self._clock = clock
        self._credential = credential
        self._reads = RateLimiter(clock, per_second=_READS_PER_SECOND, burst=_READS_AT_ONCE)
        self._acts = RateLimiter(clock, per_second=_ACTS_PER_SECOND, burst=_ACTS_AT_ONCE)
        usual = {"connection_timeout": _CONNECT_SECONDS, "read_timeout": _READ_SECONDS}
        self._client: ARMPipelineClient[HttpRequest, HttpResponse] = ARMPipelineClient(
            base_url=self._base,
            transport=RequestsTransport(session=watch_session(Session()), **{**usual, **options}),
            policies=[
                RequestIdPolicy(),
                UserAgentPolicy(user_agent="gpuwatch"),
                ARMChallengeAuthenticationPolicy(credential, scope),
            ],
        )

    def get(self, path: str, *, version: str, where: str, urgent: bool = False, **query: str) -> Answer:
        """A read of one thing. `urgent`: right before a change; no number of lists makes it wait.

        Raises:
            CloudError: it could not be had.

        """
        url = self._url(path, version, query)
        answer = self._read(f"GET {_path_end(path)} in {where}", url, urgent=urgent)
        if not isinstance(answer.body, dict):
            raise CloudUnavailableError(
                f"GET {_path_end(path)} in {where}: no usable answer (no object)", code="NoObject"
            )
        return answer

    def list_all(self, path: str, *, version: str, where: str, **query: str) -> list[dict[str, Any]]:
        """A list to its last page.

        Raises:
            CloudError: a page could not be had, has no list, comes again, or is at another server.

        """
        asked = f"GET {_path_end(path)} in {where}"
        url: str | None = self._url(path, version, query)
        found: dict[str, dict[str, Any]] = {}
        seen: set[str] = set()
        while url is not None:
            if url in seen or len(seen) >= _MOST_PAGES:
                raise CloudUnavailableError(f"{asked}: a page leads back to one before it", code="RepeatedPage")
            seen.add(url)
            page = self._read(asked, url, urgent=False).body
            for each in _items(asked, page):
                key = str(each.get("id") or f"{each.get('name')}{len(found)}").lower()
                if key in found:
                    raise CloudUnavailableError(f"{asked}: {key} is on two pages", code="RepeatedPage")
                found[key] = each
            url = self._following(asked, page)
        return list(found.values())

    def change(
        self,
        method: str,
        path: str,
        *,
        version: str,
        where: str,
        permit: Permit | None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """A change; returns when Azure has accepted it. It is sent once, and only while the permit holds.

        Raises:
            PermitExpiredError: it did not hold; nothing was sent.
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was not accepted.

        """
        asked = f"{method} {_path_end(path)} in {where}"
        self._acts.wait()
        with sending(asked, permit), self._slowing():
            return self._send(asked, method, self._url(path, version, {}), body=body, headers=headers)

    # One request.

    def _read(self, asked: str, url: str, *, urgent: bool) -> Answer:
        renewed = False
        for attempt in range(1, _ATTEMPTS + 1):
            (self._acts if urgent else self._reads).wait()
            try:
                with self._slowing(reads=not urgent):
                    return self._send(asked, "GET", url)
            except AuthFailedError as error:
                if renewed or attempt == _ATTEMPTS or not getattr(error, "renewed", False):
                    raise
                renewed = True
            except (CloudUnavailableError, ThrottledError) as error:
                wait = getattr(error, "retry_after", None)
                wait = _FIRST_WAIT * 2 ** (attempt - 1) if wait is None else wait
                if attempt == _ATTEMPTS or wait > _LONGEST_WAIT:
                    raise
                self._clock.sleep(wait)
        raise AssertionError("unreachable")

    def _send(
        self, asked: str, method: str, url: str, *, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        request = HttpRequest(method, url, headers={"Accept": "application/json", **(headers or {})})
        if body is not None:
            request = HttpRequest(method, url, headers={"Accept": "application/json", **(headers or {})}, json=body)
        with asking(asked):
            response = self._client.send_request(request)
            text = response.text()
        status, told = response.status_code, response.headers
        note_exchange("azure", method, url, sent=request.content, status=status, headers=told, body=text)
        if status not in ({_OK} if method == "GET" else _DONE):
            date = response.headers.get("Date", "")
            error = explain_error(refusal(asked, status, text), date, self._clock.now())
            later = response.headers.get("Retry-After", "")
            if status == _TOKEN_REFUSED:
                used = request.headers.get("Authorization", "").removeprefix("Bearer ")
                error.renewed = self._credential.renew(used)  # type: ignore[attr-defined]
            error.retry_after = float(later) if later.isdigit() else None  # type: ignore[attr-defined]
            raise error
        found = {name.lower(): value for name, value in response.headers.items()}
        return Answer(status=status, body=_decode_body(asked, text), headers=found)

    @contextmanager
    def _slowing(self, *, reads: bool = False) -> Iterator[None]:
        """Slow down where Azure says that we should."""
        try:
            yield
        except ThrottledError:
            (self._reads if reads else self._acts).slow_down()
            raise

    def _url(self, path: str, version: str, query: Mapping[str, str]) -> str:
        own = {"api-version": VERSIONS[version]} if VERSIONS[version] else {}
        pairs = {**own, **{_PARAMETERS.get(name, name): query[name] for name in query}}
        return HttpRequest("GET", f"{self._base}{path}", params=pairs).url

    def _following(self, asked: str, page: Mapping[str, Any]) -> str | None:
        """The next page; it must be at the same server, because it is asked for with our token."""
        url = page.get("nextLink")
        if not url:
            return None
        if isinstance(url, str) and _ON_THIS_SERVER.match(url):
            url = self._base + url
        if not isinstance(url, str) or not same_server(url, self._base):
            raise CloudUnavailableError(f"{asked}: its next page is at another server", code="ForeignPage")
        return url


_ON_THIS_SERVER = re.compile("/(?!/)")  # how a link begins that names no server
_PARAMETERS = {"filter_": "$filter", "expand": "$expand", "select": "$select"}


def _items(asked: str, page: Any) -> list[dict[str, Any]]:  # noqa: ANN401  whatever came
    """The list of a page: an answer without it is no answer, and never an empty list."""
    items = page.get("value") if isinstance(page, dict) else None
    if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
        raise CloudUnavailableError(f"{asked}: no usable answer (no list)", code="NoList")
    return items


def _decode_body(asked: str, text: str) -> Any:  # noqa: ANN401  JSON
    """The body; nothing is None."""
    if not text:
        return None
    try:
        return read_json(text)
    except ValueError:
        raise CloudUnavailableError(f"{asked}: no usable answer (no JSON)", code="NoJson") from None


def _path_end(path: str) -> str:
    """The end of a path, for people."""
    return path.partition("/providers/")[2] or path


def no_answer(error: CloudError) -> bool:
    """Whether the error leaves open what is there."""
    return isinstance(error, CloudUnavailableError | ThrottledError)

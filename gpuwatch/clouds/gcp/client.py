"""Google's REST APIs for one project: whole lists, typed errors, our own pace; a change goes out once."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode

from gpuwatch.clouds import CloudError, CloudUnavailableError, ThrottledError
from gpuwatch.clouds.errors import explain_error
from gpuwatch.clouds.gcp.credentials import Credentials, Heard, Wire
from gpuwatch.clouds.gcp.errors import EXPIRED, failure, refusal
from gpuwatch.clouds.gcp.iam import COMPUTE, HOSTS, Call
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.rate_limit import RateLimiter
from gpuwatch.clouds.sending import sending
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.json_document import read_json

# Well below Compute Engine's own limits for a project in a region, which are 25 reads and 20 changes a second.
_READS_PER_SECOND, _READS_AT_ONCE = 10.0, 50
_ACTS_PER_SECOND, _ACTS_AT_ONCE = 5.0, 25

_TRIES = 3  # of a read
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.5, 30.0
_MOST_PAGES = 1000
_PAGE_SIZE = 500  # the largest that Compute Engine takes
# Without it one zone that cannot be reached fails the list of all zones. Source: the discovery document of compute v1.
_IN_PART = {"returnPartialSuccess": "true"}
_NOTHING_HERE = "NO_RESULTS_ON_PAGE"  # a scope's warning that means an empty one
_GOOD = range(200, 300)

Json = Mapping[str, Any]


class Client:
    """One project. `reading` and `acting` have buckets of their own, so that no number of reads makes a stop wait."""

    def __init__(
        self,
        project: str,
        *,
        credentials: Credentials,
        clock: Clock,
        endpoint_url: str | None = None,
        page_size: int = _PAGE_SIZE,
        name: str | None = None,
        **seconds: float,
    ) -> None:
        """Nothing is sent yet; `seconds` are the wire's own limits. `name` is for messages, else the project's."""
        self.project = project
        self.name = name or f"project {project}"
        self._credentials = credentials
        self._clock = clock
        self._page_size = page_size
        base = None if endpoint_url is None else endpoint_url.rstrip("/")
        self._bases = {api: base or host for api, host in HOSTS.items()}
        self._wire = Wire(self._bases[COMPUTE], **seconds)
        self._reads = RateLimiter(clock, per_second=_READS_PER_SECOND, burst=_READS_AT_ONCE)
        self._acts = RateLimiter(clock, per_second=_ACTS_PER_SECOND, burst=_ACTS_AT_ONCE)

    def __str__(self) -> str:
        """Return the name of the project."""
        return self.name

    # Reading.

    def read(self, call: Call, *, query: Mapping[str, str] | None = None, body: object = None, **path: str) -> Json:
        """One answer; tried up to three times.

        Raises:
            NotFoundError: there is no such thing.
            CloudError: no answer.

        """
        return self._read(call, query, body, path)[0]

    def pages(self, call: Call, *, query: Mapping[str, str] | None = None, **path: str) -> Iterator[Json]:
        """Every page of a list, to the last.

        Raises:
            CloudError: a page could not be had, or came twice: the list is not whole.

        """
        parameter, factor = call.page
        asked = {**(query or {}), parameter: str(self._page_size * factor)}
        tokens: set[str] = set()
        for _ in range(_MOST_PAGES):
            page = self.read(call, query=asked, **path)
            yield page
            token = page.get("nextPageToken")
            if not token:
                return
            if token in tokens:
                raise CloudUnavailableError(f"{self._name_call(call)}: a page came twice", code="RepeatedPage")
            tokens.add(token)
            asked["pageToken"] = token
        raise CloudUnavailableError(f"{self._name_call(call)}: more than {_MOST_PAGES} pages", code="TooManyPages")

    def items(self, call: Call, *, query: Mapping[str, str] | None = None, **path: str) -> list[Json]:
        """The things of a list that has no scopes; raises CloudError."""
        name, missing = call.items or "items", dict[str, CloudError]()
        found: list[Json] = []
        for page in self.pages(call, query=query, **path):
            self._note(call, "", page.get("warning"), missing)
            found += page.get(name, ())
        if missing:
            raise missing[""]
        return self._whole(call, found)

    def scopes(self, call: Call, *, query: Mapping[str, str] | None = None) -> dict[str, list[Json] | CloudError]:
        """An aggregated list by scope ("zones/us-central1-a", "regions/us-central1", "global").

        A scope that Compute Engine could not reach is an error in its place, never an empty list.

        Raises:
            CloudError: the list could not be had whole.

        """
        found: dict[str, list[Json]] = {}
        missing: dict[str, CloudError] = {}
        for page in self.pages(call, query={**(query or {}), **_IN_PART}):
            if not isinstance(page.get("items", {}), Mapping):
                raise CloudUnavailableError(f"{self._name_call(call)}: an answer without scopes", code="NoScopes")
            for scope, content in page.get("items", {}).items():
                found.setdefault(scope, []).extend(content.get(call.items, ()))
                self._note(call, scope, content.get("warning"), missing)
            silent = page.get("unreachables") or ()
            if not silent:  # or the page's warning is about these
                self._note(call, "", page.get("warning"), missing)
            for scope in silent:
                missing[_scope_of(scope)] = self._unreached_error(call, scope, "UNREACHABLE")
        self._whole(call, [each for content in found.values() for each in content])
        if "" in missing:
            raise missing[""]
        return {**found, **missing}

    def _note(self, call: Call, scope: str, warning: Json | None, missing: dict[str, CloudError]) -> None:
        """A warning other than "nothing on this page" means that something is not in the answer."""
        code = (warning or {}).get("code", _NOTHING_HERE)
        if code != _NOTHING_HERE and "DEPRECATED" not in code:
            missing[scope] = self._unreached_error(call, scope, code)

    def _unreached_error(self, call: Call, scope: str, code: str) -> CloudError:
        where = f" of {scope}" if scope else ""
        return CloudUnavailableError(f"{self._name_call(call)}: nothing is known{where} ({code})", code=code)

    def _whole(self, call: Call, found: list[Json]) -> list[Json]:
        """The same; a thing that comes twice is of a page that came twice."""
        ids = [each.get("selfLink") or each.get("instance") or each.get("id") for each in found]
        if len(set(ids)) < len(ids):
            raise CloudUnavailableError(f"{self._name_call(call)}: the same thing came twice", code="RepeatedPage")
        return found

    # Acting.

    def change(
        self,
        call: Call,
        permit: Permit | None,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        **path: str,
    ) -> Json:
        """Send a change once, while its permit holds; gives the operation, which has only begun.

        Raises:
            PermitExpiredError: the permit did not hold; nothing was sent.
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was not accepted.

        """
        operation = self._json(call, self._send_request(call, query, body, path, self._acts, permit))
        if not (operation.get("name") and operation.get("status")):
            raise CloudUnavailableError(f"{self._name_call(call)}: no usable answer (no operation)", code="NoOperation")
        failed = failure(self._name_call(call), operation)
        if failed is not None:
            raise failed
        return operation

    def now(self, call: Call, **path: str) -> datetime | None:
        """The time of Google's own clock; None: its answer has no time."""
        _, heard = self._read(call, None, None, path)
        try:
            return parsedate_to_datetime(heard.headers.get("date", ""))
        except ValueError:
            return None

    # The wire.

    def _send_request(
        self,
        call: Call,
        query: Mapping[str, str] | None,
        body: object,
        path: Mapping[str, str],
        pace: RateLimiter,
        permit: Permit | None = None,
    ) -> Heard:
        """The answer to one request, whatever it says."""
        parts = {name: quote(value, safe="/" if name in {"group", "template"} else "") for name, value in path.items()}
        url = self._bases[call.api] + call.path.format(project=quote(self.project, safe=":."), **parts)
        if query:
            url = f"{url}?{urlencode(query)}"
        sent = None if body is None else json.dumps(body).encode()
        pace.wait()
        try:
            headers = {**self._credentials.headers(), "Accept": "application/json"}
            if sent is not None or call.method == "POST":
                headers["Content-Type"] = "application/json"
            with sending(self._name_call(call), permit):
                return self._wire.ask(call.method, url, headers, sent)
        except CloudUnavailableError as error:
            raise type(error)(f"{self._name_call(call)}: {error}", code=error.code) from None

    def _json(self, call: Call, heard: Heard) -> Json:
        """The content of a good answer; raises the typed form of any other."""
        try:
            answer = read_json(heard.body or b"null")
        except ValueError:
            answer = None
        if heard.status not in _GOOD:
            if heard.status == EXPIRED:
                self._credentials.forget()
            refused = refusal(self._name_call(call), heard.status, answer)
            error = explain_error(refused, heard.headers.get("date", ""), self._clock.now())
            if isinstance(error, ThrottledError):
                (self._acts if call.changes else self._reads).slow_down()
            raise error
        if not isinstance(answer, dict):
            raise CloudUnavailableError(f"{self._name_call(call)}: no usable answer (not JSON)", code="NoAnswer")
        return answer

    def _read(
        self, call: Call, query: Mapping[str, str] | None, body: object, path: Mapping[str, str]
    ) -> tuple[Json, Heard]:
        """A read again, where there was no answer, where we ask too often, or where the token has just expired."""
        for number in range(_TRIES):
            heard = None
            try:
                heard = self._send_request(call, query, body, path, self._reads)
                return self._json(call, heard), heard
            except CloudError as error:
                again = isinstance(error, CloudUnavailableError | ThrottledError) or error.code == "authError"
                if number == _TRIES - 1 or not again:
                    raise
                self._clock.sleep(max(_FIRST_WAIT_SECONDS * 2**number, _asked_to_wait(heard)))
        raise AssertionError("the last try returns or raises")

    def _name_call(self, call: Call) -> str:
        return f"{call.name} in {self}"


def _asked_to_wait(heard: Heard | None) -> float:
    """Retry-After in seconds, up to a limit."""
    wanted = "" if heard is None else heard.headers.get("retry-after", "")
    return min(float(wanted), _LONGEST_WAIT_SECONDS) if wanted.isdigit() else 0.0


def _scope_of(unreachable: str) -> str:
    """The scope that a name or a link means: zones/us-central1-a."""
    parts = unreachable.rstrip("/").split("/")
    return "/".join(parts[-2:])

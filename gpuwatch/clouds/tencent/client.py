"""One way to ask one region: signed by the SDK, paced, with typed errors, and whole lists or none.

Of the SDK the common client alone is used, which signs, sends and knows credentials. The clients of each product are
code generated from the same description that the tests hold every request and answer to
(tests/support/clouds/tencent/description.py), and take 20 MB more.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from requests import Response
from tencentcloud.common.common_client import CommonClient
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException
from tencentcloud.common.profile.client_profile import ClientProfile
from tencentcloud.common.profile.http_profile import HttpProfile

from gpuwatch.clouds import AuthFailedError, CloudUnavailableError, ThrottledError
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.rate_limit import RateLimiter
from gpuwatch.clouds.recording import note_exchange
from gpuwatch.clouds.requests_sending import watch_session
from gpuwatch.clouds.sending import sending
from gpuwatch.clouds.tencent.credentials import Signer
from gpuwatch.clouds.tencent.errors import NO_ANSWER, THROTTLED, asking, token_ended
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.address import host_and_port
from gpuwatch.runtime.json_document import read_json

# The products and the versions of their APIs.
VERSIONS = {
    "as": "2018-04-19",
    "cam": "2019-01-16",
    "cbs": "2017-03-12",
    "cvm": "2017-03-12",
    "monitor": "2018-07-24",
    "sts": "2018-08-13",
    "tag": "2018-08-13",
    "tke": "2018-05-25",
    "vpc": "2017-03-12",
}

# Tencent Cloud allows 10 to 20 calls a second of each action for an account in a region; half of the lower number.
_READS_PER_SECOND, _READS_AT_ONCE = 5.0, 20
_ACTS_PER_SECOND, _ACTS_AT_ONCE = 2.5, 10
_TRIES = 3  # of a read; a change is sent once: the ledger decides about trying again
_FIRST_WAIT_SECONDS = 1.0
TIMEOUTS = (5.0, 20.0)  # to connect, and to wait for an answer
PAGE_SIZE = 100  # the largest that these APIs take
_DOMAIN = "tencentcloudapi.com"
_OK, _TOO_MANY = 200, 429

# At the level DEBUG the SDK writes whole requests, with the token of temporary credentials.
logging.getLogger("tencentcloud_sdk_common").setLevel(logging.WARNING)


class _Client(CommonClient):  # type: ignore[misc]  # the SDK ships no types
    """The SDK's client without its reading of answers, which overlooks errors that come as another content type."""

    date = ""  # of the last answer

    def _check_status(self, answer: Response) -> None:
        self.date = answer.headers.get("Date", "")
        asked = answer.request
        note_exchange(
            "tencent",
            str(asked.method),
            str(asked.url),
            call=str(asked.headers.get("X-TC-Action", "")),
            region=str(asked.headers.get("X-TC-Region", "")),
            sent=asked.body,  # type: ignore[arg-type]  # requests allows more kinds than the SDK sends
            status=answer.status_code,
            headers=answer.headers,
            body=answer.content,
        )
        if answer.status_code != _OK:
            answer.close()
            code = THROTTLED if answer.status_code == _TOO_MANY else NO_ANSWER
            raise TencentCloudSDKException(code, f"HTTP status {answer.status_code}")

    def _check_error(self, answer: Response) -> None:
        """Leave the check of errors to `Line`."""


class Line:
    """One way to ask one region of one account."""

    def __init__(
        self,
        *,
        signer: Signer,
        region: str,
        where: str,
        clock: Clock,
        endpoint_url: str | None,
        once: bool = False,
        timeouts: tuple[float, float] = TIMEOUTS,
    ) -> None:
        """Nothing is sent yet. `where` names the place for people; `once`: no call is repeated."""
        self._signer, self._region, self._where, self._clock = signer, region, where, clock
        self._endpoint_url, self._timeouts = endpoint_url, timeouts
        self._tries = 1 if once else _TRIES
        pace, burst = (_ACTS_PER_SECOND, _ACTS_AT_ONCE) if once else (_READS_PER_SECOND, _READS_AT_ONCE)
        self.pace = RateLimiter(clock, per_second=pace, burst=burst)
        self._clients: dict[str, _Client] = {}
        self._making = threading.Lock()

    def name_call(self, action: str) -> str:
        """The call with its place, for people."""
        return f"Tencent Cloud {action} in {self._where}"

    def ask(self, service: str, action: str, **parameters: object) -> Mapping[str, Any]:
        """One answer.

        Raises:
            CloudError: a refusal, or no usable answer.

        """
        wait_seconds = _FIRST_WAIT_SECONDS
        for _ in range(self._tries - 1):
            try:
                return self._with_new_token(service, action, parameters)
            except (ThrottledError, CloudUnavailableError):
                self._clock.sleep(wait_seconds)
                wait_seconds *= 2
        return self._with_new_token(service, action, parameters)

    def change(self, permit: Permit | None, service: str, action: str, **parameters: object) -> Mapping[str, Any]:
        """One answer to a change, which leaves only while its permit holds (None: nobody asks for one).

        Raises:
            PermitExpiredError: it did not hold; nothing was sent.
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was refused.

        """
        with sending(self.name_call(action), permit):
            try:
                return self._once(service, action, parameters)
            except AuthFailedError as error:
                if token_ended(error.code):
                    self._signer.renew()  # for the next call
                raise

    def list_all(
        self, service: str, action: str, items: str, item_id: str, **parameters: object
    ) -> list[dict[str, Any]]:
        """All pages of a list: `items` is the member of an answer that holds it, `item_id` that of each id in it.

        Pages are numbered by Offset, so a machine that goes meanwhile moves another out of sight. A list is whole if it
        has as many different ids as the cloud counts on each page.

        Raises:
            CloudError: the list could not be had whole.

        """
        for _ in range(self._tries):
            found, whole = self._pages(service, action, items, parameters)
            ids = {each.get(item_id) for each in found}
            if whole and len(ids) == len(found) and None not in ids:
                return found
        raise CloudUnavailableError(
            f"{self.name_call(action)}: the list has lost a part, or changes faster than it can be read",
            code="ListNotWhole",
        )

    def server_time(self, service: str) -> str:
        """The Date of the last answer of a service; "" where there was no answer."""
        return self._client(service).date

    def _pages(
        self, service: str, action: str, items: str, parameters: Mapping[str, object]
    ) -> tuple[list[dict[str, Any]], bool]:
        """What was listed, and whether it is as much as every page counts."""
        found: list[dict[str, Any]] = []
        totals: set[int] = set()
        while True:
            page = self.ask(service, action, **parameters, Offset=len(found), Limit=PAGE_SIZE)
            with asking(self.name_call(action)):
                new, total = [dict(each) for each in page[items]], int(page["TotalCount"])
            found += new
            totals.add(total)
            if not new or len(found) >= total:
                return found, totals == {len(found)}

    def _with_new_token(self, service: str, action: str, parameters: Mapping[str, object]) -> Mapping[str, Any]:
        """Ask once, and once more where the token had ended and there is another one."""
        try:
            return self._once(service, action, parameters)
        except AuthFailedError as error:
            if not token_ended(error.code) or not self._signer.renew():
                raise
        return self._once(service, action, parameters)

    def _once(self, service: str, action: str, parameters: Mapping[str, object]) -> Mapping[str, Any]:
        self.pace.wait()  # before the request is signed, since a signature holds for minutes only
        try:
            with asking(self.name_call(action)):
                answer: Mapping[str, Any] = read_json(self._client(service).call(action, dict(parameters)))["Response"]
                _ = answer["RequestId"]
                error = answer.get("Error")
                if error is not None:
                    raise TencentCloudSDKException(error["Code"], error["Message"])
        except ThrottledError as refused:
            if refused.code.startswith(THROTTLED):
                self.pace.slow_down()
            raise
        return answer

    def _client(self, service: str) -> _Client:
        with self._making:
            if service not in self._clients:
                client = _Client(service, VERSIONS[service], self._signer, self._region, self._profile(service))
                watch_session(client.request.conn._session)  # noqa: SLF001  there is no other door
                self._clients[service] = client
            return self._clients[service]

    def _profile(self, service: str) -> ClientProfile:
        """Where and how the SDK sends; answers' texts in English."""
        url = urlsplit(self._endpoint_url or f"https://{_DOMAIN}")
        named = host_and_port(url.geturl())
        host = f"{service}.{named}" if named.endswith(_DOMAIN) else named
        http = HttpProfile(protocol=url.scheme, endpoint=host, reqTimeout=self._timeouts)
        return ClientProfile(httpProfile=http, language="en-US")

"""One call of Alibaba Cloud's RPC API: parameters in, JSON out, by the official signer (ACS3-HMAC-SHA256).

A call is named as RAM names its permission, such as `ecs:StopInstance`. The SDK of each product is not used: on top
of a running controller its models cost 35 MB and 0.35 s, the signer with the chain of credentials 9 MB and 0.08 s.
"""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from alibabacloud_credentials.provider import (
    CLIProfileCredentialsProvider,
    DefaultCredentialsProvider,
    RamRoleArnCredentialsProvider,
    StaticAKCredentialsProvider,
)
from alibabacloud_credentials.provider.refreshable import RefreshCachedSupplier
from alibabacloud_tea_openapi.utils import Utils
from darabonba.request import DaraRequest
from requests import PreparedRequest, RequestException, Session
from urllib3.exceptions import HTTPError

from gpuwatch import __version__
from gpuwatch.clouds import AuthFailedError, ClockSkewError, CloudUnavailableError, ThrottledError
from gpuwatch.clouds.alibaba.errors import ENDED, refusal, token_ended
from gpuwatch.clouds.errors import ADVICE, no_answer
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.rate_limit import RateLimiter
from gpuwatch.clouds.recording import note_exchange
from gpuwatch.clouds.renewal import Renewable
from gpuwatch.clouds.requests_sending import watch_session
from gpuwatch.clouds.sending import sending
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.address import host_and_port
from gpuwatch.runtime.json_document import read_json

# Who we are for Alibaba Cloud: the official chain of credentials (environment, profile, machine's role), and roles.
#
# Its texts may quote what a helper or a file says: they are never repeated, and its own log is shut.

# It writes every failed source with its traceback, past our own log to stderr.
logging.getLogger("credentials").setLevel(logging.CRITICAL + 1)

_OLD_SIGNATURE = "InvalidTimeStamp"
_SESSION_NAME = "gpuwatch"  # in ActionTrail

# Key id, secret, and the session token where there is one.
Key = tuple[str, str, str | None]
Source = Renewable[Any, Key]


def of_chain(profile: str | None) -> Any:  # noqa: ANN401  the SDK has no types
    """The SDK's own chain, or a profile of `aliyun configure`."""
    return DefaultCredentialsProvider() if profile is None else CLIProfileCredentialsProvider(profile_name=profile)


def of_role(entering: Any, role_arn: str, external_id: str | None) -> Any:  # noqa: ANN401  likewise
    """A role of another account; the SDK assumes it when it is first used, and again before it expires."""
    return RamRoleArnCredentialsProvider(
        credentials_provider=entering,
        role_arn=role_arn,
        role_session_name=_SESSION_NAME,
        external_id=external_id,
    )


def of_pair(key_id: str, secret: str) -> Any:  # noqa: ANN401  likewise
    """An access key that does not expire."""
    return StaticAKCredentialsProvider(access_key_id=key_id, access_key_secret=secret)


def source(provider: Any, whose: str, clock: Clock) -> Source:  # noqa: ANN401  likewise
    """Asks for the key at each call; the SDK keeps it as long as it is good by its own clock."""

    def key(provider: Any) -> Key:  # noqa: ANN401  likewise
        try:
            try:
                found = provider.get_credentials()
            except Exception as error:
                if not any(word in str(error) for word in ENDED):  # of the credentials that assume a role
                    raise
                found = without_memory(provider).get_credentials()
            key_id, secret = found.get_access_key_id(), found.get_access_key_secret()
            token = found.get_security_token() or None
        except Exception as error:  # noqa: BLE001  the SDK raises whatever its sources raise
            name = type(error).__name__
            if _OLD_SIGNATURE in str(error):  # of AssumeRole, which the SDK signs by this machine's clock
                raise ClockSkewError(
                    f"no Alibaba Cloud credentials of {whose}: the request for them was too old; {ADVICE}",
                    code=_OLD_SIGNATURE,
                ) from None
            raise AuthFailedError(
                f"no usable Alibaba Cloud credentials of {whose} ({name}); set ALIBABA_CLOUD_ACCESS_KEY_ID and "
                "ALIBABA_CLOUD_ACCESS_KEY_SECRET, or give this machine a RAM role. `aliyun sts GetCallerIdentity` "
                "tries them",
                code=name,
            ) from None
        if not key_id or not secret:
            raise AuthFailedError(f"the Alibaba Cloud credentials of {whose} are empty", code="EmptyCredentials")
        return key_id, secret, token

    return Renewable(provider, without_memory, key, clock)


def without_memory(provider: Any) -> Any:  # noqa: ANN401  likewise
    """The same, which has forgotten every key that it was given; to make it again would leave its threads behind.

    The SDK has no door for this: it believes the time that a key was said to last.
    """
    for name, value in list(vars(provider).items()):
        for each in value if isinstance(value, list) else [value]:
            if hasattr(each, "get_credentials"):
                without_memory(each)
        if isinstance(value, RefreshCachedSupplier) and value._cached_value is not None:  # noqa: SLF001  likewise
            value._cached_value._stale_time = 0  # noqa: SLF001  likewise; nothing in its place would fail other threads
        if name.endswith(("__last_used_provider", "__innerProvider")):
            setattr(provider, name, None)
    return provider


# Connections to Alibaba Cloud. Each request is sent once, and the permit of a change is checked at its first byte.
#
# The SDK's own sending is not used: it has no place for that check, and repeats requests by settings of its own.

_TIMEOUT = (5.0, 20.0)  # seconds to connect, and to wait for bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back: any status, a whole body."""

    status: int
    headers: Mapping[str, str]  # by names in small letters
    body: bytes


class Wire:
    """The connections of one process to one cloud, by the proxy and the authorities that the environment names."""

    def __init__(self, timeout: tuple[float, float] = _TIMEOUT) -> None:
        """Nothing is opened yet."""
        self._timeout = timeout
        self._session = watch_session(Session())
        self._session.auth = _as_it_is

    def post(self, asked: str, url: str, headers: Mapping[str, str], permit: Permit | None) -> Reply:
        """Post an empty body to a URL, once. `asked` names the call in errors; None: no permit is asked for.

        Raises:
            PermitExpiredError: the permit did not hold; nothing was sent.
            CloudUnavailableError: no whole answer.

        """
        with sending(asked, permit):
            try:
                answer = self._session.post(
                    url, data=b"", headers=dict(headers), timeout=self._timeout, allow_redirects=False
                )
                told = {name.lower(): value for name, value in answer.headers.items()}
                reply = Reply(status=answer.status_code, headers=told, body=answer.content)
            except (RequestException, HTTPError, OSError) as error:
                raise no_answer(asked, error, url) from None
        call = headers.get("x-acs-action", "")
        note_exchange("alibaba", "POST", url, call=call, status=reply.status, headers=reply.headers, body=reply.body)
        return reply


def _as_it_is(request: PreparedRequest) -> PreparedRequest:
    """Without it, requests would put a password of ~/.netrc in place of the signature."""
    return request


_SIGNED = "ACS3-HMAC-SHA256"
_EMPTY = hashlib.sha256(b"").hexdigest()  # of the body: all parameters are in the query
_TIMES = 3  # a read is tried
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 20.0
_FIRST_ERROR = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One API: its version, its name in hosts, and its host in the regions where that is another than elsewhere."""

    version: str
    name: str = ""  # where it is not the product's
    host: str = ""  # of all regions
    hosts: Mapping[str, str] = field(default_factory=dict)


_ESS_TOGETHER = (
    *("cn-qingdao", "cn-beijing", "cn-hangzhou", "cn-shanghai", "cn-nanjing", "cn-shenzhen", "cn-hongkong"),
    *("ap-southeast-1", "us-east-1", "us-west-1"),
)
# As the products' own SDKs have it; `test_alibaba_endpoints.py` compares.
PRODUCTS: Mapping[str, Product] = {
    "ecs": Product(version="2014-05-26", hosts={"cn-hangzhou": "ecs-cn-hangzhou.aliyuncs.com"}),
    "ess": Product(version="2022-02-22", hosts=dict.fromkeys(_ESS_TOGETHER, "ess.aliyuncs.com")),
    "vpc": Product(version="2016-04-28", hosts={"cn-hangzhou": "vpc.aliyuncs.com"}),
    "sts": Product(version="2015-04-01"),
    "cms": Product(version="2019-01-01", name="metrics"),
    "ram": Product(version="2015-05-01", host="ram.aliyuncs.com"),
}


def host_of(product: str, region: str) -> str:
    """The host of a product in a region."""
    known = PRODUCTS[product]
    return known.host or known.hosts.get(region, f"{known.name or product}.{region}.aliyuncs.com")


class Client:
    """The calls of one account in one region, at one pace. A read is tried up to three times, a change is sent once."""

    def __init__(
        self,
        *,
        region: str,
        where: str,
        key: Source,
        clock: Clock,
        wire: Wire,
        pace: RateLimiter,
        endpoint_url: str | None = None,
    ) -> None:
        """Nothing is sent yet. `where` names the place in errors; `endpoint_url` stands for every product's host."""
        self._region, self._where, self._key = region, where, key
        self._clock, self._wire, self._pace = clock, wire, pace
        self._base = None if endpoint_url is None else endpoint_url.rstrip("/")
        # Until when empty lists (call and parameters) are proven.
        self.empty: dict[tuple[str, str], float] = {}

    def uptime(self) -> float:
        """The seconds of a clock that nobody sets."""
        return self._clock.monotonic()

    def ask(self, call: str, parameters: Mapping[str, object]) -> dict[str, Any]:
        """What a read answers; it is asked again where there was no answer, or too many calls.

        Raises:
            CloudError: no answer, or a refusal.

        """
        return self.ask_at(call, parameters)[0]

    def ask_at(self, call: str, parameters: Mapping[str, object]) -> tuple[dict[str, Any], datetime | None]:
        """The same, with the time of the cloud's own clock; None: it did not tell."""
        pause = _FIRST_PAUSE_SECONDS
        renewed = False
        for attempt in range(1, _TIMES + 1):
            after, key = 0.0, self._key.proof()
            try:
                reply = self._send(call, parameters, None, key)
                after = _retry_after(reply)
                return self._read(call, reply), _time_of(reply)
            except AuthFailedError as error:
                if renewed or attempt == _TIMES or not token_ended(error.code) or not self._key.renew(key):
                    raise
                renewed = True
            except (CloudUnavailableError, ThrottledError):
                if attempt == _TIMES:
                    raise
                self._clock.sleep(min(_LONGEST_PAUSE_SECONDS, max(pause, after)))
                pause *= 2
        raise AssertionError  # the last attempt has returned or raised

    def change(self, call: str, parameters: Mapping[str, object], permit: Permit | None) -> dict[str, Any]:
        """What a change answers. It is sent once: the ledger decides about trying again.

        Raises:
            PermitExpiredError: the permit did not hold when it was about to leave; nothing was sent.
            CloudUnavailableError: no usable answer; it may have happened.
            CloudError: it was refused.

        """
        key = self._key.proof()
        try:
            return self._read(call, self._send(call, parameters, permit, key))
        except AuthFailedError as error:
            if token_ended(error.code):
                self._key.renew(key)  # for the next call
            raise

    def name_call(self, call: str) -> str:
        """A call for messages."""
        product, _, action = call.partition(":")
        return f"{product.upper()} {action} in {self._where}"

    def _send(self, call: str, parameters: Mapping[str, object], permit: Permit | None, key: Key) -> Reply:
        """The key comes first, because it may take long; the pace then; the signature last, because it grows old."""
        self._pace.wait()
        product, _, action = call.partition(":")
        url, headers = self._sign_request(product, action, parameters, key)
        return self._wire.post(self.name_call(call), url, headers, permit)

    def _sign_request(
        self,
        product: str,
        action: str,
        parameters: Mapping[str, object],
        key: Key,
    ) -> tuple[str, dict[str, str]]:
        """The URL and headers of one request."""
        base = self._base or f"https://{host_of(product, self._region)}"
        key_id, secret, token = key
        query: dict[str, str] = Utils.query(_plain(parameters))
        headers = {
            "host": host_and_port(base),
            "accept": "application/json",
            "user-agent": f"gpuwatch/{__version__}",
            "x-acs-action": action,
            "x-acs-version": PRODUCTS[product].version,
            "x-acs-date": self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            "x-acs-signature-nonce": Utils.get_nonce(),
            "x-acs-content-sha256": _EMPTY,
        }
        if token is not None:
            headers |= {"x-acs-accesskey-id": key_id, "x-acs-security-token": token}
        request = DaraRequest()
        request.method, request.pathname, request.query, request.headers = "POST", "/", query, headers
        headers["Authorization"] = Utils.get_authorization(request, _SIGNED, _EMPTY, key_id, secret)
        written = "&".join(f"{_encode_text(each)}={_encode_text(query[each])}" for each in sorted(query))
        return f"{base}/?{written}", headers

    def _read(self, call: str, reply: Reply) -> dict[str, Any]:
        """The answer's JSON.

        Raises:
            CloudError: it says no, or is no answer of this API.

        """
        asked = self.name_call(call)
        try:
            answer = read_json(reply.body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or ("RequestId" not in answer and "Code" not in answer):
            # A gateway's page, or half an answer.
            raise CloudUnavailableError(f"{asked}: no usable answer (HTTP {reply.status})", code=f"HTTP{reply.status}")
        if reply.status < _FIRST_ERROR:
            return answer
        error = refusal(asked, reply.status, str(answer.get("Code", "")), str(answer.get("Message", "")))
        if isinstance(error, ThrottledError):
            self._pace.slow_down()
        raise error


def _plain(value: object) -> object:
    """With truth as the API writes it; the SDK's own flattening would write True. What is None is not sent."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _encode_text(text: str) -> str:
    """As the signer encodes it."""
    return quote(text, safe="~", encoding="utf-8")


def _retry_after(reply: Reply) -> float:
    """The seconds that the cloud asks us to wait; 0 where it does not say."""
    told = reply.headers.get("retry-after", "")
    return float(told) if told.isdecimal() else 0.0


def _time_of(reply: Reply) -> datetime | None:
    try:
        return parsedate_to_datetime(reply.headers.get("date", ""))
    except ValueError:
        return None

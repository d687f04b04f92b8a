"""What a cloud answered, with everything that could name somebody replaced: the same thing by the same stand-in.

What is not known to be harmless is replaced. The words of the APIs stay: states, types of machines, regions, error
codes, times, sizes, and the markers of machines that a service manages. The rest keeps its form: a number has as many
digits, an id keeps its prefix, an address is an address. So an adapter reads a replaced answer as the real one.
"""

import hashlib
import hmac
import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from html import escape, unescape
from urllib.parse import parse_qsl, quote, unquote, urlencode

from gpuwatch.runtime.json_document import read_json

# By the names of their members, in small letters: what is never written down; what holds one word of the API; what
# holds a sentence; what holds names that somebody chose; and places and types, which are the same for everybody.
_SECRET = re.compile(
    r"(user|custom)_?data|.*(password|secret|credential|public_?key|private_?key|key_?data|fingerprint|ssh(_?keys?)?|certificate"
    r"|signature|script)s?|.*(access|session|security)_?(token|key)(_?id)?|key_?material"
)
_WORDY = re.compile(
    r".*(state|status|type|mode|option|kind|tier|code|category|priority|lifecycle|architecture|platform|level|unit"
    r"|currency|protocol|method|caching|scope|strategy|behaviou?r|tenancy|hypervisor|version|metric_?name|aggregation"
    r"|statistic|visibility|sku|flag|format|class|source)s?"
)
_SPOKEN = re.compile(r".*(message|reason|description|detail|cause|warning)s?")
_CHOSEN = re.compile(r"(resource_?|user_?|instance_?)?(tag|label)(s|_?set)?")
_RESERVED = re.compile(r"(?:aws|acs):[A-Za-z]+[0-9]*(?:[:_/-][A-Za-z]+[0-9]*)+")  # tags that only a cloud can set
_KEYS = frozenset({"key", "tagkey"})
_EVERYBODYS = re.compile(
    r".*(location|zone|region|metric|instance_?type|vm_?size|machine_?type|family|acceleratortype)(_?(id|name))?s?"
)

_WORD = re.compile(r"[A-Za-z]+(?:[_./-][A-Za-z]+)*")
_KIND = re.compile(r"[A-Za-z]+\d{0,2}(?:[_./-][A-Za-z]+\d{0,2}|_\d\d)*")
_KIND_IN_PATH = re.compile(r"[A-Za-z0-9._-]{1,40}")
_BEFORE_TYPES = frozenset({"zones", "regions", "locations", "machinetypes", "disktypes", "acceleratortypes"})
_MEMBER = re.compile(r"[A-Za-z@$_.#][A-Za-z0-9@$_.#:-]*")
_TIME = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?: ?(?:Z|GMT|UTC|[+-]\d\d:?\d\d))?"
_DATE = re.compile(rf"{_TIME}|[A-Z][a-z]{{2}}, \d\d [A-Z][a-z]{{2}} \d{{4}} [\d:]{{8}} GMT")
_MAC = r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}"
_TOKEN = re.compile(
    rf"{_TIME}|[\w.+-]+@[\w-]+\.[\w.-]+|{_MAC}(?![\w:])|(?<![\w:])(?:[0-9A-Fa-f]{{0,4}}:){{2,7}}[0-9A-Fa-f]{{1,4}}(?![\w:])"
    r"|\w[\w.+-]*"
)
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_ID = re.compile(r"((?:[a-z]{1,9}-)+)(?=[a-z]*\d)([0-9a-z]{8,32})")
_LONG_NUMBER = 6  # digits: sizes, ports and counts have fewer; accounts, projects and ids have more
_ENDLESS = 9  # digits of a number by itself, where seconds and bytes are long too
_COUNTED = re.compile(
    r".*(time|seconds|size|bytes|gb|mb|gib|mib|memory|capacity|iops|throughput|stamp|point|value|total|expir\w*|price|at|on|date)s?"
)

_COMPASS = "(?:north|south)?(?:east|west|central|north|south)"
_PUBLIC = re.compile(
    # Regions and zones of AWS and Google; the others' are learned from the members that hold them.
    rf"[a-z]{{2}}(?:-gov|-iso[a-z]?)?-{_COMPASS}-\d[a-z]?"
    rf"|(?:africa|asia|australia|europe|me|northamerica|southamerica|us)-{_COMPASS}\d{{1,2}}(?:-[a-z])?"
    # Types of machines and of accelerators.
    r"|(?:ecs\.)?[a-z]\w*(?:-\w+)?\.(?:\d*x?(?:large|medium|small)\d*|metal(?:-\d+xl)?|nano|micro)"
    r"|standard_[a-z]+\d\w*|standardn[cdgv]\w{0,20}family|n[cdgv][a-z]{0,12}v\d(?:_[a-z]+\d+)?|[a-z]\d{1,2}[a-z]?-(?:standard|highmem|highcpu|(?:high|mega|ultra|edge|max)gpu)-\w+"
    r"|nvidia-[a-z0-9-]+|pt?\d{1,3}[dhms]|v?\d{1,5}(?:\.\d{1,5}){1,2}"
    r"|q\d{1,3}x\d"  # our own number of a series that CloudWatch is asked for
    # Hosts of the clouds; what stands before may be a name.
    r"|(?:[a-z]+\.|ec2\.)?(?:[a-z]{2}(?:-gov|-iso[a-z]?)?-[a-z]+-?\d?\.)?(?:amazonaws\.com(?:\.cn)?|tencentcloudapi\.com|aliyuncs\.com"
    r"|googleapis\.com|azure\.(?:com|net|cn|us)|windows\.net)"
)
_API_WORDS = """
    true false null none default all any yes no on off ok enabled disabled self http https www
    pending running shutting-down terminated stopping stopped starting rebooting created creating deleting deleted
    failed succeeded updating active inactive available unavailable in-use attached attaching detached detaching done
    staging provisioning suspending suspended repairing allocated deallocating deallocated ready unknown inservice
    standby healthy unhealthy approved rejected open closed fulfilled cancelled normal regular spot low ondemand
    on-demand scheduled capacity-block persistent one-time vpc standard reservation interface
    arn aws aws-cn aws-us-gov acs qcs ec2 ecs ecs. iam sts kms ebs cvm cbs ram cam
    projects project global zones regions instances instance disks disk addresses snapshots images image family
    machinetypes acceleratortypes x86_64 arm64 gp2 gp3 io1 io2 network in out total percentage cpu
    memory bytes instancegroupmanagers instancegroups autoscalers instancetemplates networks
    subnetworks operations licenses disktypes reservations resourcepolicies aggregated compute v1 beta
    subscriptions resourcegroups providers vm volume network-interface spot-instances-request launch-template
    elastic-ip group uin role user assumed-role autoscaling autoscalinggroup autoscalinggroupname key alias
    service-role dev sda sda1 xvda nvme0n1 eth0 nic0 client server initiated shutdown instanceinitiatedshutdown
    userinitiatedshutdown amazon microsoft google nvidia amd linux windows ubuntu name value
    kubernetes instanceid resourceid cluster node nodepool nodegroup agentpool worker managed by managedby owned shared
    eks anywhere gke goog aks ack tke k8s io karpenter sh capacity type autoscaler databricks environment sagemaker
    batch emr elasticmapreduce elasticbeanstalk cloudformation stack id logical groupname ec2spot ec2launchtemplate
    dataproc composer dataflow notebooks slurm parallelcluster poolname gpuwatch protect owner pool notice snooze mode
    fleet cls
    v3 timeseries listmanagedinstances testiampermissions skus usages gpus vcpus maxresourcevolumemb
    premium premiumv2 ultrassd standardssd lrs zrs cores lowprioritycores family
    compute.googleapis.com agent.googleapis.com gpu utilization received sent count gce one_of resource label metric
    align mean max rate and or eq ne location instanceview
    max spot postpaid prepaid vcpu used
"""
_KNOWN = frozenset(_API_WORDS.split())


class Pseudonyms:
    """Stand-ins of one recording; another has others, since nobody knows its `salt`."""

    def __init__(self, salt: bytes) -> None:
        """Nothing is known yet."""
        self._salt = salt
        self._private: set[str] = set()  # words that somebody chose, in small letters
        self._public: set[str] = set()  # places and types that a cloud named as such

    def body(self, told: str) -> str:
        """JSON, XML or a form with everything replaced; what is none of these is a sentence."""
        if told.lstrip().startswith("<"):
            return re.sub(r"<([\w.-]+)((?: [^<>]*)?)>([^<>]+)</", self._element, told)
        if told.lstrip()[:1] in ("{", "["):
            try:
                return json.dumps(self.value(read_json(told)), ensure_ascii=False)
            except ValueError:
                return self.sentence(told)
        return self._form(told) if re.match(r"[\w.]+=", told) else self.sentence(told)

    def url(self, url: str, *, learn: bool = False) -> str:
        """A URL: its host, path and parameters."""
        front, mark, query = url.partition("?")
        return self._path(front, learn=learn) + mark + self._form(query)

    def value(self, value: object, name: str = "", *, chosen: bool = False, within: bool = False) -> object:
        """A value of JSON, that of the member `name`. `chosen`: somebody chose it; `within`: it is of a list."""
        if isinstance(value, Mapping):
            chosen = chosen or _CHOSEN.fullmatch(name.lower()) is not None
            named = chosen and not within and not any(isinstance(each, Mapping | list) for each in value.values())
            return {self._member(key, named): self.value(each, key, chosen=chosen) for key, each in value.items()}
        if isinstance(value, list):
            return [self.value(each, name, chosen=chosen, within=True) for each in value]
        if isinstance(value, str):
            return self.text(value, name, chosen=chosen)
        if isinstance(value, int) and len(str(abs(value))) >= _ENDLESS and not _COUNTED.fullmatch(name.lower()):
            return int(self._digits(str(abs(value))))
        return value

    def text(self, text: str, name: str = "", *, chosen: bool = False) -> str:
        """A text, that of the member `name`."""
        member = "" if chosen else name.lower()
        if not text or _DATE.fullmatch(text) or (_RESERVED.fullmatch(text) and name.lower() in _KEYS):
            return text
        if _SECRET.fullmatch(member):
            return "removed"
        if text[0] in "{[" and text[-1] in "}]":
            return self.body(text)
        if _EVERYBODYS.fullmatch(member) and re.fullmatch(r"[\w.-]{1,40}", text):
            self._public.add(text.lower())
            return text
        if _WORDY.fullmatch(member) and _KIND.fullmatch(text):
            return text
        if text.startswith(("https://", "http://")):
            return self.url(text, learn=True)
        if " " in text and _SPOKEN.fullmatch(member):
            return self.sentence(text)
        if "/" in text or text.startswith(("arn:", "acs:", "qcs:")):
            return self._path(text, learn=True)
        if _SPOKEN.fullmatch(member) or _WORDY.fullmatch(member):
            return self.sentence(text)
        return self._words(text, learn=True)

    def sentence(self, text: str) -> str:
        """A sentence of the cloud: its words stay, but those that somebody chose, and what stands in a path."""

        def is_said(small: str) -> bool:
            return _WORD.fullmatch(small) is not None and small not in self._private

        parts = re.split(r"(\S*/\S*)", text)
        return "".join(self._path(each) if "/" in each else self._words(each, keep=is_said) for each in parts)

    # Parts of texts.

    def _member(self, name: str, chosen: bool) -> str:
        return self._words(name, learn=True) if chosen or not _MEMBER.fullmatch(name) else name

    def _element(self, found: re.Match[str]) -> str:
        return f"<{found[1]}{found[2]}>{escape(self.text(unescape(found[3]), found[1]), quote=False)}</"

    def _form(self, query: str) -> str:
        pairs = parse_qsl(query, keep_blank_values=True)
        return urlencode([(key, self.text(value, key.rpartition(".")[2])) for key, value in pairs], quote_via=quote)

    def _path(self, text: str, *, learn: bool = False) -> str:
        """A path, or a name that is made like one. Azure's has a namespace, then kinds and names in turn."""
        parts = text.split("/")
        small = [part.lower() for part in parts]
        told, namespace = list[str](), len(parts)
        for number, part in enumerate(parts):
            namespace = number + 1 if small[number] == "providers" else namespace
            past = number - namespace
            kind = past == 0 or (past > 0 and past % 2 == 1) or (number > 0 and small[number - 1] in _BEFORE_TYPES)
            told.append(part if kind and _KIND_IN_PATH.fullmatch(part) else self._words(part, learn=learn))
        return "/".join(told)

    def _words(self, text: str, *, learn: bool = False, keep: Callable[[str], bool] | None = None) -> str:
        """Each word of a text that is not known to be harmless by its stand-in."""
        if "%" in text and unquote(text) != text:
            return quote(self._words(unquote(text), learn=learn, keep=keep), safe="")

        def replaced(found: re.Match[str]) -> str:
            word = found[0].rstrip(".")
            small, rest = word.lower(), found[0][len(word) :]
            if self._is_public(small) or (keep is not None and keep(small)):
                return found[0]
            if learn and _WORD.fullmatch(small):
                self._private.add(small)
            return self._stand_in(word, small) + rest

        return _TOKEN.sub(replaced, text)

    def _is_public(self, small: str) -> bool:
        if small.isdigit():
            return len(small) < _LONG_NUMBER
        known = small in self._public or small in _KNOWN or all(part in _KNOWN for part in re.split("[._-]", small))
        return known or _PUBLIC.fullmatch(small) is not None or _DATE.fullmatch(small.upper()) is not None

    # Stand-ins.

    def _stand_in(self, word: str, small: str) -> str:
        """A word by one of the same form."""
        if small.isdigit():
            return self._digits(small)
        if _UUID.fullmatch(small):
            found = self._hex(small, 32)
            found = "-".join((found[:8], found[8:12], found[12:16], found[16:20], found[20:]))
        elif "@" in small:
            found = f"user-{self._hex(small, 8)}@example.com"
        elif re.fullmatch(_MAC, word):
            found = "02:" + ":".join(re.findall("..", self._hex(small, 10)))
        elif (address := _address(small)) is not None:
            found = self._address(address)
        elif (like := _ID.fullmatch(small)) is not None:
            found = f"{like[1]}{self._hex(small, len(like[2]))}"
        else:
            found = f"x{self._hex(small, 9)}"
        return found.upper() if word.isupper() else found

    def _digits(self, digits: str) -> str:
        number = int(self._hex(digits, 64), 16) % 10 ** len(digits)
        return str(number + 10 ** (len(digits) - 1))[: len(digits)]

    def _address(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
        number = int(self._hex(str(address), 4), 16)
        if isinstance(address, ipaddress.IPv6Address):
            return f"2001:db8::{number:x}"
        first = ipaddress.IPv4Address("10.99.0.0" if address.is_private else "198.18.0.0")
        return str(first + number)

    def _hex(self, small: str, length: int) -> str:
        return hmac.new(self._salt, small.encode(), hashlib.sha256).hexdigest()[:length]


def _address(word: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(word)
    except ValueError:
        return None

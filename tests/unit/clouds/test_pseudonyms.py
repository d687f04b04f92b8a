"""A replaced answer names nobody, keeps what adapters read, and says the same thing by the same stand-in."""

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.clouds.pseudonyms import Pseudonyms

ACCOUNT, PROJECT_NUMBER, SUB = "644160558196", "10955781597205896134", "ea42f556-5106-4743-99b0-c129bfa71a47"
PRIVATE = (ACCOUNT, PROJECT_NUMBER, SUB, "10.20.30.40", "52.1.2.3", "zora@falcon.test", "falcon-train-7", "Falcon")
# Where a name may stand, in the words of the five clouds.
PLACES = (
    lambda it: {"name": it},
    lambda it: {"InstanceName": it, "Tags": [{"TagKey": it, "TagValue": it}]},
    lambda it: {"tags": {it: it}},
    lambda it: {"labels": {"team": it}},
    lambda it: {"Tags": {"Tag": [{"Key": "Name", "Value": it}]}},
    lambda it: {"id": f"/subscriptions/{SUB}/resourceGroups/{it}/providers/Microsoft.Compute/virtualMachines/{it}"},
    lambda it: {"selfLink": f"https://www.googleapis.com/compute/v1/projects/{it}/zones/us-east1-b/instances/{it}"},
    lambda it: {"IamInstanceProfile": {"Arn": f"arn:aws:iam::{ACCOUNT}:instance-profile/{it}"}},
    lambda it: {"name": it, "error": {"code": "Conflict", "message": f"The machine '{it}' is busy."}},
    lambda it: {"error": {"code": "Conflict", "message": f"The resource 'projects/{it}/zones/us-east1-b' is busy."}},
    lambda it: {"anythingNew": {"deep": [[{"unheard": it}]]}},
    lambda it: {"text": json.dumps({"name": it})},
)


def replaced(value: object) -> Any:  # noqa: ANN401  JSON
    """An answer as it is written down; read twice, as a recording is."""
    names = Pseudonyms(b"salt")
    names.body(json.dumps(value))
    return json.loads(names.body(json.dumps(value)))


@pytest.mark.parametrize("private", PRIVATE)
@pytest.mark.parametrize("place", range(len(PLACES)))
def test_what_names_somebody_is_nowhere(place: int, private: str) -> None:
    """Not in a name, a tag, a path, a sentence, nor in a member that nobody has heard of."""
    written = json.dumps(replaced(PLACES[place](private)))

    for part in {private, *re.split("[@.-]", private)} - {"10", "20", "30", "40", "52", "1", "2", "3", "7"}:
        assert part.lower() not in written.lower()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("InstanceType", "p5.48xlarge"),
        ("vmSize", "Standard_ND96isr_H100_v5"),
        ("InstanceType", "ecs.gn7i-c8g1.2xlarge"),
        ("InstanceType", "GN10Xp.2XLARGE40"),
        ("machineType", "https://www.googleapis.com/compute/v1/projects/p/zones/us-east1-b/machineTypes/a3-highgpu-8g"),
        ("location", "southcentralus"),
        ("Zone", "ap-guangzhou-6"),
        ("State", "running"),
        ("InstanceState", "SHUTDOWN"),
        ("code", "PowerState/deallocated"),
        ("Code", "InvalidAMIID.Unavailable"),
        ("Code", "OperationDenied.NoStock"),
        ("type", "Microsoft.Compute/virtualMachines"),
        ("StateTransitionReason", "User initiated (2025-07-01 10:00:00 GMT)"),
        ("LaunchTime", "2026-01-05T09:00:00.000Z"),
        ("lastStartTimestamp", "2026-01-05T01:00:00.123-08:00"),
        ("kind", "compute#instance"),
        ("Key", "aws:autoscaling:groupName"),
        ("Key", "eks:cluster-name"),
        ("key", "gpuwatch:fleet"),
        ("TagKey", "acs:autoscaling:scalingGroupId"),
        ("Key", "aws:elasticmapreduce:job-flow-id"),
        ("metric", "NVIDIA_A100_80GB_GPUS"),
        ("family", "StandardNCADSA100v4Family"),
        ("value", "StandardNCADSA100v4Family"),
        ("name", "MaxResourceVolumeMB"),
        ("sku", "Premium_LRS"),
        ("message", "NO_RESULTS_ON_PAGE"),
        ("message", "Quota exceeded for resource in region"),
    ],
)
def test_what_adapters_read_stays(name: str, text: str) -> None:
    """Types, places, states, codes, times, and the markers of machines that another service manages."""
    project = "/projects/p/"
    assert replaced({name: text})[name].replace(project, "") == text.replace(project, "") or project in text
    if project in text:
        assert replaced({name: text})[name].endswith("/zones/us-east1-b/machineTypes/a3-highgpu-8g")


@pytest.mark.parametrize(
    "name",
    [
        "UserData",
        "customData",
        "adminPassword",
        "SecretAccessKey",
        "SessionToken",
        "keyData",
        "startup-script",
        "sshKeys",
    ],
)
def test_keys_and_scripts_are_not_written_at_all(name: str) -> None:
    """They are not even replaced word by word."""
    assert replaced({name: "AAAA secret"}) == {name: "removed"}


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
_ANSWERS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | _TEXTS,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(_TEXTS, each, max_size=3),
    max_leaves=8,
)


def shape(value: object) -> object:
    """What an answer is made of, without its words."""
    if isinstance(value, dict):
        return [shape(each) for each in value.values()]
    return [shape(each) for each in value] if isinstance(value, list) else type(value)


@given(_ANSWERS)
@example({"tags": {"a": "1", "b": "1"}})
@example({"AppId": 1251234567})
def test_any_answer_keeps_its_shape(value: object) -> None:
    """The same members in the same order, and values of the same kinds."""
    if isinstance(value, dict | list):
        assert shape(replaced(value)) == shape(value)


@given(st.sampled_from(PRIVATE), st.sampled_from(PLACES), st.sampled_from(PLACES))
def test_the_same_name_has_the_same_stand_in(private: str, one: Any, other: Any) -> None:  # noqa: ANN401  functions
    """Whatever it stands in, so that what belongs together still does."""
    names = Pseudonyms(b"salt")
    body = json.dumps([one(private), other(private)])
    names.body(body)
    stand_in = names.text(private)
    written = json.loads(names.body(body))

    assert all(stand_in.lower() in json.dumps(each).lower() for each in written)


def test_another_recording_has_other_stand_ins() -> None:
    """Two recordings cannot be laid side by side."""
    assert Pseudonyms(b"one").text("falcon") != Pseudonyms(b"two").text("falcon")


def test_xml_is_replaced_where_its_texts_are() -> None:
    """The elements stay as they were."""
    told = "<a xmlns='u'><ownerId>644160558196</ownerId><name>running</name><value>Tom &amp; Eve</value><none/></a>"
    found = Pseudonyms(b"salt").body(told)

    assert "644160558196" not in found
    assert "Tom" not in found
    assert "<name>running</name>" in found
    assert re.sub(">[^<]*<", "><", found) == re.sub(">[^<]*<", "><", told)


def test_a_link_in_an_answer_leads_to_where_the_recorded_request_went() -> None:
    """It is replaced as the URL of the next request is, its parameters too."""
    url = f"https://management.azure.com:443/subscriptions/{SUB}/resourceGroups/falcon/providers/Microsoft.Compute/skus"
    url += "?api-version=2024-07-01&%24filter=location%20eq%20%27eastus%27&%24skiptoken=abc!def"
    names = Pseudonyms(b"salt")
    found = json.loads(names.body(json.dumps({"nextLink": url})))["nextLink"]

    assert found == names.url(url)
    assert "falcon" not in found


def test_a_page_link_leads_to_the_same_server() -> None:
    """Its host and port stay, with the parameters' names."""
    url = f"https://management.azure.com:443/subscriptions/{SUB}/x?api-version=2024-07-01&$skiptoken=abc!def"
    found = Pseudonyms(b"salt").url(url)

    assert found.startswith("https://management.azure.com:443/subscriptions/")
    assert "skiptoken=" in found
    assert "abc" not in found

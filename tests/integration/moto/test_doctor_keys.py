"""The doctor and AWS: how old our own access keys are, and whether the keys of volumes are rotated."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from gpuwatch.cli.doctor import keys
from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.cli.doctor.report import Finding
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.doctor_findings import a_controller, codes, the
from tests.support.fakes.cloud_worlds import FLEET, MINE
from tests.support.fakes.moto_faults import REGION, MotoFaults

LATER = SystemClock().now() + timedelta(days=100, hours=1)  # moto makes keys by the real clock
ROLE = AccountSettings(role_arn="arn:aws:iam::111111111111:role/gpuwatch-controller")


@pytest.fixture
def ec2() -> Iterator[MotoFaults]:
    """An account."""
    with MotoFaults(ManualClock()) as made:
        yield made


def a_user(ec2: MotoFaults, count: int = 1) -> list[Any]:
    """A user of IAM with so many keys."""
    iam: Any = ec2.session.client("iam", region_name=REGION)
    iam.create_user(UserName="gpuwatch")
    return [iam.create_access_key(UserName="gpuwatch")["AccessKey"] for _ in range(count)]


def a_session(key: Any) -> boto3.Session:  # noqa: ANN401  of moto
    """With that key alone."""
    return boto3.Session(
        aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"], region_name=REGION
    )


def a_case(session: boto3.Session, now: datetime = LATER, **options: Any) -> ControllerCase:  # noqa: ANN401  likewise
    """A controller that asks with that session."""
    clock = ManualClock(wall=now)
    cloud = AwsCloud(fleet=FLEET, clock=clock, regions=[REGION], session=session, **options)
    return a_controller(cloud, clock, {"cloud": CloudSettings(regions=(REGION,))})


def by_key(findings: list[Finding]) -> dict[str, Finding]:
    """Each by the id of its key."""
    return {each.looked_at.split()[2]: each for each in findings}


def test_a_key_of_our_own_that_is_old_is_told_with_the_users_others(ec2: MotoFaults) -> None:
    """Each with its age, whether gpuwatch uses it, and when it was used last."""
    own, other = a_user(ec2, 2)

    found = list(keys.access_keys(a_case(a_session(own))))

    assert codes(found) == ["keys.old", "keys.old"]
    told = by_key(found)
    assert set(told) == {own["AccessKeyId"], other["AccessKeyId"]}
    assert "user/gpuwatch" in told[own["AccessKeyId"]].looked_at
    assert "100 days old; gpuwatch uses it; " in told[own["AccessKeyId"]].seen
    assert told[other["AccessKeyId"]].seen.endswith("gpuwatch does not use it; never used")


def test_a_key_that_is_switched_off_is_no_risk(ec2: MotoFaults) -> None:
    """Inactive keys open nothing."""
    own, other = a_user(ec2, 2)
    iam: Any = ec2.session.client("iam", region_name=REGION)
    iam.update_access_key(UserName="gpuwatch", AccessKeyId=other["AccessKeyId"], Status="Inactive")

    assert set(by_key(list(keys.access_keys(a_case(a_session(own)))))) == {own["AccessKeyId"]}


def test_a_young_key_is_fine(ec2: MotoFaults) -> None:
    """Up to cloud.max_key_age."""
    (key,) = a_user(ec2)

    assert codes(keys.access_keys(a_case(a_session(key), LATER - timedelta(days=20)))) == []


def test_a_key_that_enters_other_accounts_is_looked_at(ec2: MotoFaults) -> None:
    """Their roles end within the hour; what assumes them does not."""
    (key,) = a_user(ec2)

    found = the(keys.access_keys(a_case(a_session(key), accounts={"other": ROLE})), "keys.old")

    assert key["AccessKeyId"] in found.looked_at


def test_keys_that_end_by_themselves_are_no_long_lived_keys(ec2: MotoFaults) -> None:
    """A role's: IAM is not asked."""
    sts: Any = ec2.session.client("sts", region_name=REGION)
    role = sts.assume_role(RoleArn=ROLE.role_arn, RoleSessionName="gpuwatch")["Credentials"]
    session = boto3.Session(
        aws_access_key_id=role["AccessKeyId"],
        aws_secret_access_key=role["SecretAccessKey"],
        aws_session_token=role["SessionToken"],
        region_name=REGION,
    )
    (found,) = keys.access_keys(a_case(session))

    assert found.code == "keys"
    assert found.seen.startswith("no long-lived key: arn:aws:sts::")
    assert {call.action for call in ec2.calls} & {"ListAccessKeys", "GetAccessKeyLastUsed"} == set()


@pytest.mark.parametrize(
    ("source", "expected"),
    [("base", ["keys.old"]), ("of-base", ["keys.unknown"])],
    ids=["another profile's key", "its own key"],
)
def test_a_profile_that_assumes_a_role_is_as_old_as_the_key_behind_it(
    ec2: MotoFaults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, expected: list[str]
) -> None:
    """A key is followed through profiles; where it cannot be, that is said."""
    (key,) = a_user(ec2)
    lines = [f"aws_access_key_id={key['AccessKeyId']}", f"aws_secret_access_key={key['SecretAccessKey']}"]
    text = ["[profile base]", *lines, "[profile of-base]", f"role_arn={ROLE.role_arn}", f"source_profile={source}"]
    (tmp_path / "config").write_text("\n".join([*text, *(lines if source == "of-base" else [])]))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    found = list(keys.access_keys(a_case(boto3.Session(profile_name="of-base", region_name=REGION))))

    assert codes(found) == expected


def test_a_right_that_is_missing_is_named_and_never_fine(ec2: MotoFaults) -> None:
    """Our own key's age is then not known."""
    (key,) = a_user(ec2)
    case = a_case(a_session(key))
    ec2.refuse("ListAccessKeys", "AccessDenied", status=403)

    (found,) = keys.access_keys(case)

    assert found.code == "keys.unknown"
    assert found.seen.endswith("user/gpuwatch: iam:ListAccessKeys is not allowed")


def test_without_the_right_to_ask_for_the_last_use_the_age_is_told(ec2: MotoFaults) -> None:
    """The one does not hide the other."""
    (key,) = a_user(ec2)
    case = a_case(a_session(key))
    ec2.refuse("GetAccessKeyLastUsed", "AccessDenied", status=403)

    assert the(keys.access_keys(case), "keys.old").seen.endswith("last use not known")


@pytest.mark.parametrize("failing", ["GetCallerIdentity", "ListAccessKeys"])
def test_no_answer_is_not_known(ec2: MotoFaults, failing: str) -> None:
    """A gateway's page in place of an answer."""
    (key,) = a_user(ec2)
    case = a_case(a_session(key))
    ec2.garble(failing, times=9)

    assert codes(keys.access_keys(case)) == ["keys.unknown"]


def encrypted(ec2: MotoFaults, *, rotated: bool) -> str:
    """A machine has a volume with a key of KMS; gives the key's ARN."""
    kms: Any = ec2.session.client("kms", region_name=REGION)
    arn: str = kms.create_key()["KeyMetadata"]["Arn"]
    if rotated:
        kms.enable_key_rotation(KeyId=arn, RotationPeriodInDays=180)
    node_id = ec2.launch(MINE)
    options: Any = {"Size": 10, "AvailabilityZone": f"{REGION}a", "Encrypted": True, "KmsKeyId": arn}
    volume = ec2.client.create_volume(**options)["VolumeId"]
    ec2.client.attach_volume(VolumeId=volume, InstanceId=node_id, Device="/dev/sdf")
    return arn


@pytest.mark.parametrize(("rotated", "expected"), [(True, []), (False, ["keys.unrotated"])])
def test_a_key_of_volumes_that_is_not_rotated_is_named(ec2: MotoFaults, rotated: bool, expected: list[str]) -> None:
    """By KMS's word; a key that no GPU machine's volume has is nobody's of ours."""
    kms: Any = ec2.session.client("kms", region_name=REGION)
    kms.create_key()
    arn = encrypted(ec2, rotated=rotated)

    (found,) = keys.disk_keys(a_case(ec2.session))

    assert codes([found]) == expected
    assert found.looked_at == f"rotation of the key {arn}"
    assert found.seen == ("it is rotated" if rotated else "it is not rotated")


def test_the_time_of_the_next_rotation_is_told(ec2: MotoFaults) -> None:
    """As KMS answers, and moto does not."""
    encrypted(ec2, rotated=True)
    case = a_case(ec2.session)
    _ = case.nodes
    told = {"KeyRotationEnabled": True, "RotationPeriodInDays": 180, "NextRotationDate": 1_800_000_000}
    ec2.garble("GetKeyRotationStatus", page=json.dumps(told))

    assert [each.seen for each in keys.disk_keys(case)] == ["rotated every 180 days, next on 2027-01-15"]


def test_a_rotation_that_we_may_not_ask_for_is_not_known(ec2: MotoFaults) -> None:
    """The key's own policy may refuse us, too."""
    encrypted(ec2, rotated=True)
    case = a_case(ec2.session)
    _ = case.nodes
    ec2.refuse("GetKeyRotationStatus", "AccessDeniedException", status=400)

    (found,) = keys.disk_keys(case)

    assert (found.code, found.seen) == ("keys.rotation_unknown", "kms:GetKeyRotationStatus is not allowed")


def test_machines_without_encrypted_volumes_have_no_keys(ec2: MotoFaults) -> None:
    """The check of volumes tells that they are open."""
    ec2.launch(MINE)

    assert list(keys.disk_keys(a_case(ec2.session))) == []

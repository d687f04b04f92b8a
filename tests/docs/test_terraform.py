"""deploy/terraform/aws: what the module makes, held to the repository's policies, and read by terraform where it is."""

import json
import re
import shutil
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuwatch.config import load
from tests.support.paths import ROOT

MODULE = ROOT / "deploy/terraform/aws"
FILES = {path.name: path.read_text(encoding="utf-8") for path in sorted(MODULE.glob("*.tf"))}
TERRAFORM = shutil.which("terraform")
with_terraform = pytest.mark.skipif(
    TERRAFORM is None, reason="terraform is not installed here, and Debian has no package"
)
PACKAGES = [
    {"url": f"https://packages.example.com/{name}_1_amd64.deb", "sha256": f"{number}" * 64}
    for number, name in enumerate(("gpuwatch", "gpuwatch-controller"))
]


def blocks(kind: str) -> dict[str, str]:
    """Each variable or output of the module with its text."""
    text = "\n".join(FILES.values())
    return dict(re.findall(rf'^{kind} "(\w+)" {{\n(.*?)^}}', text, re.MULTILINE | re.DOTALL))


def test_every_variable_and_output_is_described() -> None:
    """A type for each variable, a sentence for everything."""
    for name, text in (blocks("variable") | blocks("output")).items():
        assert re.search(r'description = ".+\."$', text, re.MULTILINE), name
    assert [name for name, text in blocks("variable").items() if "type " not in text] == []


def test_every_variable_is_used() -> None:
    """By something else than its own validation."""
    code = "\n".join(text for name, text in FILES.items() if name != "variables.tf")

    assert [name for name in blocks("variable") if f"var.{name}" not in code] == []


def test_the_permissions_are_the_policies_of_the_repository() -> None:
    """Each name that may be asked for has its file, and each file can be asked for."""
    named = set(
        re.findall(r'\["([^\]]*)"\]', "".join(blocks("variable")[name] for name in ("permissions", "more_permissions")))
    )
    offered = {name for group in named for name in group.split('", "')}

    assert offered == {path.stem for path in (ROOT / "iam").glob("*.json")}


def test_nothing_comes_in_and_the_metadata_service_wants_a_token() -> None:
    """No ingress, no public address, no key pair; an encrypted disk."""
    text = FILES["instance.tf"]

    assert "ingress" not in "".join(FILES.values())
    assert "key_name" not in text
    for line in ('http_tokens +          = "required"', "encrypted +  = true", "associate_public_ip_address = false"):
        assert re.search(line.replace(" + ", " +"), text), line


@with_terraform
def test_terraform_would_not_write_it_otherwise() -> None:
    """`terraform fmt` changes nothing."""
    done = subprocess.run(
        [str(TERRAFORM), "fmt", "-check", "-diff", "-recursive", MODULE], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout


def planned(folder: Path, variables: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """What terraform makes of the module's variables, policies and user data, without a provider."""
    folder.mkdir(exist_ok=True)
    shutil.copy(MODULE / "variables.tf", folder)
    shutil.copy(MODULE / "user_data.sh.tftpl", folder)
    own = "".join(re.findall(r"^locals {\n.*?^}\n", FILES["iam.tf"] + FILES["instance.tf"], re.MULTILINE | re.DOTALL))
    own = own.replace("data.aws_partition.current.partition", '"aws-cn"')
    outputs = "".join(f'output "{name}" {{ value = local.{name} }}\n' for name in ("documents", "user_data"))
    (folder / "main.tf").write_text(own + outputs, encoding="utf-8")
    (folder / "terraform.tfvars.json").write_text(json.dumps(variables), encoding="utf-8")
    for step in (("init", "-input=false"), ("apply", "-auto-approve", "-input=false")):
        done = subprocess.run(
            [str(TERRAFORM), f"-chdir={folder}", *step, "-no-color"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return done
    return subprocess.run(
        [str(TERRAFORM), f"-chdir={folder}", "output", "-json"], capture_output=True, text=True, check=True
    )


@with_terraform
def test_the_policies_hold_for_the_fleet_that_is_named(tmp_path: Path) -> None:
    """In every condition; the rest is the repository's file."""
    given = {"fleet": "research", "permissions": "scale", "more_permissions": ["shield"], "policies": str(ROOT / "iam")}
    made = json.loads(planned(tmp_path, given | {"regions": ["eu-central-1"]}).stdout)["documents"]["value"]

    assert set(made) == {"scale", "shield"}
    for name, text in made.items():
        file = (ROOT / f"iam/{name}.json").read_text(encoding="utf-8")
        expected = file.replace('fleet": "default"', 'fleet": "research"').replace("arn:aws:", "arn:aws-cn:")
        assert text == expected
        assert '"default"' not in text
        json.loads(text)


@with_terraform
def test_the_instance_gets_a_configuration_that_loads(tmp_path: Path) -> None:
    """And a script that bash reads, in which each package is checked against its sum before it is installed."""
    given = {"fleet": "research", "regions": ["eu-central-1"], "package_urls": PACKAGES, "policies": str(ROOT / "iam")}
    script = json.loads(planned(tmp_path / "module", given).stdout)["user_data"]["value"]
    (block,) = re.findall(r"<<'CONFIGURATION'\n(.+)\nCONFIGURATION\n", script)
    file = tmp_path / "gpuwatch.yaml"
    file.write_bytes(b64decode(block))

    assert load(file, {}).fleet == "research"
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["cloud"]["regions"] == ["eu-central-1"]
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False).stderr == ""
    assert script.index("sha256sum --check") < script.index("./0.deb ./1.deb") < script.index("systemctl enable --now")


@with_terraform
@pytest.mark.parametrize(
    ("spoiled", "named"),
    [
        ({"fleet": "two words"}, "fleet takes"),
        ({"permissions": "everything"}, "permissions is observe"),
        ({"package_urls": [{"url": "http://x/a.deb", "sha256": "0" * 64}]}, "begins with https"),
        ({"package_urls": [{"url": "https://x/a.deb", "sha256": "0"}]}, "64 hexadecimal"),
        ({"tags": {"gpuwatch:fleet": "research"}}, "for the machines of a fleet"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_expected(spoiled: dict[str, Any], named: str, tmp_path: Path) -> None:
    """Before anything is made."""
    done = planned(
        tmp_path, {"fleet": "research", "policies": str(ROOT / "iam"), "regions": ["eu-central-1"]} | spoiled
    )

    assert done.returncode == 1
    assert named in " ".join(done.stderr.replace("│", " ").split())

"""`gpuwatch export join`: what lets hosts join at their first start, or from where many are looked after.

The token is in no command line: it comes from a file, from standard input, or from a store that the host itself asks.
"""

import json
import re
import shlex
from pathlib import Path

import click

from gpuwatch.cli.base import print_text
from gpuwatch.cli.export import export, folder_argument, force_option
from gpuwatch.cli.shipped import write

_PARAMETER = re.compile(r"/?[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
_SHELL = """#!/bin/sh
# User data of EC2. The machine's role may read the parameter, which holds the token:
#   gpuwatch join token --hosts 40 --for 7d > token
#   aws ssm put-parameter --type SecureString --name {parameter} --value file://token
# Install gpuwatch above these lines, or have it in the image.
set -eu
aws ssm get-parameter --with-decryption --name {parameter} --query Parameter.Value --output text |
  gpuwatch agent join {controller} --token-file - --wait 10m
systemctl enable gpuwatch-agent
systemctl restart gpuwatch-agent
"""
_CLOUD_INIT = """#cloud-config
# For clouds without a store for secrets. Put the token in place of TOKEN. A reader of this user data has it, also
# every program on the machine: give it few hosts and a short time, and revoke it when they have joined.
# Install gpuwatch by `packages` or before this `runcmd`, or have it in the image.
write_files:
  - path: /run/gpuwatch-join/token
    permissions: "0600"
    content: TOKEN
runcmd:
  - [gpuwatch, agent, join, {quoted}, --token-file, /run/gpuwatch-join/token, --wait, 10m]
  - [rm, -r, /run/gpuwatch-join]
  - [systemctl, enable, gpuwatch-agent]
  - [systemctl, restart, gpuwatch-agent]
"""
_ANSIBLE = """# ansible-playbook -i hosts ansible.yml; gpuwatch is installed on the hosts.
# The token is a secret variable, for example of a vault, and reaches each host on standard input alone.
- hosts: gpu
  become: true
  tasks:
    - name: Join the controller
      ansible.builtin.command:
        argv: [gpuwatch, agent, join, {quoted}, --token-file, "-"]
        stdin: "{{{{ gpuwatch_join_token }}}}"
        creates: /var/lib/gpuwatch-agent/join/agent.pem
      no_log: true
      notify: Restart the agent
    - name: Start the agent at boot
      ansible.builtin.systemd_service: {{name: gpuwatch-agent, enabled: true, state: started}}
  handlers:
    - name: Restart the agent
      ansible.builtin.systemd_service: {{name: gpuwatch-agent, state: restarted}}
"""


@export.command(name="join")
@folder_argument
@click.argument("controller", metavar="CONTROLLER")
@click.option(
    "--parameter",
    metavar="NAME",
    default="/gpuwatch/join-token",
    show_default=True,
    help="The parameter of AWS Systems Manager that holds the token, for user data and SSM.",
)
@force_option
def export_join(*, folder: Path, controller: str, parameter: str, force: bool) -> None:
    """Write user data, a cloud-init file, an Ansible playbook and an SSM document that let hosts join CONTROLLER."""
    from gpuwatch.runtime import joined

    try:
        url = joined.controller_url(controller)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="CONTROLLER") from error
    if not re.fullmatch(r"[A-Za-z0-9.:\[\]/-]+", url):
        raise click.BadParameter(f"{url!r} is no address or name of a machine", param_hint="CONTROLLER")
    if not _PARAMETER.fullmatch(parameter):
        raise click.BadParameter(f"{parameter!r} is no name of a parameter", param_hint="--parameter")
    words = {"controller": shlex.quote(url), "quoted": json.dumps(url), "parameter": shlex.quote(parameter)}
    script = _SHELL.format(**words)
    files = {
        "user-data.sh": script,
        "cloud-init.yaml": _CLOUD_INIT.format(**words),
        "ansible.yml": _ANSIBLE.format(**words),
        "ssm.json": ssm_document(script),
    }
    write(folder, files, force)
    print_text(
        "They hold no token. `gpuwatch join token` makes one; docs/join.md#at-the-first-start-of-a-machine says "
        "where each form takes it from."
    )


def ssm_document(script: str) -> str:
    """The document for SSM's Run Command, which runs the script of the user data."""
    step = {
        "action": "aws:runShellScript",
        "name": "join",
        "precondition": {"StringEquals": ["platformType", "Linux"]},
        "inputs": {"timeoutSeconds": "900", "runCommand": script.splitlines()[1:]},
    }
    document = {
        "schemaVersion": "2.2",
        "description": "Let this host join its gpuwatch controller",
        "mainSteps": [step],
    }
    return json.dumps(document, indent=2) + "\n"

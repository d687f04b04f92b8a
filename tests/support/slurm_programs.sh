#!/bin/sh
# Unpacks Slurm's daemons and commands from Debian's packages, for the tests alone. They are not installed: with
# squeue in PATH each agent that a test starts would ask a Slurm that is not there.
set -u
folder="${XDG_CACHE_HOME:-$HOME/.cache}/gpuwatch-tests/slurm"
[ -x "$folder/usr/sbin/slurmctld-wlm" ] && [ -x "$folder/usr/sbin/slurmd-wlm" ] && exit 0
command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || exit 1
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 1
packages="slurmctld slurmd slurm-client slurm-wlm-basic-plugins libhwloc15"
# shellcheck disable=SC2086  a list of package names
apt-get download -qq $packages >/dev/null 2>&1 || {
    [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get download -qq $packages >/dev/null 2>&1
} || exit 1
for package in ./*.deb; do
    dpkg-deb -x "$package" "$here/slurm" || exit 1
done
mkdir -p "$(dirname "$folder")" && rm -rf "$folder" && mv "$here/slurm" "$folder"

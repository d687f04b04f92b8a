#!/bin/sh
# Installs the real components that the tests run, where it may (root, or sudo without a password, on Debian's apt);
# what is missing afterwards is named, and its tests are skipped with that reason (with CI=true they fail).
set -u

missing() {
    {
    for pair in cc:gcc chromium:chromium prometheus:prometheus promtool:prometheus victoria-metrics:victoria-metrics \
        prometheus-alertmanager:prometheus-alertmanager amtool:prometheus-alertmanager \
        systemd-analyze:systemd systemd-nspawn:systemd-container dbus-daemon:dbus at:at crontab:cron \
        ssh:openssh-client tmux:tmux screen:screen curl:curl ip:iproute2 ipmitool:ipmitool ipmi_sim:openipmi; do
        command -v "${pair%%:*}" >/dev/null 2>&1 || echo "${pair##*:}"
    done
    [ -x /usr/sbin/sshd ] || echo openssh-server  # not in every user's PATH
    # Debian keeps the server's programs out of PATH.
    command -v pg_ctl >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/pg_ctl >/dev/null 2>&1 || echo postgresql
    ls /usr/lib/*/security/pam_systemd.so >/dev/null 2>&1 || echo libpam-systemd  # says who is logged in
    } | sort -u | tr '\n' ' '
}

from_debian() {
    wanted=$(missing)
    [ -n "$wanted" ] || return 0
    if [ "$(id -u)" = 0 ]; then as=""; elif sudo -n true 2>/dev/null; then as="sudo"; else as="no"; fi
    if [ "$as" = no ] || ! command -v apt-get >/dev/null 2>&1; then
        echo "Missing components: $wanted(install them, or let root or sudo with apt do it); their tests are skipped."
        return 0
    fi
    echo "Installing what the tests run for real (once, some minutes): $wanted"
    echo "  reading apt's lists"
    # A machine that has just begun installs updates by itself: its lock is waited for.
    patient="-o DPkg::Lock::Timeout=300"
    begun=$(date +%s)
    # That wait is for dpkg's lock alone: where somebody else reads the lists, apt-get update gives up at once.
    # shellcheck disable=SC2086  two words
    until said=$($as env LC_ALL=C apt-get $patient update -qq 2>&1); do
        case $said in
            *"Could not get lock"*) [ $(($(date +%s) - begun)) -lt 300 ] && sleep 2 && continue ;;
        esac
        printf '%s\n' "$said"
        break
    done
    # RUNLEVEL=1 keeps the packages' services from being started: the tests start their own.
    # shellcheck disable=SC2086  a list of package names
    $as env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get $patient install -qq --no-install-recommends $wanted libc6-dev \
        | sed -un 's/^Setting up \([^ ]*\).*/  \1/p'
    # Nor may a machine that had no sshd before have one after its next start.
    case " $wanted" in *" openssh-server "*) $as systemctl disable --quiet ssh.service ssh.socket >/dev/null 2>&1 ;; esac
    wanted=$(missing)
    [ -z "$wanted" ] || echo "Could not install: $wanted; their tests are skipped."
}

slurm() {
    sh "$(dirname "$0")/slurm_programs.sh" || echo "Could not unpack Slurm from Debian's packages; its tests are skipped."
}

# Downloads and unpacking, while Go computes. Slurm's controller is unpacked beside the system, by the lists of apt that
# have been waited for.
{ from_debian; slurm; } &
# What no Debian package has, and Go builds: etcd and kube-apiserver. It names what it cannot build.
"${PYTHON:-python3}" "$(dirname "$0")/kubernetes_programs.py" || true
wait

"""DATA: the names that packages, the pool, who asks and days do not replace. docs/idle-detection.md shows it.

Patterns are those of fnmatch, on a program's name without a path, or on a unit's. A name stands here only if one of
these holds, and the comment above each group begins with the word for it:

- Protects: without it somebody's work could pass for the machine's own.
- By hand: an installer, an image, an archive brings it, or a vendor's package that could as well be a company's.
- For nobody: its package's unit would count by what it does (`PACKAGED`: much work, an open port), and this one works
  for nobody.
- Unseen: it runs where no database of packages speaks: in a container, in a unit with people's programs beside it, and
  where the agent itself is in a container.
- In logins: it runs in people's sessions, where packages bring people's work, too.
- Again: patterns of other groups, for another question.

What no rule names is somebody's work. An administrator adds by `agent.workloads` and
`agent.services`, which come first.
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Units that the distribution makes. Its packages and timers tell of a hundred others. An administrator may call a unit
# so, too: then its program decides.
SYSTEM_UNITS: tuple[str, ...] = (
    # For nobody: they work much at times and have no timer, or install software: that is doubt, also for an agent in a
    # container.
    *_words("systemd* rsyslog* auditd* snapd* unattended-upgrades* apt-daily* dnf-*"),
    # For nobody: they listen, and other machines may ask them for nothing that anybody would miss.
    *_words("rpcbind* rpc-* snmpd* pmproxy* postfix* libvirtd*"),
    # Unseen: the bus makes units without a file of a package, pmcd runs scripts below /var, and what SSSD starts is
    # closed to an agent in a container.
    *_words("dbus* pmcd* sssd*"),
)
# Units whose programs have names that say nothing, from packages of vendors: a company's own looks the same.
VENDOR_UNITS: tuple[str, ...] = (
    # By hand: many plug-ins and scripts.
    *_words("netdata* nvsm* newrelic* zabbix-agent* azure_persistent_rdma_naming*"),
    # By hand: each has programs of its own.
    *_words("cmk-agent* metrics-extension.service netbird* twingate* nvidia-gridd*"),
    # By hand: timers and sockets, so nothing runs by which they would be known.
    *_words("google-os* nvidia-cdi* docker.socket"),
)
# By hand: GPU monitoring comes as archives and scripts, so whatever runs in them and wherever it lies.
GPU_MONITORING_UNITS: tuple[str, ...] = _words("gpuwatch* *gpu[-_]exporter*")
# By hand: Prometheus exporters of any name; not one that an interpreter runs, which may export models or data instead.
EXPORTER_UNITS: tuple[str, ...] = _words("*[-_]exporter[.@]*")
# Protects: batch systems. Their daemons are the machine's own, and so is what root runs for them; all else there is a
# job.
JOB_UNITS: tuple[str, ...] = _words("slurmd* condor* pbs*")

# Programs that are the machine's own: outside of users' sessions where root or a system user runs them, and within
# containers whoever runs them there.
SERVICE_PROGRAMS: tuple[str, ...] = (
    # Unseen: the system itself, within units with people's programs, and for an agent in a container.
    *_words("systemd* init (sd-pam) dbus* agetty login chronyd cron crond atd anacron* run-parts"),
    # Unseen: what starts people's containers, logins and jobs beside it.
    *_words("containerd* dockerd docker-proxy crio* cri-docker* conmon* runc crun kubelet* k3s* rke2* pause"),
    *_words("sshd* dropbear* tailscaled* teleport xrdp*"),
    *_words("supervisord incron* fcron* salt-minion* condor_master condor_startd condor_shared_p*"),
    # By hand: of clouds. They run what people ask them to run.
    *_words("*amazon-ssm-age* ssm-agent-worke* ssm-document-wo* google_guest_a* google_osconfig*"),
    *_words("waagent* WALinuxAgent*"),
    # By hand: NVIDIA's drivers and checks, from its packages, its .run or a container.
    *_words("nv-hostengine nv-fabricmanage* nvidia-persiste* nvidia-imex nvidia-cuda-mps*"),
    *_words("nvvs dcgm* nvsm* node-problem-det*"),
    # By hand: monitoring, from archives and images, and in namespaces of anybody's.
    *_words("gpuwatch* node_exporter prometheus-node* cadvisor fluent-bit fluentd vector filebeat"),
    *_words("promtail alloy otelcol* telegraf netdata osqueryd kube-state-metr*"),
)

# Unseen: namespaces of Kubernetes, which reserves `kube-`, of clouds and of vendors, in which a cluster has its own
# pods.
CLUSTER_NAMESPACES: tuple[str, ...] = _words("""
    kube-* calico-system tigera-operator gmp-system gke-managed-* amazon-cloudwatch amazon-guardduty *gpu-operator
    nvidia-network-operator nvidia-device-plugin node-feature-discovery datadog dynatrace
""")
# Protects: of these programs, what makes a container a machine or a scheduler of somebody's.
GUEST_NAMES: tuple[str, ...] = _words("""
    systemd* cron crond anacron* atd fcron* incron* supervisord sshd* dropbear* dockerd containerd* xrdp* teleport
    tailscaled*
""")
# Protects: and names that people give their programs, too; in a container without a pod they tell nothing.
ANYBODYS_NAMES: tuple[str, ...] = (*GUEST_NAMES, "init", "login")
# Protects: words of the language, here and below. Of a program outside of the system's folders they tell nothing.
EVERYDAY_NAMES: tuple[str, ...] = _words("""
    screen watch top less tail vector alloy init login pause telegraf fluentd su X localsearch-3
""")

# Where only agents of clouds and vendors have their programs: monitoring, security, inventory. What one of them runs
# for somebody lies elsewhere (aliyun-assist/work, waagent/custom-script).
AGENT_FILES: tuple[str, ...] = (
    # By hand: of clouds, by their images and installers.
    *_words("/usr/local/qcloud/* /usr/local/aegis/aegis_* /usr/local/aegis/PythonLoader/* /usr/local/cloudmonitor/*"),
    *_words("/usr/local/ilogtail/* /usr/local/share/aliyun-assist/[0-9]* /usr/local/share/assist-daemon/*"),
    *_words("/usr/lib/google/guest_agent/* /opt/google-cloud-ops-agent/* /home/kubernetes/bin/health-monitor.sh"),
    *_words("/home/kubernetes/bin/*gcfs* /opt/aws/amazon-cloudwatch-agent/* /opt/aws/bin/cfn-hup"),
    *_words("/opt/parallelcluster/pyenv/* /usr/libexec/oracle-cloud-agent/*"),
    *_words("/var/lib/oracle-cloud-agent/plugins/* /opt/unified-monitoring-agent/* /opt/microsoft/mdatp/*"),
    *_words("/opt/microsoft/azuremonitoragent/* /opt/omi/bin/* /opt/azcmagent/* /opt/GC_*/GC/*"),
    *_words("/var/lib/waagent/Microsoft.Azure.Monitor* /var/lib/waagent/Microsoft.Azure.Security*"),
    "/var/lib/waagent/Microsoft.GuestConfiguration*",
    # By hand: of vendors. A company with fewer than ten machines, whose pool says nothing, has them, too.
    *_words("/opt/dynatrace/* /opt/instana/* /opt/appdynamics/* /var/db/newrelic-infra/*"),
    *_words("/opt/datadog-agent/* /opt/datadog-packages/* /opt/splunkforwarder/* /usr/lib/splunk-otel-collector/*"),
    *_words("/opt/site24x7/* /opt/spm/spm-monitor/* /usr/local/logicmonitor/* /opt/Elastic/Agent/*"),
    *_words("/var/lib/elastic-agent/data/* /opt/CrowdStrike/* /opt/sentinelone/* /opt/ds_agent/* /opt/traps/bin/*"),
    *_words("/opt/traps/analyzerd/* /opt/rapid7/* /opt/nessus_agent/* /opt/Tanium/* /opt/carbonblack/*"),
    *_words("/var/lib/lacework/* /opt/qualys/* /usr/local/qualys/* /var/ossec/* /opt/jc/bin/j* /opt/BESClient/*"),
    *_words("/opt/sophos-spl/* /opt/puppetlabs/puppet/* /opt/chef/embedded/*"),
)

# Again: programs of the machine's own that may hold a GPU. They neither park it nor make it busy, if root or a system
# user runs them, or a container.
GPU_SERVICE_PROGRAMS: tuple[str, ...] = _words("""
    nvvs dcgm* nv-hostengine nvidia-cuda-mps* nvidia-persiste* nv-fabricmanage*
    nvidia-smi nvsm* node-problem-det*
""")
# In logins: the screen's programs, which draw on a GPU, whoever runs them. A login screen's others are known by its
# user.
SCREEN_PROGRAMS: tuple[str, ...] = _words("""
    Xorg X Xwayland X*vnc Xdcv gnome-shell gdm-session-wo* sddm-helper lightdm dcvserver* dcvsession* dcv*agent*
""")

# In logins: what one leaves alive without work. Its CPU time and traffic count above a limit: a tunnel, a transfer.
SHELLS: tuple[str, ...] = _words("bash sh dash zsh fish ksh *csh")
SESSION_PROGRAMS: tuple[str, ...] = (
    *SCREEN_PROGRAMS,
    # In logins: they themselves, and what holds terminals open for them.
    *_words("su sudo sshd* systemd* (sd-pam) login tmux tmux:* screen zellij byobu* mosh-server ssm-session-wo*"),
    "gpuwatch*",
    # In logins: what a user's manager starts without a screen, too. What a desktop starts besides is somebody's: an
    # open desktop occupies the machine for as long as it lasts.
    *_words("dbus* gpg-agent ssh-agent pipewire* wireplumber pulseaudio tracker-miner* localsearch-3"),
    *_words("xdg-desktop-por* xdg-document-p* xdg-permission*"),
    # Unseen: what stays of rootless containers when they have ended; the rest is there as long as somebody's container
    # is.
    *_words("catatonit conmon*"),
)
# In logins: users of login screens. Their packages make them, and nobody logs in as one.
GREETERS: tuple[str, ...] = _words("*gdm* sddm lightdm")
# By hand: viewers that people install for themselves (pip, conda), whose names are no words.
INSTALLED_VIEWERS: tuple[str, ...] = _words("nv*top gpustat htop btop glances")
# In logins: programs that only look at what others do. Nothing of theirs counts.
VIEWERS: tuple[str, ...] = (*INSTALLED_VIEWERS, *_words("watch nvidia-smi top tail less"))
# In logins: what `watch` runs to look; and what an agent's script waits with.
LOOKED_WITH: tuple[str, ...] = _words("ls df cat grep awk sleep ps kubectl squeue")

# Protects: what cron daemons run, as anybody.
CRON_UNITS: tuple[str, ...] = _words("cron.service crond.service cronie.service anacron* fcron* incron*")
# Protects: people's programs run beside these units' own, of logins without logind, cron and at jobs, Session Manager,
# start-up scripts, image builds. A shell there is a distribution's, and somebody's all the same.
LOGIN_UNITS: tuple[str, ...] = (
    *CRON_UNITS,
    *_words("ssh[.@]* sshd* atd.service *amazon-ssm-age* *getty*"),
    *_words("google-[gs]* dropbear* xrdp* vncserver* dcvserver* teleport* rc-local* cloud-* gce-* walinuxagent*"),
    *_words(
        "waagent* aliyun* AssistDaemon* tat_agent* salt-minion* supervisor* circus* tailscaled* docker* containerd*"
    ),
    *_words("crio* cri-docker* podman* kubelet* k3s* rke2* buildkit*"),
)

# Again: what root's cron starts to wait and to start jobs, which count by themselves; on Red Hat it runs in a session.
CRON_STARTERS: tuple[str, ...] = ("anacron*", "run-parts")

# In logins: servers whose page /metrics counts requests, so that it says when one rests.
MODEL_SERVERS: tuple[str, ...] = _words("""
    vllm* VLLM* tritonserver text-generation* text-embeddings* sglang* llama-server
""")
# Protects: never the machine's own, whatever unit, user, package or pool runs them: servers and workers for people's
# work, by the names of their programs and of their units.
WORK_NAMES: tuple[str, ...] = (
    *_words("vllm* VLLM* triton* text-generation* text-embeddings* sglang* ollama* llama* jupyter* code-server*"),
    *_words("rstudio* rserver ray* gcs_server dask* torchrun mpi* ?rted srun"),
    *_words("Runner.* *[-._]runner* buildkite* jenkins* go-agent* buildbot* teamcity* nomad*"),
    *_words("qemu-[!g]* qemu[!-]* libvirt-*"),
)
# For nobody: of the machine's own, those that monitoring reads on every machine, whoever and however many do.
PAGES: tuple[str, ...] = ("*exporter*", "prometheus-node*", "kubelet*", "cadvisor", "gpuwatch*")
# Again: of the machine's own, those through which people log in. What they do then is counted by `people` and
# `processes`.
DOORS: tuple[str, ...] = ("sshd*", "dropbear*")
# Protects: what they interpret decides.
INTERPRETERS: tuple[str, ...] = _words("python* perl* ruby*")
# Protects: people's, unless a package brought the unit that runs them. They do what their arguments say.
TOOLS: tuple[str, ...] = (
    *INTERPRETERS,
    *_words("julia node java R ffmpeg* rsync rclone"),
)
# Protects: programs of the machine's own that work for people when they work much. They pull images and build them.
RUNTIME_PROGRAMS: tuple[str, ...] = _words("""
    containerd* dockerd crio* kubelet* k3s* rke2*
""")
# Protects: while one of these runs, a stop may leave half a driver or a kernel that does not boot. What they begin (an
# initramfs) ends before them.
PACKAGE_PROGRAMS: tuple[str, ...] = _words("""
    dpkg apt* rpm *dnf* yum zypper dkms nvidia-installer
""")

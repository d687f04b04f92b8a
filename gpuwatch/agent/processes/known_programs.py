"""DATA: the names that packages, the pool, who asks and days do not replace. docs/idle-detection.md shows it.

Patterns are those of fnmatch, on a program's name without a path, or on a unit's. A name stands here only if one of
these holds, and each group says which:

- It protects: without it somebody's work could pass for the machine's own.
- No package brings it: an installer, an image, an archive, or a vendor's package that could as well be a company's.
- Its package's unit would count by what it does (`PACKAGED`: much work, an open port), and this one works for nobody.
- It runs where no database of packages speaks: in a container, in a unit with people's programs beside it, and where
  the agent itself is in a container.

What no rule names is somebody's work. An administrator adds by `agent.workloads` and
`agent.services`, which come first.
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Units that the distribution makes. Their packages tell that they are the machine's own, as of a hundred others that
# stand nowhere, and its timers tell what comes now and then to work; these would count as work for what they do. An
# administrator may call a unit so, too: then its program decides.
SYSTEM_UNITS: tuple[str, ...] = (
    # They work much at times and have no timer, or install software: that is doubt, also for an agent in a container.
    *_words("systemd-* rsyslog* auditd* snapd* unattended-upgrades* apt-daily* dnf-* fail2ban*"),
    # They listen, and other machines may ask them for nothing that anybody would miss.
    *_words("rpcbind* rpc-* snmpd* munin-node* pmcd* pmproxy* pmlogger* postfix* libvirtd*"),
    # The bus makes units without a file of a package, and what SSSD starts is closed to an agent in a container.
    *_words("dbus* sssd*"),
)
# Units whose programs have names that say nothing, from packages of vendors: a company's own looks the same.
VENDOR_UNITS: tuple[str, ...] = (
    # Many plug-ins and scripts.
    *_words("netdata* nvsm* newrelic* zabbix-agent* azure_persistent_rdma_naming*"),
    # One machine alone has them on few fleets, and each has programs of its own.
    *_words("cmk-agent* metrics-extension.service netbird* twingate* nvidia-dcgm* nvidia-powerd* nvidia-gridd*"),
    # Timers and sockets: nothing runs by which they would be known.
    *_words("google-osconfig* google-oslogin* nvidia-cdi* docker.socket"),
)
# Of GPU monitoring, whatever runs in them and wherever it lies: they come as archives and scripts.
GPU_MONITORING_UNITS: tuple[str, ...] = _words("""
    gpuwatch-* *node[-_]exporter* *dcgm[-_]exporter* *gpu[-_]exporter*
""")
# Prometheus exporters of any name; not one that an interpreter runs, which may export models or data instead.
EXPORTER_UNITS: tuple[str, ...] = _words("*[-_]exporter.service *[-_]exporter@*")
# Batch systems: their daemons are the machine's own, and so is what root runs for them; all else there is a job.
JOB_UNITS: tuple[str, ...] = _words("slurmd* condor* pbs* sge* gridengine* lsf*")

# Programs that are the machine's own: outside of users' sessions where root or a system user runs them, and within
# containers whoever runs them there.
SERVICE_PROGRAMS: tuple[str, ...] = (
    # Of the system itself: within units with people's programs, and for an agent in a container, which sees no units.
    *_words("systemd systemd-* init (sd-pam) dbus-daemon dbus-broker* agetty login chronyd cron crond"),
    *_words("atd anacron run-parts"),
    # What starts people's containers, logins and jobs beside it.
    *_words("containerd containerd-shim* dockerd docker-proxy cri-dockerd crio conmon* runc crun kubelet"),
    *_words("k3s k3s-server k3s-agent rke2 tini pause sshd sshd-session sshd-auth dropbear tailscaled teleport"),
    *_words("xrdp xrdp-sesman"),
    *_words("supervisord circusd incrond fcron salt-minion condor_master condor_startd condor_shared_p*"),
    # Of clouds: they run what people ask them to run.
    *_words("amazon-ssm-age* ssm-agent-worke* ssm-document-wo* google_guest_a* google_osconfig*"),
    *_words("waagent WALinuxAgent*"),
    # Of NVIDIA's drivers and checks, from its packages, its .run or a container.
    *_words("nv-hostengine nv-fabricmanage* nvidia-persiste* nvidia-imex nvidia-cuda-mps*"),
    *_words("nvvs dcgmi dcgmproftester* dcgm-exporter nvsm* node-problem-det*"),
    # Monitoring, from archives and images, and in namespaces of anybody's.
    *_words("gpuwatch* node_exporter prometheus-node* process-exporter cadvisor fluent-bit fluentd td-agent* vector"),
    *_words("filebeat metricbeat promtail alloy grafana-agent otelcol* telegraf collectd netdata zabbix_agent* nrpe"),
    *_words("osqueryd kube-state-metr*"),
)

# Namespaces of Kubernetes, of clouds and of vendors, in which a cluster has its own pods.
CLUSTER_NAMESPACES: tuple[str, ...] = _words("""
    kube-system kube-flannel calico-system tigera-operator gmp-system gke-managed-* amazon-cloudwatch amazon-guardduty
    gpu-operator nvidia-gpu-operator nvidia-network-operator nvidia-device-plugin node-feature-discovery datadog
    dynatrace
""")
# Of these programs, what makes a container a machine or a scheduler of somebody's.
GUEST_NAMES: tuple[str, ...] = _words("""
    systemd cron crond anacron atd fcron incrond supervisord circusd sshd sshd-session dropbear dockerd containerd xrdp
    teleport tailscaled
""")
# And names that people give their programs, too; in a container without a pod they tell nothing.
ANYBODYS_NAMES: tuple[str, ...] = (*GUEST_NAMES, "init", "login")
# Words of the language, here and below: of a program outside of the system's folders they tell nothing.
EVERYDAY_NAMES: tuple[str, ...] = _words("""
    screen SCREEN watch top less tail vector alloy init login pause collectd telegraf fluentd su X localsearch-*
""")

# Where only agents of clouds and vendors have their programs: monitoring, security, inventory. What one of them runs
# for somebody lies elsewhere (aliyun-assist/work, waagent/custom-script).
AGENT_FILES: tuple[str, ...] = (
    # Of clouds, by their images and installers.
    *_words("/usr/local/qcloud/* /usr/local/aegis/aegis_* /usr/local/aegis/PythonLoader/* /usr/local/cloudmonitor/*"),
    *_words("/usr/local/ilogtail/* /usr/local/share/aliyun-assist/[0-9]* /usr/local/share/assist-daemon/*"),
    *_words("/usr/lib/google/guest_agent/* /opt/google-cloud-ops-agent/* /home/kubernetes/bin/kube*"),
    *_words("/home/kubernetes/bin/health-monitor.sh /home/kubernetes/bin/node-problem-detector"),
    *_words("/home/kubernetes/bin/*gcfs* /opt/aws/amazon-cloudwatch-agent/* /opt/aws/bin/cfn-hup"),
    *_words("/opt/parallelcluster/pyenv/* /opt/parallelcluster/scripts/* /usr/libexec/oracle-cloud-agent/*"),
    *_words("/var/lib/oracle-cloud-agent/plugins/* /opt/unified-monitoring-agent/* /opt/microsoft/mdatp/*"),
    *_words("/opt/microsoft/azuremonitoragent/* /opt/omi/bin/* /opt/azcmagent/* /opt/GC_Service/* /opt/GC_Ext/*"),
    *_words("/var/lib/waagent/Microsoft.Azure.Monitor* /var/lib/waagent/Microsoft.Azure.Security*"),
    "/var/lib/waagent/Microsoft.GuestConfiguration*",
    # Of vendors, by an installer or a package of theirs: a company with fewer than ten machines has them, too.
    *_words("/opt/dynatrace/* /opt/instana/* /opt/appdynamics/* /opt/newrelic/* /var/db/newrelic-infra/*"),
    *_words("/opt/datadog-agent/* /opt/datadog-packages/* /opt/splunkforwarder/* /usr/lib/splunk-otel-collector/*"),
    *_words("/opt/site24x7/* /opt/spm/spm-monitor/* /usr/local/logicmonitor/* /opt/netdata/* /opt/Elastic/Agent/*"),
    *_words("/var/lib/elastic-agent/data/* /opt/CrowdStrike/* /opt/sentinelone/* /opt/ds_agent/* /opt/traps/bin/*"),
    *_words("/opt/traps/analyzerd/* /opt/rapid7/* /opt/nessus_agent/* /opt/Tanium/* /opt/carbonblack/*"),
    *_words("/var/lib/lacework/* /opt/qualys/* /usr/local/qualys/* /var/ossec/* /opt/jc/bin/j* /opt/BESClient/*"),
    *_words("/opt/sophos-spl/* /opt/puppetlabs/puppet/* /opt/chef/embedded/*"),
)

# Programs of the machine's own that may hold a GPU: they neither park it nor make it busy, if root or a system user
# runs them, or a container.
GPU_SERVICE_PROGRAMS: tuple[str, ...] = _words("""
    nvvs dcgmi dcgmproftester* nv-hostengine dcgm-exporter nvidia-cuda-mps* nvidia-persiste* nv-fabricmanage*
    nvidia-smi nvsm* node-problem-det*
""")
# Whoever runs them: the screen's programs, which draw on a GPU.
SCREEN_PROGRAMS: tuple[str, ...] = _words("""
    Xorg X Xwayland Xvfb Xvnc Xtigervnc Xtightvnc Xdcv gnome-shell mutter mutter-x11-fra* kwin_x11 kwin_wayland*
    plasmashell xfwm4 xfce4-*
    xfdesktop xfsettingsd gdm-session-wo* sddm-helper sddm-greeter*
    lightdm lightdm-* dcvserver dcvagent* dcvxagent
    dcvsession* dcvcollab* dcvsimple*
""")

# What a login leaves alive without work. Their own CPU time and traffic count, above a limit: a tunnel, a transfer.
SHELLS: tuple[str, ...] = _words("bash sh dash zsh fish ksh tcsh csh")
SESSION_PROGRAMS: tuple[str, ...] = (
    *SCREEN_PROGRAMS,
    # Logins, and what holds terminals open for them.
    *_words("su sudo doas newgrp sshd sshd-session systemd systemd-* (sd-pam) login tmux tmux:* screen SCREEN zellij"),
    *_words("byobu* mosh-server dtach abduco ssm-session-wo* gpuwatch*"),
    # What a user's manager starts at a login without a screen, too: their packages bring people's programs in the same
    # way. What a desktop starts besides is somebody's: an open desktop occupies the machine for as long as it lasts.
    *_words(
        "dbus-daemon dbus-broker* gpg-agent ssh-agent pipewire* wireplumber pulseaudio gnome-session* tracker-miner*"
    ),
    *_words("localsearch-3 xdg-desktop-por* xdg-document-p* xdg-permission*"),
    # What stays of rootless containers when they have ended; the rest is there as long as somebody's container is.
    *_words("catatonit conmon*"),
)
# Users of login screens: their packages make them, and nobody logs in as one.
GREETERS: tuple[str, ...] = _words("gdm gdm-greeter* Debian-gdm sddm lightdm")
# Viewers that people install for themselves (pip, conda), whose names are no words.
INSTALLED_VIEWERS: tuple[str, ...] = _words("nvitop gpustat nvtop htop btop glances")
# Programs that only look at what others do; nothing of theirs counts. Nor do those that `watch` runs to look.
VIEWERS: tuple[str, ...] = (*INSTALLED_VIEWERS, *_words("watch nvidia-smi top tail less"))
LOOKED_WITH: tuple[str, ...] = _words("ls df cat grep awk sleep ps uptime kubectl squeue sinfo")

CRON_UNITS: tuple[str, ...] = _words("cron.service crond.service cronie.service anacron* fcron* incron*")
# Units in which people's programs run beside the unit's own: logins without logind, cron and at jobs, Session Manager,
# start-up scripts, image builds. A shell there is a distribution's, and somebody's all the same.
LOGIN_UNITS: tuple[str, ...] = (
    *CRON_UNITS,
    *_words("ssh.service sshd.service ssh@* sshd@* atd.service *amazon-ssm-agent* *getty@* console-getty*"),
    *_words("google-[gs]* dropbear* mosh* xrdp* vncserver* dcvserver* teleport* rc-local* cloud-* gce-* walinuxagent*"),
    *_words(
        "waagent* aliyun* AssistDaemon* tat_agent* salt-minion* supervisor* circus* tailscaled* docker* containerd*"
    ),
    *_words("cri[-o]* podman* kubelet* k3s* rke2* buildkit*"),
)

# What root's cron starts to wait and to start jobs, which count by themselves; on Red Hat it runs in a session.
CRON_STARTERS: tuple[str, ...] = ("anacron", "run-parts")

# Servers whose page /metrics counts requests.
MODEL_SERVERS: tuple[str, ...] = _words("""
    vllm* VLLM* tritonserver text-generation* text-embeddings* sglang* llama-server
""")
# Never the machine's own, whatever unit, user, package or pool runs them: servers and workers for people's work, by the
# names of their programs and of their units. They protect where a distribution's package brings one, where no database
# speaks, and where a whole pool has one.
WORK_NAMES: tuple[str, ...] = (
    *_words("vllm* VLLM* triton* text-generation* text-embeddings* sglang* ollama* llama* jupyter* code-server*"),
    *_words("rstudio* rserver ray* gcs_server dask* torchrun mpirun* mpiexec* orted prted srun"),
    *_words("Runner.* *[-._]runner* buildkite* jenkins* go-agent* buildbot* teamcity* nomad*"),
    *_words("qemu-[!g]* qemu[!-]* libvirt-*"),
)
# Of the machine's own, those that monitoring reads on every machine, whoever and however many do.
PAGES: tuple[str, ...] = ("*exporter*", "prometheus-node*", "kubelet", "cadvisor", "gpuwatch*")
# Of the machine's own, those through which people log in. What they do then is counted by `people` and `processes`.
DOORS: tuple[str, ...] = ("sshd*", "dropbear")
INTERPRETERS: tuple[str, ...] = _words("python* perl* ruby*")
# People's, unless a package brought the unit that runs them: they do what their arguments say.
TOOLS: tuple[str, ...] = (
    *INTERPRETERS,
    *_words("ipython* julia node java R Rscript ffmpeg* rsync rclone"),
)
# Programs of the machine's own that work for people when they work much: they pull images and build them.
RUNTIME_PROGRAMS: tuple[str, ...] = _words("""
    containerd dockerd crio kubelet k3s k3s-server k3s-agent rke2
""")
# While one of these runs, a stop may leave half a driver or a kernel that does not boot. What they begin (an initramfs)
# ends before them.
PACKAGE_PROGRAMS: tuple[str, ...] = _words("""
    dpkg apt* rpm *dnf* yum zypper dkms nvidia-installer
""")

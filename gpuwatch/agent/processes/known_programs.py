"""DATA: which programs and units are the machine's own, and what a login leaves alive. docs/idle-detection.md shows it.

Patterns are those of fnmatch, on the program's name, without a path. What no rule names is somebody's work. An
administrator adds to these tables by `agent.workloads` and `agent.services`, which come first.
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Units whose programs are the machine's own, wherever their unit file lies.
SERVICE_UNITS: tuple[str, ...] = (
    *_words("""
    systemd-* dbus* polkit* accounts-daemon* rsyslog* syslog* auditd* chrony* ntp* ntpsec* irqbalance* udisks2*
    upower* ModemManager* NetworkManager* networkd-* networking* resolvconf* dhclient* dhcpcd* avahi-*
    multipathd* iscsid* lvm2-* mdmonitor* smartd* smartmontools* thermald* acpid* fwupd* packagekit*
    unattended-upgrades* apt-daily* dnf-* yum-* zypp* snapd* logrotate* fstrim* man-db* mlocate* plocate*
    updatedb* e2scrub* dpkg-* motd-* needrestart* apport* whoopsie* kdump* rngd* haveged* gssproxy* rpcbind*
    rpc-* nfs-idmapd* sssd* oddjobd* winbind* nscd* nslcd* firewalld* ufw* nftables* iptables* fail2ban*
    postfix* exim4* getty@* serial-getty@* console-getty* gdm* lightdm* sddm* display-manager* rtkit-daemon*
    colord* switcheroo-control* power-profiles-daemon* bluetooth* cups* kerneloops* tuned* ksm* openipmi* ipmi*
    mcelog* rasdaemon* edac* lldpd* sysstat* atop* pmcd* pmlogger* acct* hibagent* ec2-instance-connect*
    hv-*-daemon* qemu-guest-agent* vmtoolsd* open-vm-tools* aegis* cloudmonitor* argusagent* YDService* sgagent*
    barad_agent* hosteye* bcm-*

    amazon-cloudwatch-agent* awslogs* xray* datadog* telegraf* collectd* netdata* zabbix* nagios* nrpe* icinga*
    check_mk* newrelic* prometheus-* *node[-_]exporter* *dcgm* nvidia_gpu_exporter* *gpu_exporter* *-exporter*
    *_exporter* otelcol* opentelemetry* grafana-agent* alloy* promtail* fluent-bit* fluentd* td-agent*
    fluentbit* vector.service filebeat* metricbeat* auditbeat* packetbeat* heartbeat-elastic* elastic-agent*
    splunk* logstash* rsyslogd* sumologic* osqueryd* falcon-sensor* sentinelone* sentinelagent* cbagentd*
    cbdefense* mdatp* microsoft-* clamav* clamd* wazuh* ossec* qualys* nessus* rapid7* ir_agent* tanium* traps*
    ds_agent* lacework* sysdig* falco* zerotier* wireguard* openvpn* puppet* chef-client* cfengine* landscape*
    rhsm* insights-* gpuwatch*

    kube-proxy* etcd* munge* slurmd* opensmd* openibd* mlnx* efa* lnet* lustre* nv_peer_mem* nvsm* docker.socket
    nvidia-persistenced* nvidia-fabricmanager* nvidia-dcgm* nvidia-powerd* nvidia-suspend* nvidia-resume*
    nvidia-hibernate* nvidia-imex* nvidia-cdi* nvidia-peermem* nvidia-mig* nvidia-gridd* nvidia-cuda-mps*
    nvidia_gpu* google-osconfig* google-oslogin*
"""),
)

# Programs that are the machine's own: outside of users' sessions where root or a system user runs them, and within
# containers whoever runs them there.
SERVICE_PROGRAMS: tuple[str, ...] = _words("""
    systemd systemd-* init (sd-pam) dbus-daemon dbus-broker* agetty login polkitd rsyslogd auditd chronyd ntpd
    irqbalance cron crond atd anacron run-parts unattended-upgr* apt.systemd.dai* snapd containerd
    containerd-shim* dockerd docker-proxy docker-init crio conmon* runc crun kubelet kube-proxy k3s-server
    k3s-agent tini pause coredns calico-node cilium-agent flanneld aws-k8s-agent aws-vpc-cni* ebs-csi-*
    aws-ebs-csi-* aws-efs-csi* csi-node-* livenessprobe node-driver-reg* node-problem-* nvidia-device-p*
    nvidia-operator* gpu-feature-dis* nfd-worker nfd-master dcgm-exporter nvidia-dcgm* nv-hostengine
    nv-fabricmanage* nvidia-persiste* nvidia-imex nvidia-cuda-mps* nvidia-mig-mana* nvvs dcgmi dcgmproftester*
    nvsm* nhc nhc-* node_exporter prometheus-node* process-exporter cadvisor kube-state-metr* amazon-ssm-age*
    ssm-agent-worke* ssm-document-wo* amazon-cloudwat* amazon-cloudwatch-agent fluent-bit fluentd td-agent*
    vector filebeat metricbeat promtail alloy grafana-agent otelcol* telegraf collectd netdata datadog-agent
    trace-agent process-agent system-probe security-agent agent-data-plane zabbix_agent* nrpe falcon-sensor*
    osqueryd mdatp* wdavdaemon ds_agent cbagentd SentinelAgent splunkd slurmd munged google_guest_a*
    google_osconfig* google_metadata* waagent tat_agent sgagent barad_agent YDService YDLive AliYunDun*
    AliSecGuard aliyun-service CmsGoAgent* gpuwatch* sshd sshd-session sshd-auth cloud-init cloud-init-*
    google_startup_* tailscaled k3s rke2 containerd-stress cri-dockerd aliyun_assist* assist_daemon salt-minion
    WALinuxAgent* networkd-dispatcher fail2ban-server
""")

# Programs of the machine's own that may hold a GPU: they neither park it nor make it busy, if root or a system user
# runs them, or a container.
GPU_SERVICE_PROGRAMS: tuple[str, ...] = _words("""
    nvvs dcgmi dcgmproftester* nv-hostengine dcgm-exporter nvidia-cuda-mps* nvidia-persiste* nv-fabricmanage*
    nhc nhc-* nvidia-smi nvsm* node-problem-*
""")
# Whoever runs them: the screen's programs.
SCREEN_PROGRAMS: tuple[str, ...] = _words("""
    Xorg X Xwayland Xvfb Xvnc* Xtigervnc Xtightvnc gnome-shell mutter* kwin* plasmashell xfwm4 xfce4-* xfdesktop
    xfsettingsd gdm-* sddm* lightdm* dcv* Xdcv
""")

# What a login leaves alive without work. Their own CPU time and traffic count, above a limit: a tunnel, a transfer.
SHELLS: tuple[str, ...] = _words("""
    bash -bash sh -sh dash -dash zsh -zsh fish -fish ksh tcsh csh
""")
SESSION_PROGRAMS: tuple[str, ...] = (
    *SCREEN_PROGRAMS,
    *_words("""
    su sudo doas newgrp sshd sshd-session systemd systemd-* (sd-pam) login tmux* screen SCREEN zellij byobu*
    mosh-server dtach abduco ssm-session-wo* dbus-daemon dbus-broker* dbus-launch gpg-agent ssh-agent keyboxd
    scdaemon gnome-keyring* pipewire* wireplumber pulseaudio gvfs* goa-* gnome-session* gnome-shell-ca* gsd-*
    evolution-* ibus* at-spi* xdg-* dconf-service tracker-* localsearch* xsettingsd xfconfd xfce4-* polkit-*
    tumblerd update-notifier vncconfig catatonit conmon* slirp4netns pasta* aardvark-dns rootlessport
    fuse-overlayfs gpuwatch*
"""),
)
# Programs that only look at what others do; nothing of theirs counts.
VIEWERS: tuple[str, ...] = _words("""
    watch nvidia-smi nvtop nvitop gpustat htop top btop atop iotop iftop glances dstat vmstat iostat free tail
    less more man journalctl dmesg clear ps w who
""")

# Units in which people's programs run beside the unit's own: logins without logind, cron and at jobs, Session Manager,
# start-up scripts, image builds.
LOGIN_UNITS: tuple[str, ...] = _words("""
    ssh.service sshd.service ssh@* sshd@* cron.service crond.service atd.service cronie.service
    amazon-ssm-agent.service snap.amazon-ssm-agent* google-guest-agent* getty@* serial-getty@* console-getty*
    dropbear* mosh* xrdp* vncserver* dcvserver* teleport* rc-local* cloud-* google-startup-scripts*
    google-shutdown-scripts* gce-* walinuxagent* waagent* aliyun* AssistDaemon* tat_agent* salt-minion*
    tailscaled* anacron* docker.service dockerd* containerd* crio* cri-docker* podman* kubelet* k3s* rke2*
    buildkit*
""")
CRON_UNITS: tuple[str, ...] = _words("""
    cron.service crond.service cronie.service anacron.service
""")

# Never the machine's own, whatever unit or user runs them: servers and workers for people's work.
WORK_PROGRAMS: tuple[str, ...] = _words("""
    ollama* vllm* VLLM* tritonserver text-generation* sglang* llama-server llama-cli lmdeploy* jupyter* ipykernel*
    code-server rstudio* rsession rserver ray raylet gcs_server ray::* dask* torchrun mpirun mpiexec orted prted
    srun Runner.Listener Runner.Worker gitlab-runner buildkite-agent qemu-system-* qemu-kvm matlab* MATLAB blender*
""")
# People's, unless a package brought the unit that runs them.
TOOLS: tuple[str, ...] = _words("""
    python* ipython* julia node java R Rscript perl* ruby* ffmpeg* rsync rclone wget curl aws gsutil s5cmd scp sftp*
""")
INTERPRETERS: tuple[str, ...] = _words("""
    python* perl* ruby*
""")
# Programs of the machine's own that work for people when they work much: they pull images and build them.
RUNTIME_PROGRAMS: tuple[str, ...] = _words("""
    containerd dockerd crio kubelet podman buildkitd k3s k3s-server k3s-agent rke2 nerdctl ctr crictl
""")
WORK_UNITS: tuple[str, ...] = (
    "ollama*", "vllm*", "triton*", "tgi*", "sglang*", "llama*", "jupyter*", "code-server*", "rstudio*", "ray*", "dask*",
    "actions.runner*", "gitlab-runner*", "buildkite*", "libvirt-*", "qemu*", "nomad*", "comfyui*",
)  # fmt: skip

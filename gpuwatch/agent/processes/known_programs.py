"""DATA: which programs and units are the machine's own, and what a login leaves alive. docs/idle-detection.md shows it.

Patterns are those of fnmatch, on the program's name, without a path. What no rule names is somebody's work. An
administrator adds to these tables by `agent.workloads` and `agent.services`, which come first.
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Units whose programs are the machine's own. An administrator may call a unit so, too: then its program decides.
# Of distributions, whose packages put programs into /usr and nowhere else:
SYSTEM_UNITS: tuple[str, ...] = _words("""
    systemd-* dbus* polkit* accounts-daemon* rsyslog* syslog* auditd* chrony* ntp.service ntpd* ntpsec* ntpdate*
    irqbalance* udisks2*
    upower* ModemManager* NetworkManager* networkd-* networking* resolvconf* dhclient* dhcpcd* avahi-*
    multipathd* iscsid* lvm2-* mdmonitor* smartd* smartmontools* thermald* acpid* fwupd* packagekit*
    unattended-upgrades* apt-daily* dnf-* yum-* zypp* snapd* logrotate* fstrim* man-db* mlocate* plocate*
    updatedb* e2scrub* dpkg-* motd-* needrestart* apport* whoopsie* kdump* rngd* haveged* gssproxy* rpcbind*
    rpc-* nfs-idmapd* sssd* oddjobd* winbind* nscd* nslcd* firewalld* ufw* nftables* iptables* fail2ban*
    postfix* exim4* getty@* serial-getty@* console-getty* gdm* lightdm* sddm* display-manager* rtkit-daemon*
    colord* switcheroo-control* power-profiles-daemon* bluetooth* cups.* cups-browsed* kerneloops*
    tuned.service tuned-ppd* ksm.service ksmtuned* openipmi* ipmi*
    mcelog* rasdaemon* edac.service lldpd* sysstat* atop* pmcd* pmlogger* pmproxy* pmie* acct.service hibagent*
    qemu-guest-agent* vmtoolsd* open-vm-tools* hv-*-daemon* snmpd* munin-node* gmond* ganglia-monitor*
    libvirtd* virtlogd* virtlockd* virtqemud* virtnetworkd* update-notifier* ua-timer* esm-cache* apt-news*
    cachefilesd* amazon-efs-mount-watchdog*
""")
# Of vendors and of clusters, whose installers write into /opt, /usr/local and /etc:
VENDOR_UNITS: tuple[str, ...] = _words("""
    ec2-instance-connect* aegis* cloudmonitor* argusagent* YDService* sgagent*
    barad_agent* hosteye* bcm-agent*

    amazon-cloudwatch-agent* awslogs* xray.service datadog* telegraf* collectd* netdata* zabbix* nagios* nrpe* icinga*
    check_mk* newrelic* prometheus-* nvidia-dcgm* dcgm.service
    otelcol* opentelemetry* grafana-agent* alloy.service promtail* fluent-bit*
    fluentd* td-agent*
    fluentbit* vector.service filebeat* metricbeat* auditbeat* packetbeat* heartbeat-elastic* elastic-agent*
    splunk* logstash* rsyslogd* sumologic* osqueryd* falcon-sensor* sentinelone* sentinelagent* cbagentd*
    cbdefense* mdatp* microsoft-* clamav* clamd* wazuh* ossec* qualys* nessus* rapid7* ir_agent* tanium* traps_pmd*
    ds_agent* lacework* sysdig* falco.service falco-bpf* falco-kmod* falco-modern-bpf* falco-custom*
    falcoctl* zerotier* wireguard* openvpn* puppet* chef-client* cfengine* landscape-client*
    rhsm* insights-client*

    oneagent* instana-agent* appdynamics* signalfx-agent* logdna-agent* scalyr-agent* site24x7* sematext-agent*
    observiq-otel* check-mk* cmk-agent* ncpa.service ncpa_listener* google-cloud-ops-agent* stackdriver-agent*
    google-fluentd* oracle-cloud-agent* unified-monitoring-agent* osms-agent* ilogtaild* loongcollector* hostguard*
    uniagent* omid.service omi.service omsagent* scxcimd* azuremonitor* metrics-extension.service
    metrics-sourcer.service himdsd* arcproxyd* azure_persistent_rdma_naming*
    cylancesvc* besclient* sophos-spl* sav-protect* eraagent* bdsec*
    amagent* xagt* cisco-amp* illumio-ven* uptycs* threatstack* wiz-sensor* twistlock* tmxbc* jcagent* jumpcloud-*
    netbird* twingate* warp-svc* netskope* stagentd* zscaler*

    kube-proxy* etcd* munge* opensmd* openibd* mlnx* efa.service efa-nv-peermem* lnet.service lustre* nv_peer_mem*
    nvsm* docker.socket
    nvidia-persistenced* nvidia-fabricmanager* nvidia-powerd* nvidia-suspend* nvidia-resume*
    nvidia-hibernate* nvidia-imex* nvidia-cdi* nvidia-peermem* nvidia-mig* nvidia-gridd* nvidia-cuda-mps*
    google-osconfig* google-oslogin*
""")
# Of GPU monitoring, whatever runs in them and wherever it lies:
GPU_MONITORING_UNITS: tuple[str, ...] = _words("""
    gpuwatch-* *node[-_]exporter* *dcgm[-_]exporter* *gpu[-_]exporter*
""")

# Prometheus exporters of any name; not one that an interpreter runs, which may export models or data instead.
EXPORTER_UNITS: tuple[str, ...] = _words("""
    *-exporter.service *_exporter.service *-exporter@* *_exporter@*
""")
# Batch systems: their daemons are the machine's own, and so is what root runs for them; all else there is a job.
JOB_UNITS: tuple[str, ...] = _words("""
    slurmd* condor* pbs* sge* gridengine* lsf*
""")

# Programs that are the machine's own: outside of users' sessions where root or a system user runs them, and within
# containers whoever runs them there.
SERVICE_PROGRAMS: tuple[str, ...] = _words("""
    systemd systemd-* init (sd-pam) dbus-daemon dbus-broker* agetty login polkitd rsyslogd auditd chronyd ntpd
    irqbalance cron crond atd anacron run-parts unattended-upgr* apt.systemd.dai* snapd containerd
    containerd-shim* dockerd docker-proxy docker-init crio conmon* runc crun kubelet kube-proxy k3s-server
    k3s-agent tini pause coredns calico-node cilium-agent flanneld aws-k8s-agent aws-vpc-cni* ebs-csi-*
    aws-ebs-csi-* aws-efs-csi* csi-node-* livenessprobe node-driver-reg* node-problem-det* nvidia-device-p*
    nvidia-operator* gpu-feature-dis* nfd-worker nfd-master dcgm-exporter nvidia-dcgm* nv-hostengine
    nv-fabricmanage* nvidia-persiste* nvidia-imex nvidia-cuda-mps* nvidia-mig-mana* nvvs dcgmi dcgmproftester*
    nvsm* nhc nhc-wrapper node_exporter prometheus-node* process-exporter cadvisor kube-state-metr* amazon-ssm-age*
    ssm-agent-worke* ssm-document-wo* amazon-cloudwat* amazon-cloudwatch-agent fluent-bit fluentd td-agent*
    vector filebeat metricbeat promtail alloy grafana-agent otelcol* telegraf collectd netdata datadog-agent
    trace-agent process-agent system-probe security-agent agent-data-plane zabbix_agent* nrpe falcon-sensor*
    osqueryd mdatp* wdavdaemon ds_agent cbagentd SentinelAgent splunkd slurmd munged
    condor_master condor_startd condor_procd condor_shared_p* condor_collect* condor_negotia* condor_schedd condor_credd
    condor_defrag pbs_mom sge_execd sbatchd google_guest_a*
    google_osconfig* google_metadata* waagent tat_agent sgagent barad_agent YDService YDLive AliYunDun*
    AliSecGuard aliyun-service CmsGoAgent* gpuwatch* sshd sshd-session sshd-auth cloud-init cloud-init-*
    google_startup_* tailscaled k3s rke2 containerd-stress cri-dockerd aliyun_assist* assist_daemon salt-minion
    WALinuxAgent* networkd-dispatcher fail2ban-server supervisord circusd incrond fcron teleport xrdp xrdp-sesman
    dropbear eks-pod-identi* eks-node-monito* gke-metrics-age* gke-metadata-s* konnectivity-ag* gce-pd-csi-driv*
    ip-masq-agent* kindnetd azurediskplugin azurefileplugi* cilium-envoy cilium-operator*
    hubble-relay nvidia-toolkit nvidia-validato* k8s-driver-mana* otelopscol efs-proxy
""")

# Namespaces of Kubernetes, of clouds and of vendors, in which a cluster has its own pods.
CLUSTER_NAMESPACES: tuple[str, ...] = _words("""
    kube-system kube-flannel calico-system tigera-operator gmp-system gke-managed-* amazon-cloudwatch amazon-guardduty
    gpu-operator nvidia-gpu-operator nvidia-network-operator node-feature-discovery datadog dynatrace falco
""")
# Of these programs, what makes a container a machine or a scheduler of somebody's.
GUEST_NAMES: tuple[str, ...] = _words("""
    systemd cron crond anacron atd fcron incrond supervisord circusd sshd sshd-session dropbear dockerd containerd xrdp
    teleport tailscaled
""")
# And names that people give their programs, too; in a container without a pod they tell nothing.
ANYBODYS_NAMES: tuple[str, ...] = (
    *GUEST_NAMES,
    *_words("trace-agent process-agent system-probe security-agent agent-data-plane init login"),
)
# Words of the language, here and below: of a program outside of the system's folders they tell nothing.
EVERYDAY_NAMES: tuple[str, ...] = _words("""
    screen SCREEN watch top ps w who free less more man tail clear vector alloy init login pause collectd telegraf
    fluentd nhc su localsearch-* at-spi* X
""")

# Where only agents of clouds and vendors have their programs: monitoring, security, inventory. What one of them runs
# for somebody lies elsewhere (aliyun-assist/work, waagent/custom-script).
AGENT_FILES: tuple[str, ...] = _words("""
    /usr/local/qcloud/* /usr/local/aegis/aegis_* /usr/local/aegis/PythonLoader/* /usr/local/cloudmonitor/*
    /usr/local/ilogtail/* /usr/local/hostguard/* /usr/local/uniagent/* /usr/local/share/aliyun-assist/[0-9]*
    /usr/local/share/assist-daemon/* /usr/lib/google/guest_agent/* /opt/google-cloud-ops-agent/* /opt/stackdriver/*
    /opt/google-fluentd/* /home/kubernetes/bin/kube* /home/kubernetes/bin/health-monitor.sh
    /home/kubernetes/bin/node-problem-detector /home/kubernetes/bin/*gcfs* /opt/aws/amazon-cloudwatch-agent/*
    /opt/aws/bin/cfn-hup /opt/parallelcluster/pyenv/* /opt/parallelcluster/scripts/* /usr/libexec/oracle-cloud-agent/*
    /var/lib/oracle-cloud-agent/plugins/* /opt/unified-monitoring-agent/* /opt/microsoft/mdatp/*
    /opt/microsoft/azuremonitoragent/* /opt/microsoft/omsagent/* /opt/microsoft/omsconfig/* /opt/microsoft/scx/*
    /opt/microsoft/dependency-agent/* /opt/omi/bin/* /opt/azcmagent/* /opt/GC_Service/* /opt/GC_Ext/*
    /var/lib/waagent/Microsoft.Azure.Monitor* /var/lib/waagent/Microsoft.Azure.Security*
    /var/lib/waagent/Microsoft.GuestConfiguration*

    /opt/dynatrace/* /opt/instana/* /opt/appdynamics/* /opt/newrelic/* /var/db/newrelic-infra/* /opt/datadog-agent/*
    /opt/datadog-packages/* /opt/splunkforwarder/* /usr/lib/splunk-otel-collector/* /usr/lib/signalfx-agent/*
    /opt/observiq-otel-collector/* /opt/SumoCollector/* /opt/site24x7/* /opt/spm/spm-monitor/*
    /usr/local/logicmonitor/* /usr/share/scalyr-agent-2/* /usr/lib/check_mk_agent/* /usr/local/ncpa/* /opt/netdata/*
    /opt/Elastic/Agent/* /var/lib/elastic-agent/data/*

    /opt/CrowdStrike/* /opt/sentinelone/* /opt/ds_agent/* /opt/TrendMicro/* /opt/traps/bin/* /opt/traps/analyzerd/*
    /opt/rapid7/* /opt/nessus_agent/* /opt/Tanium/* /opt/carbonblack/* /var/opt/carbonblack/* /var/lib/lacework/*
    /opt/wiz/sensor/* /opt/qualys/* /usr/local/qualys/* /var/ossec/* /opt/jc/bin/j* /opt/landesk/* /opt/BESClient/*
    /opt/McAfee/* /opt/isec/ens/* /opt/eset/* /opt/sophos-spl/* /opt/f-secure/* /opt/kaspersky/*
    /opt/bitdefender-security-tools/* /opt/cisco/amp/* /opt/illumio_ven/* /var/lib/twistlock/* /opt/draios/*
    /opt/threatstack/* /opt/uptycs/* /opt/fireeye/* /opt/amagent/* /opt/cylance/* /opt/zscaler/* /opt/netskope/*
    /opt/paloaltonetworks/globalprotect/* /opt/puppetlabs/puppet/* /opt/chef/embedded/* /opt/chef/bin/*
""")

# Programs of the machine's own that may hold a GPU: they neither park it nor make it busy, if root or a system user
# runs them, or a container.
GPU_SERVICE_PROGRAMS: tuple[str, ...] = _words("""
    nvvs dcgmi dcgmproftester* nv-hostengine dcgm-exporter nvidia-cuda-mps* nvidia-persiste* nv-fabricmanage*
    nhc nhc-wrapper nvidia-smi nvsm* node-problem-det*
""")
# Whoever runs them: the screen's programs.
SCREEN_PROGRAMS: tuple[str, ...] = _words("""
    Xorg X Xwayland Xvfb Xvnc Xtigervnc Xtightvnc gnome-shell mutter mutter-x11-fra* kwin_x11 kwin_wayland* plasmashell
    xfwm4 xfce4-* xfdesktop xfsettingsd gdm gdm3 gdm-session-wo* gdm-x-session gdm-wayland-ses* sddm sddm-helper
    sddm-greeter* lightdm lightdm-* dcvserver dcvagent* dcvxagent dcvsession* dcvcollab* dcvsimple* Xdcv
""")

# What a login leaves alive without work. Their own CPU time and traffic count, above a limit: a tunnel, a transfer.
SHELLS: tuple[str, ...] = _words("""
    bash -bash sh -sh dash -dash zsh -zsh fish -fish ksh tcsh csh
""")
SESSION_PROGRAMS: tuple[str, ...] = (
    *SCREEN_PROGRAMS,
    *_words("""
    su sudo doas newgrp sshd sshd-session systemd systemd-* (sd-pam) login tmux tmux:* screen SCREEN zellij byobu*
    mosh-server dtach abduco ssm-session-wo* dbus-daemon dbus-broker* dbus-launch gpg-agent ssh-agent keyboxd
    scdaemon gnome-keyring* pipewire* wireplumber pulseaudio gvfsd gvfsd-* gvfs-* goa-daemon goa-identity*
    gnome-session* gnome-shell-ca* gsd-*
    evolution-sour* evolution-addr* evolution-cale* evolution-alar* ibus-* at-spi* xdg-desktop-por* xdg-document-p*
    xdg-permission* xdg-dbus-proxy dconf-service tracker-miner* tracker-extrac* localsearch-3 localsearch-ext*
    xsettingsd xfconfd xfce4-* polkit-*
    tumblerd update-notifier vncconfig catatonit conmon* slirp4netns pasta pasta.avx2 aardvark-dns rootlessport
    fuse-overlayfs gpuwatch*
"""),
)
# Viewers that people install for themselves (pip, conda), whose names are no words.
INSTALLED_VIEWERS: tuple[str, ...] = _words("""
    nvitop gpustat nvtop htop btop glances
""")
# Programs that only look at what others do; nothing of theirs counts. Nor do those that `watch` runs to look.
VIEWERS: tuple[str, ...] = _words("""
    watch nvidia-smi nvtop nvitop gpustat htop top btop atop iotop iftop glances dstat vmstat iostat free tail
    less more man journalctl dmesg clear ps w who
""")
LOOKED_WITH: tuple[str, ...] = _words("""
    ls df du cat grep egrep rg awk gawk mawk sed head wc sort uniq cut tr column date echo printf test stat find pgrep
    lsof ss netstat ip ifconfig sensors lscpu lsblk lspci numactl nproc mpstat ping uptime hostname docker podman
    kubectl squeue sinfo sacct scontrol sstat qstat bjobs condor_q condor_status tput sleep
""")

# Units in which people's programs run beside the unit's own: logins without logind, cron and at jobs, Session Manager,
# start-up scripts, image builds.
LOGIN_UNITS: tuple[str, ...] = _words("""
    ssh.service sshd.service ssh@* sshd@* cron.service crond.service atd.service cronie.service
    amazon-ssm-agent.service snap.amazon-ssm-agent* google-guest-agent* getty@* serial-getty@* console-getty*
    dropbear* mosh* xrdp* vncserver* dcvserver* teleport* rc-local* cloud-* google-startup-scripts*
    google-shutdown-scripts* gce-* walinuxagent* waagent* aliyun* AssistDaemon* tat_agent* salt-minion*
    supervisor* circus* incron* fcron*
    tailscaled* anacron* docker.service dockerd* containerd* crio* cri-docker* podman* kubelet* k3s* rke2*
    buildkit*
""")
CRON_UNITS: tuple[str, ...] = _words("""
    cron.service crond.service cronie.service anacron.service fcron* incron*
""")

# What root's cron starts to wait and to start jobs, which count by themselves; on Red Hat it runs in a session.
CRON_STARTERS: tuple[str, ...] = ("anacron", "run-parts")

# Never the machine's own, whatever unit or user runs them: servers and workers for people's work.
WORK_PROGRAMS: tuple[str, ...] = _words("""
    ollama* vllm* VLLM* tritonserver text-generation* sglang* llama-server llama-cli lmdeploy* jupyter* ipykernel*
    code-server rstudio* rsession rserver ray raylet gcs_server ray::* dask* torchrun mpirun mpiexec orted prted
    FahCore* fah-client boinc boinc_client
    srun Runner.Listener Runner.Worker gitlab-runner buildkite-agent qemu-system-* qemu-kvm matlab* MATLAB blender*
""")
# Of these, servers whose page /metrics counts requests.
MODEL_SERVERS: tuple[str, ...] = _words("""
    vllm* VLLM* tritonserver text-generation* text-embeddings* sglang* llama-server
""")
# Of the machine's own, those that monitoring reads on every machine, whoever and however many do.
PAGES: tuple[str, ...] = ("*exporter*", "prometheus-node*", "kubelet", "cadvisor", "gpuwatch*")
# Of the machine's own, those through which people log in. What they do then is counted by `people` and `processes`.
DOORS: tuple[str, ...] = ("sshd*", "dropbear")
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
# While one of these runs, a stop may leave half a driver or a kernel that does not boot.
PACKAGE_PROGRAMS: tuple[str, ...] = _words("""
    dpkg apt-get apt aptitude rpm dnf dnf-3 dnf5 yum microdnf zypper dkms dracut mkinitramfs update-initramfs
    update-initramf grub-mkconfig nvidia-installer fwupdtool
""")
WORK_UNITS: tuple[str, ...] = (
    "ollama*", "vllm*", "triton*", "tgi*", "sglang*", "llama*", "jupyter*", "code-server*", "rstudio*", "ray*", "dask*",
    "actions.runner*", "gitlab-runner*", "buildkite*", "libvirt-*", "qemu*", "nomad*", "comfyui*",
    "jenkins*", "go-agent*", "buildbot*", "teamcity*", "forgejo-runner*", "gitea-runner*", "act_runner*", "boinc*",
    "fah-client*", "foldingathome*", "shiny-server*", "jellyfin*", "plexmediaserver*", "emby-server*",
)  # fmt: skip

"""The notation of a life: each key of its file, and of a process in its `cast`, with what it means."""

LIFE = {
    "title": "what happens, in one line",
    "truth": "`busy` or `forgotten`",
    "who": "who would miss the machine and why, or that nobody would",
    "ends": "when it ends (24h)",
    "base": "`none`: without the processes of base.yaml",
    "days": "so many days before it of which the agent remembers something: of each the first five hours are played, "
    "with a look each five minutes. The life begins after them (`days: 4`: on Friday at 08:00), and `ends` counts from "
    "Monday: `ends: 104h`",
    "used": "from when on somebody would miss it, without it from the beginning: the controller's rounds begin there",
    "gpus": "`model` (gpus.py), `count`, `of` (the type has so many), `power_limit`; of all GPUs or below a GPU's "
    "number: `util` (a rate), `power`, `memory` (held by nobody listed), `bandwidth`, `sm`, `arithmetic` (of what `sm` "
    "does; 0: it polls), `graphics`, `mig` (so many instances), `page_cache`, `clocks_up`, `lost` (since when)",
    "instance_store": "`none`, `unused` (never formatted), `used` (ext4, mounted, written)",
    "agent": "`restarts`: when it begins anew (inputs), and what it `was` before: `this` (it ends and keeps its file), "
    "`killed`, `older` (its file is without who came); `pids: container` (its own PID namespace), `run: hidden` (no "
    "sessions to see), `clock: 45s` (fast), `dead: true`",
    "packages": "`by`: the database of packages (`dpkg`, without this key; `rpm`, `none`); patterns of paths below "
    "/usr and in /etc that are the `company`'s or `nobody`'s (or edited). packages.py has what distributions and known "
    "vendors bring",
    "settings": "keys of `agent:` as in the configuration; without it the defaults",
    "users": "name and number of further users",
    "units": "unit files, which start what the first process there runs unless `exec` says otherwise: `shipped` "
    "(/usr/lib), `admin` (/etc), `transient` (/run), or `{from, exec, user, text, folder, owner}`",
    "files": "by path: text, or `{text, user, written}`; those of a container are below `/containers/NAME`",
    "links": "by path",
    "commands": "programs on the agent's PATH, and what they print (`squeue`); `{prints, pending}`: `pending` for the "
    "jobs that wait",
    "logins": "sessions by SSH: `user`, `utmp: false` (a system without it), `closed` (`mesg n`), `waits`, `id`, `tty` "
    "(or `none`), `from`, `to`, `typed`, `host`, `shell`, `type` (`x11`: a desktop); `every` and `for`: one that comes "
    "again and again, with another `id` each time, and with a copy of the processes in the first one's session",
    "tmux": "windows: `user`, `in`, `tty`, `from`, `typed`, `program` (`screen`), `as`, `server: false`, `closed`, "
    "`waits`",
    "terminals": "open terminals without a login: `user`, `from`, `to`, `typed`",
    "web": "what answers on loopback: `kind` (jupyter, vllm, ollama, triton, sglang), `port`, `by`, `requests`, "
    "`works`, `status`, `tabs`",
    "fleet": "the other machines of its pool: `machines` (with this one), and what all others have besides the base: "
    '`services` (`"UNIT FILE"`, numbers as 0) and `ports`',
    "forwards": "packets that it passes on for others, in a second (a rate)",
    "datagrams": 'flows of UDP that the firewall follows, `"LOCAL PEER [from D] [to D] [every D for D]"`, answered; '
    "the peer began them, or with `asks ` in front this machine. Without an answer: `tells ` in front of what the peer "
    "sends, `says ` of what this machine sends",
    "udp": "besides the hum of base.yaml: `got` and `sent`, datagrams of UDP from and to other machines (rates); "
    "`heard`, those of `got` that are for all (multicast); `lookups`, moments at which a program here asks a resolver "
    "(inputs)",
    "rdma": "cards by name (`rdmap…`: EFA, others: InfiniBand) with the rates `in` and `out`",
    "cast": "the processes",
}
PROCESS = {
    "as": "its name in this file",
    "comm": "as the kernel shows it, as are `exe`, `cmdline`, `cwd` and `user`",
    "exe": "/usr/bin/COMM without it",
    "cmdline": "its `exe` without it",
    "cwd": "its folder",
    "user": "root without it",
    "in": "`unit X.service`, `session 4` (of its user; `session 4 of alice`), `user app.slice/x.service` (below the "
    "user's manager), `docker NAME`, `podman NAME`, `pod NAMESPACE/POD/CONTAINER`, `slurm 812`, `kernel`, or a path",
    "parent": "another process; else the shell of its session, the container's shim, or the first process",
    "start": "since when it is there",
    "end": "until when",
    "every": "one that comes again and again, with another pid each time",
    "for": "how long it stays each time",
    "tty": "its terminal",
    "state": "S, D, T (stopped), t (traced), Z",
    "threads": "how many",
    "copies": "so many like it",
    "pid": "else given by order",
    "cores": "a rate",
    "read": "a rate: bytes from disk",
    "write": "a rate: bytes to disk",
    "rchar": "a rate: bytes that system calls read beyond those of the disk",
    "wchar": "a rate: bytes that system calls write beyond those of the disk",
    "faults": "a rate",
    "net": "a rate: bytes in through `card`",
    "send": "a rate: bytes out through `card`",
    "card": "ens5 without it",
    "waits": "of a shell: the function of the kernel in which its builtin waits (without it, it is at its prompt)",
    "forked": "of a shell: a subshell",
    "gpu": "which GPUs it holds",
    "gpu_memory": "how much memory there",
    "gpu_kind": "compute without it",
    "util": "a rate: how much it uses them",
    "listed": "`false`: not in the driver's list",
    "listens": 'sockets: `"0.0.0.0:8888"`',
    "connected": 'sockets: `"LOCAL PEER [from D] [to D] [every D for D]"`; `chance D` for `every D`: one turn in five',
    "udp": 'sockets of UDP: `"0.0.0.0:53"`, with a peer a connected one',
    "own_network": "containers have a network of their own unless `false`",
    "note": "for readers",
}

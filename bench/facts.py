#!/usr/bin/env python3
"""Measures `windlass facts` beside Ansible's setup, pyinfra's facts and plain ssh, then on many hosts.

    cargo build --release --locked --workspace
    sudo python3 bench/facts.py                    about four minutes; tables on stdout
    sudo python3 bench/facts.py --hosts 2 --rounds 1 --many 20   a short run: does it work at all
    sudo python3 bench/facts.py --hosts 1 --rounds 0     only memory and time with many hosts, half a minute
    sudo python3 bench/facts.py --json FILE        also every single figure in FILE

Linux, root, what `cargo xtask lab packages` installs, and a package index to fetch ansible-core and
pyinfra from, which come into a virtual environment of the run. Takes Python's standard library alone.

What is measured:
- Eight lab hosts (`cargo xtask lab`), made for the run and taken away after it: network namespaces with
  systemd and OpenSSH's sshd on this machine. All of them share its cores, which is most of any time here.
- Every way is told the hosts' keys and checks them, logs in with the same key, and keeps no connection
  from an earlier run. The ways alternate, and the order turns with each round. A time is that of the
  whole command; the figure is the median of the rounds, with least and greatest. A ratio is taken within
  each round, then the median.
- windlass: `windlass facts`, all that it knows to ask.
- ssh: one `ssh` process a host, all at once, that runs what a person would type to see some of it
  (the commands are below). The floor: the same with `true`.
- Ansible: `ansible all -m setup -f HOSTS`. pyinfra: `pyinfra INVENTORY fact …` with thirteen facts.
- Many hosts: an inventory with as many names for one sshd (it is told to take that many logins at once).
  Shown are the time and the greatest resident memory of `windlass facts` and `windlass verify` for 1, a
  tenth and all of the names. One host under many names differs in what every host has for itself alone,
  so `verify` ends with 5.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAB = "bench-facts"
BY_HAND = (
    "cat /etc/os-release /proc/cmdline /proc/cpuinfo /proc/meminfo; uname -a; df -P; ip addr; ip route; lsblk -J; "
    "dpkg-query -W; cat /etc/default/grub /etc/modprobe.d/*; date; uptime; id"
)
PYINFRA = (
    "server.LinuxDistribution server.Kernel server.KernelVersion server.Arch server.Hostname server.Mounts server.Users "
    "server.Sysctl server.Date hardware.Cpus hardware.Memory hardware.BlockDevices hardware.NetworkDevices"
).split()
# Runs a command and says its time and the greatest resident memory of any process of it.
WATCHED = """
import json, resource, subprocess, sys, time
began = time.monotonic()
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"code": done.returncode, "seconds": time.monotonic() - began, "kib": used.ru_maxrss,
                  "bytes": len(done.stdout), "processor": used.ru_utime + used.ru_stime}))
"""


class Bench:
    def __init__(self, folder: Path, hosts: int):
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        self.programs = target / "release"
        for program in ("windlass", "xtask"):
            if not (self.programs / program).is_file():
                sys.exit(f"{self.programs / program} is missing: cargo build --release --locked --workspace")
        self.place = target / "lab" / LAB
        self.home = folder
        self.hosts = hosts
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "PYINFRA_", "SSH_AUTH"))},
            "HOME": str(folder),
            **{f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")},
        }

    def lab(self, *words) -> str:
        command = [self.programs / "xtask", "lab", "--name", LAB, *words]
        result = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=900, env=self.environment
        )
        if result.returncode != 0:
            sys.exit(f"`{' '.join(map(str, words))[:300]}` failed: {result.stderr[-2000:] or result.stdout[-2000:]}")
        return result.stdout

    def watched(self, *words, well=(0,)) -> dict:
        said = json.loads(self.lab("ctl", sys.executable, "-c", WATCHED, *words).splitlines()[-1])
        if said["code"] not in well:
            sys.exit(f"`{' '.join(map(str, words))[:300]}` ended with {said['code']}")
        return said

    def up(self) -> None:
        self.lab("up", self.hosts)
        lines = self.lab("status").splitlines()
        self.addresses = [line.split()[4] for line in lines if line.startswith("h")]
        if len(self.addresses) != self.hosts:
            sys.exit(f"the lab has not {self.hosts} hosts: {lines}")

    def install(self) -> None:
        place = self.home / "tools"
        venv.create(place, with_pip=True)
        subprocess.run([place / "bin/pip", "install", "--quiet", "ansible-core", "pyinfra"], check=True)
        self.tools = place / "bin"
        listed = subprocess.run([place / "bin/pip", "list"], capture_output=True, text=True, check=True).stdout
        self.versions = ", ".join(" ".join(l.split()) for l in listed.splitlines() if l.startswith(("ansible-core ", "pyinfra ")))
        options = f"-F none -o UserKnownHostsFile={self.place / 'known_hosts'} -o ControlMaster=no -o ControlPath=none"
        names = "\n".join(
            f"{a} ansible_user=root ansible_ssh_private_key_file={self.place / 'id'} ansible_ssh_common_args='{options}'"
            for a in self.addresses
        )
        (self.home / "ansible.ini").write_text(names + "\n")
        hosts = [
            (a, {"ssh_user": "root", "ssh_key": str(self.place / "id"),
                 "ssh_known_hosts_file": str(self.place / "known_hosts"), "ssh_strict_host_key_checking": "yes"})
            for a in self.addresses
        ]
        (self.home / "hosts.py").write_text(f"hosts = {hosts!r}\n")

    def windlass(self) -> dict:
        return self.watched(self.programs / "windlass", "-i", self.place / "inventory.toml", "--json", "facts")

    def parallel(self, command: str) -> dict:
        each = (
            f"ssh -F none -o BatchMode=yes -o UserKnownHostsFile={self.place / 'known_hosts'} -i {self.place / 'id'} "
            "root@{} " + "'" + command + "'"
        )
        lines = "\n".join(each.format(a) + " &" for a in self.addresses)
        return self.watched("/bin/sh", "-c", lines + "\nwait")

    def ssh(self) -> dict:
        return self.parallel(BY_HAND)

    def login(self) -> dict:
        return self.parallel("true")

    def ansible(self) -> dict:
        return self.watched(self.tools / "ansible", "all", "-i", self.home / "ansible.ini", "-m", "setup", "-f", self.hosts)

    def pyinfra(self) -> dict:
        return self.watched(self.tools / "pyinfra", "-y", self.home / "hosts.py", "fact", *PYINFRA)

    def many(self, command: str, count: int) -> dict:
        each = "\n".join(
            f'[hosts.many{n:04}]\naddress = "{self.addresses[0]}"\nuser = "root"\n'
            f'ssh = {{ identity = "{self.place / "id"}", known_hosts = "{self.place / "known_hosts"}" }}\n'
            for n in range(count)
        )
        inventory = self.home / "many.toml"
        inventory.write_text(f'[cluster]\nname = "many"\n\n{each}')
        return self.watched(self.programs / "windlass", "-i", inventory, "--json", command, well=(0, 5))

    def welcoming(self) -> None:
        self.lab(
            "sh", "h1",
            "mkdir -p /etc/ssh/sshd_config.d; echo 'MaxStartups 1000' > /etc/ssh/sshd_config.d/many.conf; "
            "grep -q sshd_config.d /etc/ssh/sshd_config || echo 'MaxStartups 1000' >> /etc/ssh/sshd_config; "
            "systemctl reload ssh",
        )
        time.sleep(1)


def spread(values: list, digits: int = 2) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def compare(bench: Bench, rounds: int, figures: dict) -> None:
    """Windlass beside the other ways."""
    bench.install()
    ways = ["windlass", "ssh", "login", "ansible", "pyinfra"]
    all_of: dict = {name: [] for name in ways}
    for name in ways:
        getattr(bench, name)()
    for turn in range(rounds):
        for name in ways if turn % 2 == 0 else reversed(ways):
            all_of[name].append(getattr(bench, name)())
    figures["facts"] = all_of
    shown = {
        "windlass": "windlass facts", "ssh": "plain ssh, some commands", "login": "plain ssh, `true`",
        "ansible": "Ansible setup", "pyinfra": "pyinfra, 13 facts",
    }
    print(f"{bench.hosts} hosts, {rounds} rounds; {bench.versions}\n")
    print("| way | seconds | windlass / it | KiB of output |\n|---|---|---|---|")
    ours = [one["seconds"] for one in all_of["windlass"]]
    for name in ways:
        times = [one["seconds"] for one in all_of[name]]
        ratios = [a / b for a, b in zip(ours, times)]
        print(f"| {shown[name]} | {spread(times)} | {spread(ratios)} | {all_of[name][0]['bytes'] / 1024:.0f} |", flush=True)


def many(bench: Bench, most: int, figures: dict) -> None:
    """Memory and time by the number of hosts."""
    bench.welcoming()
    print("\n| command | names | seconds | greatest resident memory, MiB |\n|---|---|---|---|")
    for command in ("facts", "verify"):
        for count in sorted({1, max(1, most // 10), most}):
            said = bench.many(command, count)
            figures.setdefault("many", {}).setdefault(command, {})[count] = said
            print(f"| {command} | {count} | {said['seconds']:.1f} | {said['kib'] / 1024:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5, help="0 leaves the other ways out")
    parser.add_argument("--many", type=int, default=200, help="names for one host; 0 leaves that part out")
    parser.add_argument("--json", type=Path, help="write every figure there")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("the lab needs root")
    figures: dict = {"load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        bench = Bench(Path(folder), options.hosts)
        bench.up()
        try:
            if options.rounds:
                compare(bench, options.rounds, figures)
            if options.many:
                many(bench, options.many, figures)
        finally:
            subprocess.run([bench.programs / "xtask", "lab", "--name", LAB, "down"], check=False)
            shutil.rmtree(bench.place, ignore_errors=True)
    figures["load_after"] = os.getloadavg()[0]
    print(f"\nload {figures['load_before']:.2f} before, {figures['load_after']:.2f} after")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()

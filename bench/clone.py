#!/usr/bin/env python3
"""Measures `windlass clone` beside `dd | zstd | ssh` on the same disk, which is half full.

    cargo build --release --locked --workspace
    sudo python3 bench/clone.py                     about two minutes; a table on stdout
    sudo python3 bench/clone.py --rounds 1 --mib 512   a short run: does it work at all
    sudo python3 bench/clone.py --json FILE         also every single figure in FILE

Linux, root, what `cargo xtask lab packages` installs, and fdisk and zstd. Takes Python's standard library alone.

What is measured:
- Two lab hosts (`cargo xtask lab`), made for the run and taken away after it, on cables of one rate. Each has a
  disk, a loop device of this machine. That of the first holds a small system, and files up to half of it: two thirds
  random bytes, one third text. So all ends share this machine's cores.
- In every round both ways copy that disk onto the empty one of the second host, and the order turns with each round:
  `windlass clone` from its first word to its last, with comparing every byte at both ends, identity and boot loader
  (a stand-in); and `dd bs=4M | zstd -1 -c | ssh h2 'zstd -dc | dd bs=4M conv=sparse,fsync'`, run on the first host,
  with the source unmounted, which compares nothing and changes no identity.
- `copy` is the part of `windlass clone` that does what the other does: the streams, by its own log.
- A figure is seconds; the ratio is time of dd / time of windlass, taken within each round: above 1.0 windlass is
  faster. Median, then the least and the greatest. The load at start and end is printed.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAB = "bench-clone"
FROM, TO = "h1", "h2"
NODES = """
mknod /dev/{name} b 7 {number}
cat >/run/nodes <<'E'
while sleep 0.05; do
for node in /dev/{name}p*; do [ ! -b $node ] || [ -e /sys/block/{name}/${{node##*/}} ] || rm $node; done
for one in /sys/block/{name}/{name}p*; do [ -e $one/dev ] || continue; node=/dev/${{one##*/}}
[ "$(stat -c %Hr:%Lr $node 2>/dev/null)" = "$(cat $one/dev)" ] || {{ rm -f $node; mknod $node b $(tr : ' ' <$one/dev); }}; done
done
E
setsid sh /run/nodes >/dev/null 2>&1 </dev/null &
"""
SYSTEM = """
set -e
printf 'label: gpt\\nsize=1MiB, type=21686148-6449-6E6F-744E-656564454649\\nsize=+\\n' | sfdisk -q --no-reread {disk}
partx -a {disk}; until [ -b {disk}p2 ]; do sleep 0.05; done
mkfs.ext4 -q -F {disk}p2; mkdir -p /mnt/sys; mount {disk}p2 /mnt/sys; cd /mnt/sys
mkdir -p etc/ssh bin usr/sbin home dev proc sys run
printf 'UUID=%s / ext4 defaults 0 1\\n' $(blkid -p -s UUID -o value {disk}p2) >etc/fstab
echo h1 >etc/hostname; echo 127.0.1.1 h1 >etc/hosts
cp /bin/dash bin/sh
for one in $(ldd /bin/dash | grep -o '/[^ )]*'); do mkdir -p .$(dirname $one); cp -L $one .$one; done
printf '#!/bin/sh\\nprintf GRUB 1<>"$2"\\n' >usr/sbin/grub-install; chmod 755 usr/sbin/grub-install
i=0; while [ $i -lt {files} ]; do
head -c 2097152 /dev/urandom >home/random-$i
head -c 786432 /dev/urandom | base64 >home/text-$i; i=$((i+1)); done
cd /; umount /mnt/sys; sync
"""


class Bench:
    def __init__(self, folder: Path, mib: int, rate: str):
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        self.programs = target / "release"
        for program in ("windlass", "windlass-worker", "xtask"):
            if not (self.programs / program).is_file():
                sys.exit(f"{self.programs / program} is missing: cargo build --release --locked --workspace")
        self.place = target / "lab" / LAB
        self.home, self.mib, self.rate = folder, mib, rate
        self.disks: dict = {}

    def lab(self, *words, fine=(0,), **options) -> str:
        command = [self.programs / "xtask", "lab", "--name", LAB, *words]
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=1200, **options)
        if result.returncode not in fine:
            said = result.stderr.strip() or result.stdout.strip()
            sys.exit(f"`{' '.join(map(str, words))}` failed: {said[-2000:]}")
        return result.stdout

    def disk(self, host: str) -> None:
        image = self.home / f"{host}.img"
        with image.open("wb") as file:
            file.truncate(self.mib << 20)
        said = subprocess.run(["losetup", "-fP", "--show", image], capture_output=True, text=True, check=True)
        self.disks[host] = (said.stdout.strip(), image)
        name = self.disks[host][0].rsplit("/", 1)[1]
        self.lab("sh", host, NODES.format(name=name, number=name.removeprefix("loop")))

    def up(self) -> None:
        self.lab("up", "2")
        lines = self.lab("status").splitlines()
        self.address = next(line for line in lines if line.startswith(TO)).split()[4]
        for host in (FROM, TO):
            self.disk(host)
            self.lab("sh", host, f"tc qdisc replace dev eth0 root tbf rate {self.rate} burst 256k latency 20ms")
        self.lab("sh", FROM, SYSTEM.format(disk=self.disks[FROM][0], files=self.mib // 2 // 3))
        key = next(path for path in self.place.glob("id*") if path.suffix != ".pub").read_text()
        self.lab("sh", FROM, f"mkdir -p /root/.ssh; umask 077; cat >/root/.ssh/bench <<'E'\n{key}E\n")

    def empty(self) -> None:
        disk, image = self.disks[TO]
        subprocess.run(["partx", "-d", disk], capture_output=True, check=False)
        with image.open("r+b") as file:
            file.truncate(0)
            file.truncate(self.mib << 20)
        subprocess.run(["losetup", "-c", disk], check=True)
        subprocess.run(["sync"], check=True)
        Path("/proc/sys/vm/drop_caches").write_text("3")

    def windlass(self) -> dict:
        environment = {
            **os.environ,
            "HOME": str(self.home),
            **{f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")},
        }
        words = [
            "ctl", self.programs / "windlass", "-i", self.place / "inventory.toml", "--json", "clone", FROM, TO,
            "--source", self.disks[FROM][0], "--disk", self.disks[TO][0],
        ]
        said = self.lab(*words, "--check", env=environment)
        token = json.loads(said.splitlines()[-1])["confirm"]
        begin = time.monotonic()
        said = self.lab(*words, "--confirm", token, env=environment)
        whole = time.monotonic() - begin
        copy = sum(float(found) for found in re.findall(r"\bin ([0-9.]+) s \(", said))
        return {"whole": whole, "copy": copy}

    def dd(self) -> dict:
        line = (
            f"dd if={self.disks[FROM][0]} bs=4M status=none | zstd -1 -c | ssh -F none -o BatchMode=yes "
            f"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i /root/.ssh/bench root@{self.address} "
            f"'zstd -dc | dd of={self.disks[TO][0]} bs=4M iflag=fullblock conv=sparse,fsync status=none'"
        )
        begin = time.monotonic()
        self.lab("sh", FROM, line)
        return {"whole": time.monotonic() - begin}

    def down(self) -> None:
        subprocess.run([self.programs / "xtask", "lab", "--name", LAB, "down"], check=False)
        for disk, _ in self.disks.values():
            subprocess.run(["partx", "-d", disk], capture_output=True, check=False)
            subprocess.run(["losetup", "-d", disk], check=False)
        shutil.rmtree(self.place, ignore_errors=True)


def spread(values: list, digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mib", type=int, default=2048, help="size of the disks")
    parser.add_argument("--rate", default="1gbit", help="of the cables, as tc writes it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write every figure there")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("the lab needs root")
    load = os.getloadavg()[0]
    rounds: list = []
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        bench = Bench(Path(folder), options.mib, options.rate)
        try:
            bench.up()
            for turn in range(options.rounds):
                order = ["windlass", "dd"]
                figures = {}
                for name in order if turn % 2 == 0 else reversed(order):
                    bench.empty()
                    figures[name] = getattr(bench, name)()
                rounds.append(figures)
        finally:
            bench.down()
    theirs = [one["dd"]["whole"] for one in rounds]
    print("| what | windlass, s | dd, zstd, ssh, s | ratio |\n|---|---|---|---|")
    for part in ("copy", "whole"):
        ours = [one["windlass"][part] for one in rounds]
        ratios = [b / a for a, b in zip(ours, theirs)]
        print(f"| {part} | {spread(ours, 1)} | {spread(theirs, 1)} | {spread(ratios, 2)} |")
    print(f"\nload {load:.2f} before, {os.getloadavg()[0]:.2f} after")
    if options.json:
        options.json.write_text(json.dumps(rounds, indent=1))


if __name__ == "__main__":
    main()

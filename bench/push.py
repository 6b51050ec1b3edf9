#!/usr/bin/env python3
"""Measures `windlass push` beside scp and a raw TCP connection, then over a long link beside iperf3.

    cargo build --release --locked --workspace
    sudo python3 bench/push.py                     about four minutes; tables on stdout
    sudo python3 bench/push.py --size 256 --rounds 1   a short run: does it work at all
    sudo python3 bench/push.py --json FILE         also every single figure in FILE

Linux, root, and what `cargo xtask lab packages` installs. Takes Python's standard library alone.

What is measured:
- One lab host (`cargo xtask lab`), made for the run and taken away after it: a network namespace with
  systemd and OpenSSH's sshd on this machine. So all ends share its cores, and a rate is what the
  processors allow, not a network.
- A model file of random bytes (1 GiB unless --size says otherwise), which is in memory when it is sent.
- Every round sends it by each way to the host's disk, where nothing of it lies before: the ways
  alternate, and the order turns with each round. A time is that of the whole command, login included;
  for the raw connection, from before the connect until the receiver has written all.
- windlass: the worker's program and the digests of the model file and its pieces are there from a
  first push, which is not counted (it takes a digest of all it sends, too). The host takes a digest of all that comes and has its disk synced; scp and the raw
  connection do neither, so scp is also measured with a `sync` of the file after it.
- scp: `scp -c aes128-gcm@openssh.com`, the cipher that windlass takes. Raw: one TCP connection with
  sendfile on one side and read, write on the other.
- A rate is bytes of the file / time; the figure is the median of the rounds, with least and greatest.
  A ratio is taken within each round, then the median.
- The long link: the lab's user-space wire with 5 ms each way and a limit of 1 Gb/s. iperf3 says in the
  same round what one TCP connection reaches over it.
"""

import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAB = "bench-push"
HOST = "h1"
THERE = "/var/lib/bench"
RAW_PORT = 47999

RECEIVE = """
import os, socket, sys
server = socket.create_server(("", %d))
print("ready", flush=True)
peer, _ = server.accept()
buffer = memoryview(bytearray(1 << 20))
with open(sys.argv[1], "wb", buffering=0) as out:
    while got := peer.recv_into(buffer):
        out.write(buffer[:got])
peer.sendall(b"!")
""" % RAW_PORT

SEND = """
import socket, sys, time
began = time.monotonic()
with socket.create_connection((sys.argv[1], %d)) as peer, open(sys.argv[2], "rb") as file:
    peer.sendfile(file)
    peer.shutdown(socket.SHUT_WR)
    assert peer.recv(1) == b"!"
print(time.monotonic() - began)
""" % RAW_PORT


def gguf(path: Path, size: int) -> None:
    """Writes a model file of about this many bytes: llama's tensors in F16, all random."""
    embd, ffn, heads, kv_heads, vocab = 1024, 2816, 16, 4, 8192
    kv = embd // heads * kv_heads

    def matrix(name: str, rows: int, columns: int) -> tuple:
        return (name, (columns, rows))

    def layer(n: int) -> list:
        return [
            (f"blk.{n}.attn_norm.weight", (embd,)),
            matrix(f"blk.{n}.attn_q.weight", embd, embd),
            matrix(f"blk.{n}.attn_k.weight", kv, embd),
            matrix(f"blk.{n}.attn_v.weight", kv, embd),
            matrix(f"blk.{n}.attn_output.weight", embd, embd),
            (f"blk.{n}.ffn_norm.weight", (embd,)),
            matrix(f"blk.{n}.ffn_gate.weight", ffn, embd),
            matrix(f"blk.{n}.ffn_up.weight", ffn, embd),
            matrix(f"blk.{n}.ffn_down.weight", embd, ffn),
        ]

    def bytes_of(tensor: tuple) -> int:
        count = 1
        for dimension in tensor[1]:
            count *= dimension
        return count * 2 if len(tensor[1]) == 2 else count * 4

    tensors = [matrix("token_embd.weight", vocab, embd), ("output_norm.weight", (embd,))]
    each = sum(map(bytes_of, layer(0)))
    layers = max(1, round((size - sum(map(bytes_of, tensors))) / each))
    for n in range(layers):
        tensors += layer(n)

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    numbers = {
        "llama.block_count": layers,
        "llama.context_length": 4096,
        "llama.embedding_length": embd,
        "llama.feed_forward_length": ffn,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv_heads,
        "llama.vocab_size": vocab,
    }
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(numbers) + 2)
    head += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    head += text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)
    for key, value in numbers.items():
        head += text(key) + struct.pack("<II", 4, value)
    offset = 0
    for tensor in tensors:
        name, dimensions = tensor
        head += text(name) + struct.pack("<I", len(dimensions))
        head += b"".join(struct.pack("<Q", dimension) for dimension in dimensions)
        # F16 is type 1; vectors are F32, type 0.
        head += struct.pack("<IQ", 1 if len(dimensions) == 2 else 0, offset)
        offset += (bytes_of(tensor) + 31) // 32 * 32
    head += bytes(-len(head) % 32)
    with path.open("wb") as out:
        out.write(head)
        while offset > 0:
            out.write(os.urandom(min(offset, 16 << 20)))
            offset -= 16 << 20


class Bench:
    def __init__(self, folder: Path, megabytes: int):
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        self.programs = target / "release"
        for program in ("windlass", "windlass-worker", "xtask"):
            if not (self.programs / program).is_file():
                sys.exit(f"{self.programs / program} is missing: cargo build --release --locked --workspace")
        self.place = target / "lab" / LAB
        self.home = folder / "home"
        self.home.mkdir()
        self.model = folder / "bench.gguf"
        gguf(self.model, megabytes << 20)
        self.bytes = self.model.stat().st_size

    def lab(self, *words, **options) -> subprocess.CompletedProcess:
        command = [self.programs / "xtask", "lab", "--name", LAB, *words]
        # A file: what serves a delayed cable lives on, with stderr open.
        with tempfile.TemporaryFile("w+") as talk:
            result = subprocess.run(
                list(map(str, command)), stdout=subprocess.PIPE, stderr=talk, text=True, timeout=600, **options
            )
            talk.seek(0)
            said = talk.read().strip()
        if result.returncode:
            sys.exit(f"`{' '.join(map(str, words))}` failed: {said or result.stdout.strip()}")
        return result

    def up(self) -> None:
        self.lab("up", "1")
        line = next(line for line in self.lab("status").stdout.splitlines() if line.startswith(HOST))
        self.address = line.split()[4]
        self.clear()

    def clear(self) -> None:
        """Nothing sent before is there, and no write of it is under way."""
        self.lab("sh", HOST, f"rm -rf {THERE} /var/lib/windlass/pieces; mkdir -p {THERE}; sync")

    def windlass(self) -> float:
        environment = {
            **os.environ,
            "HOME": str(self.home),
            **{f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")},
        }
        began = time.monotonic()
        said = self.lab(
            "ctl", self.programs / "windlass", "-i", self.place / "inventory.toml", "--json", "push", self.model,
            env=environment,
        ).stdout
        seconds = time.monotonic() - began
        pushed = json.loads(said.splitlines()[-1])["pushed"][HOST]
        # The pieces repeat the metadata, no more.
        if not 0.99 < pushed["received_bytes"] / self.bytes < 1.01:
            sys.exit(f"windlass sent another number of bytes: {pushed}")
        return seconds

    def scp(self) -> float:
        began = time.monotonic()
        self.lab(
            "ctl", "scp", "-q", "-F", "none", "-c", "aes128-gcm@openssh.com", "-i", self.place / "id",
            "-o", f"UserKnownHostsFile={self.place / 'known_hosts'}", self.model, f"root@{self.address}:{THERE}/scp",
        )
        return time.monotonic() - began

    def scp_and_sync(self) -> float:
        began = time.monotonic()
        self.scp()
        self.lab("sh", HOST, f"sync {THERE}/scp")
        return time.monotonic() - began

    def raw(self) -> float:
        command = [self.programs / "xtask", "lab", "--name", LAB, "sh", HOST, "python3", "-c", RECEIVE, f"{THERE}/raw"]
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as receiver:
            if receiver.stdout.readline() != "ready\n":
                sys.exit("the raw receiver did not start")
            sent = self.lab("ctl", "python3", "-c", SEND, self.address, self.model).stdout
        return float(sent)

    def iperf3(self) -> float:
        """Bits a second, as received."""
        command = [self.programs / "xtask", "lab", "--name", LAB, "sh", HOST, "iperf3", "-s", "-1", "--forceflush"]
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as server:
            for line in server.stdout:
                if "listening" in line:
                    break
            said = self.lab("ctl", "iperf3", "-c", self.address, "-t", "8", "-O", "1", "-J").stdout
        return json.loads(said)["end"]["sum_received"]["bits_per_second"]


def row(name: str, rates: list) -> str:
    return f"| {name} | {statistics.median(rates):.0f} ({min(rates):.0f}..{max(rates):.0f}) |"


def ratio(name: str, ours: list, others: list) -> str:
    each = [a / b for a, b in zip(ours, others)]
    return f"{name}: {statistics.median(each):.2f} ({min(each):.2f}..{max(each):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=1024, help="MiB of the model file (default 1024)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write every figure there")
    parser.add_argument("--only", choices=("near", "far"), help="one of the two parts")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("the lab needs root")
    figures: dict = {"load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        bench = Bench(Path(folder), options.size)
        figures["bytes"] = bench.bytes
        bench.up()
        try:
            bench.windlass()
            bits = bench.bytes * 8 / 1e6
            if options.only != "far":
                ways = {"windlass": bench.windlass, "scp": bench.scp, "synced": bench.scp_and_sync, "raw": bench.raw}
                rates: dict = {name: [] for name in ways}
                for turn in range(options.rounds):
                    names = list(ways)
                    for name in names[turn % len(names):] + names[:turn % len(names)]:
                        bench.clear()
                        rates[name].append(bits / ways[name]())
                figures["near"] = rates
                print(f"{bench.bytes / (1 << 20):.0f} MiB to a host on this machine\n\n| Mb/s | median (least..greatest) |\n|---|---|")
                print(row("windlass push", rates["windlass"]))
                print(row("scp, aes128-gcm", rates["scp"]))
                print(row("scp, then `sync` of the file", rates["synced"]))
                print(row("raw TCP", rates["raw"]))
                print("\n" + ratio("windlass / scp", rates["windlass"], rates["scp"]))
                print(ratio("windlass / scp and sync", rates["windlass"], rates["synced"]))
                print(ratio("windlass / raw TCP", rates["windlass"], rates["raw"]) + "\n")
            if options.only != "near":
                bench.lab("delay", HOST, "5000", "--rate", "1gbit")
                ping = bench.lab("ctl", "ping", "-q", "-c", "10", "-i", "0.1", bench.address).stdout
                figures["ping"] = ping.strip().splitlines()[-1]
                far: dict = {"windlass": [], "iperf3": []}
                for turn in range(options.rounds):
                    order = ["windlass", "iperf3"]
                    for name in order if turn % 2 == 0 else reversed(order):
                        if name == "iperf3":
                            far[name].append(bench.iperf3() / 1e6)
                        else:
                            bench.clear()
                            far[name].append(bits / bench.windlass())
                figures["far"] = far
                print(f"over 5 ms each way and 1 Gb/s ({figures['ping']})\n\n| Mb/s | median (least..greatest) |\n|---|---|")
                print(row("windlass push", far["windlass"]))
                print(row("iperf3, 1 connection", far["iperf3"]))
                print("\n" + ratio("windlass / iperf3", far["windlass"], far["iperf3"]) + "\n")
        finally:
            subprocess.run([bench.programs / "xtask", "lab", "--name", LAB, "down"], check=False)
            shutil.rmtree(bench.place, ignore_errors=True)
    figures["load_after"] = os.getloadavg()[0]
    print(f"load {figures['load_before']:.2f} before, {figures['load_after']:.2f} after")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures what `windlass net` says of a link beside what iperf3 says of it, on links of known rates.

    cargo build --release --locked --workspace
    sudo python3 bench/links.py                    about three minutes; a table on stdout
    sudo python3 bench/links.py --rounds 1 --rates 1gbit   a short run: does it work at all
    sudo python3 bench/links.py --json FILE        also every single figure in FILE

Linux, root, and what `cargo xtask lab packages` installs. Takes Python's standard library alone.

What is measured:
- Two lab hosts (`cargo xtask lab`), made for the run and taken away after it: network namespaces on this
  machine, their cables limited by tc's token bucket. So all ends share its cores.
- In every round and for every rate, windlass and iperf3 measure the same link right after each other,
  and the order turns with each round: `windlass net --seconds 4`, and `iperf3 -t 4 -O 1`, one
  connection, from the first host to the second and with `-R` back.
- A figure is megabits a second as the receiver counts them. The ratio windlass / iperf3 is taken
  within each round; shown are its median, least and greatest. It should be within 0.90 and 1.10.
- The round trip is the median of 64-byte messages on an open connection, beside ping's average.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAB = "bench-links"
FROM, TO = "h1", "h2"
SECONDS = 4


class Bench:
    def __init__(self, folder: Path):
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        self.programs = target / "release"
        for program in ("windlass", "windlass-worker", "xtask"):
            if not (self.programs / program).is_file():
                sys.exit(f"{self.programs / program} is missing: cargo build --release --locked --workspace")
        self.place = target / "lab" / LAB
        self.home = folder

    def lab(self, *words, fine=(0,), **options) -> str:
        command = [self.programs / "xtask", "lab", "--name", LAB, *words]
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, **options)
        if result.returncode not in fine:
            sys.exit(f"`{' '.join(map(str, words))}` failed: {result.stderr.strip() or result.stdout.strip()}")
        return result.stdout

    def up(self) -> None:
        self.lab("up", "2")
        lines = self.lab("status").splitlines()
        self.address = next(line for line in lines if line.startswith(TO)).split()[4]

    def shape(self, rate: str) -> None:
        for host in (FROM, TO):
            self.lab("sh", host, f"tc qdisc replace dev eth0 root tbf rate {rate} burst 256k latency 20ms")

    def windlass(self) -> dict:
        environment = {
            **os.environ,
            "HOME": str(self.home),
            **{f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")},
        }
        # The interfaces say 10 Gb/s, so that the links are slow is found: exit 5.
        said = self.lab(
            "ctl", self.programs / "windlass", "-i", self.place / "inventory.toml", "--json",
            "net", "--forget", "--seconds", SECONDS, env=environment, fine=(0, 5),
        )
        link = json.loads(said.splitlines()[-1])["links"][0]
        return {"there": link["there_mbit"], "back": link["back_mbit"], "trip": link["round_trip_us"]["median"]}

    def iperf3(self) -> dict:
        rates = {}
        for way, flag in (("there", []), ("back", ["-R"])):
            command = [self.programs / "xtask", "lab", "--name", LAB, "sh", TO, "iperf3", "-s", "-1", "--forceflush"]
            with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as server:
                for line in server.stdout:
                    if "listening" in line:
                        break
                said = self.lab("sh", FROM, "iperf3", "-c", self.address, "-t", SECONDS, "-O", "1", "-J", *flag)
            rates[way] = json.loads(said)["end"]["sum_received"]["bits_per_second"] / 1e6
        ping = self.lab("sh", FROM, "ping", "-q", "-c", "20", "-i", "0.05", self.address)
        rates["trip"] = float(ping.strip().splitlines()[-1].split("/")[4]) * 1e3
        return rates


def spread(values: list, digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rates", nargs="+", default=["100mbit", "1gbit", "2500mbit"], help="as tc writes them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write every figure there")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("the lab needs root")
    figures: dict = {"load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        bench = Bench(Path(folder))
        bench.up()
        try:
            print("| rate | way | windlass, Mb/s | iperf3, Mb/s | ratio |\n|---|---|---|---|---|")
            for rate in options.rates:
                bench.shape(rate)
                all_of: dict = {"windlass": [], "iperf3": []}
                for turn in range(options.rounds):
                    order = ["windlass", "iperf3"]
                    for name in order if turn % 2 == 0 else reversed(order):
                        all_of[name].append(getattr(bench, name)())
                figures[rate] = all_of
                for way in ("there", "back"):
                    ours = [one[way] for one in all_of["windlass"]]
                    theirs = [one[way] for one in all_of["iperf3"]]
                    ratios = [a / b for a, b in zip(ours, theirs)]
                    print(f"| {rate} | {way} | {spread(ours, 0)} | {spread(theirs, 0)} | {spread(ratios, 3)} |")
                trips = [spread([one["trip"] for one in all_of[name]], 0) for name in ("windlass", "iperf3")]
                print(f"| {rate} | round trip, µs | {trips[0]} | ping {trips[1]} | |", flush=True)
        finally:
            subprocess.run([bench.programs / "xtask", "lab", "--name", LAB, "down"], check=False)
            shutil.rmtree(bench.place, ignore_errors=True)
    figures["load_after"] = os.getloadavg()[0]
    print(f"\nload {figures['load_before']:.2f} before, {figures['load_after']:.2f} after")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()

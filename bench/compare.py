#!/usr/bin/env python3
"""Measures windlass beside llama.cpp on one core, and one worker against two.

    cargo build --release --workspace
    python3 bench/compare.py                     about three minutes; a table on stdout
    python3 bench/compare.py --json FILE         the same, and every single figure in FILE
    python3 bench/compare.py --quick             two short rounds: does it work at all

Linux. Needs two cores, taskset, openssl, node and npm. node-llama-cpp is installed as the oracles
install it; NODE_LLAMA_CPP names the package's entry file when it is elsewhere.

What is measured:
- Both read the same file and the same prompts (random token ids, new in each round), compute with
  one thread pinned to the same core, greedy, past ends of text, one after the other. llama.cpp has
  the cache type and flash attention that the package chooses; windlass keeps F32.
- Prefill: tokens of the prompt / time to the first token. For windlass from its own `timings`,
  for llama.cpp by the clock around the call.
- Decode: (tokens - 1) / time between first and last token, after a prompt of 4 tokens.
- Total of one and two workers: tokens of all answers / time from sending the first request to the
  end of the last answer. Two workers are pinned to a core each, and talk TLS over loopback.
- The sides alternate, and the order turns with each round. A figure is the median of the rounds,
  then the least and the greatest. A ratio is taken within each round, and then the median.
Nothing else should run on the machine. The load at start and end is printed, and for each row how
much of a core its processes had while they were measured: far below 1 for one worker or llama.cpp
(2 for two workers) means that something else ran there, or that they waited for each other.
"""

import argparse
import http.client
import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL_NAME = "bench"
CONTEXT = 2048
BLOCK = 32
SEQUENCES = 16
BATCH_ROWS = 256
SHORT_PROMPT = 4
# Ids below are special tokens in common vocabularies; ids above may not exist in small ones.
ID_RANGE = (1000, 30000)


def run(command: list, **options) -> str:
    """What a command writes; its errors end this program."""
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, **options)
    if result.returncode:
        sys.exit(f"`{' '.join(map(str, command))}` failed: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout


class Child:
    """A process pinned to a core that speaks JSON lines on stdin and stdout."""

    def __init__(self, core: int, command: list):
        self.name = Path(command[0]).name
        self.process = subprocess.Popen(
            ["taskset", "-c", str(core), *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, message: dict) -> None:
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended with status {self.process.wait()}")
        return json.loads(line)

    def wait_for(self, event: str) -> dict:
        while True:
            said = self.read()
            if said["event"] == event:
                return said
            if said["event"] == "failed":
                sys.exit(f"{self.name} failed: {said['message']}")

    def cpu_seconds(self) -> float:
        """Processor time used so far, all threads."""
        # The program's name, in parentheses, is the only field that may hold spaces.
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def mint(deployment: str, stages: int, folder: Path) -> list:
    """Keys and certificates of a deployment, as windlass makes them."""

    def openssl(*arguments) -> None:
        run(["openssl", *arguments], cwd=folder)

    def key(name: str) -> None:
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", name)

    config = "[req]\ndistinguished_name=dn\nprompt=no\n[dn]\nCN={}\n[ext]\n{}\n"
    authority = "basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign\nsubjectKeyIdentifier=hash"
    (folder / "ca.cnf").write_text(config.format(f"windlass deployment {deployment}", authority))
    key("ca.key")
    openssl("req", "-x509", "-new", "-key", "ca.key", "-config", "ca.cnf", "-extensions", "ext",
            "-days", 2, "-sha256", "-out", "ca.pem")  # fmt: skip
    identities = []
    for stage in range(stages):
        name = f"stage-{stage}.{deployment}.windlass.internal"
        leaf = (
            f"basicConstraints=CA:FALSE\nkeyUsage=critical,digitalSignature\n"
            f"extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=DNS:{name}\nauthorityKeyIdentifier=keyid"
        )
        # A common name has at most 64 characters; the name that counts is the alternative one.
        (folder / "leaf.cnf").write_text(config.format(f"stage {stage}", leaf))
        key("leaf.key")
        openssl("req", "-new", "-key", "leaf.key", "-config", "leaf.cnf", "-out", "leaf.csr")
        openssl("x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-extfile", "leaf.cnf", "-extensions", "ext", "-days", 2, "-sha256", "-out", "leaf.pem")  # fmt: skip
        identities.append({
            "authority": (folder / "ca.pem").read_text(),
            "certificate": (folder / "leaf.pem").read_text(),
            "key": (folder / "leaf.key").read_text(),
        })
    return identities


class Cluster:
    """Workers on this machine, one for each core, and a client of their API."""

    def __init__(self, worker: Path, plan: dict, cores: list, folder: Path):
        deployment = f"bench-{len(cores)}"
        folder = folder / deployment
        folder.mkdir(mode=0o700)
        identities = mint(deployment, len(cores), folder) if len(cores) > 1 else [None]
        self.workers = [Child(core, [worker, "stage"]) for core in cores]
        for stage, (child, part, identity) in enumerate(zip(self.workers, plan["stages"], identities, strict=True)):
            api = {"listen": "127.0.0.1:0", "control": str(folder / "control.sock"), "model": MODEL_NAME}
            child.send({
                "do": "assign", "deployment": deployment, "host": f"core-{cores[stage]}",
                "stage": stage, "stages": len(cores),
                "first_layer": part["first_layer"], "layers": part["layers"],
                "listen": "127.0.0.1:0", "pieces": plan["pieces"], "manifest": plan["manifest"],
                "identity": identity, "api": None if stage else {**api, "api_key_sha256": None},
                "context": CONTEXT, "kv_blocks": SEQUENCES * CONTEXT // BLOCK, "threads": 1,
                "batch_rows": BATCH_ROWS, "follow_stdin": True,
            })  # fmt: skip
        self.devices = [child.wait_for("loaded")["device"] for child in self.workers]
        if len(cores) > 1:
            addresses = [child.wait_for("listening")["address"] for child in self.workers]
            for child in self.workers:
                child.send({"do": "peers", "addresses": addresses})
        self.api = self.workers[0].wait_for("serving")["api"]

    def complete(self, ids: list, tokens: int) -> dict:
        """One request; gives its timings."""
        body = {"model": MODEL_NAME, "prompt": ids, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        connection = http.client.HTTPConnection(self.api, timeout=300)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        if response.status != 200:
            sys.exit(f"the API answered {response.status}: {text.decode(errors='replace')}")
        timings = json.loads(text)["timings"]
        if timings["prompt_n"] != len(ids) or timings["predicted_n"] != tokens:
            sys.exit(f"asked for {tokens} tokens after {len(ids)}, and got {timings}")
        return timings

    def prefill(self, ids: list) -> float:
        return len(ids) / self.complete(ids, 1)["prompt_ms"] * 1e3

    def decode(self, ids: list, tokens: int) -> float:
        return self.complete(ids, tokens)["tokens_per_second"]

    def total(self, prompts: list, tokens: int) -> float:
        """Tokens a second over all prompts, asked at once."""
        with ThreadPoolExecutor(len(prompts)) as pool:
            start = time.perf_counter()
            list(pool.map(lambda ids: self.complete(ids, tokens), prompts))
            return len(prompts) * tokens / (time.perf_counter() - start)

    def cpu_seconds(self) -> float:
        return sum(child.cpu_seconds() for child in self.workers)

    def stop(self) -> None:
        for child in reversed(self.workers):
            child.stop()


class LlamaCpp:
    """llama.cpp under node, pinned to a core."""

    def __init__(self, entry: Path, model: Path, core: int):
        self.child = Child(core, ["node", ROOT / "bench" / "llama.mjs", entry, model, 1])
        self.about = self.child.read()

    def measure(self, ids: list, tokens: int) -> dict:
        self.child.send({"ids": ids, "tokens": tokens})
        return self.child.read()

    def prefill(self, ids: list) -> float:
        return len(ids) / self.measure(ids, 1)["prefill_ms"] * 1e3

    def decode(self, ids: list, tokens: int) -> float:
        return (tokens - 1) / self.measure(ids, tokens)["decode_ms"] * 1e3

    def cpu_seconds(self) -> float:
        return self.child.cpu_seconds()

    def stop(self) -> None:
        self.child.stop()


def node_llama_cpp() -> Path:
    """The package's entry file, installed when it is not there."""
    given = os.environ.get("NODE_LLAMA_CPP")
    if given:
        return Path(given)
    sys.path.insert(0, str(ROOT / "oracles"))
    import make_goldens

    return make_goldens.node_folder() / "node_modules" / "node-llama-cpp" / "dist" / "index.js"


def plans(windlass: Path, model: str) -> dict:
    """Cuts the model as the demo does, and tells how it splits it, by number of workers."""
    folders = dict(line.split(None, 1) for line in run([windlass, "paths"]).splitlines())
    found = {}
    for workers in (1, 2):
        command = [windlass, "demo", "--headless", "--json", "--model", model]
        lines = run([*command, "--workers", workers, "--tokens", 1])
        summary = json.loads(lines.splitlines()[-1])
        short = summary["sha256"][:16]
        found[workers] = {
            "stages": summary["stages"],
            "pieces": str(Path(folders["cache"]) / "pieces" / short),
            "manifest": f"{short}-manifest.json",
            "sha256": summary["sha256"],
        }
    return found


def model_file(windlass: Path, plan: dict, given: str) -> Path:
    """The whole file, for llama.cpp."""
    if Path(given).is_file():
        return Path(given)
    folders = dict(line.split(None, 1) for line in run([windlass, "paths"]).splitlines())
    (path,) = (Path(folders["cache"]) / "models" / plan["sha256"]).glob("*.gguf")
    return path


def cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def load() -> str:
    return Path("/proc/loadavg").read_text().split()[0]


def alternate(sides: list, rounds: int, measure) -> list:
    """Speeds and shares by side and round.

    `measure(side, round)` gives a speed. A share is the processor time that the side used over the
    time that went by.
    """
    results = [{"speed": [], "share": []} for _ in sides]
    for number in range(rounds):
        order = list(range(len(sides)))
        if number % 2:
            order.reverse()
        for at in order:
            used, start = sides[at].cpu_seconds(), time.perf_counter()
            speed = measure(sides[at], number)
            share = (sides[at].cpu_seconds() - used) / (time.perf_counter() - start)
            results[at]["speed"].append(speed)
            results[at]["share"].append(share)
            print(f"  round {number + 1}, side {at + 1}: {speed:.1f}, {share:.2f} cores", file=sys.stderr)
    return results


def spread(figures: list, digits: int) -> str:
    low, high = min(figures), max(figures)
    return f"{statistics.median(figures):.{digits}f} ({low:.{digits}f}..{high:.{digits}f})"


def row(name: str, sides: list, first: int, second: int) -> str:
    """A line of a table; its ratio is that of side `first` to side `second`."""
    ratios = [a / b for a, b in zip(sides[first]["speed"], sides[second]["speed"], strict=True)]
    shares = " / ".join(f"{statistics.median(side['share']):.2f}" for side in sides)
    cells = [name, *(spread(side["speed"], 1) for side in sides), spread(ratios, 2), shares]
    return f"| {' | '.join(cells)} |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures windlass beside llama.cpp, and 1 worker against 2.")
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "release"
    parser.add_argument("--bin", type=Path, default=target, help="folder of windlass and windlass-worker")
    parser.add_argument("--model", default="smollm2", help="reference as for `windlass demo`")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt for prefill")
    parser.add_argument("--tokens", type=int, default=128, help="tokens generated for decode")
    parser.add_argument("--cores", type=int, nargs=2, default=[0, 1],
                        help="cores of the two workers; a single worker and llama.cpp use the second")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="2 rounds, 128 and 16 tokens")
    parser.add_argument("--limit", type=int, default=600, help="seconds after which to give up")
    parser.add_argument("--json", type=Path, help="file for every figure")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.prompt, chosen.tokens = 2, 128, 16
    return chosen


def total_tokens(chosen: argparse.Namespace) -> dict:
    """Tokens of each stream by number of streams, so that all take about as long."""
    return {1: chosen.tokens // 2, 8: chosen.tokens // 4}


def measure(chosen: argparse.Namespace, stack: list, folder: Path) -> dict:
    """All figures by name, sides in order; what it starts is added to `stack`."""
    windlass = chosen.bin / "windlass"
    plan = plans(windlass, chosen.model)
    model = model_file(windlass, plan[1], chosen.model)
    worker = chosen.bin / "windlass-worker"
    _, core = chosen.cores

    def started(thing):
        stack.append(thing)
        return thing

    llama = started(LlamaCpp(node_llama_cpp(), model, core))
    one = started(Cluster(worker, plan[1], [core], folder))
    two = started(Cluster(worker, plan[2], chosen.cores, folder))

    def prompt(seed: str, length: int) -> list:
        return random.Random(seed).choices(range(*ID_RANGE), k=length)

    def total(streams: int, tokens: int):
        def ask(cluster: Cluster, number: int) -> float:
            prompts = [prompt(f"{number}-{stream}", SHORT_PROMPT) for stream in range(streams)]
            return cluster.total(prompts, tokens)

        return ask

    for side in (llama, one, two):
        side.prefill(prompt("warm up", chosen.prompt))
        side.decode(prompt("warm up", SHORT_PROMPT), 8)
    tokens = total_tokens(chosen)
    figures = {}
    for name, sides, ask in (
        ("prefill", [one, llama], lambda side, number: side.prefill(prompt(f"p{number}", chosen.prompt))),
        ("decode", [one, llama], lambda side, number: side.decode(prompt(f"d{number}", SHORT_PROMPT), chosen.tokens)),
        ("1 stream", [one, two], total(1, tokens[1])),
        ("8 streams", [one, two], total(8, tokens[8])),
    ):
        print(f"{name}: {' / '.join(type(side).__name__ for side in sides)}", file=sys.stderr)
        figures[name] = alternate(sides, chosen.rounds, ask)
    return {
        "model": {"file": model.name, "sha256": plan[1]["sha256"]},
        "windlass": {"version": run([windlass, "--version"]).strip(), "device": one.devices[0]},
        "split": [part["layers"] for part in plan[2]["stages"]],
        "llama": llama.about,
        "figures": figures,
    }


def report(chosen: argparse.Namespace, result: dict) -> str:
    llama, figures = result["llama"], result["figures"]
    first, second = chosen.cores
    tokens = total_tokens(chosen)
    flash = "on" if llama["flash_attention"] else "off"
    return "\n".join([
        f"{result['windlass']['version']} ({result['windlass']['device']}, F32 cache); llama.cpp {llama['llama_cpp']}"
        f" (prebuilt, {llama['threads']} thread, {llama['kv_cache']} cache, flash attention {flash});"
        f" {result['model']['file']}",
        "",
        f"{result['machine']}; load {result['load'][0]} at the start, {result['load'][1]} at the end;"
        f" {result['seconds']:.0f} s",
        "",
        f"Tokens a second, median of {chosen.rounds} (least..greatest), on core {second} alone:",
        "",
        "| | windlass, 1 worker | llama.cpp | windlass / llama.cpp | cores had |",
        "|---|---|---|---|---|",
        row(f"prefill, {chosen.prompt} tokens", figures["prefill"], 0, 1),
        row(f"decode, {chosen.tokens} tokens", figures["decode"], 0, 1),
        "",
        f"Tokens a second of all streams together, prompts of {SHORT_PROMPT} tokens:",
        "",
        f"| | 1 worker (core {second}) | 2 workers (cores {first}, {second};"
        f" layers {' + '.join(map(str, result['split']))}) | 2 workers / 1 | cores had |",
        "|---|---|---|---|---|",
        row(f"1 stream, {tokens[1]} tokens", figures["1 stream"], 1, 0),
        row(f"8 streams, {tokens[8]} tokens each", figures["8 streams"], 1, 0),
    ])  # fmt: skip


def give_up(*_) -> None:
    sys.exit("the time is over; --limit allows more, fewer --rounds or --tokens take less")


def check_needs(chosen: argparse.Namespace) -> None:
    for name in ("windlass", "windlass-worker"):
        if not (chosen.bin / name).is_file():
            build = "cargo build --release --workspace"
            sys.exit(f"{chosen.bin / name} is not there: {build}, or name its folder with --bin")
    missing = [tool for tool in ("taskset", "openssl", "node") if not shutil.which(tool)]
    if missing:
        sys.exit(f"needed and not found: {', '.join(missing)}")
    lacking = set(chosen.cores) - os.sched_getaffinity(0)
    if lacking or len(set(chosen.cores)) != 2:
        sys.exit(f"--cores needs two different cores that this process may use, of {sorted(os.sched_getaffinity(0))}")


def main() -> None:
    chosen = arguments()
    check_needs(chosen)
    signal.signal(signal.SIGALRM, give_up)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    signal.alarm(chosen.limit)
    start, began = time.monotonic(), load()
    stack = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = measure(chosen, stack, Path(folder))
        finally:
            signal.alarm(0)
            for thing in reversed(stack):
                thing.stop()
    result |= {
        "machine": f"{cpu()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "load": [began, load()],
        "seconds": time.monotonic() - start,
        "cores": chosen.cores,
        "rounds": chosen.rounds,
        "prompt": chosen.prompt,
        "tokens": chosen.tokens,
    }
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")
    print(report(chosen, result))


if __name__ == "__main__":
    main()

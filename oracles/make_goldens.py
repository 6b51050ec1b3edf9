#!/usr/bin/env python3
"""Writes the golden files in tests/golden/tokenizer by independent tools; tests only read them.

    make_goldens.py            writes
    make_goldens.py --check    writes nothing; fails when a file would differ

Needs node, npm and pip. What it installs goes into the folder of fetch.py.
"""

import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import fetch
import gguf_metadata
import texts

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "tests" / "golden" / "tokenizer"
NODE_PACKAGE = "node-llama-cpp@3.22.1"
JINJA_PACKAGE = "jinja2==3.1.6"
NOW = datetime.datetime(2026, 3, 5, 9, 7)

# (vocabulary, pre-tokenizer put in the place of its own, texts)
RULES = [
    ("llama-spm", None, 130),
    ("llama-bpe", None, 130),
    ("qwen2", None, 130),
    ("gpt-2", None, 60),
    ("gpt-2", "default", 130),
    ("llama-bpe", "tekken", 130),
    ("llama-bpe", "gpt-4o", 130),
    ("llama-bpe", "smaug-bpe", 60),
]


def node_folder() -> Path:
    """Where node-llama-cpp is installed."""
    folder = fetch.cache() / "oracle-node"
    done = folder / f"{NODE_PACKAGE}.installed"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Its scripts would compile for the graphics card; the prebuilt processor version is enough.
        command = ["npm", "install", "--prefix", folder, "--ignore-scripts", "--no-audit", NODE_PACKAGE]
        subprocess.run(command, check=True, timeout=1200, stdout=sys.stderr)
        done.touch()
    return folder


def jinja():
    """The module jinja2."""
    folder = fetch.cache() / "oracle-python"
    done = folder / f"{JINJA_PACKAGE}.installed"
    if not done.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, JINJA_PACKAGE]
        subprocess.run(command, check=True, timeout=600)
        done.touch()
    sys.path.insert(0, str(folder))
    import jinja2

    return jinja2


def tokenize(jobs: list) -> dict:
    """Runs the jobs in llama.cpp."""
    command = ["node", HERE / "tokenize.mjs", node_folder()]
    result = subprocess.run(
        command, input=json.dumps(jobs), stdout=subprocess.PIPE, text=True, check=True, timeout=1200
    )
    return json.loads(result.stdout)


def job(model: Path, count: int) -> dict:
    size = len(gguf_metadata.entries(model.read_bytes())["tokenizer.ggml.tokens"][0])
    return {"model": str(model), "vocabSize": size, "texts": texts.texts(count)[: max(count, 0)]}


def by_llama_cpp(result: dict) -> str:
    return f"{NODE_PACKAGE} (llama.cpp {result['llama_cpp']})"


def smollm() -> dict:
    todo = job(fetch.fetch_model(), 220)
    result = tokenize([todo])
    return {
        "made_with": by_llama_cpp(result),
        "vocab_size": todo["vocabSize"],
        **result["out"][0],
    }


def rules() -> dict:
    folder = fetch.fetch_vocab()
    with tempfile.TemporaryDirectory() as temporary:
        jobs = []
        for number, (name, pre, count) in enumerate(RULES):
            path = folder / f"ggml-vocab-{name}.gguf"
            if pre:
                data = gguf_metadata.with_string(path.read_bytes(), "tokenizer.ggml.pre", pre)
                path = Path(temporary) / f"{number}.gguf"
                path.write_bytes(data)
            # A text with the stand-in for a space does not come back from its tokens.
            todo = job(path, count)
            todo["texts"] = [t for t in todo["texts"] if "\u2581" not in t]
            jobs.append(todo)
        result = tokenize(jobs)
    return {
        "made_with": by_llama_cpp(result),
        "rules": [
            {"vocabulary": name, "pre": pre, "vocab_size": todo["vocabSize"], **out}
            for (name, pre, _), todo, out in zip(RULES, jobs, result["out"], strict=True)
        ],
    }


def vectors() -> dict:
    folder = fetch.fetch_vocab()
    vocabularies = []
    for name in fetch.VOCAB_NAMES:
        path = folder / f"ggml-vocab-{name}.gguf"
        inputs = Path(f"{path}.inp").read_bytes().decode()
        inputs = inputs.split("\n__ggml_vocab_test__\n")
        outputs = Path(f"{path}.out").read_text().splitlines()
        if len(inputs) - len(outputs) in (0, 1):
            pairs = list(zip(inputs, outputs))
        else:
            sys.exit(f"{name}: {len(inputs)} texts and {len(outputs)} lines of ids")
        cases = [{"text": text, "ids": [int(i) for i in line.split()]} for text, line in pairs]
        vocabularies.append({"name": name, "cases": cases})
    made_with = f"test vectors of llama.cpp (MIT) in {fetch.VOCAB_PACKAGE}"
    return {"made_with": made_with, "vocabularies": vocabularies}


CONVERSATIONS = {
    "one question": "user:Hello, who are you?",
    "system and question": "system:You are terse.|user:What is 2+2?",
    "two turns": "user:Hi|assistant:Hello! How can I help?|user:Tell me a joke.",
    "long": "system:  Be kind. \n|user:a b c d|assistant:e|user:f|assistant:g h i|user:j",
    "empty message": "user:",
    "spaces and breaks": "user:  leading and trailing  \n\n|assistant:\n\nok\n|user:\tx",
    "thoughts": "user:why?|assistant:<think>\nhm\n\n</think>\n\nbecause|user:and?|assistant:<think>more</think>so",
    "quotes, scripts, emoji": "user:\"q\" 'r' \\n <b>&amp;</b> \u00fc \u8a9e \U0001f600 {{ x }} {% y %}|assistant:\u00e9|user:ok",
    "words of templates": "system:<|im_end|>|user:<|im_start|>system<|eot_id|>|assistant:</s>|user:skip|user:stop|user:after",
    "ends with an answer": "user:count|assistant:one two three",
    "foreign role": "user:hi|tool:4",
    "no question": "system:only rules|system:more rules",
}


def conversation(text: str) -> list:
    parts = (part.partition(":") for part in text.split("|"))
    # "|" also stands in special tokens' names: a part without a role goes on with the last.
    messages = []
    for role, colon, content in parts:
        if colon and role in ("system", "user", "assistant", "tool"):
            messages.append({"role": role, "content": content})
        else:
            messages[-1]["content"] += "|" + role + colon + content
    return messages


def environment(jinja2):
    """As the package transformers sets it up."""
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """Marks what an assistant says; of no effect on the text."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            call = self.call_method("_same", [])
            return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

        def _same(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def chat() -> dict:
    jinja2 = jinja()
    env = environment(jinja2)
    model = gguf_metadata.entries(fetch.fetch_model().read_bytes())
    templates = {"SmolLM2": model["tokenizer.chat_template"][0]}
    for path in sorted((HERE / "templates").glob("*.jinja")):
        templates[path.stem] = path.read_text()
    cases = []
    for template, source in templates.items():
        for name, text in CONVERSATIONS.items():
            for ask in (True, False):
                case = {
                    "name": f"{template}: {name}" + (", answer asked" if ask else ""),
                    "template": template,
                    "messages": conversation(text),
                    "add_generation_prompt": ask,
                }
                try:
                    case["text"] = env.from_string(source).render(
                        messages=case["messages"],
                        add_generation_prompt=ask,
                        tools=None,
                        documents=None,
                        bos_token="<s>",
                        eos_token="</s>",
                    )
                except jinja2.exceptions.TemplateError as error:
                    case["error"] = str(error)
                cases.append(case)
    made_with = f"{JINJA_PACKAGE}, set up as by the package transformers, at {NOW.isoformat()} UTC"
    return {"made_with": made_with, "templates": templates, "cases": cases}


def dump(value) -> str:
    """JSON with one case a line, so that differences can be read."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace('{"text":', '\n{"text":').replace('{"name":', '\n{"name":') + "\n"


def main() -> None:
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    fetch.cache().mkdir(parents=True, exist_ok=True)
    GOLDEN.mkdir(parents=True, exist_ok=True)
    different = []
    for make in (chat, vectors, smollm, rules):
        path = GOLDEN / f"{make.__name__}.json"
        text = dump(make())
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            different.append(path.name)
    if different:
        sys.exit(f"differ from what the tools make now: {', '.join(different)}")
    print("the same" if check else "written", file=sys.stderr)


if __name__ == "__main__":
    main()

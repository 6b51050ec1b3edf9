"""Runs the official `openai` client against a server and asserts what it must answer.

    python3 openai_client.py BASE_URL [--model NAME] [--vocab N] [--api-key KEY] [--venv FOLDER]

BASE_URL ends in /v1. `--vocab N` also checks that the log-probabilities of all N tokens sum to
one; `--api-key KEY` also checks that another key and none are refused. Without the client in
this interpreter, the script makes a virtual environment with the pinned version and goes on
there (`--venv`, default: beside the user's cache). Prints one line a check; exit status 0 when
all passed, 1 otherwise.
"""

import argparse
import math
import os
import subprocess
import sys
import traceback
import venv
from pathlib import Path

OPENAI = "3.57.0"


def enter_venv(folder: Path) -> None:
    """Replaces this process by the same script in a folder that has the client."""
    python = folder / "bin" / "python"
    mark = folder / f"openai-{OPENAI}"
    if not mark.exists():
        venv.create(folder, with_pip=True, clear=True)
        command = [python, "-m", "pip", "install", "--quiet", f"openai=={OPENAI}"]
        subprocess.run(command, check=True)
        mark.touch()
    os.execv(python, [str(python), *sys.argv])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base_url")
    parser.add_argument("--model", help="default: the one that the server lists")
    parser.add_argument("--vocab", type=int, help="size of the vocabulary")
    parser.add_argument("--api-key", default=None)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--venv", type=Path, default=cache / "windlass" / "openai-client")
    return parser.parse_args()


ARGS = arguments()
try:
    import openai
except ImportError:
    openai = None
if openai is None or openai.__version__ != OPENAI:
    if Path(sys.prefix).resolve() == ARGS.venv.resolve():
        sys.exit(f"openai {OPENAI} is not in {ARGS.venv}; remove that folder and try again")
    enter_venv(ARGS.venv)


def make_client(key):
    return openai.OpenAI(base_url=ARGS.base_url, api_key=key, max_retries=0, timeout=120)


CLIENT = make_client(ARGS.api_key or "none needed")
MODEL = ARGS.model or CLIENT.models.list().data[0].id
MESSAGES = [{"role": "user", "content": "Write a short story about a lighthouse."}]
# Exactly this many tokens come, whatever the model would say.
FIXED = {"ignore_eos": True}
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def chat(**more):
    arguments = {"model": MODEL, "messages": MESSAGES, "max_tokens": 12, "temperature": 0}
    return CLIENT.chat.completions.create(**(arguments | more))


def complete(**more):
    arguments = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
    return CLIENT.completions.create(**(arguments | more))


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


@check
def models_are_listed_and_retrieved():
    listed = CLIENT.models.list()
    assert [m.id for m in listed.data] == [MODEL], listed
    model = CLIENT.models.retrieve(MODEL)
    assert model.object == "model" and model.owned_by and model.created > 0, model
    error = raises(openai.NotFoundError, lambda: CLIENT.models.retrieve("no/such"))
    assert error.code == "model_not_found", error.body


@check
def a_chat_answer_is_complete():
    answer = chat(extra_body=FIXED)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-"), answer
    assert answer.model == MODEL
    (choice,) = answer.choices
    assert choice.index == 0 and choice.message.role == "assistant"
    assert choice.message.content and choice.finish_reason == "length"
    assert choice.logprobs is None
    usage = answer.usage
    assert usage.completion_tokens == 12 and usage.prompt_tokens > 0, usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    timings = answer.model_extra["timings"]
    assert timings["predicted_n"] == 12 and timings["prompt_n"] == usage.prompt_tokens
    assert all(timings[k] >= 0 for k in ("prompt_ms", "predicted_ms", "queue_ms", "ttft_ms"))


@check
def a_chat_stream_says_the_same_and_ends_with_usage():
    whole = chat(extra_body=FIXED)
    stream = chat(stream=True, stream_options={"include_usage": True}, extra_body=FIXED)
    chunks = list(stream)
    assert len({c.id for c in chunks}) == 1
    assert all(c.object == "chat.completion.chunk" for c in chunks)
    *body, last = chunks
    assert last.choices == [] and last.usage.completion_tokens == 12, last
    assert last.usage.prompt_tokens == whole.usage.prompt_tokens
    assert all(c.usage is None and len(c.choices) == 1 for c in body)
    assert body[0].choices[0].delta.role == "assistant"
    finish = [c.choices[0].finish_reason for c in body]
    assert finish == [None] * (len(body) - 1) + ["length"], finish
    assert body[-1].choices[0].delta.content is None
    text = "".join(c.choices[0].delta.content or "" for c in body)
    assert text == whole.choices[0].message.content
    assert len(body) > 3, "the answer came in one piece"


@check
def a_stream_without_options_has_no_usage():
    for chunk in chat(stream=True):
        assert chunk.usage is None and len(chunk.choices) == 1


@check
def the_last_chunk_of_a_stream_is_followed_by_done():
    with CLIENT.chat.completions.with_streaming_response.create(
        model=MODEL, messages=MESSAGES, max_tokens=3, stream=True
    ) as response:
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]", lines[-1]


@check
def stop_strings_end_the_answer_wherever_token_borders_are():
    full = chat(max_tokens=40, extra_body=FIXED).choices[0].message.content
    assert len(full) > 12, full
    tried = 0
    for start in range(1, min(len(full) - 5, 25)):
        stop = full[start : start + 5]
        want = full[: full.index(stop)]
        if "\ufffd" in full[: start + 5]:
            continue
        answer = chat(max_tokens=40, stop=["\u0000never", stop], extra_body=FIXED)
        (choice,) = answer.choices
        assert choice.message.content == want, (stop, choice.message.content, want)
        assert choice.finish_reason == "stop"
        if start % 5 == 0:
            stream = chat(max_tokens=40, stop=stop, stream=True, extra_body=FIXED)
            chunks = [c.choices[0] for c in stream]
            assert "".join(c.delta.content or "" for c in chunks) == want
            assert chunks[-1].finish_reason == "stop"
        tried += 1
    assert tried > 5, full


@check
def several_choices_differ_by_their_seeds():
    answer = chat(n=2, seed=7, temperature=1, max_tokens=24, extra_body=FIXED)
    assert [c.index for c in answer.choices] == [0, 1]
    first, second = (c.message.content for c in answer.choices)
    assert first != second
    assert answer.usage.completion_tokens == 48
    alone = chat(seed=8, temperature=1, max_tokens=24, extra_body=FIXED)
    assert alone.choices[0].message.content == second, "choice i is not seed + i"
    texts = {0: "", 1: ""}
    stream = chat(n=2, seed=7, temperature=1, max_tokens=24, stream=True, extra_body=FIXED)
    for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == {0: first, 1: second}


@check
def a_seed_repeats_the_answer():
    asked = {"temperature": 1, "max_tokens": 24, "extra_body": FIXED}
    texts = [chat(seed=s, **asked).choices[0].message.content for s in (5, 5, 6)]
    assert texts[0] == texts[1] and texts[0] != texts[2], texts
    free = {chat(**asked).choices[0].message.content for _ in range(3)}
    assert len(free) > 1, "answers without a seed are all the same"


@check
def log_probabilities_come_with_each_token():
    choice = chat(logprobs=True, top_logprobs=5, extra_body=FIXED).choices[0]
    entries = choice.logprobs.content
    assert len(entries) == 12
    joined = b"".join(bytes(e.bytes) for e in entries)
    text = choice.message.content
    assert joined.decode(errors="replace").strip() == text.strip(), (joined, text)
    for entry in entries:
        assert entry.logprob <= 1e-6 and len(entry.top_logprobs) == 5
        tops = [t.logprob for t in entry.top_logprobs]
        assert tops == sorted(tops, reverse=True)
        # Greedy takes the best.
        assert abs(entry.logprob - tops[0]) < 1e-6
    streamed = []
    for chunk in chat(logprobs=True, top_logprobs=5, stream=True, extra_body=FIXED):
        if chunk.choices[0].logprobs:
            streamed += chunk.choices[0].logprobs.content
    assert [e.token for e in streamed] == [e.token for e in entries]


@check
def the_log_probabilities_of_all_tokens_sum_to_one():
    if ARGS.vocab is None:
        return "skipped: no --vocab"
    asked = {"logprobs": True, "top_logprobs": ARGS.vocab, "max_tokens": 3, "temperature": 1}
    for entry in chat(extra_body=FIXED, **asked).choices[0].logprobs.content:
        assert len(entry.top_logprobs) == ARGS.vocab
        total = math.fsum(math.exp(t.logprob) for t in entry.top_logprobs)
        assert abs(total - 1) < 1e-3, total
    error = raises(openai.BadRequestError, lambda: chat(**(asked | {"top_logprobs": ARGS.vocab + 1})))
    assert error.param == "top_logprobs" and str(ARGS.vocab) in error.message, error.body
    return None


@check
def completions_take_every_form_of_prompt():
    one = complete(extra_body=FIXED)
    assert one.object == "text_completion" and one.id.startswith("cmpl-")
    assert one.choices[0].finish_reason == "length" and one.choices[0].text
    assert one.usage.completion_tokens == 12
    prompts = ["Once upon a time", "The sea is"]
    many = complete(prompt=prompts, n=2, extra_body=FIXED)
    assert [c.index for c in many.choices] == [0, 1, 2, 3]
    texts = [c.text for c in many.choices]
    assert texts[0] == texts[1] == one.choices[0].text, "greedy choices differ"
    assert texts[2] == texts[3] == complete(prompt=prompts[1], extra_body=FIXED).choices[0].text
    assert not texts[0].startswith(prompts[0]), "the prompt is repeated"
    ids = complete(prompt=[5, 6, 7], extra_body=FIXED)
    assert ids.usage.prompt_tokens == 3
    lists = complete(prompt=[[5, 6, 7], [8]], extra_body=FIXED)
    assert lists.usage.prompt_tokens == 4
    assert lists.choices[0].text == ids.choices[0].text


@check
def completions_stream_with_usage():
    whole = complete(extra_body=FIXED)
    chunks = list(complete(stream=True, stream_options={"include_usage": True}, extra_body=FIXED))
    *body, last = chunks
    assert last.choices == [] and last.usage.completion_tokens == 12
    assert "".join(c.choices[0].text for c in body) == whole.choices[0].text
    assert body[-1].choices[0].finish_reason == "length"
    assert all(c.usage is None for c in body)


@check
def completions_have_log_probabilities():
    choice = complete(logprobs=3, extra_body=FIXED).choices[0]
    found = choice.logprobs
    assert len(found.tokens) == len(found.token_logprobs) == 12
    assert len(found.text_offset) == len(found.top_logprobs) == 12
    assert found.text_offset[0] == 0 and found.text_offset == sorted(found.text_offset)
    for token, logprob, top in zip(found.tokens, found.token_logprobs, found.top_logprobs):
        assert 1 <= len(top) <= 4 and abs(top[token] - logprob) < 1e-6


@check
def errors_name_the_field():
    cases = [
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "oracle", "content": "x"}]}, "messages[0].role"),
    ]
    for more, param in cases:
        error = raises(openai.BadRequestError, lambda more=more: chat(**more))
        assert error.param == param and param in error.message, error.body
        assert error.type == "invalid_request_error", error.body
    error = raises(openai.NotFoundError, lambda: chat(model="no-such-model"))
    assert error.code == "model_not_found" and error.param == "model", error.body
    error = raises(openai.BadRequestError, lambda: chat(max_tokens=10**8))
    assert error.code == "context_length_exceeded", error.body
    error = raises(openai.BadRequestError, lambda: chat(stream=True, temperature=-1))
    assert error.param == "temperature", error.body


@check
def keys_are_checked():
    if ARGS.api_key is None:
        return "skipped: no --api-key"
    wrong = make_client(ARGS.api_key + "x")
    error = raises(openai.AuthenticationError, wrong.models.list)
    assert error.code == "invalid_api_key", error.body
    assert ARGS.api_key not in str(error)
    assert make_client(ARGS.api_key).models.list().data[0].id == MODEL
    return None


@check
def a_stream_that_is_left_early_harms_nobody():
    for _ in range(4):
        stream = chat(stream=True, max_tokens=40, extra_body=FIXED)
        next(iter(stream))
        stream.close()
    assert chat(extra_body=FIXED).usage.completion_tokens == 12


def main() -> int:
    failed = 0
    for function in CHECKS:
        name = function.__name__.replace("_", " ")
        try:
            note = function()
            print(f"ok      {name}" + (f" ({note})" if note else ""), flush=True)
        except Exception:  # each check is told by itself
            failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} checks passed with openai {OPENAI}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

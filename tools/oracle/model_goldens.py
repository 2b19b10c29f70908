"""Right answers of a real model, for the C++ tests: ids, greedy continuations and logits.

model_goldens.py MODEL.gguf OUT.json --prompts smollm2|qwen2.5-coder [--float64-prompt NAME]
    For each prompt: its ids, the greedy continuation in float32, and (teacher-forced over prompt
    and continuation) the best logits at each generated position.
model_goldens.py MODEL.gguf OUT.json --sample TEXT_FILE
    Teacher-forced over a text: ids, and the best logits at some forty positions.
model_goldens.py MODEL.gguf OUT.json --spans TEXT_FILE
    Teacher-forced over two spans of a text, of 600 and of 3,000 tokens: ids, and the best logits at
    sixty positions of each. For models whose window or context ends within the longer one.

--compare FILE holds the ids and continuations against an earlier golden file of this shape: a list
"prompts" of objects with "name", "prompt_ids" and continuation "ids" (or "fp32": {"ids"}).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from gguf_tokenizer import GgufTokenizer
from golden_file import sha256, significant, top, top_gap, versions, write_golden
from reference_forward import ReferenceModel, log_softmax

TOP = 8
PROBE_COUNT, PROBE_POSITIONS, PROBE_SEED = 64, 4, 20240917
SAMPLE_POSITIONS, SAMPLE_TOP = 40, 5
# Name, first character of the text, tokens, and every how many of them a row is kept.
SPANS = [("600", 20000, 600, 10), ("3000", 0, 3000, 50)]

# A prompt is a text, or a list of messages for the model's chat template.
PROMPTS: dict[str, dict[str, Any]] = {
    "smollm2": {
        "plain-story": "Once upon a time, in a small village by the sea, there lived",
        "chat-default-system": [{"role": "user", "content": "What is gravity?"}],
        "chat-own-system": [
            {"role": "system", "content": "You answer in one short sentence."},
            {"role": "user", "content": "Why is the sky blue?"},
        ],
        "chinese": "中文测试：今天天气很好，我们去公园散步吧。北京是中国的首都，",
        "emoji": "Emoji test 😀🚀👩\u200d👩\u200d👧\u200d👦 flags 🇫🇷🇯🇵, hearts ❤️ and sparkles ✨:"
        " they mean",
        "code-tabs": "def fib(n):\n\tif n < 2:\n\t\treturn n\n\treturn fib(n - 1) + fib(n - 2)\n\n"
        "for i in range(10):\n\tprint(",
        "numbers": "Pi is 3.14159265358979; 1,234,567 + 89 = 1234656. Phone 555-0123, year 2024,"
        " full-width ２０２４, ½, ², Ⅷ, ١٢٣ and 0x1F. The next prime after 7919 is",
        "spaces": "word" + " " * 40 + "word\n\n\n   indented \t\t mixed  \r\n two  spaces  and "
        "  three       ",
    },
    "qwen2.5-coder": {
        "code": "#include <vector>\n\n// Index of the first element that is not less than key.\n"
        "size_t lower_bound(const std::vector<int>& sorted, int key) {\n",
        "chat-default-system": [
            {"role": "user", "content": "Write a Python function that reverses a string."}
        ],
        "chinese": "快速排序是一种高效的排序算法，它的基本思想是",
        "numbers": "The first 12 square numbers: 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121, 144."
        "\nThe sum 3.1416 + 2.7183 =",
        # The accents are combining characters: NFC joins them before the text is split.
        "combining-accents": "Le cafe\u0301 e\u0301tait ferme\u0301, alors nous sommes alle\u0301s",
    },
}

FIELDS = {
    "prompt_ids": "ids of the text, or of the rendered conversation with special tokens parsed",
    "ids": "greedy continuation in float32, ending with the first end token if one came",
    "steps": "one per continuation id, teacher-forced: position of the row whose logits chose it, "
    "argmax, gap (best minus second-best logit) and the largest logits as [id, logit]",
    "probes": "logits of the ids in probe_ids after the token at `position`",
    "float64_difference": "the same forward in float64 on one prompt and its continuation",
}


def probe_ids(vocabulary_size: int) -> list[int]:
    generator = np.random.default_rng(PROBE_SEED)
    return sorted(int(i) for i in generator.choice(vocabulary_size, PROBE_COUNT, replace=False))


def prompt_golden(
    model: ReferenceModel, tokenizer: GgufTokenizer, name: str, source: Any, count: int
) -> dict[str, Any]:
    golden: dict[str, Any] = {"name": name}
    if isinstance(source, str):
        golden |= {"kind": "text", "text": source}
        prompt = tokenizer.encode(source)
    else:
        rendered = tokenizer.render(source)
        golden |= {"kind": "chat", "messages": source, "rendered": rendered}
        prompt = tokenizer.encode(rendered, parse_special=True)
    ids = model.generate(prompt, count, tokenizer.end_tokens)
    golden |= {"prompt_ids": prompt, "ids": ids, "text_after": tokenizer.decode(ids)}

    # The last id is an answer, not an input: it is not fed.
    logits = model.forward((prompt + ids)[:-1])
    golden["steps"] = [
        {
            "position": position,
            "argmax": int(np.argmax(logits[position])),
            "gap": significant([top_gap(logits[position])], 5)[0],
            "top": top(logits[position], TOP),
        }
        for position in range(len(prompt) - 1, len(logits))
    ]
    probes = probe_ids(model.vocabulary_size)
    positions = np.linspace(0, len(logits) - 1, PROBE_POSITIONS).astype(int)
    golden["probes"] = [
        {"position": int(p), "logits": significant(logits[p, probes], 7)} for p in positions
    ]
    for step, chosen in zip(golden["steps"], ids):
        # Both are float32, summed in another order: they may differ only where nearly tied.
        if step["argmax"] != chosen and step["gap"] > 1e-3:
            raise SystemExit(f"{name}: cached and whole forward disagree at {step['position']}")
    return golden


def float64_difference(model: ReferenceModel, path: Path, golden: dict[str, Any]) -> dict[str, Any]:
    """How far float32 is from float64, over a prompt and its continuation."""
    tokens = (golden["prompt_ids"] + golden["ids"])[:-1]
    single = model.forward(tokens)
    double = ReferenceModel(path, np.float64).forward(tokens)
    exact, rounded = log_softmax(double), log_softmax(single)
    divergence = (np.exp(exact) * (exact - rounded)).sum(axis=1)
    return {
        "prompt": golden["name"],
        "tokens": len(tokens),
        "max_abs_logit_difference": significant([np.abs(single - double).max()], 3)[0],
        "mean_kl": significant([divergence.mean()], 3)[0],
        "same_argmax": bool((single.argmax(axis=1) == double.argmax(axis=1)).all()),
    }


def compare(goldens: list[dict[str, Any]], earlier_path: Path) -> None:
    """Stops unless ids and continuations equal those of an earlier file."""
    earlier = {p["name"]: p for p in json.loads(earlier_path.read_text("utf-8"))["prompts"]}
    for golden in goldens:
        other = earlier[golden["name"]]
        if golden["prompt_ids"] != other["prompt_ids"]:
            raise SystemExit(f"{golden['name']}: prompt ids differ from {earlier_path}")
        other_ids = other.get("fp32", other)["ids"]
        if golden["ids"] != other_ids:
            raise SystemExit(f"{golden['name']}: continuation differs from {earlier_path}")
    print(f"{len(goldens)} prompts and continuations equal those of {earlier_path.name}")


def prompts_file(arguments: argparse.Namespace, model: ReferenceModel) -> dict[str, Any]:
    tokenizer = GgufTokenizer(model.reader)
    goldens = []
    for name, source in PROMPTS[arguments.prompts].items():
        goldens.append(prompt_golden(model, tokenizer, name, source, arguments.generate))
        print(f"{name}: {goldens[-1]['text_after']!r}", flush=True)
    if arguments.compare:
        compare(goldens, arguments.compare)
    content = {"fields": FIELDS}
    if arguments.float64_prompt:
        chosen = next(g for g in goldens if g["name"] == arguments.float64_prompt)
        content["float64_difference"] = float64_difference(model, arguments.model, chosen)
        print(content["float64_difference"])
    content |= {"probe_ids": probe_ids(model.vocabulary_size), "prompts": goldens}
    return content


def sample_file(arguments: argparse.Namespace, model: ReferenceModel) -> dict[str, Any]:
    ids = GgufTokenizer(model.reader).encode(arguments.sample.read_text("utf-8"))
    logits = model.forward(ids)
    log_probabilities = log_softmax(logits)
    losses = -log_probabilities[np.arange(len(ids) - 1), ids[1:]]
    positions = [int(p) for p in np.linspace(0, len(ids) - 1, SAMPLE_POSITIONS)]
    return {
        "text": arguments.sample.name,
        "fields": {
            "perplexity": "exp of the mean negative log-probability of ids 1.. given those before",
            "losses": "that negative log-probability of each of ids 1..",
            "steps": "after the token at `position`: the largest logits as [id, logit], and the "
            "log of the sum of all exponentials (log-probability = logit - log_sum_exp)",
        },
        "ids": ids,
        "perplexity": significant([np.exp(losses.mean())], 7)[0],
        "losses": significant(losses, 6),
        "steps": [
            {
                "position": p,
                "log_sum_exp": significant([logits[p, 0] - log_probabilities[p, 0]], 8)[0],
                "top": top(logits[p], SAMPLE_TOP),
            }
            for p in positions
        ],
    }


def plausible_ids(model: ReferenceModel, text: str, count: int) -> list[int]:
    """Ids of a text by the longest piece that fits, after the beginning-of-text token.

    Not what the model's tokenizer gives, but as good a text for two forwards to agree on, and it
    leaves the tokenizer out of the comparison.
    """
    pieces = model.metadata("tokenizer.ggml.tokens")
    by_text = {piece: i for i, piece in enumerate(pieces)}
    longest = 32
    text = text.replace(" ", "\u2581")
    ids, at = [model.metadata("tokenizer.ggml.bos_token_id")], 0
    while len(ids) < count:
        size = next(n for n in range(longest, 0, -1) if text[at : at + n] in by_text)
        ids.append(by_text[text[at : at + size]])
        at += size
    return ids


def span_golden(model: ReferenceModel, text: str, span: tuple[str, int, int, int]) -> dict[str, Any]:
    name, start, count, every = span
    ids = plausible_ids(model, text[start:], count)
    positions = list(range(every - 1, count, every))
    logits = model.forward(ids, rows=positions)
    probes = probe_ids(model.vocabulary_size)
    return {
        "name": name,
        "ids": ids,
        "every": every,
        "rows": [
            {
                "position": position,
                "argmax": int(np.argmax(row)),
                "gap": significant([top_gap(row)], 5)[0],
                "top": top(row, TOP),
            }
            for position, row in zip(positions, logits)
        ],
        "probes": [
            {"position": positions[i], "logits": significant(logits[i, probes], 7)}
            for i in np.linspace(0, len(positions) - 1, PROBE_POSITIONS).astype(int)
        ],
    }


def spans_file(arguments: argparse.Namespace, model: ReferenceModel) -> dict[str, Any]:
    text = arguments.spans.read_text("utf-8")
    goldens = [span_golden(model, text, span) for span in SPANS]
    shortest = goldens[0]
    positions = [row["position"] for row in shortest["rows"]]
    exact = ReferenceModel(arguments.model, np.float64).forward(shortest["ids"], rows=positions)
    rounded = model.forward(shortest["ids"], rows=positions)
    return {
        "text": arguments.spans.name,
        "fields": {
            "ids": "the longest pieces that fit the text, not what the model's tokenizer gives",
            "rows": "after each `every`-th token: argmax, gap (best minus second-best logit) and "
            "the largest logits as [id, logit]",
            "probes": FIELDS["probes"],
            "float32_to_float64": "largest difference of two logits of the first span",
        },
        "float32_to_float64": significant([np.abs(exact - rounded).max()], 3)[0],
        "probe_ids": probe_ids(model.vocabulary_size),
        "prompts": goldens,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompts", choices=sorted(PROMPTS))
    source.add_argument("--sample", type=Path, metavar="TEXT_FILE")
    source.add_argument("--spans", type=Path, metavar="TEXT_FILE")
    parser.add_argument("--generate", type=int, default=48, metavar="N")
    parser.add_argument("--float64-prompt", metavar="NAME")
    parser.add_argument("--compare", type=Path, metavar="FILE")
    arguments = parser.parse_args()

    model = ReferenceModel(arguments.model)
    content = {
        "model": arguments.model.name,
        "sha256": sha256(arguments.model),
        "made_with": {
            "arithmetic": "numpy float32 over dequantised weights, float32 cache",
            **versions("numpy", "gguf", "tokenizers"),
        },
    }
    make = sample_file if arguments.sample else spans_file if arguments.spans else prompts_file
    content |= make(arguments, model)
    write_golden(arguments.output, content)


if __name__ == "__main__":
    main()

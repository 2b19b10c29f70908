"""What each KV cache policy costs on a real model: divergence from an exact cache.

kv_divergence.py TEXT_FILE OUT.json MODEL.gguf:TOKENS [MODEL.gguf:TOKENS ...]
    Teacher-forced float32 forward over the first TOKENS tokens of the text with each policy; KL of
    the next-token distribution to the one with a float32 cache, in nats, over all positions.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from gguf_tokenizer import GgufTokenizer
from golden_file import sha256, significant, versions, write_golden
from kv_policies import KvPolicy
from reference_forward import KvCache, ReferenceModel, log_softmax

POLICIES = [
    KvPolicy("float16"),
    KvPolicy("bfloat16"),
    KvPolicy("fp8", "unit"),
    KvPolicy("fp8", "dynamic"),
    KvPolicy("int8"),
    KvPolicy("int8:fp8", "dynamic"),
]


def perplexity(log_probabilities: np.ndarray, ids: list[int]) -> float:
    return float(np.exp(-log_probabilities[np.arange(len(ids) - 1), ids[1:]].mean()))


def divergence(reference: np.ndarray, candidate: np.ndarray, ids: list[int]) -> dict[str, Any]:
    kl = (np.exp(reference) * (reference - candidate)).sum(axis=1)
    same = reference.argmax(axis=1) == candidate.argmax(axis=1)
    row = {
        "mean": kl.mean(),
        "median": np.median(kl),
        "p99": np.percentile(kl, 99),
        "top1_agreement": same.mean(),
        "perplexity": perplexity(candidate, ids),
    }
    return {name: significant([value], 5)[0] for name, value in row.items()}


def model_rows(path: Path, tokens: int, text: str) -> dict[str, Any]:
    model = ReferenceModel(path)
    ids = GgufTokenizer(model.reader).encode(text)[:tokens]
    if len(ids) < tokens:
        raise SystemExit(f"the text has {len(ids)} tokens of {path.name}, {tokens} were asked for")
    reference = log_softmax(model.forward(ids))
    rows = []
    print(f"{path.name}, {tokens} tokens, perplexity {perplexity(reference, ids):.4f}", flush=True)
    for policy in POLICIES:
        candidate = log_softmax(model.forward(ids, KvCache(policy)))
        row = divergence(reference, candidate, ids)
        rows.append({"dtype": policy.dtype, "scales": policy.scales, **row})
        print(
            f"  {policy.name:18} mean {row['mean']:.3e} p99 {row['p99']:.3e} "
            f"top-1 {row['top1_agreement']:.4f} perplexity {row['perplexity']:.4f}",
            flush=True,
        )
    return {
        "model": path.name,
        "sha256": sha256(path),
        "tokens": tokens,
        "reference_perplexity": significant([perplexity(reference, ids)], 7)[0],
        "policies": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf:TOKENS")
    arguments = parser.parse_args()
    text = arguments.text.read_text("utf-8")
    models = []
    for model in arguments.models:
        path, _, tokens = model.rpartition(":")
        models.append(model_rows(Path(path), int(tokens), text))
    write_golden(
        arguments.output,
        {
            "text": arguments.text.name,
            "text_sha256": sha256(arguments.text),
            "settings": "only the cached keys and values are rounded; arithmetic float32; the "
            "cache of the reference is float32; no key means; dynamic scales per token and KV head "
            "(absmax / 448 or 127) in bfloat16 rounded up; int8 keys rotated by a normalised "
            "Hadamard matrix per head; KL(reference || candidate) in nats over every position",
            "made_with": versions("numpy", "gguf", "tokenizers"),
            "models": models,
        },
    )


if __name__ == "__main__":
    main()

"""Holds the golden files against Hugging Face transformers, which shares no code with the numpy
reference but the `gguf` package's dequantisation.

check_transformers.py MODEL.gguf:GOLDEN.json [MODEL.gguf:GOLDEN.json ...] [--tolerance T]
    The checkpoint is read by transformers' own GGUF loader (its own mapping of keys, names and
    query and key rows), in float32. Every logit of the golden file is compared: of a random model
    whole rows, of a real one the probes and the best logits of each step. Fails past the tolerance.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding


def load(path: Path, golden: dict[str, Any]) -> torch.nn.Module:
    rope_scaling = golden.get("rope_scaling")
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    # Where the loader passes over keys of the file.
    for key, value in golden.get("transformers_config", {}).items():
        setattr(config, key, value)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent,
        config=config,
        gguf_file=path.name,
        dtype=torch.float32,
        attn_implementation="eager",
    ).eval()
    if rope_scaling:
        # The loader passes over rope_freqs.weight: state Llama 3's formula in the config instead,
        # which also holds the tensor's divisors against transformers' own computation of them.
        scaling = dict(rope_scaling)
        original = int(scaling.pop("original_context"))
        model.config.rope_parameters = {
            "rope_type": "llama3",
            "rope_theta": model.config.rope_parameters["rope_theta"],
            "original_max_position_embeddings": original,
            **scaling,
        }
        model.model.rotary_emb = LlamaRotaryEmbedding(model.config)
    return model


def golden_values(prompt: dict[str, Any], probe_ids: list[int]) -> Iterator[tuple[int, Any, Any]]:
    """(row, ids or a slice, logits) for everything that the golden file says of a prompt."""
    for position, row in zip(prompt.get("positions", []), prompt.get("float64", [])):
        yield position, slice(None), row
    for probe in prompt.get("probes", []):
        yield probe["position"], probe_ids, probe["logits"]
    for step in prompt.get("steps", []) + prompt.get("rows", []):
        ids, logits = zip(*step["top"])
        yield step["position"], list(ids), logits


def largest_difference(
    model: torch.nn.Module, prompt: dict[str, Any], probe_ids: list[int]
) -> float:
    # The last id of a continuation is an answer, not an input.
    if "prompt_ids" in prompt:
        tokens = (prompt["prompt_ids"] + prompt["ids"])[:-1]
    else:
        tokens = prompt["ids"]
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0].numpy()
    differences = [
        np.abs(logits[row][ids] - np.asarray(values)).max()
        for row, ids, values in golden_values(prompt, probe_ids)
    ]
    if not differences:
        raise SystemExit(f"prompt {prompt['name']} has no logits to compare with")
    return float(max(differences))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pairs", nargs="+", metavar="MODEL.gguf:GOLDEN.json")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    arguments = parser.parse_args()
    failed = False
    for pair in arguments.pairs:
        model_path, _, golden_path = pair.rpartition(":")
        golden = json.loads(Path(golden_path).read_text("utf-8"))
        model = load(Path(model_path), golden)
        for prompt in golden["prompts"]:
            difference = largest_difference(model, prompt, golden.get("probe_ids", []))
            failed |= not difference <= arguments.tolerance
            print(f"{Path(model_path).stem} {prompt['name']}: largest difference {difference:.2e}")
    print(f"tolerance {arguments.tolerance}: {'FAILED' if failed else 'passed'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

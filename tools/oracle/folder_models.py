"""Small random Hugging Face folders with their right answers, for tests of octet's reading of them.

folder_models.py OUT_DIR [NAME ...]
    Writes OUT_DIR/NAME/ (config.json, generation_config.json, safetensors) and OUT_DIR/NAME.json for each
    recipe. The same seed gives the same bytes. The configurations and files are written by
    transformers and safetensors, FP8 weights by compressed-tensors, transformers' own block format and
    ModelOpt. The JSON holds logits of transformers in float32 on the weights that those packages
    decode.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import numpy as np
import safetensors.torch
import torch
from transformers import (
    Gemma3Config,
    Gemma3TextConfig,
    GenerationConfig,
    LlamaConfig,
    PreTrainedConfig,
    Qwen2Config,
)
from transformers import AutoModelForCausalLM

from golden_file import significant, versions, write_golden

VOCABULARY = 64
TOKENS, POSITIONS = 80, [0, 1, 19, 20, 21, 63, 64, 79]
BLOCK = 32  # several blocks to a matrix, although the matrices are small

Tensors = dict[str, torch.Tensor]
# Stored tensors, what they decode to, and the quantisation's configuration files.
Packed = tuple[Tensors, Tensors, dict[str, Any], dict[str, Any] | None]


def llama_config(layers: int, **settings: Any) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
        rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, **settings,
    )  # fmt: skip


def llama3_config() -> LlamaConfig:
    # The original context is short, so that pairs are kept, blended and stretched.
    return llama_config(
        2,
        rope_parameters={
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        },
    )  # fmt: skip


def qwen2_config() -> Qwen2Config:
    return Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
        rms_norm_eps=1e-6, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    )  # fmt: skip


def gemma3_config() -> Gemma3TextConfig:
    return Gemma3TextConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=64, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=1, head_dim=16, max_position_embeddings=512,
        sliding_window=20, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        # Neither is what the head size would give, or none.
        query_pre_attn_scalar=24, final_logit_softcapping=5.0, eos_token_id=[1, 7],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    )  # fmt: skip


def random_tensors(config: PreTrainedConfig, seed: int, dtype: torch.dtype) -> Tensors:
    """Weights of a spread that keeps activations near 1, in the names of transformers."""
    random = np.random.default_rng(seed)
    tensors = {}
    for name, parameter in AutoModelForCausalLM.from_config(config).named_parameters():
        shape = tuple(parameter.shape)
        if name.endswith("norm.weight"):
            centre = 0.0 if config.model_type.startswith("gemma3") else 1.0
            values = centre + 0.2 * random.standard_normal(shape)
        elif name.endswith(".bias"):
            values = random.standard_normal(shape)
        else:
            values = random.standard_normal(shape) * (1.5 / np.sqrt(shape[-1]))
        tensors[name] = torch.tensor(values, dtype=torch.float32).to(dtype)
    return tensors


def is_linear(name: str) -> bool:
    return name.endswith("_proj.weight")


def block_maxima(weight: torch.Tensor) -> torch.Tensor:
    rows, columns = (size // BLOCK for size in weight.shape)
    return weight.reshape(rows, BLOCK, columns, BLOCK).abs().amax(dim=(1, 3))


def compressed_tensors(preset: str) -> Callable[[Tensors], Packed]:
    def pack(tensors: Tensors) -> Packed:
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import preset_name_to_scheme
        from compressed_tensors.quantization.utils import calculate_qparams

        scheme = preset_name_to_scheme(preset, ["Linear"])
        if preset == "FP8_BLOCK":
            scheme.weights.block_structure = [BLOCK, BLOCK]
        compressor = BaseCompressor.get_value_from_registry("float-quantized")
        stored, decoded = {}, {}
        for name, weight in tensors.items():
            if not is_linear(name):
                stored[name] = decoded[name] = weight
                continue
            if preset == "FP8":
                maxima = weight.abs().max().reshape(1)
            elif preset == "FP8_DYNAMIC":
                maxima = weight.abs().amax(dim=1, keepdim=True)
            else:
                maxima = block_maxima(weight)
            scale, _ = calculate_qparams(-maxima, maxima, scheme.weights)
            state = compressor.compress(
                {"weight": weight, "weight_scale": scale.to(weight.dtype)}, scheme
            )
            in_float32 = {**state, "weight_scale": state["weight_scale"].float()}
            decoded[name] = compressor.decompress(in_float32, scheme)["weight"].float()
            module = name.removesuffix("weight")
            stored |= {module + key: value for key, value in state.items()}
            if preset == "FP8":
                stored[module + "input_scale"] = torch.tensor([0.25], dtype=weight.dtype)
        config = {
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "quantization_status": "compressed",
            "config_groups": {"group_0": json.loads(scheme.model_dump_json())},
            "ignore": ["lm_head"],
            "kv_cache_scheme": None,
            "global_compression_ratio": None,
        }
        return stored, decoded, {"quantization_config": config}, None

    return pack


def transformers_blocks(tensors: Tensors) -> Packed:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    stored, decoded = {}, {}
    for name, weight in tensors.items():
        if not is_linear(name):
            stored[name] = decoded[name] = weight
            continue
        scale = block_maxima(weight.float()) / 448
        spread = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        codes = (weight.float() / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
        stored |= {name: codes, name + "_scale_inv": scale}
        decoded[name] = Fp8Dequantize(None)._dequantize_one(codes, scale, torch.float32)
    config = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [BLOCK, BLOCK],
        "modules_to_not_convert": ["lm_head"],
    }
    return stored, decoded, {"quantization_config": config}, None


def modelopt(tensors: Tensors) -> Packed:
    from modelopt.torch.quantization.qtensor.fp8_tensor import FP8QTensor

    stored, decoded = {}, {}
    for name, weight in tensors.items():
        if not is_linear(name):
            stored[name] = decoded[name] = weight
            continue
        quantized, scale = FP8QTensor.quantize(weight.float())
        module = name.removesuffix("weight")
        stored |= {
            name: quantized._quantized_data,
            module + "weight_scale": scale.float().reshape(()),
            module + "input_scale": torch.tensor(0.5),
        }
        decoded[name] = quantized.dequantize(dtype=torch.float32, scale=scale)
    own_file = {
        "producer": {"name": "modelopt", "version": "0.47.0"},
        "quantization": {
            "quant_algo": "FP8",
            "kv_cache_quant_algo": None,
            "exclude_modules": ["lm_head"],
        },
    }
    return stored, decoded, {}, own_file


@dataclass(frozen=True)
class Recipe:
    seed: int
    config: Callable[[], PreTrainedConfig]
    dtype: torch.dtype = torch.bfloat16
    pack: Callable[[Tensors], Packed] | None = None
    shards: int = 1
    nested: bool = False  # as the text part of a model of text and images


RECIPES = {
    "llama_bf16": Recipe(201, llama3_config, shards=2),
    "llama_ct_static": Recipe(202, lambda: llama_config(1), pack=compressed_tensors("FP8")),
    "llama_ct_channel": Recipe(203, lambda: llama_config(1), pack=compressed_tensors("FP8_DYNAMIC")),
    "llama_ct_block": Recipe(204, lambda: llama_config(1), pack=compressed_tensors("FP8_BLOCK")),
    "llama_fp8_blocks": Recipe(205, lambda: llama_config(1), pack=transformers_blocks),
    "llama_modelopt": Recipe(206, lambda: llama_config(1), pack=modelopt),
    "qwen2_f32": Recipe(207, qwen2_config, dtype=torch.float32),
    "gemma3_f16": Recipe(208, gemma3_config, dtype=torch.float16),
    "gemma3_nested": Recipe(208, gemma3_config, nested=True),
}


def logits_of(config: PreTrainedConfig, weights: Tensors, ids: list[int]) -> np.ndarray:
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    missing, unexpected = model.load_state_dict(
        {name: weight.float() for name, weight in weights.items()}, strict=False
    )
    tied = config.tie_word_embeddings
    if unexpected or set(missing) - ({"lm_head.weight"} if tied else set()):
        raise SystemExit(f"{config.model_type}: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def save_tensors(folder: Path, tensors: Tensors, shards: int) -> None:
    # Names in order and a fixed metadata: the same bytes each time.
    names = sorted(tensors)
    tensors = {name: tensors[name].contiguous() for name in names}
    if shards == 1:
        files = {"model.safetensors": names}
    else:
        files = {
            f"model-{i + 1:05}-of-{shards:05}.safetensors": names[i::shards] for i in range(shards)
        }
        index = {
            "metadata": {"total_size": sum(t.numel() * t.element_size() for t in tensors.values())},
            "weight_map": {name: file for file, held in files.items() for name in held},
        }
        write_json(folder / "model.safetensors.index.json", index)
    for file, held in files.items():
        part = {name: tensors[name] for name in held}
        safetensors.torch.save_file(part, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(0o644)


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def nest(tensors: Tensors) -> Tensors:
    """As older exports of text and image models name them; the images' part is left out but for two."""
    renamed = {
        "language_model.lm_head.weight" if name == "lm_head.weight" else "language_model." + name: weight
        for name, weight in tensors.items()
    }
    renamed["vision_tower.vision_model.embeddings.position_embedding.weight"] = torch.zeros(2, 2)
    renamed["multi_modal_projector.mm_input_projection_weight"] = torch.zeros(2, 2)
    return renamed


def write_config(folder: Path, config: PreTrainedConfig, extra: dict[str, Any], nested: bool) -> None:
    whole = Gemma3Config(text_config=config.to_dict()) if nested else config
    whole.save_pretrained(folder)
    path = folder / "config.json"
    write_json(path, json.loads(path.read_text()) | extra)


def make(output: Path, name: str, recipe: Recipe) -> None:
    folder = output / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = recipe.config()
    tensors = random_tensors(config, recipe.seed, recipe.dtype)
    extra: dict[str, Any] = {}
    own_file = None
    stored = weights = tensors
    if recipe.pack:
        stored, weights, extra, own_file = recipe.pack(tensors)
    if recipe.nested:
        stored = nest(stored)
    write_config(folder, config, extra, recipe.nested)
    end = config.eos_token_id
    generation = {"bos_token_id": 1, "eos_token_id": end if isinstance(end, list) else [end, 5]}
    write_json(folder / "generation_config.json", GenerationConfig(**generation).to_diff_dict())
    if own_file:
        write_json(folder / "hf_quant_config.json", own_file)
    save_tensors(folder, stored, recipe.shards)

    ids = [int(i) for i in np.random.default_rng([recipe.seed, TOKENS]).integers(0, VOCABULARY, TOKENS)]
    logits = logits_of(config, weights, ids)
    write_golden(
        output / f"{name}.json",
        {
            "seed": recipe.seed,
            "made_with": versions("numpy", "torch", "transformers", "safetensors"),
            "fields": {"logits": "over the whole vocabulary after the token at each of positions"},
            "end_tokens": generation["eos_token_id"],
            "ids": ids,
            "positions": POSITIONS,
            "logits": [significant(logits[position], 9) for position in POSITIONS],
        },
    )
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name}: {size} bytes, logits of deviation {logits.std():.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output", type=Path, metavar="OUT_DIR")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RECIPES))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    for name in arguments.names or RECIPES:
        make(arguments.output, name, RECIPES[name])


if __name__ == "__main__":
    main()

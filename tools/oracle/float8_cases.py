#!/usr/bin/env python3
"""Writes the FP8 checkpoints that tests/files/weight_quantization_test.cc reads.

Each is a folder as Hugging Face's tools write it, with one linear layer "layer" that the format's own package has
quantised: compressed-tensors (static per tensor, per channel with dynamic activations, 128 x 128 blocks), transformers
("fp8" blocks) and ModelOpt. Beside the layer's tensors lies `expected`: what the package decodes the weight to, in float32,
and for scales in bfloat16 `expected_bf16`, what it decodes to in the model's own type. To stay small, only some rows of
the large weights are stored: `expected_rows` says which.

Needs: pip install torch safetensors transformers compressed-tensors; and, for the folder "modelopt", nvidia-modelopt.

    tools/oracle/float8_cases.py --output tests/data/files/float8
"""

import argparse
import json
import pathlib

import safetensors.torch
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import preset_name_to_scheme
from compressed_tensors.quantization.utils import calculate_qparams

LARGE = (133, 160)  # no multiple of 128, so that the last blocks are cut off
SMALL = (24, 48)
LARGE_ROWS = [0, 1, 63, 126, 127, 128, 129, 132]


def random_weight(shape, seed):
    """Values of many magnitudes, so that codes of every exponent occur, subnormal ones among them."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.exp2(torch.rand(shape, generator=generator) * 16 - 16)
    return torch.randn(shape, generator=generator) * spread


def block_maxima(weight, block):
    """The largest magnitude of each block, the cut-off ones too."""
    rows, columns = (-(-size // block) for size in weight.shape)
    padded = torch.zeros(rows * block, columns * block)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    return padded.reshape(rows, block, columns, block).abs().amax(dim=(1, 3))


def write(folder, config, tensors, expected):
    folder.mkdir(parents=True, exist_ok=True)
    rows = LARGE_ROWS if expected["expected"].shape[0] == LARGE[0] else range(expected["expected"].shape[0])
    tensors = dict(tensors)
    for name, values in expected.items():
        tensors[name] = values[list(rows)].contiguous()
    tensors["expected_rows"] = torch.tensor(list(rows), dtype=torch.int32)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def compressed_tensors_case(folder, preset, shape, scale_dtype, seed):
    scheme = preset_name_to_scheme(preset, ["Linear"])
    weight = random_weight(shape, seed)
    strategy = str(getattr(scheme.weights.strategy, "value", scheme.weights.strategy))
    if strategy == "tensor":
        maxima = weight.abs().max().reshape(1)
    elif strategy == "channel":
        maxima = weight.abs().amax(dim=1, keepdim=True)
    else:
        maxima = block_maxima(weight, 128)
    scale, _ = calculate_qparams(-maxima, maxima, scheme.weights)
    scale = scale.to(scale_dtype)
    compressor = BaseCompressor.get_value_from_registry("float-quantized")
    state = compressor.compress({"weight": weight.to(scale_dtype), "weight_scale": scale}, scheme)
    in_float32 = compressor.decompress({**state, "weight_scale": state["weight_scale"].float()}, scheme)
    expected = {"expected": in_float32["weight"].float()}
    if scale_dtype != torch.float32:
        expected["expected_bf16"] = compressor.decompress(state, scheme)["weight"].to(torch.bfloat16)
    tensors = {f"layer.{name}": value for name, value in state.items()}
    if scheme.input_activations is not None and not scheme.input_activations.dynamic:
        tensors["layer.input_scale"] = torch.tensor([0.25], dtype=scale_dtype)
    group = json.loads(scheme.model_dump_json())
    config = {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "quantization_status": "compressed",
            "config_groups": {"group_0": group},
            "ignore": ["lm_head"],
            "kv_cache_scheme": None,
            "global_compression_ratio": None,
        }
    }
    write(folder, config, tensors, expected)


def transformers_case(folder, seed):
    """Fp8Dequantize takes whole blocks alone, so the weight is cut to some."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    weight = random_weight((256, 128), seed)
    scale = block_maxima(weight, 128) / 448
    spread = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
    codes = (weight / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
    decoded = Fp8Dequantize(None)._dequantize_one(codes, scale, torch.float32)
    config = {
        "quantization_config": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["lm_head"],
        }
    }
    rows = [0, 127, 128, 255]
    tensors = {"layer.weight": codes, "layer.weight_scale_inv": scale}
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(
        {**tensors, "expected": decoded[rows].contiguous(), "expected_rows": torch.tensor(rows, dtype=torch.int32)},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    (folder / "model.safetensors").chmod(0o644)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def modelopt_case(folder, seed):
    from modelopt.torch.quantization.qtensor.fp8_tensor import FP8QTensor

    weight = random_weight(SMALL, seed)
    quantized, scale = FP8QTensor.quantize(weight)
    decoded = quantized.dequantize(dtype=torch.float32, scale=scale)
    tensors = {
        "layer.weight": quantized._quantized_data,
        "layer.weight_scale": scale.float().reshape(()),
        "layer.input_scale": torch.tensor(0.5),
    }
    write(folder, {"model_type": "llama"}, tensors, {"expected": decoded})
    (folder / "hf_quant_config.json").write_text(
        json.dumps(
            {
                "producer": {"name": "modelopt", "version": "0.47.0"},
                "quantization": {
                    "quant_algo": "FP8",
                    "kv_cache_quant_algo": "FP8",
                    "exclude_modules": ["lm_head"],
                },
            },
            indent=2,
        )
        + "\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True, type=pathlib.Path, help="the folder to write the folders into")
    output = parser.parse_args().output

    compressed_tensors_case(output / "static", "FP8", SMALL, torch.float32, 1)
    compressed_tensors_case(output / "dynamic", "FP8_DYNAMIC", SMALL, torch.bfloat16, 2)
    compressed_tensors_case(output / "block", "FP8_BLOCK", LARGE, torch.float32, 3)
    transformers_case(output / "fp8", 4)
    modelopt_case(output / "modelopt", 5)


if __name__ == "__main__":
    main()

"""Does compressed-tensors accept what `octet calibrate` writes?

check_calibration.py FOLDER
    Validates FOLDER/quantization_config.json with the package's own classes and checks names, shapes
    and numbers of FOLDER/kv_scales.safetensors.
check_calibration.py --freeze OUT.json
    Writes the configurations that the package makes of the two schemes, which a test compares with.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from compressed_tensors.quantization import (
    QuantizationArgs,
    QuantizationConfig,
    QuantizationScheme,
)
from safetensors import safe_open

NAME = re.compile(r"model\.layers\.\d+\.self_attn\.[kvq]_scale")


def scheme(strategy: str) -> QuantizationArgs:
    return QuantizationArgs(
        num_bits=8, type="float", symmetric=True, strategy=strategy, dynamic=False
    )


def freeze(output: Path) -> None:
    frozen: dict[str, Any] = {}
    for strategy in ("tensor", "attn_head"):
        args = scheme(strategy)
        group = QuantizationScheme(targets=["LlamaAttention"], input_activations=args)
        config = QuantizationConfig(config_groups={"group_0": group}, kv_cache_scheme=args)
        frozen[strategy] = config.model_dump(mode="json")
    output.write_text(json.dumps(frozen, indent=1) + "\n", "utf-8")


def check(folder: Path) -> None:
    text = (folder / "quantization_config.json").read_text("utf-8")
    config = QuantizationConfig.model_validate(json.loads(text)["quantization_config"])
    strategy = getattr(config.kv_cache_scheme.strategy, "value", config.kv_cache_scheme.strategy)
    assert config.kv_cache_scheme == scheme(strategy), config.kv_cache_scheme
    for group in config.config_groups.values():
        assert group.input_activations == scheme(strategy), group
    with safe_open(folder / "kv_scales.safetensors", "np") as file:
        names = list(file.keys())
        for name in names:
            values = file.get_tensor(name)
            assert NAME.fullmatch(name), name
            assert (values > 0).all(), name
            assert values.shape == ((1,) if strategy == "tensor" else (len(values), 1, 1)), name
    print(f"{folder}: compressed-tensors accepts the scheme ({strategy}); {len(names)} scales")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--freeze", type=Path)
    arguments = parser.parse_args()
    if arguments.freeze:
        freeze(arguments.freeze)
    elif arguments.folder:
        check(arguments.folder)
    else:
        parser.error("name a folder, or --freeze FILE")


if __name__ == "__main__":
    main()

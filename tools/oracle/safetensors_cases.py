#!/usr/bin/env python3
"""Writes the file that tests/files/safetensors_test.cc reads: tensors of every type that torch and the
`safetensors` package store, among them a scalar and an empty one. Needs: pip install torch safetensors.

    tools/oracle/safetensors_cases.py --output tests/data/files/types.safetensors
"""

import argparse

import safetensors.torch
import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True, help="the safetensors file to write")
    arguments = parser.parse_args()

    # The values are told in the test as well: i / 4 - 1 for i = 0 ... 11, exact in every type but the last few.
    values = (torch.arange(12, dtype=torch.float32) / 4 - 1).reshape(3, 4)
    tensors = {
        "f32": values,
        "f16": values.to(torch.float16),
        "bf16": values.to(torch.bfloat16),
        "f8_e4m3": values.to(torch.float8_e4m3fn),
        "f8_e5m2": values.to(torch.float8_e5m2),
        "f64": values.to(torch.float64),
        "i64": torch.arange(5),
        "u8": torch.arange(7, dtype=torch.uint8),
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
    }
    safetensors.torch.save_file(tensors, arguments.output, metadata={"format": "pt", "note": "é"})


if __name__ == "__main__":
    main()

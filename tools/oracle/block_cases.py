#!/usr/bin/env python3
"""Writes the cases that tests/files/block_decode_test.cc checks the block decoders with.

For each block format the output, itself a GGUF file, holds two tensors: `<type>.blocks`, blocks of
random bytes whose scales are random, subnormal, negative, zero, largest, infinite or NaN, and
`<type>.values`, what the `gguf` package decodes them to in float32. Needs: pip install gguf.

    tools/oracle/block_cases.py --output tests/data/files/block_cases.gguf
"""

import argparse

import gguf
import numpy

# Byte offsets of the float16 scales in a block, and how many blocks to make beyond the special ones.
FORMATS = {
    "F16": ([], 64),
    "BF16": ([], 64),
    "Q4_0": ([0], 12),
    "Q4_1": ([0, 2], 12),
    "Q5_0": ([0], 12),
    "Q5_1": ([0, 2], 12),
    "Q8_0": ([0], 12),
    "Q2_K": ([80, 82], 3),
    "Q3_K": ([108], 3),
    "Q4_K": ([0, 2], 3),
    "Q5_K": ([0, 2], 3),
    "Q6_K": ([208], 3),
    "IQ4_NL": ([0], 12),
    "IQ4_XS": ([0], 3),
    "MXFP4": ([], 20),
}
# Smallest and an odd subnormal, a negative one, largest, negative, both zeros, infinity, NaN.
SPECIAL_SCALES = [0x0001, 0x0155, 0x83FF, 0x7BFF, 0xB5A3, 0x0000, 0x8000, 0x7C00, 0x7E00]


def random_scale(generator):
    """A finite float16 of either sign."""
    bits = int(generator.integers(0, 0x7C00)) | int(generator.integers(0, 2)) << 15
    return bits.to_bytes(2, "little")


def make_blocks(name, generator):
    offsets, random_blocks = FORMATS[name]
    block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    special = len(SPECIAL_SCALES) if offsets else 0
    blocks = generator.integers(0, 256, (special + random_blocks, block_bytes), dtype=numpy.uint8)
    for index, block in enumerate(blocks):
        for place, offset in enumerate(offsets):
            scale = random_scale(generator)
            # The special scales, each in turn in the first field; the second field takes them in
            # reverse order, so that large meets small.
            if index < special:
                order = SPECIAL_SCALES if place == 0 else SPECIAL_SCALES[::-1]
                scale = order[index].to_bytes(2, "little")
            block[offset : offset + 2] = numpy.frombuffer(scale, dtype=numpy.uint8)
    if name == "MXFP4":  # its scale is one exponent: the subnormal ones, and the largest
        blocks[:5, 0] = [0, 1, 2, 254, 255]
    return blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True, help="the GGUF file to write")
    parser.add_argument("--seed", type=int, default=20240607)
    arguments = parser.parse_args()

    generator = numpy.random.default_rng(arguments.seed)
    writer = gguf.GGUFWriter(arguments.output, "block_cases")
    for name in FORMATS:
        kind = gguf.GGMLQuantizationType[name]
        blocks = make_blocks(name, generator)
        with numpy.errstate(all="ignore"):
            values = gguf.dequantize(blocks, kind).astype(numpy.float32)
        if name == "F16":
            writer.add_tensor("f16.blocks", blocks.view(numpy.float16))
        else:
            writer.add_tensor(f"{name.lower()}.blocks", blocks, raw_dtype=kind)
        writer.add_tensor(f"{name.lower()}.values", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()

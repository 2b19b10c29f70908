#!/usr/bin/env python3
"""Writes the split GGUF model that tests/files/gguf_split_test.cc reads: five tensors in three files. Needs: pip install gguf.

    tools/oracle/split_cases.py --output tests/data/files/split.gguf
"""

import argparse

import gguf
import numpy


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True, help="the name that those of the parts are made from")
    arguments = parser.parse_args()

    writer = gguf.GGUFWriter(arguments.output, "llama", split_max_tensors=2)
    writer.add_string("general.name", "split")
    for index in range(5):
        writer.add_tensor(f"t{index}", numpy.arange(index, index + 3, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Fails where the compiler says that a kernel will be slow: registers spilled to memory, or tensor core
instructions that wait for one another.

    tools/check_kernels.py --nvcc NVCC --include src FILE.cu...

Compiles each file once more, for its report alone (15 s each, one on every processor).
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys

SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
# C7508: setmaxnreg ignored; C7510 to C7519: wgmma serialised, or fences added for it.
WARNING = re.compile(r"\(C75(?:08|1\d)\)[^\n]*")
ENTRY = re.compile(r"Compiling entry function '([^']+)'")


def problems(report):
    """What is wrong, one line each, in the report of `ptxas -v`."""
    found = WARNING.findall(report)
    kernel = "?"
    kernels = 0
    for line in report.splitlines():
        entry = ENTRY.search(line)
        if entry:
            kernel = entry.group(1)
            kernels += 1
        spill = SPILL.search(line)
        if spill and any(int(count) > 0 for count in spill.groups()):
            found.append(f"{kernel}: {spill.group(0)}")
    if kernels == 0:
        found.append("the report names no kernel")
    return found


def report_of(arguments, file):
    return subprocess.run(
        [arguments.nvcc, "-O3", "-std=c++20", "--expt-relaxed-constexpr", "-Xptxas=-v",
         "-gencode=arch=compute_90a,code=sm_90a", "-I", arguments.include, "-cubin",
         "-o", os.devnull, file],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--include", required=True, help="the folder that includes are relative to")
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    failed = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = list(pool.map(lambda file: report_of(arguments, file), arguments.files))
    for file, done in zip(arguments.files, reports):
        if done.returncode != 0:
            print(f"check_kernels: {file} does not compile:\n{done.stdout}", file=sys.stderr)
            failed = True
            continue
        for problem in problems(done.stdout):
            print(f"check_kernels: {file}: {problem}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

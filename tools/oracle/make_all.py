#!/usr/bin/env python3
"""Makes everything under tests/data that an independent program answers (`make oracle`).

make_all.py [--list] [JOB ...]
    Runs the jobs, or all of them, from the root of the tree, each in a process of its own. A job writes the
    same bytes each time: a difference afterwards is a change of a script, of a package or of a model.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

TOOLS = pathlib.Path(__file__).resolve().parent
ROOT = TOOLS.parent.parent
DATA = "tests/data"
SMOLLM2 = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
QWEN2 = "models/Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf"
GEMMA3 = "models/gemma-3-270m.Q4_K_M.gguf"
LICENSE = "/usr/share/common-licenses/GPL-3"  # a long text that every Debian has

# Vocabularies that octet is held to; after "=", another family's pattern over the same tokens.
VOCABULARIES = [
    GEMMA3,
    *(
        f"models/vocabularies/ggml-vocab-{name}.gguf"
        for name in ("llama-spm", "phi-3", "baichuan", "gemma-4")
    ),
    SMOLLM2,
    QWEN2,
    *(
        f"models/vocabularies/ggml-vocab-{name}"
        for name in (
            *("gpt-2.gguf", "llama-bpe.gguf", "llama-bpe.gguf=gpt-4o", "llama-bpe.gguf=kimi-k2"),
            *("qwen2.gguf", "qwen35.gguf", "starcoder.gguf", "refact.gguf", "command-r.gguf"),
            "mpt.gguf",
        )
    ),
]

RANDOM_GGUF = [
    "llama_mixed",
    "llama_wide_heads",
    "llama_k_quants",
    "llama_rope_scaling",
    "qwen2_biases",
    "gemma3_windows",
    "gemma3_scaled",
]

# Name, and the script with its arguments. The slow ones, minutes each, stand last.
JOBS = {
    "blocks": ["block_cases.py", "--output", f"{DATA}/files/block_cases.gguf"],
    "split": ["split_cases.py", "--output", f"{DATA}/files/split.gguf"],
    "safetensors": ["safetensors_cases.py", "--output", f"{DATA}/files/types.safetensors"],
    "float8": ["float8_cases.py", "--output", f"{DATA}/files/float8"],
    "random-models": ["random_models.py", f"{DATA}/models", *RANDOM_GGUF],
    "folder-models": ["folder_models.py", f"{DATA}/models/folders"],
    "check-transformers": [
        "check_transformers.py",
        *(f"{DATA}/models/{name}.gguf:{DATA}/models/{name}.json" for name in RANDOM_GGUF),
    ],
    "smollm2-ids": [
        *("tokenizer_cases.py", "ids", SMOLLM2, f"{DATA}/text/smollm2_ids.json"),
        *("--random", "120"),
    ],
    "smollm2-gpt2-ids": [
        *("tokenizer_cases.py", "ids", SMOLLM2, f"{DATA}/text/smollm2_gpt2_ids.json"),
        *("--pattern", "gpt-2", "--random", "0"),
    ],
    "qwen2-ids": [
        *("tokenizer_cases.py", "ids", QWEN2, f"{DATA}/text/qwen2_ids.json"),
        *("--random", "120"),
    ],
    "pieces": [
        *("tokenizer_cases.py", "pieces", f"{DATA}/text/pieces.json"),
        *("--random", "150", "--seed", "2"),
    ],
    "tokenizer-json": ["tokenizer_json_cases.py", f"{DATA}/text/tokenizer_json.json"],
    "vocabularies": ["vocabulary_cases.py", f"{DATA}/text/vocabularies.json", *VOCABULARIES],
    "templates": [
        *("template_cases.py", "--gguf", SMOLLM2, "--gguf", QWEN2),
        *("--out", f"{DATA}/templates"),
    ],
    "family-templates": [
        *("family_templates.py", "--folder", "models"),
        *("--out", f"{DATA}/templates/families.json"),
    ],
    "characters": ["character_cases.py", f"{DATA}/text/characters.json"],
    "smollm2-sample": [
        *("model_goldens.py", SMOLLM2, f"{DATA}/goldens/smollm2_sample.json"),
        *("--sample", f"{DATA}/goldens/sample.txt"),
    ],
    "smollm2": [
        *("model_goldens.py", SMOLLM2, f"{DATA}/goldens/smollm2.json"),
        *("--prompts", "smollm2", "--float64-prompt", "code-tabs"),
    ],
    "gemma3": ["model_goldens.py", GEMMA3, f"{DATA}/goldens/gemma3_270m.json", "--spans", LICENSE],
    "qwen2": [
        *("model_goldens.py", QWEN2, f"{DATA}/goldens/qwen2_5_coder.json"),
        *("--prompts", "qwen2.5-coder", "--generate", "40", "--float64-prompt", "numbers"),
    ],
    "kv-divergence": [
        *("kv_divergence.py", LICENSE, f"{DATA}/goldens/kv_divergence.json"),
        *(f"{SMOLLM2}:1024", f"{QWEN2}:512"),
    ],
}

# numpy's and torch's libraries sum in an order that depends on the processor, and on the number of
# threads: float32 logits would differ by some 1e-5 from machine to machine. Every x86-64 processor of
# the last ten years has what these leave.
REPRODUCIBLE = {
    "OPENBLAS_NUM_THREADS": "1",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "PYTHONHASHSEED": "0",
}


def run(name: str) -> bool:
    script, *arguments = JOBS[name]
    start = time.monotonic()
    print(f"oracle: {name}", flush=True)
    done = subprocess.run(
        [sys.executable, "-B", str(TOOLS / script), *arguments],
        cwd=ROOT,
        env={**os.environ, **REPRODUCIBLE},
    )
    print(f"oracle: {name} took {time.monotonic() - start:.0f} s", flush=True)
    if done.returncode != 0:
        print(f"oracle: {name} failed with status {done.returncode}", file=sys.stderr)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="name the jobs")
    parser.add_argument("jobs", nargs="*", metavar="JOB")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(JOBS))
        return 0
    unknown = [name for name in arguments.jobs if name not in JOBS]
    if unknown:
        parser.error(f"no job {', '.join(unknown)}; the jobs are {', '.join(JOBS)}")
    failed = [name for name in arguments.jobs or JOBS if not run(name)]
    if failed:
        print(f"oracle: failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

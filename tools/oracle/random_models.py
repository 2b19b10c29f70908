"""Small random GGUF checkpoints with their right answers, for tests that need no download.

random_models.py OUT_DIR [NAME ...]
    Writes NAME.gguf and NAME.json for each recipe (all of them when none is named). The same seed
    gives the same bytes. The JSON holds logits of the numpy reference over the whole vocabulary, at
    some positions of two prompts, in float64 and float32.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, RopeScalingType
from gguf.quants import quantize

from gguf_tokenizer import CONTROL, GgufTokenizer
from golden_file import sha256, significant, top_gap, versions, write_golden
from kv_policies import KvPolicy
from reference_forward import (
    KvCache,
    Llama3RopeScaling,
    ReferenceModel,
    rope_inverse_frequencies,
)

CONTEXT_LENGTH = 512
NORMAL, UNUSED = 1, 5
MERGES = 100
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PADDED_VOCABULARY = 384  # qwen2 pads its embedding past the tokenizer's last id

# Pages of the cache hold 64 tokens: the positions sit on both sides of their borders.
PROMPTS = {"short": (40, [0, 1, 20, 39]), "long": (150, [62, 63, 64, 65, 127, 128, 149])}
POLICIES = [
    KvPolicy("bfloat16"),
    KvPolicy("float16"),
    KvPolicy("fp8", "unit"),
    KvPolicy("fp8", "dynamic"),
    KvPolicy("int8"),
    KvPolicy("int8:fp8", "dynamic"),
]

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a small test.<|im_end|>\n' }}"
    "{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# What the vocabulary's merges are counted on.
MERGE_TEXT = """
The cache holds the keys and the values of every token that the model has read, and the attention
reads them again for each token that it writes. When the text is long the cache is what takes the
time, so the smaller its numbers are the faster the answer comes. A page holds sixty four tokens;
the last page of a sequence is the only one that is not full, and a page with two owners is never
written. There was once a lighthouse in the north that nobody wanted, and then there was not.
for (int i = 0; i < count; ++i) { total += values[i]; }  return total;
    if (total == 0) { return 0; }
你好，世界。你好，我们。今天的天气很好。
"""

TOKENIZER_TEXTS = [
    "The cache holds 128 tokens of the text.",
    "  for (int i = 0; i < 64; ++i) {\n\n\treturn i;\n}  ",
    "你好，世界！ ½ ² ١٢",
    "cafe\u0301 na\u00efve \U0001f680",
    "it's they'll WE'RE",
    "<|im_start|>user\nhello<|im_end|>",
]

# Every type once before any comes twice.
MIXED_TYPES = [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.F16, Type.BF16, Type.F32]
K_TYPES = [Type.Q4_K, Type.Q5_K, Type.Q6_K]
# What llama.cpp's quantiser takes where rows are no multiple of 256.
K_TYPE_FALLBACK = {Type.Q4_K: Type.Q5_0, Type.Q5_K: Type.Q5_1, Type.Q6_K: Type.Q8_0}


@dataclass(frozen=True)
class Recipe:
    seed: int
    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    tied: bool
    types: list[Type]
    rope_base: float = 10000.0
    norm_epsilon: float = 1e-5
    rope_scaling: Llama3RopeScaling | None = None
    window: int = 0
    window_period: int = 6
    linear_rope_factor: float = 1.0
    logit_soft_cap: float = 0.0


RECIPES = {
    # Every type that is neither a K type nor absent from the gguf package's quantisers.
    "llama_mixed": Recipe(
        seed=101, architecture="llama", layers=3, hidden=64, heads=4, kv_heads=2, head_dim=16,
        feed_forward=96, tied=True, types=MIXED_TYPES,
    ),
    # Heads whose width together is not the hidden size, and an output matrix of its own.
    "llama_wide_heads": Recipe(
        seed=102, architecture="llama", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=32,
        feed_forward=64, tied=False, types=[Type.F32],
    ),
    "llama_k_quants": Recipe(
        seed=103, architecture="llama", layers=2, hidden=256, heads=4, kv_heads=2, head_dim=32,
        feed_forward=256, tied=True, types=K_TYPES,
    ),
    # The original context is short, so that 150 tokens reach kept, blended and stretched pairs.
    "llama_rope_scaling": Recipe(
        seed=104, architecture="llama", layers=3, hidden=64, heads=4, kv_heads=2, head_dim=32,
        feed_forward=96, tied=True, types=[Type.F32, Type.Q8_0], rope_base=500000.0,
        rope_scaling=Llama3RopeScaling(
            factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=128.0
        ),
    ),
    "qwen2_biases": Recipe(
        seed=105, architecture="qwen2", layers=3, hidden=64, heads=4, kv_heads=2, head_dim=16,
        feed_forward=96, tied=False, types=[Type.Q5_0, Type.Q8_0, Type.F32, Type.Q4_1],
        rope_base=1000000.0, norm_epsilon=1e-6,
    ),
    # A window that is no multiple of a page; the sixth of seven layers is a full one.
    "gemma3_windows": Recipe(
        seed=106, architecture="gemma3", layers=7, hidden=64, heads=4, kv_heads=2, head_dim=32,
        feed_forward=96, tied=True, types=[Type.Q8_0, Type.F32, Type.Q5_0, Type.Q4_1],
        rope_base=1000000.0, norm_epsilon=1e-6, window=40,
    ),
    # As the larger models scale the positions of their full layers; capped logits; one KV head.
    "gemma3_scaled": Recipe(
        seed=107, architecture="gemma3", layers=4, hidden=64, heads=4, kv_heads=1, head_dim=16,
        feed_forward=64, tied=False, types=[Type.F32], rope_base=10000.0, norm_epsilon=1e-6,
        window=64, window_period=2, linear_rope_factor=8.0, logit_soft_cap=5.0,
    ),
}  # fmt: skip


def byte_alphabet() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in alphabet)
    alphabet |= {byte: chr(0x100 + i) for i, byte in enumerate(others)}
    return [alphabet[byte] for byte in range(256)]


def learn_merges(text: str, count: int) -> list[tuple[str, str]]:
    """The `count` first merges of byte pair encoding; of equally frequent pairs the smallest."""
    alphabet = byte_alphabet()
    pieces = re.findall(r" ?[^\W\d_]+| ?[^\w\s]+|\s+| ?\d", text)
    words = [[alphabet[byte] for byte in piece.encode()] for piece in pieces]
    merges = []
    for _ in range(count):
        pairs = Counter(pair for word in words for pair in zip(word, word[1:]))
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = ["".join(best)]
                i += 1
    return merges


def add_vocabulary(writer: GGUFWriter, architecture: str) -> int:
    """Writes the tokenizer and gives the vocabulary's size."""
    merges = learn_merges(MERGE_TEXT, MERGES)
    normal = byte_alphabet() + ["".join(merge) for merge in merges]
    special = [(token, CONTROL) for token in SPECIAL_TOKENS]
    ordinary = [(token, NORMAL) for token in normal]
    if architecture == "llama":  # as SmolLM2: special tokens first
        vocabulary, pattern = special + ordinary, "smollm"
    else:  # as Qwen2, and for gemma3 too, whose own tokenizer is another matter: special tokens last, then padding
        padding = range(len(ordinary) + len(special), PADDED_VOCABULARY)
        vocabulary = ordinary + special + [(f"[PAD{i}]", UNUSED) for i in padding]
        pattern = "qwen2"
    tokens = [token for token, _ in vocabulary]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pattern)
    writer.add_token_list(tokens)
    writer.add_token_types([kind for _, kind in vocabulary])
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    return len(tokens)


def random_k_blocks(
    random: np.random.Generator, rows: int, columns: int, kind: Type, deviation: float
) -> np.ndarray:
    """Valid random blocks of a K type, which the gguf package reads but does not write.

    Codes, 6-bit sub-block scales and minima are random over their range; the super-block scale is
    chosen so that values are centred and have about the wanted standard deviation.
    """
    blocks = rows * columns // 256
    codes_bytes = random.integers(
        0, 256, (blocks, {Type.Q6_K: 192, Type.Q4_K: 128, Type.Q5_K: 160}[kind]), np.uint8
    )
    jitter = random.uniform(0.8, 1.2, (blocks, 1))
    if kind == Type.Q6_K:
        # Codes -32..31 (deviation 18.5) times a signed 8-bit scale of magnitude 20..127 (mean 74).
        magnitudes = random.integers(20, 128, (blocks, 16))
        scales = (magnitudes * random.choice([-1, 1], (blocks, 16))).astype(np.int8).view(np.uint8)
        d = (jitter * deviation / (18.5 * 74)).astype(np.float16).view(np.uint8)
        data = np.concatenate([codes_bytes, scales, d], axis=1)
    else:
        levels = 16 if kind == Type.Q4_K else 32
        centre = (levels - 1) / 2
        scales = random.integers(12, 64, (blocks, 8))
        minima = np.clip(scales + random.integers(-3, 4, (blocks, 8)), 0, 63)
        d = jitter * deviation / (levels / np.sqrt(12) * scales.mean())
        # y = d * scale * code - dmin * minimum: with dmin = d * centre values lie around zero.
        super_scales = np.concatenate([d, d * centre], axis=1).astype(np.float16).view(np.uint8)
        data = np.concatenate([super_scales, pack_6bit(scales, minima), codes_bytes], axis=1)
    return np.ascontiguousarray(data).reshape(rows, -1)


def pack_6bit(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    """The 12 bytes that hold 8 scales and 8 minima of 6 bits in a Q4_K or Q5_K block."""
    low_s, high_s, low_m, high_m = scales[:, :4], scales[:, 4:], minima[:, :4], minima[:, 4:]
    first = low_s | (high_s >> 4) << 6
    second = low_m | (high_m >> 4) << 6
    third = (high_s & 15) | (high_m & 15) << 4
    return np.concatenate([first, second, third], axis=1).astype(np.uint8)


def rows_to_gguf_order(rows: np.ndarray, heads: int) -> np.ndarray:
    """Half-split rows as llama.cpp's converter writes them for the llama architecture."""
    halves = rows.reshape(heads, 2, -1, rows.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


class Checkpoint:
    """Draws the tensors of a recipe, in order, and writes them."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.recipe = recipe
        self.random = np.random.default_rng(recipe.seed)
        self.writer = GGUFWriter(path, recipe.architecture)
        self.matrices = 0

    def write(self, name: str) -> None:
        r = self.recipe
        self._add_geometry(name)
        vocabulary = add_vocabulary(self.writer, r.architecture)
        self.writer.add_vocab_size(vocabulary)
        self._add_matrix("token_embd.weight", vocabulary, r.hidden, 0.35 * np.sqrt(r.hidden))
        if r.rope_scaling:
            self._add_rope_divisors()
        for layer in range(r.layers):
            self._add_layer(f"blk.{layer}.")
        self._add_norm("output_norm.weight")
        if not r.tied:
            self._add_matrix("output.weight", vocabulary, r.hidden, 2.8)
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()

    def _add_geometry(self, name: str) -> None:
        r, writer = self.recipe, self.writer
        writer.add_name(name)
        writer.add_context_length(CONTEXT_LENGTH)
        writer.add_embedding_length(r.hidden)
        writer.add_block_count(r.layers)
        writer.add_feed_forward_length(r.feed_forward)
        writer.add_head_count(r.heads)
        writer.add_head_count_kv(r.kv_heads)
        writer.add_layer_norm_rms_eps(r.norm_epsilon)
        writer.add_rope_freq_base(r.rope_base)
        if r.architecture == "llama":
            writer.add_rope_dimension_count(r.head_dim)
        if r.window:
            writer.add_sliding_window(r.window)
        if r.window and r.window_period != 6:  # as in real files, which leave the usual period out
            writer.add_sliding_window_pattern(r.window_period)
        if r.linear_rope_factor != 1:
            writer.add_rope_scaling_type(RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(r.linear_rope_factor)
        if r.logit_soft_cap:
            writer.add_final_logit_softcapping(r.logit_soft_cap)
        if r.head_dim * r.heads != r.hidden or r.architecture == "gemma3":
            writer.add_key_length(r.head_dim)
            writer.add_value_length(r.head_dim)

    def _add_rope_divisors(self) -> None:
        r = self.recipe
        plain = rope_inverse_frequencies(r.rope_base, r.head_dim)
        scaled = rope_inverse_frequencies(r.rope_base, r.head_dim, r.rope_scaling)
        self.writer.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))

    def _add_layer(self, block: str) -> None:
        r = self.recipe
        q_width, kv_width = r.heads * r.head_dim, r.kv_heads * r.head_dim
        self._add_norm(block + "attn_norm.weight")
        self._add_matrix(block + "attn_q.weight", q_width, r.hidden, 1.5, r.heads)
        self._add_matrix(block + "attn_k.weight", kv_width, r.hidden, 1.5, r.kv_heads)
        self._add_matrix(block + "attn_v.weight", kv_width, r.hidden, 1.0)
        self._add_matrix(block + "attn_output.weight", r.hidden, q_width, 1.0)
        if r.architecture == "qwen2":
            self._add_biases(block)
        if r.architecture == "gemma3":
            self._add_norm(block + "attn_q_norm.weight", r.head_dim)
            self._add_norm(block + "attn_k_norm.weight", r.head_dim)
            self._add_norm(block + "post_attention_norm.weight")
            self._add_norm(block + "post_ffw_norm.weight")
        self._add_norm(block + "ffn_norm.weight")
        self._add_matrix(block + "ffn_gate.weight", r.feed_forward, r.hidden, 1.2)
        self._add_matrix(block + "ffn_up.weight", r.feed_forward, r.hidden, 1.2)
        self._add_matrix(block + "ffn_down.weight", r.hidden, r.feed_forward, 1.2)

    def _add_biases(self, block: str) -> None:
        """Key biases up to 200 in the slowest pair of each head, as in Qwen2.5's checkpoints."""
        r = self.recipe
        query = self.random.normal(0, 1, r.heads * r.head_dim)
        key = self.random.normal(0, 1, (r.kv_heads, r.head_dim))
        slowest = [r.head_dim // 2 - 1, r.head_dim - 1]
        size = self.random.uniform(50, 200, (r.kv_heads, 2))
        key[:, slowest] = size * self.random.choice([-1, 1], size.shape)
        value = self.random.normal(0, 0.5, r.kv_heads * r.head_dim)
        for name, bias in (("q", query), ("k", key), ("v", value)):
            self.writer.add_tensor(f"{block}attn_{name}.bias", bias.reshape(-1).astype(np.float32))

    def _add_norm(self, name: str, width: int | None = None) -> None:
        weight = 1 + 0.2 * self.random.standard_normal(width or self.recipe.hidden)
        self.writer.add_tensor(name, weight.astype(np.float32))

    def _add_matrix(
        self, name: str, rows: int, columns: int, gain: float, permuted_heads: int = 0
    ) -> None:
        """A matrix whose product with unit-variance input has standard deviation `gain`."""
        kind = self.recipe.types[self.matrices % len(self.recipe.types)]
        self.matrices += 1
        if kind in K_TYPES and columns % 256:
            kind = K_TYPE_FALLBACK[kind]
        deviation = gain / np.sqrt(columns)
        if kind in K_TYPES:
            data = random_k_blocks(self.random, rows, columns, kind, deviation)
        else:
            weight = self.random.normal(0, deviation, (rows, columns)).astype(np.float32)
            if permuted_heads and self.recipe.architecture == "llama":
                weight = rows_to_gguf_order(weight, permuted_heads)
            data = quantize(weight, kind)
        self.writer.add_tensor(name, data, raw_dtype=kind)


def prompt_ids(recipe: Recipe, vocabulary: int, length: int) -> list[int]:
    """Any ids that a text could hold, special ones too; the same text whatever the model."""
    random = np.random.default_rng([recipe.seed, length])
    return [int(i) for i in random.integers(0, vocabulary, length)]


def logits_rows(logits: np.ndarray) -> list[list[float]]:
    return [significant(row, 9) for row in logits]


def expected(path: Path, recipe: Recipe) -> dict[str, Any]:
    single, double = ReferenceModel(path), ReferenceModel(path, np.float64)
    tokenizer = GgufTokenizer(single.reader)
    used = MERGES + 256 + len(SPECIAL_TOKENS)
    prompts, difference, smallest_gap = [], 0.0, np.inf
    for name, (length, positions) in PROMPTS.items():
        ids = prompt_ids(recipe, used, length)
        exact, rounded = double.forward(ids, rows=positions), single.forward(ids, rows=positions)
        difference = max(difference, float(np.abs(exact - rounded).max()))
        smallest_gap = min(smallest_gap, *(top_gap(row) for row in exact))
        prompts.append(
            {
                "name": name,
                "ids": ids,
                "positions": positions,
                "float64": logits_rows(exact),
                "float32": logits_rows(rounded),
            }
        )
    last = prompts[-1]["positions"][-1]
    policies = [
        {
            "dtype": policy.dtype,
            "scales": policy.scales,
            "prompt": prompts[-1]["name"],
            "position": last,
            "logits": logits_rows(single.forward(ids, KvCache(policy), rows=[last]))[0],
        }
        for policy in POLICIES
    ]
    return {
        "float32_to_float64": significant([difference], 3)[0],
        "smallest_top2_gap": significant([smallest_gap], 3)[0],
        "prompts": prompts,
        "kv_policies": policies,
        "tokenizer_cases": [tokenizer_case(tokenizer, text) for text in TOKENIZER_TEXTS],
        "chat": chat_case(tokenizer),
    }


def tokenizer_case(tokenizer: GgufTokenizer, text: str) -> dict[str, Any]:
    return {
        "text": text,
        "ids": tokenizer.encode(text),
        "ids_special_parsed": tokenizer.encode(text, parse_special=True),
    }


def chat_case(tokenizer: GgufTokenizer) -> dict[str, Any]:
    messages = [{"role": "user", "content": "What holds the keys?"}]
    rendered = tokenizer.render(messages)
    ids = tokenizer.encode(rendered, parse_special=True)
    return {"messages": messages, "rendered": rendered, "ids": ids}


def transformers_settings(recipe: Recipe) -> dict[str, Any]:
    """What transformers' GGUF loader leaves at its own default, though the file says otherwise."""
    if recipe.architecture != "gemma3":
        return {}
    full = [(layer + 1) % recipe.window_period == 0 for layer in range(recipe.layers)]
    rope = {"rope_type": "default", "rope_theta": recipe.rope_base}
    if recipe.linear_rope_factor != 1:
        rope |= {"rope_type": "linear", "factor": recipe.linear_rope_factor}
    return {
        "transformers_config": {
            "query_pre_attn_scalar": recipe.head_dim,
            "layer_types": ["full_attention" if f else "sliding_attention" for f in full],
            "rope_parameters": {
                "full_attention": rope,
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
            "final_logit_softcapping": recipe.logit_soft_cap or None,
            "tie_word_embeddings": recipe.tied,
        }
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output", type=Path, metavar="OUT_DIR")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RECIPES))
    arguments = parser.parse_args()
    for name in arguments.names or RECIPES:
        recipe = RECIPES[name]
        path = arguments.output / f"{name}.gguf"
        Checkpoint(path, recipe).write(name)
        answers = expected(path, recipe)
        scaling = recipe.rope_scaling
        write_golden(
            path.with_suffix(".json"),
            {
                "model": path.name,
                "sha256": sha256(path),
                "seed": recipe.seed,
                "made_with": versions("numpy", "gguf", "tokenizers"),
                "fields": {
                    "prompts": "float64 and float32: logits over the whole vocabulary after the "
                    "token at each of `positions`, from the numpy reference in that arithmetic "
                    "with an exact cache",
                    "kv_policies": "float32 logits with that cache: a stored value near a tie may "
                    "honestly round the other way, so compare with a tolerance",
                    "float32_to_float64": "largest difference of two logits",
                },
                "rope_scaling": vars(scaling) if scaling else None,
                **transformers_settings(recipe),
                **answers,
            },
        )
        print(
            f"{name}: {path.stat().st_size} bytes, float32 to float64 "
            f"{answers['float32_to_float64']}, smallest gap {answers['smallest_top2_gap']}"
        )


if __name__ == "__main__":
    main()

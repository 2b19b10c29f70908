"""An independent forward pass of llama, qwen2 and gemma3 GGUF checkpoints in plain numpy.

Weights are dequantised by the `gguf` package; everything after that is float32, or float64 where
asked. The KV cache rounds what it stores by a policy (kv_policies.py) and prefill attends to the
stored values, as octet does. There is nothing clever here: it is what the C++ is compared with.

As a program: reference_forward.py MODEL.gguf --text "Once upon" --generate 16
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Sequence

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

from kv_policies import FLOAT32, KvPolicy

# Rows that attend at once: bounds the memory of the scores.
ATTENTION_ROWS = 512


@dataclass(frozen=True)
class Geometry:
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_epsilon: float
    rope_base: float
    window: int = 0  # keys that a query of a windowed layer sees, itself included; 0: no such layer
    window_period: int = 1  # each so many-th layer is a full one
    softmax_scale: float = 0.0
    logit_soft_cap: float = 0.0

    def is_windowed(self, layer: int) -> bool:
        return self.window > 0 and (layer + 1) % self.window_period != 0


@dataclass(frozen=True)
class Llama3RopeScaling:
    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: float


@dataclass
class KvCache:
    """Keys (rotated as the policy says) and values of each layer, as read back from storage."""

    policy: KvPolicy = FLOAT32
    keys: dict[int, np.ndarray] = field(default_factory=dict)
    values: dict[int, np.ndarray] = field(default_factory=dict)
    length: int = 0

    def append(self, layer: int, keys: np.ndarray, values: np.ndarray) -> None:
        keys = self.policy.store_keys(self.policy.rotate(keys))
        values = self.policy.store_values(values)
        if layer in self.keys:
            keys = np.concatenate([self.keys[layer], keys])
            values = np.concatenate([self.values[layer], values])
        self.keys[layer], self.values[layer] = keys, values


def rope_inverse_frequencies(
    base: float,
    head_dim: int,
    scaling: Llama3RopeScaling | None = None,
    divisors: np.ndarray | None = None,
) -> np.ndarray:
    """Radians per position of each pair: base^(-2 i / head_dim), in float64.

    Llama 3 stretches long wavelengths. A checkpoint states that by formula (`scaling`) or, as
    llama.cpp's converter writes it, by one divisor per pair (the tensor rope_freqs.weight).
    """
    inverse = float(base) ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if divisors is not None:
        return inverse / divisors.astype(np.float64)
    if scaling is None:
        return inverse
    wavelength = 2.0 * np.pi / inverse
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    # 1 where a wavelength is kept, 0 where it is stretched by the whole factor, linear between.
    kept = np.clip((scaling.original_context / wavelength - low) / (high - low), 0.0, 1.0)
    return inverse * kept + inverse / scaling.factor * (1.0 - kept)


def rotate_half_split(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Rotary embedding of [tokens, heads, head_dim]: element i pairs with i + head_dim / 2."""
    cosine = np.cos(angles)[:, None, :].astype(x.dtype)
    sine = np.sin(angles)[:, None, :].astype(x.dtype)
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def rows_to_half_split(rows: np.ndarray, heads: int) -> np.ndarray:
    """Undo llama.cpp's reordering of query and key rows (llama architecture only).

    GGUF row 2 i + p of a head is Hugging Face's row p * head_dim / 2 + i. Works on weights
    [rows, columns] and on biases [rows].
    """
    per_head = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(per_head.swapaxes(1, 2)).reshape(rows.shape)


class ReferenceModel:
    """One checkpoint. `dtype` is the arithmetic: np.float32 or np.float64."""

    def __init__(self, path: Path | str, dtype: Any = np.float32) -> None:
        self.reader = GGUFReader(path)
        self.dtype = np.dtype(dtype)
        self._tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self._weights: dict[str, np.ndarray] = {}
        self.architecture = self.metadata("general.architecture")
        if self.architecture not in ("llama", "qwen2", "gemma3"):
            raise ValueError(f"architecture {self.architecture!r} is not known here")
        self.geometry = self._read_geometry()
        self.inverse_frequencies = self._read_rope()
        # Windowed layers rotate by a base of their own, and their positions are never scaled.
        self.windowed_frequencies = rope_inverse_frequencies(
            self._key("rope.freq_base_swa", 10000.0), self.geometry.head_dim
        )

    def metadata(self, key: str, missing: Any = None) -> Any:
        fields = self.reader.fields
        return fields[key].contents() if key in fields else missing

    def _key(self, name: str, missing: Any = None) -> Any:
        return self.metadata(f"{self.architecture}.{name}", missing)

    def _read_geometry(self) -> Geometry:
        hidden, heads = self._key("embedding_length"), self._key("attention.head_count")
        head_dim = self._key("attention.key_length", hidden // heads)
        if self._key("attention.value_length", head_dim) != head_dim:
            raise ValueError("keys and values of different sizes are not known here")
        if self._key("rope.dimension_count", head_dim) != head_dim:
            raise ValueError("a partly rotated head is not known here")
        is_gemma = self.architecture == "gemma3"
        # Gemma 3 of 62 layers alone scales by hidden / heads; GGUF files do not say it.
        is_largest = is_gemma and self._key("block_count") == 62
        return Geometry(
            layers=self._key("block_count"),
            hidden_size=hidden,
            heads=heads,
            kv_heads=self._key("attention.head_count_kv", heads),
            head_dim=head_dim,
            norm_epsilon=self._key("attention.layer_norm_rms_epsilon"),
            rope_base=self._key("rope.freq_base", 10000.0),
            window=self._key("attention.sliding_window", 0) if is_gemma else 0,
            window_period=self._key("attention.sliding_window_pattern", 6) if is_gemma else 1,
            softmax_scale=(hidden // heads if is_largest else head_dim) ** -0.5,
            logit_soft_cap=self._key("final_logit_softcapping", 0.0) if is_gemma else 0.0,
        )

    def _read_rope(self) -> np.ndarray:
        g = self.geometry
        kind = self._key("rope.scaling.type", "none")
        scaling, divisors = None, None
        if kind == "linear":
            plain = rope_inverse_frequencies(g.rope_base, g.head_dim)
            return plain / self._key("rope.scaling.factor")
        if "rope_freqs.weight" in self._tensors:
            divisors = self.tensor("rope_freqs.weight")
        elif kind == "llama3":
            scaling = Llama3RopeScaling(
                factor=self._key("rope.scaling.factor"),
                low_freq_factor=self._key("rope.scaling.low_freq_factor", 1.0),
                high_freq_factor=self._key("rope.scaling.high_freq_factor", 4.0),
                original_context=self._key("rope.scaling.original_context_length"),
            )
        elif kind != "none":
            raise ValueError(f"rope scaling {kind!r} is not known here")
        return rope_inverse_frequencies(g.rope_base, g.head_dim, scaling, divisors)

    def has_tensor(self, name: str) -> bool:
        return name in self._tensors

    def tensor(self, name: str) -> np.ndarray:
        """Dequantised, row-major [out, in] or [n]; query and key rows in half-split order."""
        if name not in self._weights:
            stored = self._tensors[name]
            values = dequantize(stored.data, stored.tensor_type).astype(np.float32, copy=False)
            values = values.reshape([int(size) for size in reversed(stored.shape)])
            if self.architecture == "llama" and ".attn_q." in name:
                values = rows_to_half_split(values, self.geometry.heads)
            elif self.architecture == "llama" and ".attn_k." in name:
                values = rows_to_half_split(values, self.geometry.kv_heads)
            self._weights[name] = values.astype(self.dtype, copy=False)
        return self._weights[name]

    @property
    def vocabulary_size(self) -> int:
        return int(self._tensors["token_embd.weight"].shape[1])

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        return (
            x
            / np.sqrt(mean_square + self.dtype.type(self.geometry.norm_epsilon))
            * self.tensor(name)
        )

    def _linear(self, x: np.ndarray, name: str) -> np.ndarray:
        y = x @ self.tensor(name + ".weight").T
        return y + self.tensor(name + ".bias") if self.has_tensor(name + ".bias") else y

    def _attention(self, x: np.ndarray, layer: int, cache: KvCache) -> np.ndarray:
        g, tokens, block = self.geometry, len(x), f"blk.{layer}."
        query = self._linear(x, block + "attn_q").reshape(tokens, g.heads, g.head_dim)
        key = self._linear(x, block + "attn_k").reshape(tokens, g.kv_heads, g.head_dim)
        value = self._linear(x, block + "attn_v").reshape(tokens, g.kv_heads, g.head_dim)

        if self.architecture == "gemma3":
            query = self._norm(query, block + "attn_q_norm.weight")
            key = self._norm(key, block + "attn_k_norm.weight")

        windowed = g.is_windowed(layer)
        positions = cache.length + np.arange(tokens)
        angles = positions[:, None] * (
            self.windowed_frequencies if windowed else self.inverse_frequencies
        )
        query, key = rotate_half_split(query, angles), rotate_half_split(key, angles)
        cache.append(layer, key, value)
        query = cache.policy.rotate(query)
        keys, values = cache.keys[layer], cache.values[layer]

        scale = self.dtype.type(g.softmax_scale)
        out = np.empty_like(query)
        for start in range(0, tokens, ATTENTION_ROWS):
            rows = slice(start, start + ATTENTION_ROWS)
            distance = positions[rows, None] - np.arange(len(keys))
            hidden = (distance < 0) | (distance >= g.window if windowed else False)
            for head in range(g.heads):
                kv_head = head // (g.heads // g.kv_heads)
                scores = query[rows, head] @ keys[:, kv_head].T * scale
                scores[hidden] = -np.inf
                weights = np.exp(scores - scores.max(axis=1, keepdims=True))
                out[rows, head] = weights @ values[:, kv_head] / weights.sum(axis=1, keepdims=True)
        attended = self._linear(out.reshape(tokens, -1), block + "attn_output")
        if self.architecture == "gemma3":
            attended = self._norm(attended, block + "post_attention_norm.weight")
        return attended

    def _feed_forward(self, x: np.ndarray, layer: int) -> np.ndarray:
        block = f"blk.{layer}."
        gate, up = self._linear(x, block + "ffn_gate"), self._linear(x, block + "ffn_up")
        if self.architecture == "gemma3":
            gelu = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
            out = self._linear((gelu * up).astype(self.dtype), block + "ffn_down")
            return self._norm(out, block + "post_ffw_norm.weight")
        with np.errstate(over="ignore"):  # exp(-gate) may become inf: the quotient is then 0
            silu = gate / (1 + np.exp(-gate))
        return self._linear(silu * up, block + "ffn_down")

    def forward(
        self,
        tokens: Sequence[int],
        cache: KvCache | None = None,
        rows: Sequence[int] | None = None,
    ) -> np.ndarray:
        """Logits [rows, vocabulary] after each of `tokens` (of those at `rows` where given).

        The tokens follow those already in `cache`, which grows by them.
        """
        cache = KvCache() if cache is None else cache
        x = self.tensor("token_embd.weight")[np.asarray(tokens)]
        if self.architecture == "gemma3":
            x = x * self.dtype.type(np.sqrt(self.geometry.hidden_size))
        for layer in range(self.geometry.layers):
            block = f"blk.{layer}."
            x = x + self._attention(self._norm(x, block + "attn_norm.weight"), layer, cache)
            x = x + self._feed_forward(self._norm(x, block + "ffn_norm.weight"), layer)
        cache.length += len(tokens)
        if rows is not None:
            x = x[np.asarray(rows)]
        tied = not self.has_tensor("output.weight")
        head = self.tensor("token_embd.weight" if tied else "output.weight")
        logits = self._norm(x, "output_norm.weight") @ head.T
        if cap := self.dtype.type(self.geometry.logit_soft_cap):
            logits = cap * np.tanh(logits / cap)
        return logits

    def generate(
        self,
        prompt: Sequence[int],
        count: int,
        end_tokens: set[int],
        policy: KvPolicy = FLOAT32,
    ) -> list[int]:
        """The greedy continuation: at most `count` tokens, ending with the first end token."""
        cache, ids, feed = KvCache(policy), [], list(prompt)
        while len(ids) < count and not (ids and ids[-1] in end_tokens):
            logits = self.forward(feed, cache, rows=[-1])[0]
            feed = [int(np.argmax(logits))]
            ids += feed
        return ids


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """In float64, whatever the logits are."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def main() -> None:
    from gguf_tokenizer import GgufTokenizer

    parser = argparse.ArgumentParser(description="Greedy text from the numpy reference.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", required=True)
    parser.add_argument("--special", action="store_true", help="special-token text is parsed")
    parser.add_argument("--generate", type=int, default=16, metavar="N")
    parser.add_argument("--kv-cache-dtype", default="float32", metavar="K[:V]")
    parser.add_argument("--kv-cache-scales", default="dynamic", choices=["dynamic", "unit"])
    parser.add_argument("--float64", action="store_true", help="float64 arithmetic")
    arguments = parser.parse_args()

    model = ReferenceModel(arguments.model, np.float64 if arguments.float64 else np.float32)
    tokenizer = GgufTokenizer(model.reader)
    prompt = tokenizer.encode(arguments.text, parse_special=arguments.special)
    policy = KvPolicy(arguments.kv_cache_dtype, arguments.kv_cache_scales)
    ids = model.generate(prompt, arguments.generate, tokenizer.end_tokens, policy)
    print("prompt:", prompt)
    print("continuation:", ids)
    print(tokenizer.decode(ids))


if __name__ == "__main__":
    main()

"""What a KV cache does to the keys and values that it stores, as rounding functions.

A policy has two sides, one for keys and one for values; each maps float values [tokens, KV heads,
head_dim] to the values that are read back (stored code times scale). Arithmetic is never done in
the stored type here: the storage error alone is modelled.

Formats and scales:
  float32                 nothing is lost
  bfloat16, float16       round to nearest even
  fp8 (e4m3), unit        round to nearest even, saturating at 448, scale 1
  fp8 (e4m3), dynamic     one scale per token and KV head: absmax / 448
  int8, dynamic           one scale per token and KV head: absmax / 127; codes -127..127, round to
                          nearest even
Dynamic scales are kept in bfloat16, rounded up, so that no code saturates.

Keys in int8 are rotated first by a normalised Hadamard matrix, head by head, and the query by the
same; scores do not change, but outliers are spread over the head. The matrix has blocks of the
largest power of two that divides head_dim. Elements of a head are in half-split order.
A row of zeros has scale 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import numpy as np

E4M3_MAX = 448.0
INT8_MAX = 127.0

Rounding = Callable[[np.ndarray], np.ndarray]


def _positive_e4m3_values() -> np.ndarray:
    """The finite values of codes 0x00..0x7E: sign 0, 4 exponent bits (bias 7), 3 mantissa bits."""
    codes = np.arange(0x7F)
    exponent, mantissa = codes >> 3, codes & 7
    normal = (1.0 + mantissa / 8.0) * np.exp2(exponent - 7.0)
    subnormal = mantissa / 8.0 * np.exp2(-6.0)
    return np.where(exponent == 0, subnormal, normal)


_E4M3_VALUES = _positive_e4m3_values()
_E4M3_MIDPOINTS = (_E4M3_VALUES[:-1] + _E4M3_VALUES[1:]) / 2.0


def round_e4m3(x: np.ndarray) -> np.ndarray:
    """The nearest e4m3 value; a tie goes to the even code, everything beyond 448 to 448."""
    magnitude = np.abs(x.astype(np.float64))
    # `code` counts the midpoints below the magnitude, so that a tie lands on the lower code.
    code = np.searchsorted(_E4M3_MIDPOINTS, magnitude, side="left")
    at = np.minimum(code, len(_E4M3_MIDPOINTS) - 1)
    tie_to_odd = (magnitude == _E4M3_MIDPOINTS[at]) & (code % 2 == 1)
    return np.copysign(_E4M3_VALUES[code + tie_to_odd], x).astype(np.float32)


def round_bfloat16(x: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    nearest_even = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (nearest_even & np.uint32(0xFFFF0000)).view(np.float32)


def round_bfloat16_up(x: np.ndarray) -> np.ndarray:
    """The smallest bfloat16 that is not below x, for x >= 0."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)


def round_float16(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(np.float32)


def dynamic_scale(x: np.ndarray, largest_code: float) -> np.ndarray:
    """absmax / largest_code per token and KV head: [tokens, KV heads, 1]."""
    largest = np.abs(x).max(axis=-1, keepdims=True).astype(np.float32)
    scale = round_bfloat16_up(largest / np.float32(largest_code))
    return np.where(scale == 0, np.float32(1), scale)


def round_e4m3_dynamic(x: np.ndarray) -> np.ndarray:
    scale = dynamic_scale(x, E4M3_MAX)
    return round_e4m3(x.astype(np.float32) / scale) * scale


def round_int8_dynamic(x: np.ndarray) -> np.ndarray:
    scale = dynamic_scale(x, INT8_MAX)
    codes = np.clip(np.rint(x.astype(np.float32) / scale), -INT8_MAX, INT8_MAX)
    return codes * scale


def hadamard_block(head_dim: int) -> int:
    """The largest power of two that divides head_dim."""
    return head_dim & -head_dim


def hadamard_rotation(head_dim: int, dtype: np.dtype) -> np.ndarray:
    """Block-diagonal, symmetric, orthogonal [head_dim, head_dim] matrix (Sylvester's order)."""
    block = hadamard_block(head_dim)
    matrix = np.ones((1, 1))
    while matrix.shape[0] < block:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return np.kron(np.eye(head_dim // block), matrix / np.sqrt(block)).astype(dtype)


_ROUNDINGS: dict[tuple[str, str], Rounding | None] = {
    ("float32", "dynamic"): None,
    ("bfloat16", "dynamic"): round_bfloat16,
    ("float16", "dynamic"): round_float16,
    ("fp8", "dynamic"): round_e4m3_dynamic,
    ("fp8", "unit"): round_e4m3,
    ("int8", "dynamic"): round_int8_dynamic,
}


def _rounding(dtype: str, scales: str) -> Rounding | None:
    # Scales say nothing to formats that have none; int8 is always dynamic.
    key = (dtype, scales if dtype == "fp8" else "dynamic")
    if key not in _ROUNDINGS:
        raise ValueError(f"KV cache dtype {dtype!r} with scales {scales!r} is not known")
    return _ROUNDINGS[key]


@dataclass(frozen=True)
class KvPolicy:
    """`dtype` is K or K:V ("int8:fp8"), `scales` is "dynamic" or "unit"."""

    dtype: str = "float32"
    scales: str = "dynamic"

    def __post_init__(self) -> None:
        for side in (self.key_dtype, self.value_dtype):
            _rounding(side, self.scales)

    @property
    def name(self) -> str:
        return f"{self.dtype} {self.scales}" if "fp8" in self.dtype else self.dtype

    @property
    def key_dtype(self) -> str:
        return self.dtype.split(":")[0]

    @property
    def value_dtype(self) -> str:
        return self.dtype.split(":")[-1]

    def rotate(self, x: np.ndarray) -> np.ndarray:
        """Keys or queries [tokens, heads, head_dim] as the cache's scores see them."""
        if self.key_dtype != "int8":
            return x
        return x @ hadamard_rotation(x.shape[-1], x.dtype)

    def store_keys(self, rotated_keys: np.ndarray) -> np.ndarray:
        return self._store(self.key_dtype, rotated_keys)

    def store_values(self, values: np.ndarray) -> np.ndarray:
        return self._store(self.value_dtype, values)

    def _store(self, dtype: str, x: np.ndarray) -> np.ndarray:
        rounding = _rounding(dtype, self.scales)
        return x if rounding is None else rounding(x).astype(x.dtype)


FLOAT32 = KvPolicy()

"""How golden files are written: JSON whose rows stay on one line, so that a diff can be read."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any, Iterable

import numpy as np

# A value whose JSON is no longer than this stays on one line (a step with its best logits is).
LINE = 320


def significant(values: Iterable[float], digits: int) -> list[float]:
    """Numbers rounded to so many significant digits (9 give a float32 back exactly)."""
    return [float(f"{float(value):.{digits}g}") for value in values]


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def versions(*packages: str) -> dict[str, str]:
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"python": platform.python_version(), **found}


def _render(value: Any, indent: str) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    is_row = isinstance(value, list) and not any(isinstance(item, dict) for item in value)
    nested = is_row and any(isinstance(item, list) for item in value)
    if not isinstance(value, (dict, list)) or (is_row and not nested) or len(flat) <= LINE:
        return flat
    inner = indent + " "
    if isinstance(value, dict):
        rows = [f"{json.dumps(key)}: {_render(item, inner)}" for key, item in value.items()]
        opening, closing = "{", "}"
    else:
        rows = [_render(item, inner) for item in value]
        opening, closing = "[", "]"
    return opening + "\n" + ",\n".join(inner + row for row in rows) + "\n" + indent + closing


def write_golden(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_render(content, "") + "\n", encoding="utf-8")


def top(logits: np.ndarray, count: int) -> list[list[float]]:
    """The `count` largest logits, best first, as [id, logit]; the lower id first where they tie."""
    ids = np.argsort(-logits, kind="stable")[:count]
    return [[int(i), significant([logits[i]], 7)[0]] for i in ids]


def top_gap(logits: np.ndarray) -> float:
    """The best logit minus the second best."""
    second, best = np.partition(logits, -2)[-2:]
    return float(best - second)

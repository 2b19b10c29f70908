"""The byte-level BPE tokenizer inside a GGUF file, run by the `tokenizers` package."""

from __future__ import annotations

from typing import Any

import jinja2.sandbox
from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

# Values of tokenizer.ggml.token_type.
CONTROL, USER_DEFINED = 3, 4

# The split pattern that Qwen2's tokenizer.json holds.
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class GgufTokenizer:
    """Ids of texts, and a conversation rendered by the file's own chat template."""

    def __init__(self, reader: GGUFReader) -> None:
        self._fields = reader.fields
        if self._field("tokenizer.ggml.model") != "gpt2":
            raise ValueError("tokenizer.ggml.model is not gpt2 (byte-level BPE)")
        self.tokens: list[str] = self._field("tokenizer.ggml.tokens")
        self._types: list[int] = self._field("tokenizer.ggml.token_type")
        self._literal = self._build(with_special=False)
        self._parsing = self._build(with_special=True)

    def _field(self, key: str, missing: Any = None) -> Any:
        return self._fields[key].contents() if key in self._fields else missing

    def _build(self, with_special: bool) -> Tokenizer:
        merges = [tuple(merge.split(" ")) for merge in self._field("tokenizer.ggml.merges")]
        vocabulary = {token: i for i, token in enumerate(self.tokens)}
        tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges))
        pattern = self._field("tokenizer.ggml.pre")
        if pattern == "smollm":
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Digits(individual_digits=True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
                ]
            )
        elif pattern == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(Regex(QWEN2_PATTERN), behavior="isolated"),
                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
                ]
            )
        else:
            raise ValueError(f"tokenizer.ggml.pre {pattern!r} is not known here")
        tokenizer.decoder = decoders.ByteLevel()
        if with_special:
            tokenizer.add_tokens(
                [
                    AddedToken(text, special=kind == CONTROL, normalized=False)
                    for text, kind in zip(self.tokens, self._types)
                    if kind in (CONTROL, USER_DEFINED)
                ]
            )
        return tokenizer

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """Ids of the text. Special-token text in it is characters unless `parse_special`."""
        tokenizer = self._parsing if parse_special else self._literal
        return tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        return self._parsing.decode(ids, skip_special_tokens=True)

    def render(self, messages: list[dict[str, str]]) -> str:
        """The conversation up to where the assistant speaks."""
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True
        )
        template = environment.from_string(self._field("tokenizer.chat_template"))
        return template.render(messages=messages, add_generation_prompt=True)

    @property
    def end_tokens(self) -> set[int]:
        """Ids that end an answer: the file's, and the usual ends of turn and text by name."""
        by_name = {"<|im_end|>", "<|endoftext|>"}
        ends = {i for i, token in enumerate(self.tokens) if token in by_name}
        ends.add(self._field("tokenizer.ggml.eos_token_id"))
        return ends

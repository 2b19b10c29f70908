#!/usr/bin/env python3
"""Small tokenizer.json files and what the `tokenizers` package makes of texts with them.

    tools/oracle/tokenizer_json_cases.py tests/data/text/tokenizer_json.json

Each exercises other components: normalisers, pre-tokenizers with every behavior, the flags of added
tokens, byte fallback, decoders. The vocabularies are tiny, so that a whole file takes a few kilobytes.
"""

import json
import pathlib
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

TEXTS = [
    "", " ", "hello world", "  hello   world ", "hello\n\nworld\t!", "don't 12345 HELLO", "<a>x<a> <b> y <c>",
    "x <l> y <r>  z<w>z <w> <w>z", "<n>Hello <n>", "é e\u0301 日本 😀", "a,b;;c--d", "\u2581x \u2581\u2581y",
    "hello<a>\n\n<r>\n hello<l>", "hellohello", "tab\there", "A1b22C333", "<s>hi</s>", " <s> hi", "...!?",
]


def byte_vocabulary():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("\u0120", "w"), ("\u0120w", "o"), ("1", "2")]
    tokens = alphabet + ["".join(pair) for pair in merges]
    return {token: i for i, token in enumerate(tokens)}, merges


def piece_vocabulary():
    merges = [("\u2581", "h"), ("l", "l"), ("\u2581h", "e"), ("\u2581he", "ll"), ("\u2581hell", "o"), ("\u2581", "w"),
              ("h", "i"), ("\u2581", "\u2581")]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += ["\u2581", *"helowrdixyzabc"] + ["".join(pair) for pair in merges]
    return {token: i for i, token in enumerate(tokens)}, merges


def byte_level(**flags):
    vocabulary, merges = byte_vocabulary()
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges, **flags))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def split(pattern, behavior="isolated", invert=False):
    tokenizer = byte_level()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, behavior, invert),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def with_added(tokenizer):
    tokenizer.add_special_tokens([AddedToken("<a>", normalized=False), AddedToken("<r>", rstrip=True, normalized=False)])
    tokenizer.add_tokens(
        [
            AddedToken("<l>", lstrip=True, normalized=False),
            AddedToken("<w>", single_word=True, normalized=False),
            AddedToken("<n>", normalized=True),
            AddedToken("hellohello", normalized=False),
        ]
    )
    return tokenizer


def pieces(normalizer, chain, pre_tokenizer=None, **flags):
    vocabulary, merges = piece_vocabulary()
    flags = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>", **flags}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges, **flags))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Sequence(chain)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    return tokenizer


def make_all():
    replace = normalizers.Replace(" ", "\u2581")
    chain = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    strip = [*chain, decoders.Strip(" ", 1, 0)]
    nfc = byte_level()
    nfc.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace("x", "yy")])
    prefix = byte_level()
    prefix.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    digits = byte_level()
    digits.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    template = with_added(byte_level())
    template.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<a> $A", pair="<a> $A <a> $B", special_tokens=[("<a>", template.token_to_id("<a>"))]),
        ]
    )
    return {
        "byte level": byte_level(),
        "ignores merges": byte_level(ignore_merges=True),
        "added tokens": with_added(byte_level()),
        "added tokens, normalised": with_added(nfc),
        "a space before": prefix,
        "digits": digits,
        "template": template,
        "split, isolated": split(Regex(r"\s+|\p{N}")),
        "split, removed": split(Regex(r"[,;]"), "removed"),
        "split, inverted and removed": split(Regex(r"\p{L}+|\s"), "removed", True),
        "split, merged with previous": split(Regex(r"[,;-]"), "merged_with_previous"),
        "split, merged with next": split(Regex(r"\s|-"), "merged_with_next"),
        "split, contiguous": split(Regex(r"[.,;-]"), "contiguous"),
        "split, a string": split("l", "isolated"),
        "split, lookbehind": split(Regex(r"(?<=l)o|^h|d$")),
        "gemma": pieces(replace, chain, pre_tokenizers.Split(" ", "merged_with_previous")),
        "llama": pieces(normalizers.Sequence([normalizers.Prepend("\u2581"), replace]), strip),
        "metaspace first": pieces(None, strip, pre_tokenizers.Metaspace("\u2581", "first", False)),
        "metaspace always, split": pieces(None, strip, pre_tokenizers.Metaspace("\u2581", "always", True)),
        "no bytes": pieces(replace, chain, byte_fallback=False),
        "no bytes, not fused": pieces(replace, chain, byte_fallback=False, fuse_unk=False),
    }


def main():
    result = []
    for name, tokenizer in make_all().items():
        cases = []
        for text in TEXTS:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            case = {"text": text, "ids": ids}
            decoded = tokenizer.decode(ids, skip_special_tokens=False)
            if decoded != text:
                case["decoded"] = decoded
            cases.append(case)
        before = tokenizer.encode("hello", add_special_tokens=True).ids[0]
        plain = tokenizer.encode("hello", add_special_tokens=False).ids[0]
        result.append(
            {
                "name": name,
                "begins": before if before != plain else None,
                "tokenizer": json.loads(tokenizer.to_str()),
                "cases": cases,
            }
        )
    head = {"made_with": f"tools/oracle/tokenizer_json_cases.py, tokenizers {tokenizers.__version__}"}
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in result)
    pathlib.Path(sys.argv[1]).write_text(f'{json.dumps(head)[:-1]}, "files": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What the `tokenizers` package makes of a big corpus with the vocabulary of a GGUF file.

    tools/oracle/vocabulary_cases.py OUT.json FILE.gguf...

The package's tokenizer is put together as the family's tokenizer.json does it (normaliser, split
pattern, byte fallback, decoder). For each file, hashes of: the ids of 20,000 random texts, a thousand
to a hash, with and without special tokens in them; what decoding gives; the ids of texts with every
added token; the ids of lines of a megabyte. tests/text/vocabularies_test.cc makes the same texts.
"""

import json
import pathlib
import sys

import gguf
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

import corpus

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
PATTERNS = {
    "llama3": CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES,
    "qwen2": CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES,
    "qwen35": CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES,
    "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{CONTRACTIONS}?"
    + rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{CONTRACTIONS}?"
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES,
    "kimi": r"[\p{Han}]+"
    + rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^\p{{Han}}]]*[{LOWER}&&[^\p{{Han}}]]+{CONTRACTIONS}?"
    + rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^\p{{Han}}]]+[{LOWER}&&[^\p{{Han}}]]*{CONTRACTIONS}?"
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES,
    "deepseek-v3": [
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES,
    ],
}
# tokenizer.ggml.pre -> (pattern, normalised to NFC, ignores merges)
FAMILIES = {
    "gpt-2": ("gpt2", False, False),
    "smollm": ("digits", False, False),
    "starcoder": ("digits", False, False),
    "refact": ("digits", False, False),
    "command-r": ("digits", True, False),
    "mpt": ("gpt2", True, False),
    "llama-bpe": ("llama3", False, True),
    "qwen2": ("qwen2", True, False),
    "qwen35": ("qwen35", True, False),
    "gpt-4o": ("o200k", False, True),
    "kimi-k2": ("kimi", False, True),
    "deepseek-v3": ("deepseek-v3", False, False),
}

HTML = set(
    "a b bbox blockquote body caption code div em footer h1 h2 h3 h4 h5 h6 html i iframe img li s span"
    " strong sub sup table tbody td tfoot th thead tr u ul".split()
)


def is_plain(text, with_html):
    """White space and HTML's tags: what a user's text may hold as a token."""
    if text and all(c.isspace() or c == "\u2581" for c in text):
        return True
    return with_html and text.startswith("<") and text.endswith(">") and text[1:-1].removeprefix("/") in HTML


def read_fields(path):
    reader = gguf.GGUFReader(path)
    return {
        name.removeprefix("tokenizer.ggml."): field.contents()
        for name, field in reader.fields.items()
        if name.startswith("tokenizer.ggml.")
    }


def score_merges(tokens, types, scores, plain):
    """transformers' generate_merges(), without the merges that would make special tokens."""
    allowed = {
        token: i
        for i, (token, kind) in enumerate(zip(tokens, types))
        if kind in (NORMAL, UNUSED, USER_DEFINED)
    }
    merges = []
    for token, i in allowed.items():
        if types[i] == USER_DEFINED and token not in plain:
            continue
        score = 0.0 if types[i] == USER_DEFINED else scores[i]
        for cut in range(1, len(token)):
            if token[:cut] in allowed and token[cut:] in allowed:
                merges.append((token[:cut], token[cut:], score))
    merges.sort(key=lambda merge: (merge[2], len(merge[0]), len(merge[1])), reverse=True)
    return [merge[:2] for merge in merges]


def byte_level_pre_tokenizer(pattern):
    if pattern == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if pattern == "digits":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, byte_level_pre_tokenizer("gpt2")])
    regexes = PATTERNS[pattern]
    splits = [
        pre_tokenizers.Split(Regex(regex), "isolated")
        for regex in (regexes if isinstance(regexes, list) else [regexes])
    ]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*splits, last])


class Vocabulary:
    """The tokenizers of one GGUF file: for a user's text, and for text with special tokens."""

    def __init__(self, path, family=None):
        fields = read_fields(path)
        self.model = fields["model"]
        self.family = family or fields.get("pre", "")
        self.types = fields["token_type"]
        tokens = list(fields["tokens"])
        if self.model != "gpt2":
            known = set(tokens)
            for i, token in enumerate(tokens):
                signs = "\u2581" * len(token)
                if self.types[i] == USER_DEFINED and token and not token.strip(" ") and signs not in known:
                    tokens[i] = signs
        self.tokens = tokens
        user_defined = {t for t, kind in zip(tokens, self.types) if kind == USER_DEFINED}
        with_html = "<table>" in user_defined
        self.plain = {t for t in user_defined if is_plain(t, with_html)}
        self.added = [
            token
            for token, kind in zip(tokens, self.types)
            if kind in (UNKNOWN, CONTROL, USER_DEFINED) and token
        ]
        make = self._byte_level if self.model == "gpt2" else self._characters
        self.literal = make(fields)
        self.special = make(fields)
        for tokenizer, chosen in ((self.literal, self.plain), (self.special, set(self.added))):
            kinds = dict(zip(tokens, self.types))
            tokenizer.add_tokens(
                [
                    AddedToken(token, normalized=False, special=kinds[token] != USER_DEFINED)
                    for token in self.added
                    if token in chosen
                ]
            )

    def _byte_level(self, fields):
        pattern, nfc, ignores_merges = FAMILIES[self.family]
        model = BPE(
            vocab={token: i for i, token in enumerate(self.tokens)},
            merges=[tuple(merge.split(" ")) for merge in fields["merges"]],
            ignore_merges=ignores_merges,
        )
        tokenizer = Tokenizer(model)
        if nfc:
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = byte_level_pre_tokenizer(pattern)
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    def _characters(self, fields):
        if self.model == "llama":
            merges = score_merges(self.tokens, self.types, fields["scores"], self.plain)
        else:
            merges = [tuple(merge.split(" ")) for merge in fields["merges"]]
        unknown = fields.get("unknown_token_id")
        if unknown is None:
            unknown = self.types.index(UNKNOWN)
        model = BPE(
            vocab={token: i for i, token in enumerate(self.tokens)},
            merges=merges,
            unk_token=self.tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
        tokenizer = Tokenizer(model)
        steps = [normalizers.Replace(" ", "\u2581")]
        chain = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        if fields.get("add_space_prefix", self.model == "llama"):
            steps.insert(0, normalizers.Prepend("\u2581"))
            chain.append(decoders.Strip(" ", 1, 0))
        tokenizer.normalizer = normalizers.Sequence(steps)
        tokenizer.decoder = decoders.Sequence(chain)
        return tokenizer


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def cases_of(path, family):
    vocabulary = Vocabulary(path, family)
    generator = corpus.Generator(1)
    blocks = []
    for _ in range(corpus.RANDOM_TEXTS // corpus.TEXTS_PER_HASH):
        ids_hash = special_hash = decoded_hash = corpus.hash_numbers([])
        changed = 0
        for _ in range(corpus.TEXTS_PER_HASH):
            text = generator.text()
            ids = encode(vocabulary.literal, text)
            ids_hash = corpus.hash_numbers([len(ids), *ids], ids_hash)
            decoded = vocabulary.literal.decode(ids, skip_special_tokens=False)
            decoded_hash = corpus.hash_text(decoded + "\n", decoded_hash)
            changed += decoded != text
            ids = encode(vocabulary.special, text)
            special_hash = corpus.hash_numbers([len(ids), *ids], special_hash)
        blocks.append([f"{h:016x}" for h in (ids_hash, special_hash, decoded_hash)] + [changed])
    added = corpus.hash_numbers([])
    for text in corpus.added_texts(vocabulary.added):
        ids = encode(vocabulary.special, text)
        added = corpus.hash_numbers([len(ids), *ids], added)
    return {
        "file": pathlib.Path(path).name,
        "family": family or "",
        "blocks": blocks,
        "added": f"{added:016x}",
        "long": [f"{corpus.hash_numbers(encode(vocabulary.literal, t)):016x}" for t in corpus.long_texts()],
    }


def main():
    out, *paths = sys.argv[1:]
    cases = []
    for path in paths:
        path, _, family = path.partition("=")
        print(path, family, flush=True)
        cases.append(cases_of(path, family or None))
    head = {"made_with": f"tools/oracle/vocabulary_cases.py, tokenizers {tokenizers.__version__}"}
    pathlib.Path(out).write_text(json.dumps({**head, "cases": cases}, indent=0) + "\n")


if __name__ == "__main__":
    main()

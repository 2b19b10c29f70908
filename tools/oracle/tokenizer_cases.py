#!/usr/bin/env python3
"""What the `tokenizers` package makes of hard texts, as test data for octet's tokenizer.

    pip install tokenizers==0.23.3 gguf numpy
    tools/oracle/tokenizer_cases.py ids MODEL.gguf OUT.json [--pattern P] [--random N] [--seed S]
    tools/oracle/tokenizer_cases.py pieces OUT.json [--random N] [--seed S]

`ids` builds the package's tokenizer over the GGUF file's vocabulary and merges (with another
family's pattern, if told) and writes {"model", "pattern", "made_with", "cases": [{"text", "ids",
"ids_special" where special tokens in the text change the ids, "decoded" where decoding the ids does
not give the text back}]}. `pieces` needs no model: {"made_with", "cases": [{"text", "nfc" where it
differs, and for each pattern the byte offset at which each piece of the text ends}]}.
"""

import argparse
import json
import pathlib
import random

import gguf
import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4

QWEN2_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
                 r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def read_fields(path):
    reader = gguf.GGUFReader(path)
    return {name: field.contents() for name, field in reader.fields.items()
            if name.startswith("tokenizer.ggml.")}


def pipeline(pattern):
    """(normalizer or None, pre-tokenizer) as the family's tokenizer.json has them."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if pattern in ("gpt-2", "default"):
        return None, byte_level
    if pattern == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return None, pre_tokenizers.Sequence([digits, byte_level])
    if pattern == "qwen2":
        split = pre_tokenizers.Split(Regex(QWEN2_PATTERN), "isolated")
        bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return normalizers.NFC(), pre_tokenizers.Sequence([split, bytes_only])
    raise SystemExit(f"no pipeline for the pattern {pattern}")


def build(fields, with_special, pattern=None):
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    model = tokenizers.models.BPE({text: id for id, text in enumerate(tokens)}, merges)
    tokenizer = tokenizers.Tokenizer(model)
    normalizer, pre_tokenizer = pipeline(pattern or fields["tokenizer.ggml.pre"])
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    if with_special:
        types = fields["tokenizer.ggml.token_type"]
        tokenizer.add_tokens([
            tokenizers.AddedToken(text, normalized=False, special=kind != USER_DEFINED)
            for text, kind in zip(tokens, types) if kind in (UNKNOWN, CONTROL, USER_DEFINED)])
    return tokenizer


SAMPLES = [
    "", " ", "  ", "   a", "a ", "a  b", "a   b", "\n", "\n\n", "\r\n", "\r\n\r\n", "a\r\nb", "a \n b",
    "a\n  b", " \n \n x", "\t\tif (x) {\n\t\t\treturn 'y';\n\t\t}\n", "a\tb", "\t\n\t", " \u00a0 ",
    "a\u00a0b", "a\u3000\u3000b", "a\u0085b", "a\u200bb", "a\u2028b", "a\u2029\nb", "\ufeffx", "\ufffd",
    "don't I'll we've they're I'm he'd it's", "DON'T I'LL WE'VE THEY'RE I'M HE'D IT'S", "''t '''s 's",
    "don\u2019t", "'\u017f '\u017fa", "'\u212a", "'lL'Ll'L", "x's1's", "1's", "'1", " 's", "\n's",
    "1", "12345", "123 456", " 1", "3.14e-10", "1,000,000.00", "0x7F", "v1.2.3-rc4", "२०२४", "٣٤", "½ ² Ⅷ ①",
    "U+1D7D8 𝟘𝟙", "\U00011de0 \U00011de0's", "\U00016ff4's", "a\U00016ff4b", "一二三123",
    "The quick brown fox jumps over the lazy dog.", "HelloWorld helloWorld HELLO_WORLD hello-world",
    "ÀÉÎ äöü ß ẞ ŉ ǆ", "e\u0301", "e\u0323\u0301", "e\u0301\u0323", "\u212b \u2126 \u00c5 A\u030a",
    "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0958 \u0915\u093c", "\ufb1d \ufb4e", "\u2adc", "\u0344",
    "a\u0897\u0301", "a\u0301\u1ac5\u0323", "\U00011935\U00011930", "a\U00010f46\u0323",
    "q\u0307\u0323 \u1e9b\u0323", "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢", "Привет, мир! Ёлка", "日本語のテキスト。カタカナ",
    "中文字符，没有空格！", "한국어 텍스트", "שלום עולם", "مرحبا بالعالم", "ไทยแลนด์", "हिन्दी में", "தமிழ்", "ქართული", "Ελληνικά",
    "አማርኛ", "ខ្មែរ", "မြန်မာ", "ᏣᎳᎩ", "😀😀", "👨\u200d👩\u200d👧\u200d👦", "❤️ ☎︎", "🧑🏽\u200d💻", "🇩🇪🇫🇷", "¿Qué?¡Sí!",
    "== != <= >= && || ... --- ### $$$ ```python\nprint('hi')\n```", "a\x00b", "\x04", "a\x04b", "a\x1d\x13b",
    "\x7f\x80\x9f", "\U00040000z", "\U000f0000", "\U0010ffff", "http://example.com/a?b=c&d=%20#e",
    "def f(x):\n    return x**2  # square\n\n\nclass A:\n\tpass\n", '{"a": [1, 2.5, null], "b": "\\u00e9"}',
    "<html><body class=\"x\">&nbsp;</body></html>", "SELECT * FROM t WHERE a='b' AND c<>3;",
    "hahahahahahahahahahahahahahahahahahahaha", " " * 17, " " * 100 + "x", "\n" * 9, "\t" * 33, "a" * 200,
    "!" * 100, "1" * 40, "ab" * 100, "é" * 60, "日" * 60, "😀" * 20, " a" * 50, "\r" * 7 + "\n" * 7, "=" * 80,
    "\t", "a\u3000b", "don''t", "ÀÉÎ", "Привет, мир!", "日本語のテキスト", "한국어", "שלום", "ไทย", "😀", "❤️", "\x00",
    "== != <= >= && || ... --- ###", "http://example.com/a?b=c&d=%20",
    "<|im_start|>", "<|im_end", "<|im_start|>user\nhi<|im_end|>\n", "<|endoftext|><|endoftext|>", "<empty_output>",
    "<|im_start|><|im_start|", "a<|im_end|> b", "e\u0301<|im_end|>\u0301", "<tool_call>\n{}</tool_call>",
    "<repo_name><reponame><filename>", "<<|im_end|>>", " <|im_end|> ", "[PAD151935]",
]

ALPHABETS = [
    (0x00, 0x80), (0x20, 0x7F), (0x41, 0x5B), (0x61, 0x7B), (0x30, 0x3A), (0x20, 0x21), (0x09, 0x0E),
    (0x80, 0x250), (0x250, 0x600), (0x300, 0x370), (0x600, 0xE00), (0xE00, 0x1200), (0x1200, 0x2000),
    (0x2000, 0x2070), (0x2000, 0x3100), (0x3040, 0xA000), (0xAC00, 0xD800), (0xE000, 0x10000),
    (0x10000, 0x20000), (0x1F300, 0x1FAFF), (0x20000, 0x110000), (0x10000, 0x12000),
]
SNIPPETS = ["'s", "'LL", "'Re", "'\u017f", "'t", "\r\n", "\n\n", "  ", " \n", "\t", "<|im_start|>", "<|im_end|>",
            "<|endoftext|>", "<|", "|>", "<tool_call>", "\u0301", "\u0323", "\u1100\u1161", " the", "ing",
            "://", "...", "1", "12", "\u00a0", "\u3000", "\u200d", "\ufe0f"]


def random_text(generator):
    parts = []
    for _ in range(generator.randint(1, 12)):
        if generator.random() < 0.35:
            parts.append(generator.choice(SNIPPETS))
            continue
        low, high = generator.choice(ALPHABETS)
        for _ in range(generator.randint(1, 8)):
            parts.append(chr(generator.randrange(low, high)))
    return "".join(parts)


def make_ids_case(text, literal, special):
    case = {"text": text, "ids": literal.encode(text, add_special_tokens=False).ids}
    ids_special = special.encode(text, add_special_tokens=False).ids
    if ids_special != case["ids"]:
        case["ids_special"] = ids_special
    decoded = literal.decode(case["ids"], skip_special_tokens=False)
    if decoded != text:
        case["decoded"] = decoded
    return case


def piece_ends(pre_tokenizer, text):
    """Byte offsets. (The package's own offsets count characters.)"""
    ends = []
    for _, (_, end) in pre_tokenizer.pre_tokenize_str(text):
        ends.append(len(text[:end].encode()))
    return ends


def make_pieces_case(text):
    case = {"text": text}
    nfc = normalizers.NFC().normalize_str(text)
    if nfc != text:
        case["nfc"] = nfc
    for pattern in ("gpt-2", "smollm", "qwen2"):
        case[pattern] = piece_ends(pipeline(pattern)[1], text)
    return case


def texts_of(random_count, seed):
    generator = random.Random(seed)
    return SAMPLES + [random_text(generator) for _ in range(random_count)]


def write(path, head, cases):
    head["made_with"] = f"tools/oracle/tokenizer_cases.py, tokenizers {tokenizers.__version__}"
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    pathlib.Path(path).write_text(f'{json.dumps(head)[:-1]}, "cases": [\n{lines}\n]}}\n')


def write_ids(arguments):
    fields = read_fields(arguments.model)
    pattern = arguments.pattern or fields["tokenizer.ggml.pre"]
    literal = build(fields, False, pattern)
    special = build(fields, True, pattern)
    head = {"model": pathlib.Path(arguments.model).name, "pattern": pattern}
    texts = texts_of(arguments.random, arguments.seed)
    write(arguments.out, head, [make_ids_case(text, literal, special) for text in texts])


def write_pieces(arguments):
    texts = texts_of(arguments.random, arguments.seed)
    write(arguments.out, {}, [make_pieces_case(text) for text in texts])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    ids = commands.add_parser("ids")
    ids.add_argument("model", help="a GGUF file")
    ids.add_argument("out", help="the JSON file to write")
    ids.add_argument("--pattern", help="another family's pattern over the same vocabulary")
    ids.set_defaults(run=write_ids)
    pieces = commands.add_parser("pieces")
    pieces.add_argument("out", help="the JSON file to write")
    pieces.set_defaults(run=write_pieces)
    for command in (ids, pieces):
        command.add_argument("--random", type=int, default=100, help="how many random texts")
        command.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()

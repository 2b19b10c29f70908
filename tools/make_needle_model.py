#!/usr/bin/env python3
"""Writes a small llama that finds needles, for `octet eval needle`: nothing learned, weights by construction.

    tools/make_needle_model.py FOLDER [--kv-heads 8] [--group 4] [--context 131072]
        [--mean-weight 0.25] [--seed 1]

It answers "The code of box 417 is" with the number that followed these words in the text, by two layers of
attention, as trained models do (an induction circuit), and no feed-forward:

1. Half of each group's query heads look one token back, the others two: rotary embedding alone, over equal
   queries and keys. They copy the key code of the token there into the residual stream.
2. The query is the code of the token before ("417", seen from "is"), the key that of the token two back
   ("417", seen from "902"); a needle's score is `score`, any other token's about 0. The value is the token's
   own code and, in every element, a mean of 1.

Softmax weights add up to 1, so that the mean comes out of attention as 1, whatever the text. The residual
stream holds its negative, as trained models come to count on what all values share. What attention loses of
the sum over the text is left over in one dimension, and there each number has a weight of its own in the
output matrix: an answer is wrong once that part outweighs the needle's. `score` is such that a needle in a
text of `context` tokens has 30 % of the weight; the text has the rest.

Scores are content alone because the rotary base is so large that the slower half of the dimensions turns by
less than 0.14 over 131,072 tokens. Numbers of three digits and the words of the question are tokens, all else
is bytes. No package is needed but Python's own.
"""

import argparse
import json
import math
import pathlib
import random
import struct

HEAD_DIM = 128
PAIRS = HEAD_DIM // 2
ROPE_BASE = 1e12
POSITION_PAIRS = 12  # the fastest, which tell neighbouring tokens apart
POSITION_SCORE = 180.0  # of the token looked for; its neighbours' is 12 less
KEY_CODE = 64  # elements a KV head: of the slower 32 pairs
VALUE_CODE = HEAD_DIM
CONSTANT = 256.0  # the residual stream's, beside codes of 1: the norm is much the same for all tokens
VALUE_MEAN = 1.0
VALUE_STEP = 0.75
SHARE = 0.3
WORDS = ["The", "code", "of", "box", "is"]
NUMBERS = range(100, 1000)


class Matrix:
    """A bfloat16 matrix of zeros, filled element by element."""

    def __init__(self, rows, columns):
        self.shape = [rows, columns]
        self.bytes = bytearray(2 * rows * columns)

    def set(self, row, column, value):
        struct.pack_into("<H", self.bytes, 2 * (row * self.shape[1] + column), bfloat16(value))

    def set_row(self, row, column, values):
        codes = [bfloat16(value) for value in values]
        struct.pack_into(f"<{len(codes)}H", self.bytes, 2 * (row * self.shape[1] + column), *codes)


class Vector(Matrix):
    def __init__(self, values):
        super().__init__(1, len(values))
        self.set_row(0, 0, values)
        self.shape = [len(values)]


def bfloat16(value):
    """The code of the nearest bfloat16, ties to even."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def byte_characters():
    """How byte-level tokenizers spell the bytes: GPT-2's table."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain},
            **{byte: chr(256 + i) for i, byte in enumerate(others)}}


def make_vocabulary():
    vocabulary = {character: byte for byte, character in byte_characters().items()}
    for word in [*WORDS, *map(str, NUMBERS)]:
        vocabulary["\u0120" + word] = len(vocabulary)
    return vocabulary


class Layout:
    """Where things lie in the residual stream."""

    def __init__(self, kv_heads):
        self.constant = 0
        self.mean = 1  # minus what the second layer's values share
        self.key = 2
        self.before = self.key + KEY_CODE * kv_heads  # the key code of the token one back
        self.two_before = self.before + KEY_CODE * kv_heads
        self.value = self.two_before + KEY_CODE * kv_heads
        self.answer = self.value + VALUE_CODE * kv_heads
        used = self.answer + VALUE_CODE * kv_heads
        self.width = (used + 511) // 512 * 512


def balanced_code(source, length):
    """As many -1 as 1, so that a code adds nothing to what all values share."""
    code = [1.0] * (length // 2) + [-1.0] * (length // 2)
    source.shuffle(code)
    return code


class Model:
    def __init__(self, arguments):
        self.kv_heads = arguments.kv_heads
        self.group = arguments.group
        self.query_heads = self.kv_heads * self.group
        self.context = arguments.context
        self.mean_weight = arguments.mean_weight
        self.layout = Layout(self.kv_heads)
        self.vocabulary = make_vocabulary()
        self.rows = (len(self.vocabulary) + 63) // 64 * 64
        self.source = random.Random(arguments.seed)
        # What a norm makes of the constant and of a code's element, but for what codes add to it.
        value_norm = VALUE_CODE * self.kv_heads
        scale = math.sqrt(self.layout.width / (CONSTANT**2 + value_norm))
        self.constant = CONSTANT * scale
        self.code = scale
        self.score = math.log(SHARE / (1 - SHARE) * self.context)
        self.tensors = {}

    def add(self, name, tensor):
        self.tensors[name] = tensor

    def build(self):
        self.add_embeddings()
        self.add_position_layer()
        self.add_search_layer()
        for layer in range(2):
            self.add_rest(layer)
        self.add("model.norm.weight", Vector([1.0] * self.layout.width))

    def add_embeddings(self):
        layout = self.layout
        numbers = {self.vocabulary["\u0120" + str(number)] for number in NUMBERS}
        embedding = Matrix(self.rows, layout.width)
        output = Matrix(self.rows, layout.width)
        for token in range(len(self.vocabulary)):
            embedding.set_row(token, layout.constant, [CONSTANT, -VALUE_MEAN])
            code = [x for _ in range(self.kv_heads) for x in balanced_code(self.source, VALUE_CODE)]
            embedding.set_row(token, layout.value, code)
            if token not in numbers:
                continue
            key = [self.source.choice((1.0, -1.0)) for _ in range(KEY_CODE * self.kv_heads)]
            embedding.set_row(token, layout.key, key)
            output.set_row(token, layout.answer, code)
            needle = VALUE_STEP * len(code)
            output.set(token, layout.mean, self.source.gauss(0, self.mean_weight * needle))
        self.add("model.embed_tokens.weight", embedding)
        self.add("lm_head.weight", output)

    def add_position_layer(self):
        layout = self.layout
        query = Matrix(self.query_heads * HEAD_DIM, layout.width)
        key = Matrix(self.kv_heads * HEAD_DIM, layout.width)
        value = Matrix(self.kv_heads * HEAD_DIM, layout.width)
        output = Matrix(layout.width, self.query_heads * HEAD_DIM)
        key_element = 4.0
        query_element = POSITION_SCORE * math.sqrt(HEAD_DIM) / (POSITION_PAIRS * key_element)
        for head in range(self.kv_heads):
            for pair in range(POSITION_PAIRS):
                key.set(head * HEAD_DIM + pair, layout.constant, key_element / self.constant)
            for i in range(KEY_CODE):
                value.set(head * HEAD_DIM + i, layout.key + head * KEY_CODE + i, 1 / self.code)
        for head in range(self.query_heads):
            back = 1 if head % self.group < self.group // 2 else 2
            for pair in range(POSITION_PAIRS):
                # Turned back by so many positions, so that the key of that token fits best.
                angle = back * ROPE_BASE ** (-pair / PAIRS)
                row = head * HEAD_DIM + pair
                element = query_element / self.constant
                query.set(row, layout.constant, element * math.cos(angle))
                query.set(row + PAIRS, layout.constant, -element * math.sin(angle))
            place = layout.before if back == 1 else layout.two_before
            for i in range(KEY_CODE):
                output.set(place + head // self.group * KEY_CODE + i, head * HEAD_DIM + i,
                           2 / self.group)
        self.add_attention(0, query, key, value, output)

    def add_search_layer(self):
        layout = self.layout
        query = Matrix(self.query_heads * HEAD_DIM, layout.width)
        key = Matrix(self.kv_heads * HEAD_DIM, layout.width)
        value = Matrix(self.kv_heads * HEAD_DIM, layout.width)
        output = Matrix(layout.width, self.query_heads * HEAD_DIM)
        element = math.sqrt(self.score * math.sqrt(HEAD_DIM) / KEY_CODE) / self.code
        # The slower half of the pairs: an element of each half of the head.
        places = [*range(PAIRS // 2, PAIRS), *range(PAIRS + PAIRS // 2, HEAD_DIM)]
        for head in range(self.query_heads):
            for i, place in enumerate(places):
                query.set(head * HEAD_DIM + place,
                          layout.before + head // self.group * KEY_CODE + i, element)
        for head in range(self.kv_heads):
            for i, place in enumerate(places):
                key.set(head * HEAD_DIM + place, layout.two_before + head * KEY_CODE + i, element)
            for i in range(VALUE_CODE):
                row = head * HEAD_DIM + i
                value.set(row, layout.constant, VALUE_MEAN / self.constant)
                value.set(row, layout.value + head * VALUE_CODE + i, VALUE_STEP / self.code)
        for head in range(self.query_heads):
            for i in range(VALUE_CODE):
                column = head * HEAD_DIM + i
                output.set(layout.answer + head // self.group * VALUE_CODE + i, column,
                           1 / self.group)
                output.set(layout.mean, column, 1 / (self.query_heads * HEAD_DIM))
        self.add_attention(1, query, key, value, output)

    def add_attention(self, layer, query, key, value, output):
        for name, matrix in (("q", query), ("k", key), ("v", value), ("o", output)):
            self.add(f"model.layers.{layer}.self_attn.{name}_proj.weight", matrix)

    def add_rest(self, layer):
        name = f"model.layers.{layer}."
        width = self.layout.width
        for norm in ("input_layernorm", "post_attention_layernorm"):
            self.add(f"{name}{norm}.weight", Vector([1.0] * width))
        for projection in ("gate", "up"):
            self.add(f"{name}mlp.{projection}_proj.weight", Matrix(INNER, width))
        self.add(f"{name}mlp.down_proj.weight", Matrix(width, INNER))

    def config(self):
        return {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
            "hidden_size": self.layout.width, "intermediate_size": INNER, "num_hidden_layers": 2,
            "num_attention_heads": self.query_heads, "num_key_value_heads": self.kv_heads,
            "head_dim": HEAD_DIM, "vocab_size": self.rows, "rope_theta": ROPE_BASE,
            "max_position_embeddings": self.context, "rms_norm_eps": 1e-6, "hidden_act": "silu",
            "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
        }

    def tokenizer(self):
        return {
            "model": {"type": "BPE", "vocab": self.vocabulary, "merges": [], "ignore_merges": True},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
            "decoder": {"type": "ByteLevel"},
            "added_tokens": [],
        }


INNER = 64  # of the feed-forward, which adds nothing


def write_safetensors(path, tensors):
    header = {}
    offset = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "BF16", "shape": tensor.shape,
                        "data_offsets": [offset, offset + len(tensor.bytes)]}
        offset += len(tensor.bytes)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for tensor in tensors.values():
            file.write(tensor.bytes)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--group", type=int, default=4, help="query heads of a KV head: an even number")
    parser.add_argument("--context", type=int, default=131072)
    parser.add_argument("--mean-weight", type=float, default=0.25,
                        help="of the mean in the output matrix, beside a needle's part at a share of 1: "
                             "numbers of N(0, this)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.kv_heads < 1 or arguments.group < 2 or arguments.group % 2 or arguments.context < 64:
        parser.error("expected --kv-heads of at least 1, an even --group, --context of at least 64")
    model = Model(arguments)
    model.build()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("config.json", model.config()), ("tokenizer.json", model.tokenizer()),
                          ("tokenizer_config.json", {})):
        text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
        (arguments.folder / name).write_text(text, encoding="utf-8")
    write_safetensors(arguments.folder / "model.safetensors", model.tensors)


if __name__ == "__main__":
    main()

"""The texts that tokenizers are compared on, made the same way here and in tests/text/corpus.h.

Texts come from a small generator instead of a file, and ids are compared by their hash, so that
20,000 texts for a dozen vocabularies take a few kilobytes.
"""

MASK = (1 << 64) - 1

# [first, end) of ranges of code points: ASCII and its parts, then all of Unicode's scripts, marks,
# emoji and private use.
RANGES = [
    (0x00, 0x80), (0x20, 0x7F), (0x41, 0x5B), (0x61, 0x7B), (0x30, 0x3A), (0x20, 0x21), (0x09, 0x0E),
    (0x80, 0x250), (0x250, 0x600), (0x300, 0x370), (0x600, 0xE00), (0xE00, 0x1200), (0x1200, 0x2000),
    (0x2000, 0x2070), (0x2000, 0x3100), (0x3040, 0xA000), (0xAC00, 0xD800), (0xE000, 0x10000),
    (0x10000, 0x20000), (0x1F300, 0x1FAFF), (0x20000, 0x110000), (0x10000, 0x12000), (0x4E00, 0x4F00),
    (0x410, 0x450),
]

SNIPPETS = [
    "'s", "'LL", "'Re", "'\u017f", "'t", "\r\n", "\n\n", "  ", " \n", "\t", "\t\t\t", "\n\n\n\n",
    "       ", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<start_of_turn>",
    "<end_of_turn>", "</s>", "<s>", "<|", "|>", "<tool_call>", "<b>", "</table>", "<0x0A>", "\u2581",
    "\u2581\u2581", "\u0301", "\u0323", "\u1100\u1161", " the", "ing", "://", "...", "1", "12",
    "123456", "\u00a0", "\u3000", "\u200d", "\ufe0f", " world", "\u4f60\u597d", "\u3007",
    "HelloWorld", "iPhone", "\u01c5", "\u02b0A", "/\n/", "return x;\n", "\U0001f469\u200d\U0001f467",
]

RANDOM_TEXTS = 20_000
TEXTS_PER_HASH = 1_000


class Generator:
    """xorshift64*, the upper 31 bits of each draw."""

    def __init__(self, seed):
        self.state = seed

    def below(self, end):
        state = self.state
        state ^= state >> 12
        state ^= (state << 25) & MASK
        state ^= state >> 27
        self.state = state
        return (((state * 0x2545F4914F6CDD1D) & MASK) >> 33) % end

    def text(self):
        parts = []
        for _ in range(1 + self.below(12)):
            if self.below(100) < 35:
                parts.append(SNIPPETS[self.below(len(SNIPPETS))])
                continue
            first, end = RANGES[self.below(len(RANGES))]
            for _ in range(1 + self.below(8)):
                code_point = first + self.below(end - first)
                if 0xD800 <= code_point < 0xE000:
                    code_point -= 0x1000
                parts.append(chr(code_point))
        return "".join(parts)


def long_texts():
    """Lines of a megabyte and more: words of one letter, prose of the generator, one script."""
    generator = Generator(99)
    mixed = []
    while len(mixed) < 20_000:
        mixed.append(generator.text())
    han = "".join(chr(0x4E00 + generator.below(0x5000)) for _ in range(350_000))
    words = " ".join(SNIPPETS[generator.below(len(SNIPPETS))] for _ in range(150_000))
    return [
        "a" * 1_000_000,
        " " * 1_000_000,
        "".join(mixed).replace("\n", " ").replace("\r", " "),
        han,
        words.replace("\n", " "),
        "\n" * 1_000_000,
        "1" * 1_000_000,
        "ab" * 500_000,
    ]


def added_texts(tokens):
    """Texts in which each added token occurs, bare, between words and between spaces."""
    return [f"{token}a {token} b{token}\n{token}" for token in tokens]


def hash_numbers(numbers, state=0xCBF29CE484222325):
    """FNV-1a over 32-bit little-endian numbers."""
    for number in numbers:
        for shift in (0, 8, 16, 24):
            state = ((state ^ (number >> shift & 0xFF)) * 0x100000001B3) & MASK
    return state


def hash_text(text, state=0xCBF29CE484222325):
    for byte in text.encode():
        state = ((state ^ byte) * 0x100000001B3) & MASK
    return state

"""Texts that tokenizers stumble over: white space, control characters, names of special tokens, normal forms."""

FRAGMENTS = [
    *["Hello", " world", "it's", "'s", "don't", "a.b", "--", "!?", "1,234.56", "x" * 300, "ab cd ef " * 40],
    *["  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\ufeff"],
    *["\x00", "\x07", "\u202e", "\u200d", "\ud7ff", "\U0010ffff", "\ufffd", "\u0378"],
    *["</s>", "<s>", "<pad>", "<unk>", "<mask>", ">>fra<<", "<extra_id_0>", "eng_Latn", "__en__", "<2fr>", "<0x41>"],
    *["\u2581", "\u2581\u2581a", "ﬁne", "①", "Ａｂｃ", "é", "e\u0301", "a\u0302\u0301", " \u0301", "İ", "ß", "Σς", "ǆ"],
    *[
        "👩\u200d👩\u200d👧",
        "🏳\ufe0f\u200d🌈",
        "👍🏽",
        "مرحبا",
        "שלום",
        "ﷺ",
        "한글",
        "\u1112\u1161\u11ab",
        "क्षि",
        "\u0e33",
    ],
    *["漢字", "日本語。", "…", "½", "𝔘𝔫𝔦", "«»"],
]
# Names of special tokens in vocabularies. Some tokenizers of transformers always take these names for the tokens.
SPELLED = ("</s>", "<s>", "<pad>", "<unk>", "<mask>", "<extra_id_", "eng_Latn")

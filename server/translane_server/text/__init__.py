"""Text to tokens and back: tokenizers, sentences of a text, terms, and what a stream may show of one."""

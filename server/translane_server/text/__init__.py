"""Text to tokens and back: tokenizers, sentence splitting, glossaries, languages, and text for streams."""

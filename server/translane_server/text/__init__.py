"""Text to tokens and back: tokenizers, sentence splitting, glossaries, languages, documents, and text for streams."""

"""The engines that are compared: Translane, CTranslate2 and Hugging Face, as decoders and as servers."""

"""Vocabulary shortlists: from the alignments of parallel text, to files of rules, to bundles."""

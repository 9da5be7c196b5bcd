"""The teacher: a model bundle, decoded by the server's own engine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from translane_export.bundle_writer import export_checkpoint
from translane_export.checks.trial import Log
from translane_export.distill.errors import DistillError
from translane_export.distill.journal import Identity, Output, Record
from translane_export.distill.settings import DistillSettings
from translane_export.distill.unique_sources import UniqueSource
from translane_export.settings import ExportSettings
from translane_export.train.errors import ResumeError
from translane_server.bundle.bundle import MANIFEST, Bundle, load_bundle
from translane_server.bundle.devices import choose_precision
from translane_server.core.errors import EngineError, SettingsError
from translane_server.engine import offline
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence, SentenceResult, TargetVocabulary
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions
from translane_server.text.tokenizer import load_tokenizer
from translane_server.translation.languages import LanguagePair, LanguagePairs
from translane_server.translation.limits import CHARACTERS_PER_TOKEN

NO_PIECES, TOO_LONG, UNENDED = "no pieces", "source too long", "translation did not end"
"""Why a source has no translation."""


@dataclass(frozen=True)
class TaughtPair:
    """A teacher that is opened: its bundle, and the languages that it translates."""

    bundle: Bundle
    languages: LanguagePair


def open_teacher(settings: DistillSettings, exported: Path, log: Log) -> TaughtPair:
    """Load the teacher's bundle. Another checkpoint is exported to the folder `exported` first, unless it is there.

    Raises:
        ExportError: the checkpoint cannot be exported.
        OSError: a file of the checkpoint cannot be read.
        ResumeError: `exported` has been made of another checkpoint.
        SettingsError: the teacher does not translate between the languages of `settings`.
        StartupError: the bundle does not load, or a CPU cannot run it.
    """
    folder = settings.teacher
    if not (folder / MANIFEST).is_file():
        digest, noted = _digest(folder), exported.with_name(f"{exported.name}.sha256")
        if (exported / MANIFEST).is_file():
            if not noted.is_file() or noted.read_text(encoding="ascii") != digest:
                raise ResumeError(f"{exported}: comes from another teacher; another --output starts anew")
        else:
            exported.parent.mkdir(parents=True, exist_ok=True)
            noted.write_text(digest, encoding="ascii")
            export_checkpoint(
                ExportSettings(checkpoint=folder, output=exported, precision="fp32", threads=settings.threads), log
            )
        folder = exported
    bundle = load_bundle(folder)
    choose_precision("cpu", [bundle.manifest.precision])  # refuses bundles for GPUs alone
    pairs = LanguagePairs(bundle.manifest.languages, load_tokenizer(bundle))
    languages, wrong = pairs.find(settings.source_language, settings.target_language)
    if wrong:
        raise SettingsError(f"--{wrong[0].field.replace('_', '-')}: {wrong[0].description}")
    return TaughtPair(bundle, languages)


def _digest(folder: Path) -> str:
    """A digest of the names and contents of all files of a checkpoint: a folder, or one file."""
    whole = hashlib.sha256()
    for path in sorted(path for path in (folder, *folder.rglob("*")) if path.is_file()):
        with path.open("rb") as file:
            whole.update(f"{path.relative_to(folder)}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


def identity_of(settings: DistillSettings, taught: TaughtPair) -> Identity:
    """Return what the teacher's outputs depend on, beside the text."""
    return Identity(
        teacher=hashlib.sha256((taught.bundle.folder / MANIFEST).read_bytes()).hexdigest(),
        source_language=taught.languages.source,
        target_language=taught.languages.target,
        beam_size=settings.beam_size,
        length_penalty=settings.length_penalty,
        nbest=settings.nbest,
        max_length=settings.max_length,
    )


class Teacher:
    """Translates lists of sources. A `with` statement frees its model at the end.

    A translation never depends on the other sources of its list, so it does not matter how a text is cut into lists.

    Raises:
        StartupError: the bundle does not run.
    """

    def __init__(self, settings: DistillSettings, taught: TaughtPair) -> None:
        manifest, self._languages = taught.bundle.manifest, taught.languages
        ids, limits, forced = manifest.special_ids, manifest.limits, taught.languages.forced_ids
        self._longest = min(limits.source_tokens, settings.max_length + 1)  # with the end of the sentence
        most = min(limits.target_tokens - len(forced), settings.max_length + 1)
        self._options = DecodingOptions(
            most,
            beam_size=settings.beam_size,
            num_hypotheses=settings.nbest,
            length_penalty=settings.length_penalty,
            scores=False,
        )
        self._vocabulary = TargetVocabulary(ids.decoder_start, ids.eos)
        self._backend = OrtBackend(
            Sessions(taught.bundle, threads=settings.computing_threads),
            rows=max(settings.max_batch_size, self._options.rows),
            source_capacity=self._longest,
            target_capacity=len(forced) + most,
        )

    def __enter__(self) -> Teacher:
        return self

    def __exit__(self, *exception: object) -> None:
        self._backend.close()

    def translate(self, sources: Sequence[UniqueSource]) -> list[Record]:
        """Return what becomes of each source, in order.

        Raises:
            DistillError: decoding fails.
        """
        # A text of more characters than any piece has cannot fit, and is not worth cutting into pieces.
        most = CHARACTERS_PER_TOKEN * self._longest
        ids = self._languages.encode([source.text if len(source.text) <= most else "" for source in sources])
        fitting = [place for place, each in enumerate(ids) if 0 < len(each) <= self._longest]
        fitting.sort(key=lambda place: -len(ids[place]))  # the longest first, so that none is left alone at the end
        forced = self._languages.forced_ids
        sentences = [Sentence(ids[place], self._options, forced_ids=forced) for place in fitting]
        try:
            results = offline.decode(self._backend, self._vocabulary, sentences)
        except EngineError as error:
            raise DistillError(f"the teacher does not decode: {error}") from None
        found = dict(zip(fitting, results, strict=True))
        return [
            self._record(source, len(ids[place]), found.get(place), too_long=len(source.text) > most)
            for place, source in enumerate(sources)
        ]

    def _record(self, source: UniqueSource, pieces: int, result: SentenceResult | None, *, too_long: bool) -> Record:
        if result is None:
            reason = TOO_LONG if pieces or too_long else NO_PIECES
            return Record(source.line, source.key, pieces, (), reason)
        start = len(self._languages.forced_ids)
        ended = [each.token_ids[start:] for each in result.hypotheses if each.is_complete]
        texts = self._languages.tokenizer.decode(ended)
        outputs = tuple(Output(" ".join(text.split()), len(each)) for text, each in zip(texts, ended, strict=True))
        return Record(source.line, source.key, pieces, outputs, "" if outputs else UNENDED)

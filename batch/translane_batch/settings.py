"""The settings of `translane batch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from translane.command_error import CommandError
from translane_server.core.terminal import printable
from translane_server.settings.loader import Flag, Settings
from translane_server.settings.model_sources import BUNDLED_MODEL_URL, ModelPlace, RemotePlace, open_url, place_of

ENV_PREFIX = "TRANSLANE_BATCH_"

OWN_FOLDER = ".translane-batch"
"""Name of the folder that holds a run's state."""

STANDARD_OUTPUT = Path("-")
"""The file for the figures that is none."""

KindName = Literal["auto", "text", "tsv", "jsonl", "parquet"]
LeaveOut = Literal["copy", "unended", "language"]

# Kinds of settings.
_File = Annotated[Path | None, Flag("FILE")]
_Folder = Annotated[Path | None, Flag("FOLDER")]
_Name = Annotated[str, Flag("NAME"), Field(min_length=1, max_length=1000)]
_Count = Annotated[int | None, Field(ge=1, le=4096)]

# Settings that are options of a request, under the same name. One that is not set takes the model's default.
_OPTIONS = (
    "beam_size",
    "num_hypotheses",
    "length_penalty",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "max_length",
    "use_shortlist",
    "split_sentences",
    "check_numbers",
)

OF_THIS_MACHINE = (
    *("bundled_model", "model_cache", "model_cache_bytes"),
    *("device", "replicas", "threads", "max_batch_size"),
)
"""Settings of the model in a process that translates, under the same name."""

# Settings that change no output. A run may be resumed with other values of them.
_OF_NO_EFFECT = {
    *("work", "summary", "requests", "task_size", "server", "ca", "token_file", "ray", "workers", "cpus_per_worker"),
    *OF_THIS_MACHINE,
}
# Settings that name files, whose contents are compared in place of their names.
_BY_CONTENT = {"corpus", "model"}


class BatchError(CommandError):
    """A run cannot begin, or ends early. The exit code is 1, or 2 where a setting is wrong."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(printable(message))  # it may quote a file
        self.exit_code = exit_code


class BatchSettings(Settings):
    """Translates a corpus, a file or a folder of files, and writes a file of the same records for each of its files."""

    short_help: ClassVar[tuple[str, ...]] = (
        *("kind", "field", "output_field", "source_language", "target_language", "beam_size"),
        *("leave_out", "device", "replicas", "max_batch_size", "server", "token_file", "ray"),
    )

    corpus: Annotated[Path, Flag(positional=True)]
    """File or folder to translate: lines, TSV or JSON lines, each also gzipped, or Parquet."""
    output: Annotated[Path, Flag("FOLDER", short="-o")]
    """Folder for the translated files."""
    model: Annotated[str, Flag("FOLDER", in_usage=True, unquoted=True)] = ""
    """Folder, URL or name of the model; with --server, the name of a model there."""
    bundled_model: Annotated[str, Flag("URL", unquoted=True), AfterValidator(open_url)] = BUNDLED_MODEL_URL
    """URL that the model zh-en is downloaded from, where there is no clone that has it."""
    model_cache: _Folder = None
    """Folder of the bundles that were downloaded or exported; by default in the user's cache folder."""
    model_cache_bytes: Annotated[int, Flag("BYTES"), Field(ge=1, le=2**50)] = 32 * 1024**3
    """Most bytes in the model cache; what is new takes the place of what nobody uses [bytes]."""
    work: _Folder = None
    """Folder whose .translane-batch holds the state of the run, on a disk of this machine, with room for some three
    times the text; by default the output folder."""
    summary: _File = None
    """File for the figures of the run, as JSON; - is standard output."""

    kind: Annotated[KindName, Flag(heading="the corpus")] = "auto"
    """Kind of all files; auto goes by the ends of their names."""
    column: int = Field(1, ge=1, le=4096)
    """Column of TSV to translate, from 1."""
    field: _Name = "text"
    """Field of JSON, or column of Parquet, to translate."""
    output_field: _Name = "translation"
    """Field or column for the translations."""

    source_language: Annotated[str, Flag("TAG", heading="translation")] = ""
    """Language of the corpus, for a model of several."""
    target_language: Annotated[str, Flag("TAG")] = ""
    """Language to translate to, for a model of several."""
    beam_size: _Count = None
    """Number of beams; 1 is greedy search."""
    num_hypotheses: _Count = None
    """Translations of each text, best first, with as many beams; above 1 the new field is a list."""
    length_penalty: float | None = Field(None, ge=-10, le=10)
    """Exponent of the length by which beams are ranked."""
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    """How many times less likely tokens become that occurred already."""
    no_repeat_ngram_size: int | None = Field(None, ge=0, le=4096)
    """No sequence of so many tokens occurs twice; 0 is off."""
    max_length: int | None = Field(None, ge=1, le=65536)
    """Most tokens of a sentence's translation."""
    split_sentences: bool | None = None
    """Cut each text into sentences, or take each for one sentence; by default the text decides."""
    check_numbers: bool | None = None
    """Translate a sentence again whose translation lacks a number."""
    use_shortlist: bool | None = None
    """Generate only the tokens that the model's shortlist has for the source."""

    leave_out: Annotated[tuple[LeaveOut, ...], Flag(heading="what is left out")] = ()
    """Leave out translations that copy the source, that do not end, or that are not in the target language."""
    min_quality: float = Field(0.0, ge=0, le=1)
    """Leave out translations with a lower estimated quality; 0 keeps all."""
    max_ratio: float | None = Field(None, ge=1)
    """Leave out translations where one side has more than so many times the tokens of the other."""
    keep_left_out: bool = False
    """Write these translations nevertheless; the list of what is left out has them too."""

    device: Annotated[Literal["auto", "cpu", "cuda"], Flag(heading="this machine")] = "auto"
    """What runs the model; auto is cuda where a GPU can run it, else cpu."""
    replicas: int | None = Field(None, ge=1, le=1024)
    """Processes that decode side by side; by default one on each CPU."""
    threads: int | None = Field(None, ge=1, le=1024)
    """Threads of each replica; by default its part of the CPUs granted."""
    max_batch_size: _Count = None
    """Hypotheses that decode at once; by default 64, or more on many CPUs."""
    requests: int | None = Field(None, ge=1, le=256)
    """Requests of 64 texts that are under way at once; by default 8, or two for each CPU if more."""
    task_size: int = Field(8192, ge=1, le=1 << 20)
    """Sources that are translated together, long ones first."""

    server: Annotated[str, Flag("HOST:PORT", heading="other machines")] = ""
    """Have servers translate: the address of one, or several with commas between them."""
    ca: _File = None
    """Certificates of these servers that are trusted, in PEM; switches TLS on."""
    token_file: _File = None
    """Key that these servers know the caller by."""
    ray: Annotated[str, Flag("ADDRESS")] = ""
    """Translate on a cluster of Ray: its address, auto for the one of this machine, or local for a new one."""
    workers: _Count = None
    """Workers on the cluster; by default as many as its CPUs allow."""
    cpus_per_worker: int | None = Field(None, ge=1, le=1024)
    """CPUs of each worker; by default those of the smallest machine."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.model and not self.server:
            raise ValueError("--model is required (or TRANSLANE_BATCH_MODEL, or model in the settings file)")
        if not self.server:
            try:
                _ = self.place
            except ValueError as error:
                raise ValueError(f"--model: {error}") from None
        if self.server and self.ray:
            raise ValueError("--server and --ray exclude each other: servers and workers both translate")
        for name in OF_THIS_MACHINE:
            if getattr(self, name) != type(self).model_fields[name].default and self.server:
                raise ValueError(f"--{name.replace('_', '-')} and --server exclude each other: servers have their own")
        needed = {"ca": "server", "token_file": "server", "workers": "ray", "cpus_per_worker": "ray"}
        for name, other in needed.items():
            if getattr(self, name) is not None and not getattr(self, other):
                raise ValueError(f"--{name.replace('_', '-')} needs --{other}")
        return self

    @property
    def work_folder(self) -> Path:
        """The folder of the state, which nothing else is in: files there are removed."""
        return (self.work or self.output) / OWN_FOLDER

    @property
    def place(self) -> ModelPlace | RemotePlace:
        """Where the model of a run without servers is."""
        return place_of(self.model)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the requests that are set, and those that ask for what is left out by."""
        values = {name: getattr(self, name) for name in _OPTIONS}
        values["beam_size"] = self.beam_size or self.num_hypotheses
        values["return_quality"] = True if self.min_quality else None
        values["return_tokens"] = None if self.max_ratio is None else True
        return {name: value for name, value in values.items() if value is not None}

    @property
    def what_decides(self) -> dict[str, Any]:
        """All that the outputs depend on beside the corpus and the model. A run is resumed with the same values."""
        compared = [name for name in type(self).model_fields if name not in _OF_NO_EFFECT | _BY_CONTENT]
        values = {name: getattr(self, name) for name in compared}
        return values | {"output": str(self.output.absolute()), "leave_out": sorted(self.leave_out)}

import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Format(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORMAT_UNSPECIFIED: _ClassVar[Format]
    FORMAT_TEXT: _ClassVar[Format]
    FORMAT_HTML: _ClassVar[Format]
    FORMAT_MARKDOWN: _ClassVar[Format]
    FORMAT_XLIFF: _ClassVar[Format]

class TermOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TERM_OUTCOME_UNSPECIFIED: _ClassVar[TermOutcome]
    TERM_OUTCOME_APPLIED: _ClassVar[TermOutcome]
    TERM_OUTCOME_NOT_FOUND: _ClassVar[TermOutcome]
    TERM_OUTCOME_UNSPELLABLE: _ClassVar[TermOutcome]
    TERM_OUTCOME_TOO_MANY: _ClassVar[TermOutcome]
    TERM_OUTCOME_PRESERVED: _ClassVar[TermOutcome]
    TERM_OUTCOME_MISSED: _ClassVar[TermOutcome]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_END_OF_SENTENCE: _ClassVar[FinishReason]
    FINISH_REASON_MAX_LENGTH: _ClassVar[FinishReason]

class ModelState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_STATE_UNSPECIFIED: _ClassVar[ModelState]
    MODEL_STATE_LOADING: _ClassVar[ModelState]
    MODEL_STATE_READY: _ClassVar[ModelState]
    MODEL_STATE_IDLE: _ClassVar[ModelState]
    MODEL_STATE_UNLOADED: _ClassVar[ModelState]
    MODEL_STATE_FAILED: _ClassVar[ModelState]
FORMAT_UNSPECIFIED: Format
FORMAT_TEXT: Format
FORMAT_HTML: Format
FORMAT_MARKDOWN: Format
FORMAT_XLIFF: Format
TERM_OUTCOME_UNSPECIFIED: TermOutcome
TERM_OUTCOME_APPLIED: TermOutcome
TERM_OUTCOME_NOT_FOUND: TermOutcome
TERM_OUTCOME_UNSPELLABLE: TermOutcome
TERM_OUTCOME_TOO_MANY: TermOutcome
TERM_OUTCOME_PRESERVED: TermOutcome
TERM_OUTCOME_MISSED: TermOutcome
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_END_OF_SENTENCE: FinishReason
FINISH_REASON_MAX_LENGTH: FinishReason
MODEL_STATE_UNSPECIFIED: ModelState
MODEL_STATE_LOADING: ModelState
MODEL_STATE_READY: ModelState
MODEL_STATE_IDLE: ModelState
MODEL_STATE_UNLOADED: ModelState
MODEL_STATE_FAILED: ModelState

class TranslateRequest(_message.Message):
    __slots__ = ("texts", "model", "source_language", "target_language", "options", "priority", "format")
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    model: str
    source_language: str
    target_language: str
    options: DecodingOptions
    priority: int
    format: Format
    def __init__(self, texts: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., options: _Optional[_Union[DecodingOptions, _Mapping]] = ..., priority: _Optional[int] = ..., format: _Optional[_Union[Format, str]] = ...) -> None: ...

class DecodingOptions(_message.Message):
    __slots__ = ("beam_size", "num_hypotheses", "length_penalty", "early_stopping", "patience", "coverage_penalty", "repetition_penalty", "no_repeat_ngram_size", "min_length", "max_length", "top_k", "top_p", "temperature", "seed", "target_prefix", "suppress_unknown", "replace_unknowns", "suppressed_phrases", "terminology", "return_tokens", "return_token_scores", "return_alignment", "split_sentences", "return_alternatives", "preserve", "preserve_untranslatable", "glossaries", "return_quality", "use_shortlist", "check_numbers")
    BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    LENGTH_PENALTY_FIELD_NUMBER: _ClassVar[int]
    EARLY_STOPPING_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    NO_REPEAT_NGRAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    TARGET_PREFIX_FIELD_NUMBER: _ClassVar[int]
    SUPPRESS_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    REPLACE_UNKNOWNS_FIELD_NUMBER: _ClassVar[int]
    SUPPRESSED_PHRASES_FIELD_NUMBER: _ClassVar[int]
    TERMINOLOGY_FIELD_NUMBER: _ClassVar[int]
    RETURN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RETURN_TOKEN_SCORES_FIELD_NUMBER: _ClassVar[int]
    RETURN_ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    SPLIT_SENTENCES_FIELD_NUMBER: _ClassVar[int]
    RETURN_ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    PRESERVE_FIELD_NUMBER: _ClassVar[int]
    PRESERVE_UNTRANSLATABLE_FIELD_NUMBER: _ClassVar[int]
    GLOSSARIES_FIELD_NUMBER: _ClassVar[int]
    RETURN_QUALITY_FIELD_NUMBER: _ClassVar[int]
    USE_SHORTLIST_FIELD_NUMBER: _ClassVar[int]
    CHECK_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    beam_size: int
    num_hypotheses: int
    length_penalty: float
    early_stopping: bool
    patience: float
    coverage_penalty: float
    repetition_penalty: float
    no_repeat_ngram_size: int
    min_length: int
    max_length: int
    top_k: int
    top_p: float
    temperature: float
    seed: int
    target_prefix: str
    suppress_unknown: bool
    replace_unknowns: bool
    suppressed_phrases: _containers.RepeatedScalarFieldContainer[str]
    terminology: _containers.RepeatedCompositeFieldContainer[Term]
    return_tokens: bool
    return_token_scores: bool
    return_alignment: bool
    split_sentences: bool
    return_alternatives: bool
    preserve: _containers.RepeatedScalarFieldContainer[str]
    preserve_untranslatable: bool
    glossaries: _containers.RepeatedScalarFieldContainer[str]
    return_quality: bool
    use_shortlist: bool
    check_numbers: bool
    def __init__(self, beam_size: _Optional[int] = ..., num_hypotheses: _Optional[int] = ..., length_penalty: _Optional[float] = ..., early_stopping: bool = ..., patience: _Optional[float] = ..., coverage_penalty: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., no_repeat_ngram_size: _Optional[int] = ..., min_length: _Optional[int] = ..., max_length: _Optional[int] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., temperature: _Optional[float] = ..., seed: _Optional[int] = ..., target_prefix: _Optional[str] = ..., suppress_unknown: bool = ..., replace_unknowns: bool = ..., suppressed_phrases: _Optional[_Iterable[str]] = ..., terminology: _Optional[_Iterable[_Union[Term, _Mapping]]] = ..., return_tokens: bool = ..., return_token_scores: bool = ..., return_alignment: bool = ..., split_sentences: bool = ..., return_alternatives: bool = ..., preserve: _Optional[_Iterable[str]] = ..., preserve_untranslatable: bool = ..., glossaries: _Optional[_Iterable[str]] = ..., return_quality: bool = ..., use_shortlist: bool = ..., check_numbers: bool = ...) -> None: ...

class Term(_message.Message):
    __slots__ = ("source", "target", "ignore_case", "inflected")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    IGNORE_CASE_FIELD_NUMBER: _ClassVar[int]
    INFLECTED_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    ignore_case: bool
    inflected: bool
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., ignore_case: bool = ..., inflected: bool = ...) -> None: ...

class TranslateResponse(_message.Message):
    __slots__ = ("translations", "model", "timing", "model_versions")
    class ModelVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TRANSLATIONS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    translations: _containers.RepeatedCompositeFieldContainer[Translation]
    model: str
    timing: Timing
    model_versions: _containers.ScalarMap[str, str]
    def __init__(self, translations: _Optional[_Iterable[_Union[Translation, _Mapping]]] = ..., model: _Optional[str] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., model_versions: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Translation(_message.Message):
    __slots__ = ("hypotheses", "source_tokens", "source_pieces", "treatment", "models")
    HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PIECES_FIELD_NUMBER: _ClassVar[int]
    TREATMENT_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    hypotheses: _containers.RepeatedCompositeFieldContainer[Hypothesis]
    source_tokens: int
    source_pieces: _containers.RepeatedScalarFieldContainer[str]
    treatment: Treatment
    models: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, hypotheses: _Optional[_Iterable[_Union[Hypothesis, _Mapping]]] = ..., source_tokens: _Optional[int] = ..., source_pieces: _Optional[_Iterable[str]] = ..., treatment: _Optional[_Union[Treatment, _Mapping]] = ..., models: _Optional[_Iterable[str]] = ...) -> None: ...

class Treatment(_message.Message):
    __slots__ = ("sentences", "cut_sentences", "preserved", "terms", "source_language", "pivot_language", "stand_ins", "decoded_again", "missing_numbers")
    SENTENCES_FIELD_NUMBER: _ClassVar[int]
    CUT_SENTENCES_FIELD_NUMBER: _ClassVar[int]
    PRESERVED_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    PIVOT_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    STAND_INS_FIELD_NUMBER: _ClassVar[int]
    DECODED_AGAIN_FIELD_NUMBER: _ClassVar[int]
    MISSING_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    sentences: int
    cut_sentences: int
    preserved: int
    terms: _containers.RepeatedCompositeFieldContainer[TermReport]
    source_language: str
    pivot_language: str
    stand_ins: int
    decoded_again: int
    missing_numbers: int
    def __init__(self, sentences: _Optional[int] = ..., cut_sentences: _Optional[int] = ..., preserved: _Optional[int] = ..., terms: _Optional[_Iterable[_Union[TermReport, _Mapping]]] = ..., source_language: _Optional[str] = ..., pivot_language: _Optional[str] = ..., stand_ins: _Optional[int] = ..., decoded_again: _Optional[int] = ..., missing_numbers: _Optional[int] = ...) -> None: ...

class TermReport(_message.Message):
    __slots__ = ("source", "target", "outcome", "glossary")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    GLOSSARY_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    outcome: TermOutcome
    glossary: str
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., outcome: _Optional[_Union[TermOutcome, str]] = ..., glossary: _Optional[str] = ...) -> None: ...

class Hypothesis(_message.Message):
    __slots__ = ("text", "score", "tokens", "token_log_probs", "finish_reason", "alignment", "quality")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    QUALITY_FIELD_NUMBER: _ClassVar[int]
    text: str
    score: float
    tokens: _containers.RepeatedScalarFieldContainer[str]
    token_log_probs: _containers.RepeatedScalarFieldContainer[float]
    finish_reason: FinishReason
    alignment: Alignment
    quality: float
    def __init__(self, text: _Optional[str] = ..., score: _Optional[float] = ..., tokens: _Optional[_Iterable[str]] = ..., token_log_probs: _Optional[_Iterable[float]] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., alignment: _Optional[_Union[Alignment, _Mapping]] = ..., quality: _Optional[float] = ...) -> None: ...

class Alignment(_message.Message):
    __slots__ = ("points",)
    POINTS_FIELD_NUMBER: _ClassVar[int]
    points: _containers.RepeatedCompositeFieldContainer[AlignmentPoint]
    def __init__(self, points: _Optional[_Iterable[_Union[AlignmentPoint, _Mapping]]] = ...) -> None: ...

class AlignmentPoint(_message.Message):
    __slots__ = ("source_token", "target_token", "weight")
    SOURCE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TARGET_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    source_token: int
    target_token: int
    weight: float
    def __init__(self, source_token: _Optional[int] = ..., target_token: _Optional[int] = ..., weight: _Optional[float] = ...) -> None: ...

class Timing(_message.Message):
    __slots__ = ("queue", "encode", "decode", "total", "cached_texts")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ENCODE_FIELD_NUMBER: _ClassVar[int]
    DECODE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    CACHED_TEXTS_FIELD_NUMBER: _ClassVar[int]
    queue: _duration_pb2.Duration
    encode: _duration_pb2.Duration
    decode: _duration_pb2.Duration
    total: _duration_pb2.Duration
    cached_texts: int
    def __init__(self, queue: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., encode: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., decode: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., total: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cached_texts: _Optional[int] = ...) -> None: ...

class TranslateStreamRequest(_message.Message):
    __slots__ = ("text", "model", "source_language", "target_language", "options", "priority", "format")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    text: str
    model: str
    source_language: str
    target_language: str
    options: DecodingOptions
    priority: int
    format: Format
    def __init__(self, text: _Optional[str] = ..., model: _Optional[str] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., options: _Optional[_Union[DecodingOptions, _Mapping]] = ..., priority: _Optional[int] = ..., format: _Optional[_Union[Format, str]] = ...) -> None: ...

class TranslateStreamResponse(_message.Message):
    __slots__ = ("text_delta", "hypothesis", "timing", "treatment", "models", "model_versions")
    class ModelVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TEXT_DELTA_FIELD_NUMBER: _ClassVar[int]
    HYPOTHESIS_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    TREATMENT_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    text_delta: str
    hypothesis: Hypothesis
    timing: Timing
    treatment: Treatment
    models: _containers.RepeatedScalarFieldContainer[str]
    model_versions: _containers.ScalarMap[str, str]
    def __init__(self, text_delta: _Optional[str] = ..., hypothesis: _Optional[_Union[Hypothesis, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., treatment: _Optional[_Union[Treatment, _Mapping]] = ..., models: _Optional[_Iterable[str]] = ..., model_versions: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TranslateDocumentRequest(_message.Message):
    __slots__ = ("content", "mime_type", "model", "source_language", "target_language", "options", "priority", "replace_translations")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    MIME_TYPE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    REPLACE_TRANSLATIONS_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    mime_type: str
    model: str
    source_language: str
    target_language: str
    options: DecodingOptions
    priority: int
    replace_translations: bool
    def __init__(self, content: _Optional[bytes] = ..., mime_type: _Optional[str] = ..., model: _Optional[str] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., options: _Optional[_Union[DecodingOptions, _Mapping]] = ..., priority: _Optional[int] = ..., replace_translations: bool = ...) -> None: ...

class TranslateDocumentResponse(_message.Message):
    __slots__ = ("progress", "content", "end")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    progress: DocumentProgress
    content: bytes
    end: DocumentEnd
    def __init__(self, progress: _Optional[_Union[DocumentProgress, _Mapping]] = ..., content: _Optional[bytes] = ..., end: _Optional[_Union[DocumentEnd, _Mapping]] = ...) -> None: ...

class DocumentProgress(_message.Message):
    __slots__ = ("texts_done", "texts")
    TEXTS_DONE_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    texts_done: int
    texts: int
    def __init__(self, texts_done: _Optional[int] = ..., texts: _Optional[int] = ...) -> None: ...

class DocumentEnd(_message.Message):
    __slots__ = ("content_bytes", "timing", "treatment", "notes", "models", "model_versions")
    class ModelVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONTENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    TREATMENT_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    content_bytes: int
    timing: Timing
    treatment: Treatment
    notes: _containers.RepeatedCompositeFieldContainer[DocumentNote]
    models: _containers.RepeatedScalarFieldContainer[str]
    model_versions: _containers.ScalarMap[str, str]
    def __init__(self, content_bytes: _Optional[int] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., treatment: _Optional[_Union[Treatment, _Mapping]] = ..., notes: _Optional[_Iterable[_Union[DocumentNote, _Mapping]]] = ..., models: _Optional[_Iterable[str]] = ..., model_versions: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DocumentNote(_message.Message):
    __slots__ = ("line", "cut_sentences", "term")
    LINE_FIELD_NUMBER: _ClassVar[int]
    CUT_SENTENCES_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    line: int
    cut_sentences: int
    term: TermReport
    def __init__(self, line: _Optional[int] = ..., cut_sentences: _Optional[int] = ..., term: _Optional[_Union[TermReport, _Mapping]] = ...) -> None: ...

class ScoreRequest(_message.Message):
    __slots__ = ("inputs", "model", "source_language", "target_language", "return_tokens")
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    RETURN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    inputs: _containers.RepeatedCompositeFieldContainer[ScoreInput]
    model: str
    source_language: str
    target_language: str
    return_tokens: bool
    def __init__(self, inputs: _Optional[_Iterable[_Union[ScoreInput, _Mapping]]] = ..., model: _Optional[str] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., return_tokens: bool = ...) -> None: ...

class ScoreInput(_message.Message):
    __slots__ = ("source", "target")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ...) -> None: ...

class ScoreResponse(_message.Message):
    __slots__ = ("scores", "model", "timing", "model_versions")
    class ModelVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SCORES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    scores: _containers.RepeatedCompositeFieldContainer[Score]
    model: str
    timing: Timing
    model_versions: _containers.ScalarMap[str, str]
    def __init__(self, scores: _Optional[_Iterable[_Union[Score, _Mapping]]] = ..., model: _Optional[str] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., model_versions: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Score(_message.Message):
    __slots__ = ("total_log_prob", "token_log_probs", "tokens")
    TOTAL_LOG_PROB_FIELD_NUMBER: _ClassVar[int]
    TOKEN_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    total_log_prob: float
    token_log_probs: _containers.RepeatedScalarFieldContainer[float]
    tokens: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, total_log_prob: _Optional[float] = ..., token_log_probs: _Optional[_Iterable[float]] = ..., tokens: _Optional[_Iterable[str]] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models", "server_version", "limits")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    server_version: str
    limits: Limits
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ..., server_version: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "version", "source_languages", "target_languages", "precision", "device", "license", "parameters", "max_source_tokens", "max_target_tokens", "default_max_length", "state", "max_beam_size", "max_queue_size", "decoding_defaults", "glossaries", "digest")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    LICENSE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    MAX_SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TARGET_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MAX_BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUE_SIZE_FIELD_NUMBER: _ClassVar[int]
    DECODING_DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    GLOSSARIES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    source_languages: _containers.RepeatedScalarFieldContainer[str]
    target_languages: _containers.RepeatedScalarFieldContainer[str]
    precision: str
    device: str
    license: str
    parameters: int
    max_source_tokens: int
    max_target_tokens: int
    default_max_length: int
    state: ModelState
    max_beam_size: int
    max_queue_size: int
    decoding_defaults: DecodingOptions
    glossaries: _containers.RepeatedScalarFieldContainer[str]
    digest: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., source_languages: _Optional[_Iterable[str]] = ..., target_languages: _Optional[_Iterable[str]] = ..., precision: _Optional[str] = ..., device: _Optional[str] = ..., license: _Optional[str] = ..., parameters: _Optional[int] = ..., max_source_tokens: _Optional[int] = ..., max_target_tokens: _Optional[int] = ..., default_max_length: _Optional[int] = ..., state: _Optional[_Union[ModelState, str]] = ..., max_beam_size: _Optional[int] = ..., max_queue_size: _Optional[int] = ..., decoding_defaults: _Optional[_Union[DecodingOptions, _Mapping]] = ..., glossaries: _Optional[_Iterable[str]] = ..., digest: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_request_texts", "max_queue_size", "max_beam_size", "document_bytes")
    MAX_REQUEST_TEXTS_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUE_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    max_request_texts: int
    max_queue_size: int
    max_beam_size: int
    document_bytes: int
    def __init__(self, max_request_texts: _Optional[int] = ..., max_queue_size: _Optional[int] = ..., max_beam_size: _Optional[int] = ..., document_bytes: _Optional[int] = ...) -> None: ...

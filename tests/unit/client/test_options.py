"""Every decoding option as it travels, from Python and from the command line; and scores at their edges."""

import math
from pathlib import Path
from typing import Any

import pytest

from translane import DecodingOptions, Score, Term
from translane.conversions import options_message
from translane.options import checked_options
from translane.v1 import translation_pb2 as pb
from translane_client.cli.decoding_flags import FLAGS

FIELDS = pb.DecodingOptions.DESCRIPTOR.fields_by_name


def value_of(field: Any) -> Any:
    """A value for an option of this type."""
    values = {field.CPPTYPE_BOOL: True, field.CPPTYPE_STRING: "a  猫", field.CPPTYPE_FLOAT: 0.5}
    value = values.get(field.cpp_type, 5)
    return [value, r"\d+|b"] if field.is_repeated else value


EVERY_OPTION: dict[str, Any] = {
    **{name: value_of(field) for name, field in FIELDS.items()},
    "seed": 2**64 - 1,
    "terminology": [("猫", "cat"), ("猫", "kitty"), ("狗", "dog")],
}


def expected(names) -> pb.DecodingOptions:
    """The message that holds these options and no others, without the code under test."""
    message = pb.DecodingOptions()
    for name in names:
        value = EVERY_OPTION[name]
        if name == "terminology":
            message.terminology.extend(pb.Term(source=source, target=target) for source, target in value)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return message


def arguments_for(name: str, folder: Path) -> list[str]:
    flag, value = FLAGS[name].name, EVERY_OPTION[name]
    if name == "terminology":
        terms = folder / "terms.tsv"
        terms.write_text("".join(f"{source}\t{target}\n" for source, target in value), encoding="utf-8")
        return [flag, str(terms)]
    if isinstance(value, list):
        return [argument for each in value for argument in (flag, each)]
    return [flag] if value is True else [flag, str(value)]


def test_the_tables_are_those_of_the_protocol():
    assert set(FLAGS) == set(FIELDS)
    assert set(DecodingOptions.__annotations__) == set(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_every_option_has_a_flag_and_its_environment_twin(server, command, tmp_path, name):
    flags = arguments_for(name, tmp_path)
    assert command("translate", "a", *flags) == 0
    if name != "num_hypotheses":  # a stream has one hypothesis
        assert command("translate", "a", "--stream", "--json", *flags) == 0
    values = [argument for argument in flags if argument != FLAGS[name].name]
    command.environ["TRANSLANE_CLIENT_" + FLAGS[name].dest.upper()] = "\n".join(values) or "true"
    assert command("translate", "a") == 0
    assert all(request.options == expected([name]) for request in server.requests)


@pytest.mark.parametrize("name", [name for name, value in EVERY_OPTION.items() if value is True])
def test_no_is_not_unset(server, command, name):
    command.environ["TRANSLANE_CLIENT_" + FLAGS[name].dest.upper()] = "yes"
    assert command("translate", "a", FLAGS[name].name.replace("--", "--no-", 1)) == 0
    (options,) = [request.options for request in server.requests]
    assert options.HasField(name)
    assert not getattr(options, name)


@pytest.mark.parametrize(
    ("terms", "flags"),
    [
        ({"猫": "cat"}, {}),
        ((["猫", "cat"],), {}),
        (iter([("猫", "cat")]), {}),
        ([Term("猫", "cat", ignore_case=True)], {"ignore_case": True}),
        ([Term("猫", "cat", inflected=True)], {"inflected": True}),
    ],
)
def test_terms_are_a_mapping_or_pairs_or_have_flags(terms, flags):
    (term,) = options_message(checked_options({"terminology": terms})).terminology
    assert term == pb.Term(source="猫", target="cat", **flags)


@pytest.mark.parametrize(
    ("name", "value", "kind", "message"),
    [
        ("beam_size", True, TypeError, "an integer is needed, not True"),
        ("beam_size", 3.0, TypeError, "an integer is needed, not 3.0"),
        ("beam_size", 2**31, ValueError, "an integer from -2147483648 to 2147483647 is needed, not 2147483648"),
        ("seed", -1, ValueError, "an integer from 0 to 18446744073709551615 is needed, not -1"),
        ("seed", 2**64, ValueError, "an integer from 0 to"),
        ("length_penalty", "1", TypeError, "a number is needed, not '1'"),
        ("length_penalty", False, TypeError, "a number is needed, not False"),
        ("top_p", 1e300, ValueError, r"a number of 32 bits is needed, not 1e\+300"),
        ("early_stopping", 1, TypeError, "a bool is needed, not 1"),
        ("target_prefix", b"a", TypeError, "a str is needed, not b'a'"),
        ("target_prefix", "\ud800", ValueError, "surrogates not allowed"),
        ("suppressed_phrases", "ab", TypeError, "a list of str is needed, not a str"),
        ("suppressed_phrases", ["a", 3], TypeError, "a str is needed, not 3"),
        ("terminology", ["ab"], TypeError, "'ab' is no pair"),
        ("terminology", [("a", "b", "c")], TypeError, "is no pair"),
        ("terminology", [("a", 3)], TypeError, "a str is needed, not 3"),
        ("terminology", [Term("a", "b", 1)], TypeError, "a bool is needed, not 1"),  # type: ignore[arg-type]
        ("terminology", 3, TypeError, "not iterable"),
    ],
)
def test_a_value_of_a_wrong_type_or_range_names_the_option(name, value, kind, message):
    with pytest.raises(kind, match=f"^{name}: .*{message}"):
        options_message(checked_options({name: value}))


def test_numbers_of_other_libraries_are_numbers():
    class Three:
        def __index__(self) -> int:
            return 3

        def __float__(self) -> float:
            return 3.0

    message = options_message(checked_options({"beam_size": Three(), "patience": Three(), "temperature": 1}))
    assert message == pb.DecodingOptions(beam_size=3, patience=3.0, temperature=1.0)


def test_a_score_is_sound_at_its_edges():
    assert Score(0.0, ()).mean_log_prob == 0.0
    assert Score(0.0, ()).perplexity == 1.0
    assert Score(-1e9, (-1e9,)).perplexity == math.inf
    assert Score(-math.inf, (-math.inf,)).perplexity == math.inf

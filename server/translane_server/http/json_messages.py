"""Messages as JSON, by protobuf's mapping: https://protobuf.dev/programming-guides/json/."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from translane_server.core.budget import Budget
from translane_server.core.errors import FieldViolation, InvalidRequestError

_Message = TypeVar("_Message", bound=Message)

# Bodies below this many values are always read [values]. Each text of a request adds some.
_LEAST_VALUES, _VALUES_OF_A_TEXT = 4096, 8

# Deepest nesting of a message, as protobuf has it.
_DEEPEST = 100

# What protobuf raises for JSON that fits no message. Half of a surrogate pair is a ValueError in a text, and a
# SystemError in the name of an enum's value.
_REFUSALS = (ValueError, TypeError, SystemError, json_format.Error)

# What a string of JSON consists of. It is matched in slices, because a match keeps all other threads waiting.
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_SLICE = 64 * 1024  # bytes

_HALF_PAIR = "is no Unicode text: it has half of a surrogate pair"

_EXPECTED = {
    FieldDescriptor.CPPTYPE_STRING: "a string",
    FieldDescriptor.CPPTYPE_BOOL: "true or false",
    FieldDescriptor.CPPTYPE_DOUBLE: "a number",
    FieldDescriptor.CPPTYPE_FLOAT: "a number",
    FieldDescriptor.CPPTYPE_INT32: "an integer of 32 bits",
    FieldDescriptor.CPPTYPE_INT64: "an integer of 64 bits",
    FieldDescriptor.CPPTYPE_UINT32: "an integer of 32 bits, not below 0",
    FieldDescriptor.CPPTYPE_UINT64: "an integer of 64 bits, not below 0",
    FieldDescriptor.CPPTYPE_MESSAGE: "an object",
}


def most_values(texts: int) -> int:
    """Most JSON values of a body, where a request may have this many texts.

    Reading a value takes microseconds, and a body may have a value in every two bytes.
    """
    return _LEAST_VALUES + _VALUES_OF_A_TEXT * texts


def read_json(body: bytes, message: type[_Message], most: int, budget: Budget) -> _Message:
    """Return the message of a body.

    Args:
        body: the message as JSON, in UTF-8.
        message: type of the message.
        most: most JSON values in `body`.
        budget: checked between pieces of the work.

    Raises:
        InvalidRequestError: `body` is not JSON, or not of this type, or has too many values. A field that the type does
            not have is an error, so a typing mistake never goes unnoticed.
    """
    if _has_more_values(body, most, budget):
        raise _wrong("body", f"has more than {most} JSON values")
    tree = _tree(body)
    budget.check()
    if not isinstance(tree, dict):
        raise _wrong("body", "must be an object")
    made = message()
    try:
        json_format.ParseDict(tree, made, max_recursion_depth=_DEEPEST)
        made.SerializeToString()  # refuses half of a surrogate pair
    except _REFUSALS as error:
        violation = next(_problems(tree, cast("Descriptor", message.DESCRIPTOR), ""), None)
        raise InvalidRequestError(violation or FieldViolation("body", str(error).partition("\n")[0])) from None
    return made


def write_json(message: Message) -> bytes:
    """Return the JSON of a message: names in lowerCamelCase, no spaces, and no field that has its default."""
    return json.dumps(json_format.MessageToDict(message), ensure_ascii=False, separators=(",", ":")).encode()


def _has_more_values(body: bytes, most: int, budget: Budget) -> bool:
    """Whether there are more than `most` strings, lists, objects and commas between them.

    Parsing a value takes microseconds and memory many times its bytes, so values are counted before. Counting ends at
    the limit. What it looks at without a pause is bounded.
    """
    count, place, size = 0, 0, len(body)
    while place < size and count <= most:
        quote = body.find(b'"', place)
        end = size if quote < 0 else quote
        count += sum([body.count(each, place, end) for each in (b",", b"[", b"{")]) + (quote >= 0)
        place = end + 1
        while place < size:  # a string
            budget.check()
            matched = _IN_STRING.match(body, place, place + _SLICE)
            assert matched is not None, "it matches nothing, too"
            if matched.end() > place:
                place = matched.end()
            elif body[place : place + 1] == b"\\":  # at the end of a slice, or of the body
                place += 2
            else:
                place += 1  # the quotation mark
                break
    return count > most


def _tree(body: bytes) -> Any:
    if not body.strip():
        raise _wrong("body", "is empty; send at least {}")
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise _wrong("body", f"is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise _wrong("body", "is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise _wrong("body", f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError:  # an integer of thousands of digits
        raise _wrong("body", "has a number with too many digits") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if not _is_unicode("".join(made)):
        raise _wrong("body", f"has a name that {_HALF_PAIR}")
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for number, name in enumerate(names) if name in names[:number]) if len(names) < 64 else "…"
        raise _wrong(twice[:64], "is in one object twice")
    return made


def _problems(value: Any, message: Descriptor, path: str) -> Iterator[FieldViolation]:
    """What is wrong with a JSON value for a message at `path`."""
    if not isinstance(value, dict):
        yield FieldViolation(path or "body", "must be an object")
        return
    fields = {name: field for field in message.fields for name in (field.json_name, field.name)}
    for name, each in value.items():
        where = f"{path}.{name}" if path else name
        if (field := fields.get(name)) is None:
            yield FieldViolation(where[:64], f"is no field of {message.name}{_hint(name, fields)}")
        elif each is None:
            continue  # the field's default
        elif not field.is_repeated:
            yield from _problems_of_one(each, field, where)
        elif not isinstance(each, list):
            yield FieldViolation(where, "must be a list")
        else:
            for number, item in enumerate(each):
                yield from _problems_of_one(item, field, f"{where}[{number}]")


def _problems_of_one(value: Any, field: FieldDescriptor, where: str) -> Iterator[FieldViolation]:
    if field.message_type is not None and isinstance(value, dict):
        yield from _problems(value, field.message_type, where)
        return
    assert field.containing_type is not None
    holder = GetMessageClass(field.containing_type)()
    try:
        json_format.ParseDict({field.json_name: [value] if field.is_repeated else value}, holder)
        holder.SerializeToString()
    except _REFUSALS:
        if isinstance(value, str) and field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            yield FieldViolation(where, _HALF_PAIR)
        elif field.enum_type is not None:
            yield FieldViolation(where, f"must be one of {', '.join(value.name for value in field.enum_type.values)}")
        else:
            yield FieldViolation(where, f"must be {_EXPECTED.get(field.cpp_type, 'of another type')}")


def _hint(name: str, known: Mapping[str, FieldDescriptor]) -> str:
    near = get_close_matches(name[:64], list(known), n=1)
    return f"; did you mean {known[near[0]].json_name}?" if near else ""


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _wrong(field: str, description: str) -> InvalidRequestError:
    return InvalidRequestError(FieldViolation(field, description))

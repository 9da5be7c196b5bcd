"""Messages as JSON, by protobuf's mapping: https://protobuf.dev/programming-guides/json/."""

from __future__ import annotations

import json
from collections import Counter
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from translane_server.core.budget import Budget
from translane_server.core.errors import FieldViolation, InvalidRequestError

_Message = TypeVar("_Message", bound=Message)

# Most values of a body, and how many more for each text that a request may have. Reading a value takes microseconds and
# memory many times its bytes, and a body may have a value in every two bytes.
_VALUES, _VALUES_OF_A_TEXT = 4096, 8

# Deepest nesting of a message, as protobuf has it.
_DEEPEST = 100

# What protobuf raises for JSON that fits no message. Half of a surrogate pair is a ValueError in a text, and a
# SystemError in the name of an enum's value.
_REFUSALS = (ValueError, TypeError, SystemError, json_format.Error)

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


def read_json(body: bytes, message: type[_Message], texts: int, budget: Budget) -> _Message:
    """Return the message of a body of JSON, in UTF-8. The budget is checked between pieces of the work.

    Raises:
        InvalidRequestError: `body` is not JSON, or not of this type, or has too many values for a request of so many
            texts. A field that the type does not have is an error, so a typing mistake never goes unnoticed.
        OverBudgetError, WorkEndedError: as `Budget.check`.
    """
    most = _VALUES + _VALUES_OF_A_TEXT * texts
    if _values(body, most) > most:
        raise _wrong("body", f"has more than {most} JSON values")
    tree = _tree(body)
    budget.check()
    return message_of(tree, message)


def message_of(tree: dict[str, Any], message: type[_Message]) -> _Message:
    """Return the message that an object of JSON stands for. InvalidRequestError: the object is none of this type."""
    made = message()
    try:
        json_format.ParseDict(tree, made, max_recursion_depth=_DEEPEST)
        made.SerializeToString()  # refuses half of a surrogate pair
    except _REFUSALS as error:
        violation = _problem(tree, cast("Descriptor", message.DESCRIPTOR), "")
        raise InvalidRequestError(violation or FieldViolation("body", str(error).partition("\n")[0])) from None
    return made


def write_json(message: Message) -> bytes:
    """Return the JSON of a message: names in lowerCamelCase, no spaces, and no field that has its default."""
    return json.dumps(json_format.MessageToDict(message), ensure_ascii=False, separators=(",", ":")).encode()


def _values(body: bytes, most: int) -> int:
    """How many strings, lists, objects and commas between them there are; if more than `most`, any number above it.

    What follows a backslash outside of a string does not matter: parsing ends there.
    """
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    parts = unescaped.split(b'"', 2 * most + 1)  # every second one is a string
    between = b"".join(parts[::2])
    return len(parts) // 2 + sum(map(between.count, (b",", b"[", b"{")))


def _tree(body: bytes) -> dict[str, Any]:
    if not body.strip():
        raise _wrong("body", "is empty; send at least {}")
    try:
        tree = json.loads(body.decode("utf-8"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise _wrong("body", f"is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise _wrong("body", "is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise _wrong("body", f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError:  # an integer of thousands of digits
        raise _wrong("body", "has a number with too many digits") from None
    if not isinstance(tree, dict):
        raise _wrong("body", "must be an object")
    return tree


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    try:
        "".join(made).encode()
    except UnicodeEncodeError:
        raise _wrong("body", f"has a name that {_HALF_PAIR}") from None
    if len(made) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise _wrong(twice[:64], "is in one object twice")
    for name in made:
        if "_" in name and (same := _in_camel_case(name)) in made:
            raise _wrong(name[:64], f"is in one object twice: {same[:64]} is the same field")
    return made


def _in_camel_case(name: str) -> str:
    """The other name of a field: source_language is sourceLanguage."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _problem(tree: dict[str, Any], message: Descriptor, path: str) -> FieldViolation | None:
    """The first thing that is wrong with an object for a message at `path`."""
    fields = {name: field for field in message.fields for name in (field.json_name, field.name)}
    for name, value in tree.items():
        where = f"{path}.{name}" if path else name
        field = fields.get(name)
        if field is None:
            near = get_close_matches(name[:64], list(fields), n=1)
            hint = f"; did you mean {fields[near[0]].json_name}?" if near else ""
            return FieldViolation(where[:64], f"is no field of {message.name}{hint}")
        if value is None:
            continue  # the field's default
        if not field.is_repeated:
            items = {where: value}
        elif isinstance(value, list):
            items = {f"{where}[{number}]": item for number, item in enumerate(value)}
        else:
            return FieldViolation(where, "must be a list")
        for place, item in items.items():
            if field.message_type is not None and isinstance(item, dict):
                found = _problem(item, field.message_type, place)
            else:
                found = _problem_of_value(item, field, place)
            if found:
                return found
    return None


def _problem_of_value(value: Any, field: FieldDescriptor, where: str) -> FieldViolation | None:
    assert field.containing_type is not None
    holder = GetMessageClass(field.containing_type)()
    try:
        json_format.ParseDict({field.json_name: [value] if field.is_repeated else value}, holder)
        holder.SerializeToString()
    except _REFUSALS:
        if isinstance(value, str) and field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            problem = _HALF_PAIR
        elif field.enum_type is not None:
            problem = f"must be one of {', '.join(value.name for value in field.enum_type.values)}"
        else:
            problem = f"must be {_EXPECTED.get(field.cpp_type, 'of another type')}"
        return FieldViolation(where, problem)
    return None


def _wrong(field: str, description: str) -> InvalidRequestError:
    return InvalidRequestError(FieldViolation(field, description))

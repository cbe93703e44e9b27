"""A value that fulfils a JSON schema, for answers and arguments of which only the form matters."""

from collections.abc import Mapping

from rl_bench.drivers.loose import mapping, rows, string

_FIRST = ("anyOf", "oneOf", "allOf")


def value_for(schema: Mapping[str, object], *, text: str) -> object:
    """A small value of ``schema``.

    Args:
        schema: A JSON schema, or Gemini's form of one with type names in capitals.
        text: What a free string holds.
    """
    choices = schema.get("enum")
    if "const" in schema:
        return schema["const"]
    if isinstance(choices, list) and choices:
        return choices[0]
    for word in _FIRST:
        if alternatives := rows(schema.get(word)):
            return value_for(alternatives[0], text=text)
    match type_of(schema):
        case "object":
            return _object(schema, text=text)
        case "array":
            least = schema.get("minItems")
            num = least if isinstance(least, int) else 0
            return [value_for(mapping(schema.get("items")), text=text) for _ in range(num)]
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return text


def type_of(schema: Mapping[str, object]) -> str:
    """The type's name in small letters; the first of several, empty if none is given."""
    named = schema.get("type")
    first = named[0] if isinstance(named, list) and named else named
    return string(first).lower() or ("object" if "properties" in schema else "")


def _object(schema: Mapping[str, object], *, text: str) -> dict[str, object]:
    properties = mapping(schema.get("properties"))
    required = schema.get("required")
    names = required if isinstance(required, list) else list(properties)
    return {str(name): value_for(mapping(properties.get(name)), text=text) for name in names}

"""Properties of users: validation with helpful errors, secrets, and the reference.

The option models declare everything once; this module turns them into messages and tables.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from velostream.errors import ConfigError, PropertyError, UnknownNameError, did_you_mean
from velostream.model.durations import format_duration
from velostream.model.options import Options
from velostream.model.reach import Reach
from velostream.secrets import HIDDEN_VALUE, REFERENCE, learn_value, secret

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

_OptionsT = TypeVar("_OptionsT", bound=Options)


class PropertyInfo(NamedTuple):
    """One line of the property reference."""

    connector: str
    name: str
    type: str
    default: str
    description: str


def build_options(model: type[_OptionsT], properties: Mapping[str, str], owner: str) -> _OptionsT:
    """The typed options of `properties`, secrets resolved.

    `owner` names the connector in messages. Raises UnknownNameError for a name that does not exist and
    PropertyError for a value that does not fit; neither repeats the value of a secret.
    """
    valid = model.property_names()
    for name in properties:
        if name not in valid:
            raise UnknownNameError(f'unknown property "{name}" of {owner}', hint=did_you_mean(name, valid))
    resolved = {name: resolve_secrets(value) for name, value in properties.items()}
    try:
        return model.model_validate(resolved)
    except ValidationError as exc:
        # `from None`: pydantic's error holds the input, which may be a secret.
        message = _explain(exc, properties)
        raise PropertyError(message) from None


def known_options(model: type[_OptionsT], properties: Mapping[str, str]) -> _OptionsT:
    """The typed options without looking up secrets; not to be used for opening anything."""
    left = dict(properties)
    while True:
        try:
            return model.model_validate(left)
        except ValidationError as exc:
            failing = {str(error["loc"][0]) for error in exc.errors(include_context=False) if error["loc"]}
            references = {name for name in failing if REFERENCE.search(left.get(name, ""))}
            if not references:
                message = _explain(exc, properties)
                raise PropertyError(message) from None
        left = {name: value for name, value in left.items() if name not in references}


def check_reach(model: type[Options], said: Mapping[str, str], reach: Reach) -> None:
    """Raise UnsafeError where a statement would reach a file or an address that is not allowed."""
    if reach == Reach():
        return
    kinds = model.reaching()
    for name, value in said.items():
        for kind, place in REFERENCE.findall(value):
            if kind == "file":
                reach.check_file(place)
        if kinds.get(name) == "file":
            reach.check_file(resolve_secrets(value))
        elif kinds.get(name) == "address":
            reach.check_addresses(resolve_secrets(value))


def _explain(exc: ValidationError, properties: Mapping[str, str]) -> str:
    parts = []
    for error in exc.errors(include_url=False, include_context=False):
        name = ".".join(str(part) for part in error["loc"])
        reason = error["msg"].removeprefix("Value error, ")
        reason = reason[:1].lower() + reason[1:]
        if not name:
            parts.append(reason)
            continue
        value = properties.get(name, "")
        shown = HIDDEN_VALUE if secret(name) else value
        parts.append(f'property "{name}" cannot be "{shown}": {reason}')
    return "; ".join(parts)


def resolve_secrets(value: str) -> str:
    """`value` with each `${env:NAME}` and `${file:path}` replaced by its content.

    Raises ConfigError naming the reference, never a value. A file's last newline is not part of it.
    """

    def replace(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        if kind == "env":
            if name not in os.environ:
                raise ConfigError(
                    f'environment variable "{name}" is not set', hint=f"{match[0]} refers to it"
                )
            learn_value(os.environ[name])
            return os.environ[name]
        try:
            content = Path(name).expanduser().read_text().rstrip("\r\n")
        except OSError as exc:
            reason = exc.strerror or "unreadable"
            raise ConfigError(f'secret file "{name}" cannot be read: {reason.lower()}') from exc
        learn_value(content)
        return content

    return REFERENCE.sub(replace, value)


def describe_options(model: type[Options], owner: str) -> list[PropertyInfo]:
    """One line per property of a model, in the order of declaration."""
    return [
        PropertyInfo(
            owner,
            field.alias or name,
            _type_text(field.annotation),
            _default_text(field.get_default(call_default_factory=False), field.json_schema_extra),
            field.description or "",
        )
        for name, field in model.model_fields.items()
    ]


def _type_text(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(str(value) for value in get_args(annotation))
    inner = [part for part in get_args(annotation) if part is not type(None)]
    if get_origin(annotation) is not None and inner:
        return _type_text(inner[0])
    names = {timedelta: "duration", bool: "true | false", int: "integer", float: "number", str: "text"}
    return names.get(annotation, "text")


def _default_text(default: Any, extra: Any) -> str:
    if isinstance(extra, dict) and "default_text" in extra:
        return str(extra["default_text"])
    if default is None or default is PydanticUndefined:
        return ""
    if isinstance(default, timedelta):
        return format_duration(default)
    return str(default).lower() if isinstance(default, bool) else str(default)

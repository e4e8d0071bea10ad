"""WITH: which properties exist, whether their values fit, and what each belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import AliasChoices, ValidationError

from velostream.errors import PropertyError, SqlError, UnknownNameError, nearest
from velostream.model.options import CommonOptions, Options
from velostream.secrets import HIDDEN_VALUE, secret
from velostream.sql.parse.syntax import RawProperty

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from velostream.location import Location
    from velostream.sql.known_relations import ConnectorInfo
    from velostream.sql.parse.syntax import RawWith

_LATER = ("${env:", "${file:")


def names_of(options: type[Options]) -> frozenset[str]:
    """Every name that a user may write for these options."""
    names = set(options.property_names())
    for option in options.model_fields.values():
        if isinstance(option.validation_alias, AliasChoices):
            names.update(choice for choice in option.validation_alias.choices if isinstance(choice, str))
        elif isinstance(option.validation_alias, str):
            names.add(option.validation_alias)
    return frozenset(names)


COMMON = names_of(CommonOptions)


def takes(connector: ConnectorInfo | None, name: str) -> bool:
    """Whether the connector itself, beyond sources in general, has the property."""
    if connector is None:
        return False
    return name in names_of(connector.options) or connector.options.model_config.get("extra") == "allow"


@dataclass
class Checked:
    """Collects the errors of properties, each with its location."""

    report: Callable[[SqlError], None]
    places: dict[str, RawProperty] = field(default_factory=dict)

    def location(self, name: str, fallback: Location | None, *, value: bool) -> Location | None:
        """The location of a property (or its value)."""
        place = self.places.get(name)
        if place is None:
            return fallback
        return place.value_location if value else place.location


def as_mapping(with_: RawWith | None, checked: Checked) -> dict[str, str]:
    """The properties as written; duplicates are reported."""
    found: dict[str, str] = {}
    for item in with_.properties if with_ is not None else ():
        if item.key in found:
            checked.report(PropertyError(f'property "{item.key}" stands twice', location=item.location))
        found[item.key] = item.value
        checked.places[item.key] = item
    return found


def unknown(
    name: str, valid: Iterable[str], place: RawProperty | Location | None, about: str = ""
) -> UnknownNameError:
    """The error for a property that nothing has.

    A name that resembles no property may hold a secret under a name of its own, so the value is not shown.
    """
    location = place.location if isinstance(place, RawProperty) else place
    meant = nearest(name, valid)
    if meant is None or secret(meant):
        _hide(name, place)
    suffix = f" of {about}" if about else ""
    return UnknownNameError(
        f'unknown property "{name}"{suffix}',
        hint=f'did you mean "{meant}"?' if meant else "SHOW PROPERTIES lists them all",
        location=location,
    )


def _hide(name: str, place: RawProperty | Location | None) -> None:
    if isinstance(place, RawProperty):
        place.value_location.hide()
    elif place is not None and f"{name}=" in place.text:
        value = place.start + place.text.index(f"{name}=") + len(name) + 1
        place.source.hide(value, place.end)


def validate(
    options: type[Options],
    values: Mapping[str, str],
    checked: Checked,
    *,
    fallback: Location | None,
    about: str,
    only: frozenset[str] | None = None,
    together: bool = True,
) -> None:
    """Report every value that does not fit; with `only`, just those of the named properties.

    `together`: also report properties that do not fit together, or of which one is missing.
    """
    try:
        options.model_validate(dict(values))
    except ValidationError as exc:
        for error in exc.errors(include_url=False):
            name = str(error["loc"][0]) if error["loc"] else ""
            if (only is not None and name and name not in only) or not (name or together):
                continue
            if name and any(mark in values.get(name, "") for mark in _LATER):
                continue
            checked.report(_friendly(name, values, error, checked, fallback, about))


def _friendly(
    name: str,
    values: Mapping[str, str],
    error: Mapping[str, Any],
    checked: Checked,
    fallback: Location | None,
    about: str,
) -> SqlError:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return PropertyError(
            f'{about} needs property "{name}"', hint=f'write WITH ("{name}" = "…")', location=fallback
        )
    if kind == "extra_forbidden":
        return unknown(name, values, checked.places.get(name) or fallback, about)
    text = _detail(kind, context, str(error["msg"]))
    if not name:
        return PropertyError(f"properties of {about} do not fit: {text}", location=fallback)
    shown = HIDDEN_VALUE if secret(name) else values.get(name, "")
    return PropertyError(
        f'property "{name}" cannot be "{shown}"',
        hint=text,
        location=checked.location(name, fallback, value=True),
    )


def _detail(kind: str, context: Mapping[str, Any], message: str) -> str:
    if kind == "literal_error":
        return "valid values are " + str(context.get("expected", "")).replace("'", '"').replace(" or ", ", ")
    if kind == "enum":
        return f"valid values are {context.get('expected')}"
    if kind.startswith("bool"):
        return "valid values are true and false"
    if kind.startswith("int"):
        return "it is a whole number"
    if kind.startswith(("float", "decimal")):
        return "it is a number"
    text = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    text = (
        text.removeprefix("Input should be ")
        if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal")
        else text
    )
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        return f"it must be {text}"
    return text[:1].lower() + text[1:]


def own_names(options: type[Options]) -> frozenset[str]:
    """Names that the connector declares itself, even where sources in general have the same name."""
    declared = {
        name
        for cls in options.__mro__
        if issubclass(cls, Options) and cls not in (Options, CommonOptions)
        for name in cls.__annotations__
    }
    own = {name: field for name, field in options.model_fields.items() if name in declared}
    names = {option.alias or name for name, option in own.items()}
    return frozenset(names | (names_of(options) - COMMON))

"""Frozen dataclasses to JSON and back, exactly: what a checkpoint's config.json is read with.

Every dataclass is written with its class name under "type"; nothing is ever executed or unpickled.
"""

import dataclasses
import types
import typing
from typing import Any, Literal, Union, get_args, get_origin

JsonValue = Any


def to_json(value: Any) -> JsonValue:
    """Dataclasses, tuples, dicts and scalars as JSON values; every dataclass carries its class name as "type"."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"a config cannot hold {value!r} of type {type(value).__name__}")


def from_json(cls: Any, value: JsonValue, where: str = "config") -> Any:
    """Rebuild a value of type `cls`; ValueError names the field, what was found and what was expected."""
    origin, args = get_origin(cls), get_args(cls)
    if origin in (Union, types.UnionType):
        return _from_union(args, value, where)
    if dataclasses.is_dataclass(cls):
        return _from_fields(cls, value, where)
    if origin is Literal:
        if value not in args:
            raise ValueError(f"{where}: {value!r} is not one of {', '.join(map(repr, args))}")
        return value
    if origin is tuple:
        return _from_sequence(args, value, where)
    if origin is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{where}: expected an object, found {value!r}")
        return {key: from_json(args[1], item, f"{where}.{key}") for key, item in value.items()}
    return _from_scalar(cls, value, where)


def check_choices(config: Any) -> None:
    """ValueError, naming value and choices, where a field typed as a Literal holds something else."""
    for name, hint in typing.get_type_hints(type(config)).items():
        if get_origin(hint) is Literal and getattr(config, name) not in get_args(hint):
            choices = ", ".join(map(str, get_args(hint)))
            raise ValueError(f"{type(config).__name__}: unknown {name} {getattr(config, name)!r}; choices: {choices}")


def _from_union(args: tuple[Any, ...], value: JsonValue, where: str) -> Any:
    if value is None and type(None) in args:
        return None
    choices = [arg for arg in args if arg is not type(None)]
    named = {c.__name__: c for c in choices if isinstance(c, type) and dataclasses.is_dataclass(c)}
    if isinstance(value, dict) and named:
        if value.get("type") in named:
            return from_json(named[value["type"]], value, where)
        raise ValueError(f"{where}: type {value.get('type')!r} is not one of {', '.join(named)}")
    for choice in choices:
        try:
            return from_json(choice, value, where)
        except ValueError:
            continue
    raise ValueError(f"{where}: {value!r} fits none of {', '.join(map(str, choices))}")


def _from_fields(cls: Any, value: JsonValue, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a {cls.__name__} object, found {value!r}")
    if value.get("type", cls.__name__) != cls.__name__:
        raise ValueError(f"{where}: expected a {cls.__name__}, found a {value['type']!r:.80}")
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    if unknown := set(value) - set(fields) - {"type"}:
        raise ValueError(f"{where}: {cls.__name__} has no field {sorted(unknown)[0]!r}; fields: {', '.join(fields)}")
    required = [
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing := [name for name in required if name not in value]:
        raise ValueError(f"{where}: {cls.__name__} needs field {missing[0]!r}")
    return cls(**{name: from_json(hints[name], value[name], f"{where}.{name}") for name in fields if name in value})


def _from_sequence(args: tuple[Any, ...], value: JsonValue, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where}: expected a list, found {value!r}")
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(from_json(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if len(args) != len(value):
        raise ValueError(f"{where}: expected {len(args)} items, found {len(value)}")
    return tuple(from_json(arg, item, f"{where}[{i}]") for i, (arg, item) in enumerate(zip(args, value, strict=True)))


def _from_scalar(cls: Any, value: JsonValue, where: str) -> Any:
    if cls is Any:
        return value
    if cls is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, cls) and not (isinstance(value, bool) and cls is not bool):
        return value
    raise ValueError(f"{where}: expected {cls.__name__}, found {value!r}")


def check_seed(seed: int) -> None:
    """ValueError where a seed is none that every random generator takes."""
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed is {seed}; it must be at least 0 and below 2**63")

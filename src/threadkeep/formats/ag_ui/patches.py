"""JSON Patch, by which events change states and activities.

Source: RFC 6902, RFC 6901; AG-UI 1.0, `JsonPatch`.
"""

from __future__ import annotations

from typing import Any

from threadkeep.domain.jsontext import dumps, loads


def patched(value: Any, patch: Any) -> Any:
    """The value that a patch makes of another one, which is not changed.

    Raises:
        ValueError: an operation is none, or does not fit.
    """
    value = loads(dumps(value))
    for operation in patch if isinstance(patch, list) else ():
        try:
            value = _applied(value, operation)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"the operation {operation!r} does not fit") from error
    return value


def _applied(value: Any, operation: Any) -> Any:
    kind, path = operation["op"], _steps(operation["path"])
    match kind:
        case "add":
            return _put(value, path, operation["value"])
        case "replace":
            _at(value, path)
            return _put(value, path, operation["value"], is_new=False)
        case "remove":
            return _removed(value, path)
        case "move":
            source = _steps(operation["from"])
            moved = _at(value, source)
            return _put(_removed(value, source), path, moved)
        case "copy":
            return _put(value, path, loads(dumps(_at(value, _steps(operation["from"])))))
        case "test":
            if dumps(_at(value, path)) != dumps(operation["value"]):
                raise ValueError(f"{operation['path']!r} is not what it should be")
            return value
    raise ValueError(f"{kind!r} is no operation")


def _steps(pointer: str) -> list[str]:
    head, *steps = pointer.split("/")
    if head:
        raise ValueError(f"{pointer!r} is no JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def _key(holder: Any, step: str, *, is_new: bool = False) -> Any:
    """The key or index that a step names."""
    if isinstance(holder, dict):
        return step
    if is_new and step == "-":
        return len(holder)
    if not step.isdecimal() or (len(step) > 1 and step[0] == "0") or int(step) >= len(holder) + is_new:
        raise IndexError(step)
    return int(step)


def _at(value: Any, path: list[str]) -> Any:
    for step in path:
        value = value[_key(value, step)]
    return value


def _put(value: Any, path: list[str], new: Any, *, is_new: bool = True) -> Any:
    if not path:
        return new
    holder = _at(value, path[:-1])
    key = _key(holder, path[-1], is_new=is_new)
    if isinstance(holder, list) and is_new:
        holder.insert(key, new)
    else:
        holder[key] = new
    return value


def _removed(value: Any, path: list[str]) -> Any:
    if not path:
        return None
    holder = _at(value, path[:-1])
    del holder[_key(holder, path[-1])]
    return value

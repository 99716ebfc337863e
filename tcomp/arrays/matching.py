"""Whether the arrays of a call, torch's or CuPy's, are laid out as those of an earlier one, as fast as Python can tell.

The test is a function written for the arguments: what it compares with are constants of it, and it makes no objects
that it does not need.  Types, shapes, strides and dispatch keys it leaves to what torch's own compiler guards its
graphs with, where torch has that.  It says no where anything is unusual, and the long way finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Matcher = Callable[[tuple[Any, ...]], tuple[int, ...] | None]
"""The addresses of the arrays among the arguments of a call, or None if something is not as it was."""


@dataclass(frozen=True, slots=True)
class TensorSigns:
    """By what code that is not Python tells that tensors, none of them nested, are like those of an earlier call.

    ``guard(*tensors)`` must be True, ``address(tensor)`` gives an address, each of the ``answers`` is a function
    without parameters and the very object that it must give, and ``level`` a dict and a name whose value must be the
    same again.
    """

    guard: Callable[..., bool]
    address: Callable[[Any], int]
    answers: tuple[tuple[Callable[[], object], object], ...]
    level: tuple[dict[str, Any], str]


def tensor_signs(torch: Any, tensors: Sequence[Any], *, recorded: bool | None) -> TensorSigns | None:
    """The signs of tensors in main memory; None if some are not, or torch has no guards.

    ``recorded`` as for ``tensor_matcher``.
    """
    if not tensors or any(type(a) not in (torch.Tensor, torch.nn.Parameter) or not a.is_cpu for a in tensors):
        return None
    guard, forward_mode = _guard(torch, tuple(tensors)), torch.autograd.forward_ad
    if guard is None or forward_mode._current_level != -1:
        return None
    answers: list[tuple[Callable[[], object], object]] = []
    if recorded or (recorded is False and any(a.requires_grad for a in tensors)):
        answers.append((torch.is_grad_enabled, recorded))
    answers += [(torch._C._len_torch_dispatch_stack, 0), (torch._C._get_tracing_state, None)]
    return TensorSigns(guard, torch.Tensor.data_ptr, tuple(answers), (vars(forward_mode), "_current_level"))


def tensor_matcher(
    torch: Any, arguments: Sequence[Any], masks: Sequence[int], *, recorded: bool | None
) -> Matcher | None:
    """A test for tensors, in main memory or on CUDA devices, and integers like these; None if some are neither.

    ``masks`` are the bits of an address that must be 0, one per tensor.  Of ``recorded`` calls autograd must keep a
    record, of the same tensors; of others none; where it is None somebody else has seen to that.
    """
    names = [f"a{n}" for n in range(len(arguments))]
    tensors = {n: a for n, a in zip(names, arguments, strict=True) if isinstance(a, torch.Tensor)}
    known: dict[str, Any] = {
        "transformed": torch._C._are_functorch_transforms_active,
        "forward_mode": torch.autograd.forward_ad,
        "modes": torch._C._len_torch_dispatch_stack,
        "enabled": torch.is_grad_enabled,
        "tracing": torch._C._get_tracing_state,
    }
    if not tensors or any(type(a) not in (torch.Tensor, torch.nn.Parameter) for a in tensors.values()):
        return None
    if not all(a.is_cpu or a.is_cuda for a in tensors.values()):
        return None
    tests: list[str] = []
    for name, value in zip(names, arguments, strict=True):
        if type(value) is int:
            known[f"{name}_value"] = value
            tests.append(f"{name} is not {name}_value")
        elif name not in tensors:
            return None
    guard = _guard(torch, tuple(tensors.values()))
    if guard is not None:
        known["guard"] = guard
        # Nested tensors have no shape, which ends the process there.
        tests += [*(f"{n}.is_nested" for n in tensors), f"not guard({', '.join(tensors)})"]
    else:
        for name, value in tensors.items():
            tests += _comparisons(name, value, known)
        tests.append("transformed()")
    if recorded is not None:
        wanting = any(a.requires_grad for a in tensors.values())
        tests += ["not enabled()"] if recorded else ["enabled()"] if wanting else []
    tests += ["forward_mode._current_level >= 0", "modes()", "tracing() is not None"]
    places = {f"p{n}": f"{n}.data_ptr()" for n in tensors}
    # Memory that torch was given back has no address.
    misplaced = [*_misplaced(places, masks), *(f"not p{n}" for n, t in tensors.items() if t.numel())]
    # Sparse tensors, and those that stand for others, have no strides or no address; and other arguments nothing.
    return _written(names, tests, places, "RuntimeError, ValueError, TypeError, AttributeError", misplaced, known)


def device_matcher(ndarray: type, arguments: Sequence[Any], masks: Sequence[int]) -> Matcher | None:
    """A test for CuPy arrays and integers like these; None if some are neither.

    Each property of such an array is an object made anew, so no more are asked for than must be: of an array in C order
    none of its strides.
    """
    names = [f"a{n}" for n in range(len(arguments))]
    arrays = {n: a for n, a in zip(names, arguments, strict=True) if type(a) is ndarray}
    if not arrays or any(type(a) is not int for n, a in zip(names, arguments, strict=True) if n not in arrays):
        return None
    known: dict[str, Any] = {"ndarray": ndarray}
    tests: list[str] = []
    for name, value in zip(names, arguments, strict=True):
        if name not in arrays:
            known[f"{name}_value"] = value
            tests.append(f"{name} is not {name}_value")
            continue
        known |= {f"{name}_dtype": value.dtype, f"{name}_shape": value.shape, f"{name}_strides": value.strides}
        in_order = getattr(value, "_c_contiguous", None) is True
        tests += [
            f"type({name}) is not ndarray",
            f"{name}.dtype is not {name}_dtype",
            f"{name}.shape != {name}_shape",
            f"not {name}._c_contiguous" if in_order else f"{name}.strides != {name}_strides",
            f"(m{name} := {name}.data).device_id != {value.data.device_id}",
        ]
    places = {f"p{n}": f"m{n}.ptr" for n in arrays}
    return _written(names, tests, places, "ValueError", _misplaced(places, masks), known)


def _written(
    names: Sequence[str], tests: Sequence[str], places: Mapping[str, str], errors: str, misplaced: Sequence[str],
    known: dict[str, Any],
) -> Matcher:  # fmt: skip
    """The function.

    It gives the ``places``, addresses by what they are called, unless a test holds of the arguments, or of addresses
    that are ``misplaced``, or one of some errors comes.  ``known`` is what the tests compare with.
    """
    lines = [
        "def match(arguments):",
        "    try:",
        f"        {', '.join(names)}, = arguments",
        f"        if {' or '.join(tests)}:",
        "            return None",
        *[f"        {pointer} = {place}" for pointer, place in places.items()],
        f"    except ({errors},):",
        "        return None",
        *([f"    if {' or '.join(misplaced)}:", "        return None"] if misplaced else []),
        f"    return {', '.join(places)},",
    ]
    exec("\n".join(lines), known)
    match: Matcher = known["match"]
    return match


def _misplaced(pointers: Iterable[str], masks: Sequence[int]) -> list[str]:
    """Tests for addresses that are no multiple of what they must be."""
    by_mask: dict[int, list[str]] = {}
    for pointer, mask in zip(pointers, masks, strict=True):
        by_mask.setdefault(mask, []).append(pointer)
    return [f"({' | '.join(some)}) & {mask}" for mask, some in by_mask.items() if mask]


def _comparisons(name: str, value: Any, known: dict[str, Any]) -> list[str]:
    """What tells that a tensor is not like ``value``; what it compares with goes into ``known``."""
    known |= {f"{name}_type": type(value), f"{name}_dtype": value.dtype}
    known |= {f"{name}_shape": value.shape, f"{name}_strides": value.stride(), f"{name}_device": value.device}
    return [
        f"type({name}) is not {name}_type",
        f"{name}.dtype is not {name}_dtype",
        f"{name}.shape != {name}_shape",
        f"{name}.stride() != {name}_strides",
        f"not {name}.is_cpu" if value.is_cpu else f"{name}.device != {name}_device",
        f"{name}.is_neg()",
        f"{'not ' if value.requires_grad else ''}{name}.requires_grad",
    ]


def _guard(torch: Any, tensors: tuple[Any, ...]) -> Callable[..., bool] | None:
    """The same comparisons in one call of torch, in a tenth of the time; None where torch has no such thing.

    It compares dispatch keys, too, as they are for this thread: of a tensor that is transformed, negated or sparse, and
    inside a mode, autocasting or inference, they are others.
    """
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    make = getattr(guards, "TensorGuards", None)
    if make is None:
        return None
    try:
        check: Callable[..., bool] = make(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        return check if check(*tensors) is True else None
    except (RuntimeError, TypeError, ValueError):
        return None

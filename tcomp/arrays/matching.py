"""Whether the torch tensors of a call are laid out as those of an earlier one, as fast as Python can tell.

The test is a function written for the arguments: what it compares with are constants of it, and it makes no objects
that it does not need.  It says no where anything is unusual, and the long way finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Matcher = Callable[[tuple[Any, ...]], list[int] | None]
"""The addresses of the arrays among the arguments of a call, or None if something is not as it was."""


def tensor_matcher(torch: Any, arguments: Sequence[Any], masks: Sequence[int], *, recorded: bool) -> Matcher | None:
    """A test for tensors in main memory and integers like these; None if some are neither.

    ``masks`` are the bits of an address that must be 0, one per tensor.  Of ``recorded`` calls autograd must keep a
    record, of the same tensors; of others none.
    """
    names = [f"a{n}" for n in range(len(arguments))]
    tensors = [n for n, a in zip(names, arguments, strict=True) if isinstance(a, torch.Tensor)]
    known: dict[str, Any] = {
        "transformed": torch._C._are_functorch_transforms_active,
        "forward_mode": torch.autograd.forward_ad,
        "modes": torch._C._len_torch_dispatch_stack,
        "enabled": torch.is_grad_enabled,
        "tracing": torch._C._get_tracing_state,
    }
    tests: list[str] = []
    for name, value in zip(names, arguments, strict=True):
        if type(value) is int:
            known[f"{name}_value"] = value
            tests.append(f"{name} is not {name}_value")
        elif type(value) not in (torch.Tensor, torch.nn.Parameter) or not value.is_cpu:
            return None
    for name, value in zip(names, arguments, strict=True):
        if name not in tensors:
            continue
        known |= {f"{name}_type": type(value), f"{name}_dtype": value.dtype}
        known |= {f"{name}_shape": value.shape, f"{name}_strides": value.stride()}
        tests += [
            f"type({name}) is not {name}_type",
            f"{name}.dtype is not {name}_dtype",
            f"{name}.shape != {name}_shape",
            f"{name}.stride() != {name}_strides",
            f"not {name}.is_cpu",
            f"{name}.is_neg()",
        ]
    if not tensors:
        return None
    wanting = [n for n, a in zip(names, arguments, strict=True) if n in tensors and a.requires_grad]
    if recorded:
        tests += [f"{'not ' if n in wanting else ''}{n}.requires_grad" for n in tensors]
        tests.append("not enabled()")
    else:
        tests.append(f"({' or '.join(f'{n}.requires_grad' for n in tensors)}) and enabled()")
    tests += ["transformed()", "forward_mode._current_level >= 0", "modes()", "tracing() is not None"]
    pointers = [f"p{n}" for n in tensors]
    lines = [
        "def match(arguments):",
        "    try:",
        f"        {', '.join(names)}, = arguments",
        f"        if {' or '.join(tests)}:",
        "            return None",
        *[f"        {p} = {n}.data_ptr()" for p, n in zip(pointers, tensors, strict=True)],
        # Sparse and nested tensors, and those that stand for others, have no strides or no address.
        "    except (RuntimeError, ValueError):",
        "        return None",
        f"    if {' or '.join(f'{p} & {mask}' for p, mask in zip(pointers, masks, strict=True))}:",
        "        return None",
        f"    return [{', '.join(pointers)}]",
    ]
    exec("\n".join(lines), known)
    match: Matcher = known["match"]
    return match

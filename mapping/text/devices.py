"""What a GPU must have for a plan: asked of those that were written by hand, or for another device."""

from __future__ import annotations

from tcomp.errors import Diagnostic, PlanError
from tcomp.mapping.gpu.memories import shared_bytes
from tcomp.mapping.machines.atoms import BY_NAME
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.plan.values import Plan


def check_device(plan: Plan, gpu: Gpu) -> None:
    """Raise PlanError, naming the fact, if a device cannot run a plan.

    NVIDIA's compiler or driver would refuse it, too, but for a line of the generated text.
    """
    for mark, pipeline in plan.pipelines.items():
        if not gpu.copies_asynchronously:
            raise _refused(
                f"the pipeline at {mark} has {pipeline.stages} stages, but"
                f" {gpu.architecture} has no asynchronous copies",
                "sm_80 and later have them; without a pipeline, copies go through registers",
            )
    for operation in plan.operations.values():
        atom = BY_NAME.get(operation.atom)
        if atom is not None and (gpu.version < atom.least or (atom.in_groups and not gpu.warpgroups)):
            have = f"sm_{atom.least}a has" if atom.in_groups else f"sm_{atom.least} and later have"
            raise _refused(
                f"the operation at {operation.mark} multiplies by {atom.name}, which {gpu.architecture} has not",
                f"{have} it; without an atom, threads multiply elements",
            )
    for name in plan.atomic:
        dtype = plan.scop.storages[plan.scop.by_name[name].target].dtype
        if dtype.itemsize not in gpu.atomic_words:
            raise _refused(
                f"{name} is atomic, but {gpu.architecture} has no such operations on {dtype}",
                "without that, a thread runs all instances of its elements",
            )
    for number, group in enumerate(plan.groups):
        wanted = shared_bytes(plan, group)
        if wanted > gpu.shared_per_block:
            raise _refused(
                f"group {number} takes {wanted} bytes of shared memory, but a block of {gpu.architecture} has "
                f"{gpu.shared_per_block}",
                "copies of smaller boxes, fewer stages or smaller tiles take less",
            )


def _refused(what: str, hint: str) -> PlanError:
    return PlanError(Diagnostic(what, hint=hint))

"""Faults planted in correct kernels are found, with kind, buffer and line, in every order."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tcomp.backends.simulator.report import Finding, FindingKind
from tcomp.backends.simulator.simulation import Order, Settings
from tests.cuda.simulated import (
    ASYNC_BUFFER,
    BLOCK_SUM,
    DOUBLE_BUFFER,
    DYNAMIC,
    HISTOGRAM,
    MATMUL,
    NEEDS_COMPILER,
    STAGES,
    TRANSPOSE,
    TWO_KERNELS,
    VECTOR_ADD,
    VECTOR_COPY,
    WARP_ATOMICS,
    WARP_MEMORY_SUM,
    WARP_SUM,
    Example,
)

pytestmark = [NEEDS_COMPILER, pytest.mark.sweep(3)]

ORDERS: tuple[Order, ...] = ("forward", "reverse", "random")


@dataclass(frozen=True)
class Fault:
    """A change to a kernel, and what has to be found: ``at`` is a part of the line, ``buffer`` empty for none."""

    name: str
    example: Example
    old: str
    new: str
    kind: FindingKind
    buffer: str
    at: str

    def __str__(self) -> str:
        return f"{self.example.name}: {self.name}"


FAULTS = (
    Fault(
        "first barrier removed", MATMUL, "__syncthreads();  // tiles are there", "", FindingKind.RACE, "A_tile",
        "sum += A_tile",
    ),
    Fault(
        "second barrier removed", MATMUL, "__syncthreads();  // tiles are used", "", FindingKind.RACE, "A_tile",
        "A_tile[y][x] =",
    ),
    Fault(
        "barrier swapped with the store before it", MATMUL,
        "    B_tile[y][x] = B[(k0 + y) * 32 + column];\n    __syncthreads();  // tiles are there",
        "    __syncthreads();  // tiles are there\n    B_tile[y][x] = B[(k0 + y) * 32 + column];",
        FindingKind.RACE, "B_tile", "sum += A_tile",
    ),
    Fault(
        "index off by one", MATMUL, "sum += A_tile[y][k]", "sum += A_tile[y][k + 1]", FindingKind.UNINITIALISED,
        "A_tile", "sum += A_tile",
    ),
    Fault(
        "subscript beyond a dimension", MATMUL, "* B_tile[k][x]", "* B_tile[k][x + 1]", FindingKind.OUT_OF_BOUNDS,
        "B_tile", "B_tile[k][x + 1]",
    ),
    Fault("missing guard", VECTOR_ADD, "if (i >= 1000) return;", "", FindingKind.OUT_OF_BOUNDS, "A", "C[i] ="),
    Fault("guard off by one", VECTOR_ADD, "i >= 1000", "i > 1000", FindingKind.OUT_OF_BOUNDS, "A", "C[i] ="),
    Fault("index off by one", VECTOR_ADD, "+ B[i]", "+ B[i + 1]", FindingKind.OUT_OF_BOUNDS, "B", "B[i + 1]"),
    Fault("index below zero", VECTOR_ADD, "+ B[i]", "+ B[i - 1]", FindingKind.OUT_OF_BOUNDS, "B", "B[i - 1]"),
    Fault("write to an input", VECTOR_ADD, "C[i] =", "((float *)A)[i] =", FindingKind.WRITE_TO_INPUT, "A", "A)[i] ="),
    Fault("last element left out", VECTOR_ADD, "i >= 1000", "i >= 999", FindingKind.UNWRITTEN_OUTPUT, "C", ""),
    Fault("barrier removed", TRANSPOSE, "__syncthreads();", "", FindingKind.RACE, "tile", "= tile["),
    Fault(
        "subscript off by one", TRANSPOSE, "tile[threadIdx.x][r]", "tile[threadIdx.x][r + 1]",
        FindingKind.UNINITIALISED, "tile", "= tile[",
    ),
    Fault(
        "blocks overlap", TRANSPOSE, "T[(blockIdx.x * 32 + r)", "T[(blockIdx.x * 16 + r)", FindingKind.BLOCK_RACE, "T",
        "= tile[",
    ),
    Fault(
        "shuffle under divergent control", WARP_SUM, "for (int d = 16;", "if (lane < 20) for (int d = 16;",
        FindingKind.DIVERGENT_WARP, "", "__shfl_xor_sync",
    ),
    Fault(
        "mask without the caller", WARP_SUM, "0xffffffffu", "0x0000ffffu", FindingKind.DIVERGENT_WARP, "",
        "__shfl_xor_sync",
    ),
    Fault("every lane writes", WARP_SUM, "if (lane == 0)", "", FindingKind.RACE, "S", "S[row]"),
    Fault(
        "barrier removed before the loop", BLOCK_SUM, "__syncthreads();  // parts are there", "", FindingKind.RACE,
        "part", "part[t] += part",
    ),
    Fault(
        "barrier under a condition", BLOCK_SUM,
        "part[t] += part[t + half];\n    __syncthreads();  // halves are added",
        "{ part[t] += part[t + half];\n    __syncthreads(); }  // halves are added",
        FindingKind.DIVERGENT_BARRIER, "", "halves are added",
    ),
    Fault(
        "threads return before a barrier", BLOCK_SUM, "part[t] = sum;", "if (t >= 250) return;\n  part[t] = sum;",
        FindingKind.DIVERGENT_BARRIER, "", "parts are there",
    ),
    Fault(
        "part not written", BLOCK_SUM, "part[t] = sum;", "if (t < 200) part[t] = sum;", FindingKind.UNINITIALISED,
        "part", "part[t] += part",
    ),
    Fault(
        "warp barrier removed", WARP_MEMORY_SUM, "__syncwarp();  // parts are there", "", FindingKind.RACE, "part",
        "const float other",
    ),
    Fault(
        "warp barrier between read and write removed", WARP_MEMORY_SUM, "__syncwarp();  // others are read", "",
        FindingKind.RACE, "part", "",
    ),
    Fault(
        "warp barrier for half a warp", WARP_MEMORY_SUM, "__syncwarp();  // parts are there",
        "__syncwarp(lane < 16 ? 0xffffu : 0xffff0000u);  // parts are there", FindingKind.RACE, "part",
        "const float other",
    ),
    Fault("warp barrier behind atomics removed", WARP_ATOMICS, "__syncwarp();  // sums are there", "", FindingKind.RACE,
          "part", "part[warp] += 1"),
    Fault("warp barrier behind atomics for half a warp", WARP_ATOMICS, "__syncwarp();  // sums are there",
          "__syncwarp(lane < 16 ? 0xffffu : 0xffff0000u);  // sums are there", FindingKind.RACE, "part",
          "part[warp] += 1"),
    Fault("atomics of two warps behind barriers of warps", WARP_ATOMICS, "atomicAdd(&part[warp],",
          "atomicAdd(&part[0],", FindingKind.RACE, "part", "part[warp] += 1"),
    Fault("bins not emptied", HISTOGRAM, "threadIdx.x < 16) bins", "threadIdx.x < 15) bins", FindingKind.UNINITIALISED,
          "bins", "atomicAdd(&bins"),
    Fault("barrier before use removed", HISTOGRAM, "__syncthreads();  // bins are full", "", FindingKind.RACE, "bins",
          ""),
    Fault("plain sum of blocks", HISTOGRAM, "atomicAdd(&H[threadIdx.x], bins[threadIdx.x]);",
          "H[threadIdx.x] += bins[threadIdx.x];", FindingKind.BLOCK_RACE, "H", "H[threadIdx.x]"),
    Fault("row one too long", DYNAMIC, "row[i] = A", "row[i + 1] = A", FindingKind.OUT_OF_BOUNDS, "tc_dynamic",
          "row[i + 1]"),
    Fault("barrier removed", DYNAMIC, "__syncthreads();", "", FindingKind.UNINITIALISED, "tc_dynamic", "row[299 - i]"),
    Fault("one buffer for both", DOUBLE_BUFFER, "row[(k + 1) % 2][t]", "row[k % 2][t]", FindingKind.RACE, "row", ""),
    Fault("copies not waited for", ASYNC_BUFFER, "tc_copy_async_wait<1>();", "", FindingKind.UNINITIALISED, "row",
          "sum += row"),
    Fault("newest copies not waited for", ASYNC_BUFFER, "_wait<1>();", "_wait<2>();", FindingKind.UNINITIALISED, "row",
          "sum += row"),
    Fault("barrier after the copies removed", ASYNC_BUFFER, "__syncthreads();  // the row is there", "",
          FindingKind.RACE, "row", "sum += row"),
    Fault("barrier before the next copies removed", ASYNC_BUFFER, "__syncthreads();  // the row is used", "",
          FindingKind.RACE, "row", ""),
    Fault("one stage too few", STAGES, "row[(k + 2) % 3]", "row[(k + 1) % 3]", FindingKind.RACE, "row", ""),
    Fault("a stage that is being read", STAGES, "row[(k + 2) % 3]", "row[k % 3]", FindingKind.UNINITIALISED, "row",
          ""),
    Fault("a group too many on its way", STAGES, "_wait<1>();", "_wait<2>();", FindingKind.UNINITIALISED, "row",
          "sum += row"),
    Fault("barrier of the stages removed", STAGES, "__syncthreads();  // the row is there, and the one before is used",
          "", FindingKind.UNINITIALISED, "row", ""),
    Fault("an empty group not closed", STAGES, "tc_copy_async_commit();\n    sum",
          "if (k < 6) tc_copy_async_commit();\n    sum", FindingKind.UNINITIALISED, "row", "sum += row"),
    Fault("copies beyond the end", STAGES, "k < 6 ? 16 : 0", "16", FindingKind.OUT_OF_BOUNDS, "A",
          "tc_copy_async16(&row[(k + 2) % 3]"),
    Fault("a store where a copy will land", ASYNC_BUFFER, "    sum += row",
          "    row[(k + 1) % 2][t] = 0;\n    sum += row", FindingKind.RACE, "row", ""),
    Fault("misaligned load", VECTOR_COPY, "&A[i])", "&A[i + 1])", FindingKind.MISALIGNED, "A", "float4 v ="),
    Fault("misaligned store", VECTOR_COPY, "&B[i])", "&B[i - 2])", FindingKind.MISALIGNED, "B", "&B[i - 2])"),
    Fault("one block too many", VECTOR_COPY, "(blockIdx.x * 128", "((blockIdx.x + 1) * 128",
          FindingKind.OUT_OF_BOUNDS, "A", "float4 v ="),
    Fault("temporary not written", TWO_KERNELS, "if (threadIdx.x == 0) sum[0]", "if (threadIdx.x == 32) sum[0]",
          FindingKind.UNINITIALISED, "sum", "- sum[0]"),
    Fault("shuffle reads a lane outside", TWO_KERNELS, "__shfl_down_sync(0xffffffffu, part, d)",
          "(threadIdx.x < 16 ? __shfl_down_sync(0xffffu, part, d, 32) : 0.0f)", FindingKind.DIVERGENT_WARP, "",
          "__shfl_down_sync"),
    Fault("division by zero", TWO_KERNELS, "A[i] - sum[0]", "A[i % (256 * blockIdx.x)] - sum[0]",
          FindingKind.DIVISION_BY_ZERO, "", "- sum[0]"),
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_planted_faults_are_found(fault: Fault) -> None:
    example = fault.example.but(fault.old, fault.new)
    for order in ORDERS:
        report, _, _ = example.run(Settings(order, seed=1))
        found = [f for f in report.findings if _fits(f, fault, example, order)]
        assert found, f"{order}: {report}"


def _fits(finding: Finding, fault: Fault, example: Example, order: Order) -> bool:
    kinds = {fault.kind}
    if fault.kind is FindingKind.RACE and order != "forward":
        # Where the reader runs first, it finds nothing there yet.
        kinds.add(FindingKind.UNINITIALISED)
    if fault.kind is FindingKind.UNINITIALISED:
        kinds.add(FindingKind.RACE)
    here = finding.kind in kinds and finding.buffer == fault.buffer
    lines = {finding.line, finding.other.line if finding.other else None}
    return here and (not fault.at or example.line(fault.at) in lines)

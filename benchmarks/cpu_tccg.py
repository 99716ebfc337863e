"""The 48 contractions of TCCG (HPAC/tccg, ``benchmark/benchmark.py``), in row-major order.

Sizes follow its rule: float32, the largest tensor about 200 MiB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from benchmarks.cpu_case import Case, contraction

LARGEST_GFLOP = 45.0
"""What a contraction of the suite may take unless it is run in full: a fifth of a second at the peak of two cores."""

CONTRACTIONS = (
    ("intensli", "abj-bka-kj", "abc-bda-dc", "a384 b384 c24 d384"),
    ("intensli", "ajb-kba-jk", "abc-dca-bd", "a384 b24 c376 d384"),
    ("intensli", "abjc-cbka-kj", "abcd-dbea-ec", "a96 b84 c24 d96 e96"),
    ("intensli", "ajbc-ckba-jk", "abcd-deca-be", "a96 b24 c84 d96 e84"),
    ("intensli", "abjc-kbac-jk", "abcd-ebad-ce", "a96 b84 c24 d84 e96"),
    ("intensli", "abjcd-dkbac-jk", "abcde-efbad-cf", "a48 b36 c24 d36 e48 f36"),
    ("intensli", "adbjc-cbdka-kj", "abcde-ecbfa-fd", "a48 b36 c36 d24 e48 f48"),
    ("intensli", "ajbdc-ckbad-jk", "abcde-efcad-bf", "a48 b24 c36 d36 e48 f36"),
    ("ao2mo", "aqrs-pa-pqrs", "abcd-ea-ebcd", "a96 b84 c84 d84 e96"),
    ("ao2mo", "abrs-qb-aqrs", "abcd-eb-aecd", "a96 b84 c84 d84 e96"),
    ("ao2mo", "abcs-rc-abrs", "abcd-ec-abed", "a96 b84 c84 d84 e96"),
    ("ccsd", "ij-ik-kj", "ab-ac-cb", "a7248 b7240 c7248"),
    ("ccsd", "ij-ikl-ljk", "ab-acd-dbc", "a384 b376 c376 d384"),
    ("ccsd", "ij-kil-lkj", "ab-cad-dcb", "a384 b376 c384 d384"),
    ("ccsd", "ijk-ikl-lj", "abc-acd-db", "a384 b376 c376 d384"),
    ("ccsd", "ijk-il-jlk", "abc-ad-bdc", "a384 b384 c376 d376"),
    ("ccsd", "ijk-ilk-jl", "abc-adc-bd", "a384 b384 c376 d376"),
    ("ccsd", "ijk-ilk-lj", "abc-adc-db", "a384 b376 c376 d384"),
    ("ccsd", "ijk-ilmk-mjl", "abc-adec-ebd", "a96 b84 c84 d84 e96"),
    ("ccsd", "ijkl-imjn-lnkm", "abcd-aebf-dfce", "a96 b84 c84 d96 e84 f84"),
    ("ccsd", "ijkl-imjn-nlmk", "abcd-aebf-fdec", "a96 b84 c84 d84 e84 f96"),
    ("ccsd", "ijkl-imkn-jnlm", "abcd-aecf-bfde", "a96 b96 c84 d84 e84 f84"),
    ("ccsd", "ijkl-imkn-njml", "abcd-aecf-fbed", "a96 b84 c84 d84 e84 f96"),
    ("ccsd", "ijkl-imln-jnkm", "abcd-aedf-bfce", "a96 b96 c84 d84 e84 f84"),
    ("ccsd", "ijkl-imln-njmk", "abcd-aedf-fbec", "a96 b84 c84 d84 e84 f96"),
    ("ccsd", "ijkl-imnj-nlkm", "abcd-aefb-fdce", "a96 b84 c84 d84 e84 f96"),
    ("ccsd", "ijkl-imnk-njml", "abcd-aefc-fbed", "a96 b84 c84 d84 e84 f96"),
    ("ccsd", "ijkl-minj-nlmk", "abcd-eafb-fdec", "a96 b84 c84 d84 e96 f96"),
    ("ccsd", "ijkl-mink-jnlm", "abcd-eafc-bfde", "a96 b96 c84 d84 e96 f84"),
    ("ccsd", "ijkl-minl-njmk", "abcd-eafd-fbec", "a96 b84 c84 d84 e96 f96"),
    ("ccsd_t", "abcijk-ijma-mkbc", "abcdef-dega-gfbc", "a24 b20 c20 d24 e20 f20 g24"),
    ("ccsd_t", "abcijk-ijmb-mkac", "abcdef-degb-gfac", "a24 b20 c20 d24 e20 f20 g24"),
    ("ccsd_t", "abcijk-ijmc-mkab", "abcdef-degc-gfab", "a24 b20 c20 d24 e20 f20 g24"),
    ("ccsd_t", "abcijk-ikma-mjbc", "abcdef-dfga-gebc", "a24 b20 c20 d24 e20 f20 g24"),
    ("ccsd_t", "abcijk-ikmb-mjac", "abcdef-dfgb-geac", "a24 b20 c20 d24 e20 f20 g24"),
    ("ccsd_t", "abcijk-ikmc-mjab", "abcdef-dfgc-geab", "a24 b20 c20 d24 e20 f20 g24"),
    ("ccsd_t", "abcijk-jkma-mibc", "abcdef-efga-gdbc", "a24 b20 c20 d20 e24 f20 g24"),
    ("ccsd_t", "abcijk-jkmb-miac", "abcdef-efgb-gdac", "a24 b20 c20 d20 e24 f20 g24"),
    ("ccsd_t", "abcijk-jkmc-miab", "abcdef-efgc-gdab", "a24 b20 c20 d20 e24 f20 g24"),
    ("ccsd_t", "abcijk-eiab-jkec", "abcdef-gdab-efgc", "a24 b20 c20 d20 e24 f20 g24"),
    ("ccsd_t", "abcijk-eiac-jkeb", "abcdef-gdac-efgb", "a24 b20 c20 d20 e24 f20 g24"),
    ("ccsd_t", "abcijk-eibc-jkea", "abcdef-gdbc-efga", "a24 b20 c20 d20 e24 f20 g24"),
    ("ccsd_t", "abcijk-ejab-ikec", "abcdef-geab-dfgc", "a24 b20 c20 d24 e20 f20 g24"),
    ("ccsd_t", "abcijk-ejac-ikeb", "abcdef-geac-dfgb", "a24 b20 c20 d24 e20 f20 g24"),
    ("ccsd_t", "abcijk-ejbc-ikea", "abcdef-gebc-dfga", "a24 b20 c20 d24 e20 f20 g24"),
    ("ccsd_t", "abcijk-ekab-ijec", "abcdef-gfab-degc", "a24 b20 c20 d24 e20 f20 g24"),
    ("ccsd_t", "abcijk-ekac-ijeb", "abcdef-gfac-degb", "a24 b20 c20 d24 e20 f20 g24"),
    ("ccsd_t", "abcijk-ekbc-ijea", "abcdef-gfbc-dega", "a24 b20 c20 d24 e20 f20 g24"),
)
"""Family, name, indices of the result and the factors, first index contiguous as there, and sizes."""


def shrunk(sizes: Mapping[str, int], flops: float) -> dict[str, int]:
    """Sizes divided by one factor, and rounded down to multiples of four, so that twice their product is ``flops``.

    Sizes that are small enough stay; none falls below eight or rises.
    """
    every = 2 * math.prod(sizes.values())
    if every <= flops:
        return dict(sizes)
    scale = (flops / every) ** (1 / len(sizes))
    return {name: min(size, max(8, 4 * int(size * scale / 4))) for name, size in sizes.items()}


def contractions(largest_gflop: float | None) -> tuple[Case, ...]:
    """The cases; those with more operations are made smaller, where there is a limit."""
    cases = []
    for number, (family, name, indices, listed) in enumerate(CONTRACTIONS, 1):
        sizes = {letter: int(size) for letter, size in re.findall(r"([a-z])(\d+)", listed)}
        if largest_gflop is not None:
            sizes = shrunk(sizes, 1e9 * largest_gflop)
        result, *factors = (part[::-1] for part in indices.split("-"))
        subscripts = f"{','.join(factors)}->{result}"
        cases.append(contraction(f"T{number}", f"{family} {name}", subscripts, list(sizes.items())))
    return tuple(cases)

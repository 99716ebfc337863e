"""Values that are alive together never share memory."""

from __future__ import annotations

import random
import time

import pytest

from tcomp.networks.placing import Life, Places, most_alive, overlap, place


def drawn(seed: int) -> list[Life]:
    draw = random.Random(seed)
    lives = []
    for number in range(draw.randint(1, 40)):
        first = draw.randint(0, 20)
        lives.append(
            Life(f"v{number}", draw.choice((0, 1, 63, 64, 100, 4096, 10_000)), first, first + draw.randint(0, 6))
        )
    return lives


@pytest.mark.parametrize("seed", range(60))
def test_values_alive_together_lie_apart(seed: int) -> None:
    lives = drawn(seed)
    places = place(lives)
    for k, a in enumerate(lives):
        start = places.offsets[a.name]
        assert start % 64 == 0
        assert start >= 0
        assert start + a.bytes <= places.bytes
        for b in lives[:k]:
            if a.first <= b.last and b.first <= a.last:
                other = places.offsets[b.name]
                assert start + a.bytes <= other or other + b.bytes <= start
    assert overlap(lives, places) is None
    assert places.bytes >= most_alive(lives)


def test_a_chain_takes_two_places() -> None:
    chain = [Life(f"v{k}", 640, k, k + 1) for k in range(10)]
    assert place(chain).bytes == 2 * 640 == most_alive(chain)


def test_an_overlap_is_found() -> None:
    lives = [Life("a", 64, 0, 2), Life("b", 64, 2, 3), Life("c", 64, 3, 4)]
    assert overlap(lives, Places({"a": 0, "b": 32, "c": 0}, 96)) == ("a", "b")
    assert overlap(lives, Places({"a": 0, "b": 64, "c": 0}, 128)) is None


def test_many_values_are_placed_in_time_that_grows_with_them() -> None:
    def seconds(count: int) -> float:
        lives = [Life(f"v{k}", 64 * (1 + k % 7), k, k + 1 + k % 5) for k in range(count)]
        start = time.process_time()
        assert overlap(lives, place(lives)) is None
        return time.process_time() - start

    assert seconds(20_000) < 30 * seconds(2_000)

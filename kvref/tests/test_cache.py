"""Both caches, operation by operation."""

from collections.abc import Callable

import pytest
import torch

from kvref.cache import Cache, GrowingCache, StaticCache

LAYERS, ROWS, HEADS, CAPACITY, DIM = 2, 2, 3, 6, 5

KINDS: dict[str, Callable[[], Cache]] = {
    "growing": GrowingCache,
    "static": lambda: StaticCache(LAYERS, ROWS, HEADS, CAPACITY, DIM),
}


def filled(kind: str, length: int = 4) -> Cache:
    """A cache with `length` tokens of random keys and values."""
    cache = KINDS[kind]()
    generator = torch.Generator().manual_seed(0)
    extend(cache, torch.randn(LAYERS, 2, ROWS, HEADS, length, DIM, generator=generator))
    return cache


def extend(cache: Cache, rows: torch.Tensor) -> None:
    """Append `layer keys-or-values batch head new dim`."""
    cache.reserve(rows.size(4))
    for layer, (keys, values) in enumerate(rows):
        cache.append(layer, keys, values)
    cache.commit(rows.size(4))


@pytest.mark.parametrize("kind", KINDS)
def test_append_gives_the_past_and_then_the_new(kind: str) -> None:
    cache = filled(kind)
    past = cache.keys_values(1)[0].clone()
    new = torch.randn(ROWS, HEADS, 1, DIM)
    keys, _ = cache.append(1, new, new)
    assert keys.equal(torch.cat([past, new], dim=2))
    assert cache.keys_values(1)[0].equal(past)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [0, 1, 4])
def test_crop_keeps_the_first_tokens(kind: str, length: int) -> None:
    cache, whole = filled(kind), filled(kind)
    cache.crop(length)
    assert cache.length == length
    assert cache.keys_values(0)[1].equal(whole.keys_values(0)[1][:, :, :length])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [-1, 5])
def test_crop_refuses_what_it_cannot_keep(kind: str, length: int) -> None:
    with pytest.raises(ValueError, match="crop takes the length to keep"):
        filled(kind).crop(length)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_shares_no_memory(kind: str) -> None:
    cache = filled(kind)
    fork = cache.fork()
    pointers = {tensor.data_ptr() for tensor in cache.tensors()}
    assert pointers.isdisjoint(tensor.data_ptr() for tensor in fork.tensors())
    assert fork.keys_values(0)[0].equal(cache.keys_values(0)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_reorder_repeats_and_leaves_out_rows(kind: str) -> None:
    cache, before = filled(kind), filled(kind)
    cache.reorder([1, 1, 0])
    for layer in range(LAYERS):
        for mine, theirs in zip(cache.keys_values(layer), before.keys_values(layer), strict=True):
            assert mine.equal(theirs[[1, 1, 0]])


@pytest.mark.parametrize("kind", KINDS)
def test_reset_forgets(kind: str) -> None:
    cache = filled(kind)
    cache.reset()
    assert cache.length == 0
    extend(cache, torch.ones(LAYERS, 2, ROWS, HEADS, 1, DIM))
    assert cache.keys_values(0)[0].shape[2] == 1


def test_bytes_are_measured_where_they_are_held() -> None:
    token = 2 * LAYERS * ROWS * HEADS * DIM * torch.float32.itemsize
    assert filled("growing", 4).bytes == 4 * token
    assert filled("static", 4).bytes == CAPACITY * token
    cropped = filled("growing", 4)
    cropped.crop(1)
    assert cropped.bytes == token


def test_bytes_count_a_view_as_all_that_it_keeps_alive() -> None:
    cache = GrowingCache()
    cache.layers[0] = (torch.zeros(1, 1, 100, 4)[:, :, :1], torch.zeros(1, 1, 1, 4))
    assert cache.bytes == (100 + 1) * 4 * torch.float32.itemsize


def test_poison_fills_free_slots_alone() -> None:
    cache = StaticCache(LAYERS, ROWS, HEADS, CAPACITY, DIM)
    extend(cache, torch.ones(LAYERS, 2, ROWS, HEADS, 2, DIM))
    cache.poison(float("nan"))
    assert cache.keys_values(0)[0].eq(1).all()
    assert cache.keys[:, :, :, 2:].isnan().all()
    assert cache.values[:, :, :, 2:].isnan().all()

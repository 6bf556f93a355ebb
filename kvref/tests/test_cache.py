"""Both caches, operation by operation."""

from collections.abc import Callable

import pytest
import torch

from kvref.cache import Cache, GrowingCache, StaticCache
from kvref.errors import CacheFull

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


def ragged(kind: str, lengths: tuple[int, int] = (3, 1)) -> Cache:
    """A cache whose rows were cropped to lengths of their own."""
    cache = filled(kind)
    cache.crop_rows(lengths)
    return cache


@pytest.mark.parametrize("kind", KINDS)
def test_a_crop_of_rows_keeps_the_first_tokens_of_each_at_the_right(kind: str) -> None:
    cache, whole = ragged(kind), filled(kind)
    assert (cache.length, cache.lengths) == (3, [3, 1])
    for mine, other in zip(cache.keys_values(1), whole.keys_values(1), strict=True):
        assert mine[0].equal(other[0, :, :3])
        assert mine[1, :, 2:].equal(other[1, :, :1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [(5, 1), (1,), (-1, 2), (1, 1, 1)])
def test_a_crop_of_rows_refuses_what_it_cannot_keep(kind: str, lengths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="give the length to keep of each row"):
        filled(kind).crop_rows(lengths)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_cropped_to_nothing_can_be_cropped_to_nothing_again(kind: str) -> None:
    cache = ragged(kind, (0, 0))
    for _ in range(2):
        cache.crop(0)
        assert set(cache.lengths) == {0}


@pytest.mark.parametrize("kind", KINDS)
def test_a_crop_of_padded_rows_counts_tokens_and_not_columns(kind: str) -> None:
    cache = ragged(kind)
    first = cache.keys_values(0)[0][1, :, 2].clone()
    cache.crop(1)
    assert cache.lengths == [1, 1]
    assert cache.keys_values(0)[0][1, :, 0].equal(first)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("new", [1, 3, 5])
def test_a_row_that_is_given_away_holds_the_new_request_alone(kind: str, new: int) -> None:
    cache = ragged(kind)
    kept = cache.keys_values(0)[0][0].clone()
    other = filled(kind, 4)
    other.reorder([1])
    extend(other, torch.zeros(LAYERS, 2, 1, HEADS, 2, DIM))
    other.crop(new)
    cache.insert(1, other)
    assert cache.lengths == [3, new]
    keys, _ = cache.keys_values(0)
    assert keys[0, :, cache.length - 3 :].equal(kept)
    assert keys[1, :, cache.length - new :].equal(other.keys_values(0)[0][0])


def test_a_row_is_not_given_to_a_request_that_does_not_fit() -> None:
    cache = filled("static")
    other = StaticCache(LAYERS, 1, HEADS, CAPACITY + 1, DIM)
    extend(other, torch.zeros(LAYERS, 2, 1, HEADS, CAPACITY + 1, DIM))
    with pytest.raises(CacheFull):
        cache.insert(0, other)
    assert cache.lengths == [4, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_padding_goes_where_its_row_goes(kind: str) -> None:
    cache = ragged(kind)
    copy = cache.fork()
    copy.reorder([1, 0, 1])
    assert (copy.lengths, cache.lengths) == ([1, 3, 1], [3, 1])
    cache.reset()
    assert cache.padding is None


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_is_loaded_with_its_padding(kind: str) -> None:
    cache, other = ragged(kind), KINDS[kind]()
    other.load({name: tensor.clone() for name, tensor in cache.state().items()})
    assert other.lengths == [3, 1]
    for layer in range(LAYERS):
        assert all(a.equal(b) for a, b in zip(cache.keys_values(layer), other.keys_values(layer), strict=True))


def test_poison_goes_into_free_slots_and_padding() -> None:
    cache = ragged("static")
    assert isinstance(cache, StaticCache)
    rows = [cache.keys_values(0)[0][row, :, 3 - length :].clone() for row, length in enumerate(cache.lengths)]
    cache.poison(7.0)
    assert bool((cache.keys[:, :, :, 3:] == 7.0).all() and (cache.keys[:, 1, :, :2] == 7.0).all())
    assert all(cache.keys[0, row, :, 3 - len(kept[0]) : 3].equal(kept) for row, kept in enumerate(rows))
    cache.poison(torch.nan)
    assert bool(cache.keys[:, :, :, 3:].isnan().all() and (cache.keys[:, 1, :, :2] == 7.0).all())

"""The one interpreter of schedules, what it returns, and the counts that are kept outside the model."""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from kvref.answers import DecoderRaised, Misshapen
from kvref.cache import Rows
from kvref.capability import Capability
from kvref.contents import Content
from kvref.decoder import Decoder
from kvref.operations import (
    Abort,
    Crop,
    CropRows,
    Extend,
    Fork,
    Op,
    Overflow,
    Peek,
    Poison,
    Prefill,
    Refill,
    Reorder,
    Reset,
    Restore,
    Row,
    Start,
)
from kvref.protocol import Logits, Tokens
from kvref.schedule import Schedule, straight

FirstRows = Float[Tensor, "batch n_kv_head first head_dim"]
Layers = list[tuple[Rows, Rows]]
FirstLayers = list[tuple[FirstRows, FirstRows]]


@dataclass(frozen=True)
class Step:
    """One operation, done: what came back, and the cache it was about as it is now.

    The handle is live: what is read through it later is the cache as it is later.
    """

    decoder: Decoder
    index: int
    op: Op
    cache: int
    handle: Any
    content: Content
    logits: Logits | None = None
    refusal: BaseException | None = None

    @property
    def length(self) -> int:
        """Tokens that the decoder says are in the cache."""
        return self.decoder.length(self.handle)

    @property
    def new(self) -> int:
        """Columns that this step added to the rows."""
        match self.op:
            case Extend(tokens):
                return len(tokens[0])
            case Prefill():
                return self.op.width
            case _:
                return 0

    @property
    def past(self) -> int:
        """Columns that were there before the new ones."""
        return self.content.width - self.new

    @property
    def answered(self) -> tuple[Row, ...]:
        """The sequences that the logits of this step are about, each up to its last token; a batch of them."""
        match self.op:
            case Refill(row):
                return (self.content.rows[row],)
            case Peek(tokens):
                return tuple(past + new for past, new in zip(self.content.rows, tokens, strict=True))
            case _:
                return self.content.rows

    def keys_values(self) -> Layers | None:
        """Keys and values in the cache, layer by layer; None while it is empty, or where the decoder shows none."""
        if Capability.KEYS_VALUES not in self.decoder.capabilities or not self.content.length:
            return None
        n_layer: int = self.decoder.size("n_layer")
        return [self.decoder.keys_values(self.handle, layer) for layer in range(n_layer)]

    def snapshot(self) -> Layers | None:
        """Copy the keys and values, so that they can be compared after later steps."""
        layers = self.keys_values()
        return layers and [(keys.clone(), values.clone()) for keys, values in layers]


def play(decoder: Decoder, schedule: Schedule) -> Iterator[Step]:
    """Do the operations one after the other, and give each as it is done.

    Raises `DecoderRaised` when the decoder raises in an operation that it has to bear.
    """
    handles: list[Any] = []
    for index, (op, contents) in enumerate(schedule):
        logits, refusal = None, None
        try:
            if isinstance(op, Start):
                handles.append(decoder.start(op.rows, op.capacity))
            elif isinstance(op, Fork):
                handles.append(decoder.fork(handles[op.cache]))
            elif isinstance(op, Extend):
                logits, handles[op.cache] = decoder.step(handles[op.cache], as_tensor(op.tokens, decoder))
            elif isinstance(op, Prefill):
                tokens = as_tensor(op.padded, decoder)
                logits, handles[op.cache] = decoder.prefill(handles[op.cache], tokens, op.columns)
            elif isinstance(op, Peek):
                logits = decoder.peek(handles[op.cache], as_tensor(op.tokens, decoder))
            elif isinstance(op, Refill):
                tokens = as_tensor([op.tokens], decoder)
                logits, handles[op.cache] = decoder.refill(handles[op.cache], op.row, tokens)
            elif isinstance(op, Overflow | Abort):
                refusal = try_step(decoder, handles, op)
            else:
                handles[op.cache] = rearrange(decoder, handles[op.cache], op)
        except DecoderRaised as error:
            error.step = index
            raise
        number = len(handles) - 1 if isinstance(op, Start | Fork) else op.cache
        yield Step(decoder, index, op, number, handles[number], contents[number], logits, refusal)


def rearrange(decoder: Decoder, handle: Any, op: Crop | CropRows | Reorder | Reset | Restore | Poison) -> Any:
    """Do an operation that runs no token."""
    match op:
        case Crop(length):
            return decoder.crop(handle, length)
        case CropRows(lengths):
            return decoder.crop_rows(handle, lengths)
        case Restore():
            with TemporaryDirectory() as folder:
                decoder.save(handle, Path(folder) / "cache")
                return decoder.restore(Path(folder) / "cache")
        case Reorder(rows):
            return decoder.reorder(handle, rows)
        case Reset():
            return decoder.reset(handle)
        case Poison(value):
            return decoder.poison(handle, value)


def try_step(decoder: Decoder, handles: list[Any], op: Overflow | Abort) -> BaseException | None:
    """Step with tokens that do not fit, or whose pass dies half-way, and give the exception that ended it, if any."""
    try:
        with failing_in(decoder, op.layer) if isinstance(op, Abort) else nullcontext():
            if isinstance(op, Abort) and op.padding:
                whole = Prefill(op.tokens, op.padding)
                decoder.prefill(handles[op.cache], as_tensor(whole.padded, decoder), whole.columns)
            else:
                _, handles[op.cache] = decoder.step(handles[op.cache], as_tensor(op.tokens, decoder))
    except Misshapen:
        # It took the tokens, and gave fewer rows of logits for them, say.
        return None
    except DecoderRaised as refusal:
        return refusal.error
    return None


class Interrupted(Exception):
    """A pass that was made to die: what memory running out, or a user who stops, does."""


@contextmanager
def failing_in(decoder: Decoder, layer: int) -> Generator[None]:
    """While it is active, a pass that reaches a layer dies there."""
    modules = decoder.layers()

    def die(*_: object) -> None:
        raise Interrupted(f"the pass was made to fail in layer {layer}")

    hook = modules[layer % len(modules)].register_forward_pre_hook(die)
    try:
        yield
    finally:
        hook.remove()


def as_tensor(rows: Iterable[Sequence[int]], decoder: Decoder) -> Tokens:
    """Tokens on the decoder's device, `batch new`."""
    return torch.tensor(list(rows), dtype=torch.long, device=decoder.device)


@dataclass(frozen=True)
class Trace:
    """What running a schedule returned.

    For each operation: its logits, None where it has none; and the length of its cache after it, None where the decoder
    does not say. And the ledger of the whole.
    """

    logits: tuple[Logits | None, ...]
    lengths: tuple[int | None, ...]
    ledger: "Ledger"


def run(decoder: Decoder, schedule: Schedule) -> Trace:
    """Do a whole schedule. Raises what `play` raises."""
    tells = Capability.LENGTH in decoder.capabilities
    with Ledger(decoder) as ledger:
        steps = [(step.logits, step.length if tells else None) for step in play(decoder, schedule)]
    return Trace(tuple(logits for logits, _ in steps), tuple(length for _, length in steps), ledger)


class Ledger:
    """Counts token passes outside the model: for each layer, how many tokens went through it, all rows together.

    A decoder without the capability `layers` counts nothing, and `forwarded` is empty.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.forwarded: Counter[int] = Counter()
        self.counting = True
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> "Ledger":
        for layer, module in enumerate(self.decoder.layers() if Capability.LAYERS in self.decoder.capabilities else []):
            self._hooks.append(module.register_forward_pre_hook(self._counter(layer), with_kwargs=True))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _counter(self, layer: int) -> Any:
        def count(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            x: Tensor = next(iter((*args, *kwargs.values())))
            self.forwarded[layer] += x.size(0) * x.size(1) if self.counting else 0

        return count

    def visits(self) -> list[int]:
        """How often each layer is run for a token: what an uncached pass over one more token adds.

        It is found out once for an implementation, and not under every lens.
        """
        if known := self.decoder.meter.visits:
            return known
        passes = list[Counter[int]]()
        for length in range(1, min(2, self.decoder.block_size) + 1):
            with Ledger(self.decoder) as ledger, self.aside():
                self.decoder.full(as_tensor([(0,) * length], self.decoder))
            passes.append(ledger.forwarded)
        before, after = [Counter[int](), *passes][-2:]
        self.decoder.meter.visits += [after[layer] - before[layer] for layer in range(len(self.decoder.layers()))]
        return self.decoder.meter.visits

    @contextmanager
    def aside(self) -> Generator[None]:
        """Leave out what is run in here, such as the oracle's own passes."""
        self.counting = False
        try:
            yield
        finally:
            self.counting = True


class Uncached:
    """The oracle: what one uncached pass says about every sequence that a schedule leads to.

    Each sequence is run once, as a batch of one, and serves for all of its prefixes.
    """

    said = "in one uncached pass"

    def __init__(self, decoder: Decoder, schedule: Schedule) -> None:
        self.decoder = decoder
        states = [content.rows for _, state in schedule for content in state]
        self.sequences = longest(row for rows in [*states, *peeked(schedule)] for row in rows)
        self._passes: dict[Row, Logits] = {}

    def logits(self, step: Step) -> Logits:
        """What the logits of this step have to be; zeros where they are of padding."""
        assert step.logits is not None
        new = step.logits.size(1)
        rows = [self._row(row)[-new:] for row in step.answered]
        return torch.stack([torch.cat([row.new_zeros(new - len(row), row.size(1)), row]) for row in rows])

    def _row(self, row: Row) -> Tensor:
        whole = next(sequence for sequence in self.sequences if sequence[: len(row)] == row)
        if whole not in self._passes:
            self._passes[whole] = self.decoder.full(as_tensor([whole], self.decoder))
        return self._passes[whole][0, : len(row)]


class Straight:
    """The oracle for a cache that rounds on purpose: what the same calls alone give, in a fresh cache."""

    said = "with a fresh cache and these calls alone"

    def __init__(self, decoder: Decoder, schedule: Schedule) -> None:
        self.decoder, self.schedule = decoder, schedule

    def logits(self, step: Step) -> Logits:
        """What the logits of this step have to be."""
        logits = run(self.decoder, straight(self.schedule, step.index)).logits[-1]
        assert logits is not None
        return logits


def oracle_for(decoder: Decoder, schedule: Schedule) -> Uncached | Straight:
    """What a law compares with that asks how a cache is handled, and not what it keeps."""
    return (Uncached if Capability.LOSSLESS in decoder.capabilities else Straight)(decoder, schedule)


def peeked(schedule: Schedule) -> Iterator[list[Row]]:
    """The sequences whose logits are asked for without keeping them."""
    for op, state in schedule:
        if isinstance(op, Peek):
            yield [past + new for past, new in zip(state[op.cache].rows, op.tokens, strict=True)]


def first_rows(layers: Layers, length: int) -> FirstLayers:
    """Keys and values of the first `length` tokens."""
    return [(keys[:, :, :length], values[:, :, :length]) for keys, values in layers]


def tokens_of(layers: Layers, row: int, length: int) -> FirstLayers:
    """Keys and values of the `length` tokens of one row, which are behind its padding."""
    kept = slice(row, row + 1), slice(None), slice(layers[0][0].size(2) - length, None)
    return [(keys[kept], values[kept]) for keys, values in layers]


def prefilled(decoder: Decoder, sequences: Sequence[Row]) -> Layers:
    """What the keys and values of some sequences of one length are when one prefill makes them all."""
    rows = as_tensor(sequences, decoder)
    _, handle = decoder.step(decoder.start(len(rows)), rows)
    return [decoder.keys_values(handle, layer) for layer in range(decoder.size("n_layer"))]


def longest(rows: Iterable[Row]) -> list[Row]:
    """Those sequences that are not the beginning of another."""
    found: list[Row] = []
    for row in sorted(set(rows), reverse=True):
        if not found or found[-1][: len(row)] != row:
            found.append(row)
    return found

"""What a decoder does with a probe: right, or where it first goes wrong, and in what."""

from dataclasses import astuple, dataclass
from time import perf_counter
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.hooks import RemovableHandle

from kvref.answers import DecoderRaised, OutOfReach, Refused
from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.diagnosis.probes import probes_for
from kvref.finding import usable
from kvref.lens import differs
from kvref.operations import Overflow
from kvref.schedule import Schedule
from kvref.trace import Step, Uncached, as_tensor, play, prefilled, tokens_of

RIGHT = "right"


@dataclass(frozen=True)
class Symptom:
    """Where a probe first goes wrong: at which step, in what, in which rows, and at which of its new positions.

    `what` is `logits`, `refusal` (where tokens that do not fit are taken), `raised`, or `length` for what the decoder
    says of its length, which is kept apart, as it may be right where logits are wrong, and wrong where they are right.

    `cache` says what is wrong in the first layer of the cache by then, for what is wrong in deeper ones may follow:
    `keys`, `values`, `both` or `nothing`; that there are fewer or more of them than tokens, `short` and `long`; or that
    it is `hidden`. `part` says of which tokens that is so: the `new` ones of the step, those of the `past`, or `any`.
    `entry` says whether it is wrong `before` the first layer already, as where positions are learned, or only `within`.
    """

    step: int
    what: str
    cache: str = "hidden"
    part: str = "any"
    entry: str = "hidden"
    rows: str = "all"
    positions: str = "all"

    def __str__(self) -> str:
        return " ".join(map(str, astuple(self)))

    @classmethod
    def read(cls, text: str) -> "Symptom | None":
        """What `str` wrote; None for a probe that goes right."""
        if text == RIGHT:
            return None
        step, *rest = text.split()
        return cls(int(step), *rest)


def signature(decoder: Decoder, end: float | None = None) -> dict[str, str]:
    """How each probe goes that fits a decoder, by name, and what it says of its length, until a point in time if given.

    Those which it refuses, or which the lens cannot reach, are left out.
    """
    found = dict[str, str]()
    for name, schedule in probes_for(decoder):
        if end is not None and perf_counter() > end:
            break
        try:
            found |= {name + what: str(answer or RIGHT) for what, answer in symptoms(decoder, schedule).items()}
        except (Refused, OutOfReach):
            continue
    return found


def symptoms(decoder: Decoder, schedule: Schedule) -> dict[str, Symptom | None]:
    """The first thing that goes wrong in what a decoder does, and in what it says of its length if it says anything.

    Raises what `play` raises where the decoder refuses, or is out of reach.
    """
    oracle, tells = Uncached(decoder, schedule), Capability.LENGTH in decoder.capabilities
    wrong = dict[str, Symptom | None].fromkeys(["", SAID] if tells else [""])
    try:
        with Entry(decoder) as entry:
            for step in play(decoder, schedule):
                if tells and not wrong[SAID] and step.length != step.content.length:
                    wrong[SAID] = Symptom(step.index, "length")
                wrong[""] = wrong[""] or wrong_step(step, oracle, entry)
                entry.heard = []
    except (Refused, OutOfReach):
        raise
    except DecoderRaised as error:
        wrong[""] = wrong[""] or Symptom(-1 if error.step is None else error.step, "raised")
    return wrong


SAID = ", its length"
"""What the name of a probe ends with for what a decoder says of its length."""


class Entry:
    """What last came into the first layer of a decoder or, where it shows none, out of its embeddings."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.heard: list[Tensor] = []
        self.hook: RemovableHandle | None = None

    def __enter__(self) -> "Entry":
        if Capability.LAYERS in self.decoder.capabilities:
            self.hook = self.decoder.layers()[0].register_forward_pre_hook(self.hear_layer)
        else:
            self.hook = register_module_forward_hook(self.hear_embedding)
        return self

    def __exit__(self, *_: object) -> None:
        if self.hook:
            self.hook.remove()

    def hear_layer(self, _: nn.Module, args: tuple[Any, ...]) -> None:
        """Take the first argument of the layer."""
        self.heard = [argument for argument in args[:1] if isinstance(argument, Tensor)]

    def hear_embedding(self, module: nn.Module, args: object, output: object) -> None:
        """Take what an embedding gives, of tokens or of positions."""
        del args
        if isinstance(module, nn.Embedding) and isinstance(output, Tensor):
            self.heard.append(output)

    def wrong(self, step: Step, row: int, column: int) -> str:
        """Whether a new token of a step came in otherwise than it does without a cache."""
        tokens, new = step.answered[row], 0 if step.logits is None else step.logits.size(1)
        at = len(tokens) - (new - column)
        cached = [vector(tensor, row, column, new) for tensor in self.heard]
        self.heard = []
        if at >= 0:
            self.decoder.full(as_tensor([tokens], self.decoder))
        alone = [vector(tensor, 0, at, len(tokens)) for tensor in self.heard]
        if not cached or len(cached) != len(alone):
            return "hidden"
        pairs = [(got, want) for got, want in zip(cached, alone, strict=True) if got is not None and want is not None]
        if len(pairs) < len(cached) or any(got.shape != want.shape or got.dtype != want.dtype for got, want in pairs):
            return "hidden"
        other = (bool(differs(got[None], want[None], self.decoder.lens).any()) for got, want in pairs)
        return "before" if any(other) else "within"


def vector(tensor: Tensor, row: int, column: int, new: int) -> Tensor | None:
    """What a tensor has for one token; None where it has none."""
    if tensor.ndim >= 3 and tensor.shape[1] == new and row < len(tensor):
        return tensor[row, column].flatten().clone()
    return tensor[column].clone() if tensor.ndim == 2 and len(tensor) == new else None


def wrong_step(step: Step, oracle: Uncached, entry: Entry) -> Symptom | None:
    """What is wrong in what came back from a step."""
    if isinstance(step.op, Overflow):
        return Symptom(step.index, "refusal") if step.refusal is None else None
    if step.logits is None:
        return None
    came, entry.heard = entry.heard, []
    want = oracle.logits(step)
    entry.heard = came  # the oracle's own passes came in too
    wrong = differs(step.logits, want, step.decoder.lens) | ~usable(step.logits)
    if not bool(wrong.any()):
        return None
    row, column = (int(place) for place in wrong.nonzero()[0])
    entered = entry.wrong(step, row, column)
    rows, positions = shares(wrong.any(dim=1)), shares(wrong.any(dim=0))
    return Symptom(step.index, "logits", *wrong_cache(step), entered, rows, positions)


def shares(wrong: Tensor) -> str:
    """Which of some things are wrong: all, the first or the last, all but these, or some."""
    n = len(wrong)
    places = [int(place) for place in wrong.nonzero()[:, 0]]
    named = {
        "all": [*range(n)],
        "last": [n - 1],
        "first": [0],
        "but-last": [*range(n - 1)],
        "but-first": [*range(1, n)],
    }
    return next((name for name, these in named.items() if these == places), "some")


def wrong_cache(step: Step) -> tuple[str, str]:
    """What the first layer of a cache holds that one prefill of the same tokens does not give, and for which of them.

    Hidden where the decoder does not show it.
    """
    try:
        layers = step.keys_values()
    except Refused:
        return "hidden", "any"
    if not layers:
        return "hidden", "any"
    columns = layers[0][0].size(2)
    if columns != step.content.width:
        return "short" if columns < step.content.width else "long", "any"
    wrong = dict.fromkeys(NAMES, False)
    places = set[bool]()
    for row, tokens in enumerate(step.content.rows):
        if not tokens:
            continue
        mine = tokens_of(layers[:1], row, len(tokens))[0]
        for name, got, want in zip(NAMES, mine, prefilled(step.decoder, [tokens])[0], strict=True):
            unlike = columns_unlike(got, want, step.decoder)
            wrong[name] |= bool(unlike)
            places |= {column >= len(tokens) - step.new for column in unlike}
    part = "any" if len(places) != 1 else "new" if places == {True} else "past"
    return "both" if all(wrong.values()) else next((name for name in NAMES if wrong[name]), "nothing"), part


NAMES = ("keys", "values")


def columns_unlike(got: Tensor, want: Tensor, decoder: Decoder) -> list[int]:
    """Tokens of which keys or values are not the same under the decoder's lens; all where shape or dtype is not."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return [*range(want.size(2))]
    return [int(column) for column in differs(got, want, decoder.lens).any(dim=(0, 1)).nonzero()[:, 0]]

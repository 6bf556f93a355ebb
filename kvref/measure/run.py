"""One run of `kvref measure`: what is asked is looked at first, then timed, printed and kept row by row."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import torch

from kvref import weights
from kvref.asked import Asked
from kvref.config import GPTConfig
from kvref.environment import environment
from kvref.errors import STOPPED, BadInput
from kvref.measure import formulas, picture, summary
from kvref.measure.curves import WINDOW, Curves, curves
from kvref.measure.graphs import graphed_seconds
from kvref.measure.kept import Kept
from kvref.measure.latency import measure_generation, measure_latency
from kvref.measure.limits import Limits, measure_limits, require_memory
from kvref.measure.same import LARGE, require_same
from kvref.measure.samples import Sample, Setting, spaced
from kvref.measure.subjects import SHAPES, Subject, reference_subject, target_subject
from kvref.said import Say
from kvref.targets import Bench, Target
from kvref.targets.reference import GrowingDecoder, describe

GENERATED = 128
"""Tokens that whole generations go up to at most: they take all ways in each repeat."""


@dataclass(frozen=True)
class Request:
    """What is asked for. `sizes` are shapes of the reference, where it is the target; GPT-2 small by itself."""

    asked: Asked
    sizes: tuple[str, ...] = ()
    batches: tuple[int, ...] = (1,)
    tokens: int = 500
    prompt: int = 8
    repeats: int = 5
    places: int = 12
    peers: bool = True
    pictures: tuple[Path, ...] = ()
    out: Path = Path(".kvref")

    def require(self) -> None:
        """Raise `BadInput` for what no decoder could be asked."""
        numbers = {
            "--batch": min(self.batches),
            "--prompt": self.prompt,
            "--repeats": self.repeats,
            "--places": self.places,
        }
        for name, number in numbers.items():
            if number < 1:
                raise BadInput(f"{name} is {number}; it must be at least 1")
        if self.tokens <= self.prompt:
            raise BadInput(
                f"--tokens {self.tokens} leaves none behind a prompt of {self.prompt}; give more, or a shorter --prompt"
            )
        for size in self.sizes:
            if size not in SHAPES:
                raise BadInput(f"there is no size {size!r}; there are {', '.join(SHAPES)}")
        if self.sizes and not self.of_reference:
            raise BadInput(f"--size is for the reference; {self.asked.target or self.asked.weights} has its own shape")
        if "," in (self.asked.attn or ""):
            raise BadInput("give one kind of attention: all ways are compared with one pass without a cache")
        for path in self.pictures:
            picture.require_picture(path)

    @property
    def of_reference(self) -> bool:
        """Whether shapes of the reference are meant."""
        return self.asked.weights is None and (self.asked.target or "reference").partition(":")[0] == "reference"

    @property
    def setting(self) -> Setting:
        """What is run of each subject."""
        positions = spaced(min(self.prompt + WINDOW, self.tokens), self.tokens, self.places)
        return Setting(self.prompt, self.tokens, positions, self.repeats)

    def require_room(self, name: str, block_size: int) -> None:
        """Raise `BadInput` for more tokens than a context has room for."""
        if self.tokens > block_size:
            raise BadInput(
                f"{self.tokens} tokens exceed the context of {name}, {block_size}: give --tokens {block_size} or fewer"
            )


def subjects(request: Request) -> Iterator[Subject]:
    """What is timed, one after the other, so that one alone is in memory."""
    asked = request.asked
    bench = asked.bench()
    dtype = bench.dtypes[0] if bench.dtypes else torch.float32
    if request.of_reference:
        kinds = [target.name.rpartition(":")[2] for target in targets_of(asked, bench)]
        for size in request.sizes or ("gpt2",):
            request.require_room(size, SHAPES[size].block_size)
        for size in request.sizes or ("gpt2",):
            weights.loud.cache_clear()  # the last size would stay in memory beside this one
            require_memory(memory(SHAPES[size], request, dtype), bench.device, size)
            yield reference_subject(
                size, weights.loud(SHAPES[size], 0, dtype, bench.device), kinds, peers=request.peers
            )
    elif asked.weights is not None:
        targets = targets_of(asked, bench)
        kinds = [target.name.rpartition(":")[2] for target in targets]
        model = cast("GrowingDecoder", targets[0].decoders()[0].given).model
        yield reference_subject(Path(asked.weights).name, model, kinds, peers=request.peers)
    else:
        yield target_subject(str(asked.target), targets_of(asked, bench))


def targets_of(asked: Asked, bench: Bench) -> list[Target]:
    """What a check would try, but with the threads that there are: tiny decoders are checked with one."""
    threads = torch.get_num_threads()
    try:
        return asked.targets(bench)
    finally:
        torch.set_num_threads(threads)


def memory(config: GPTConfig, request: Request, dtype: torch.dtype) -> int:
    """Bytes that a size takes at least: its weights for each who holds them, caches, and the logits of a naive pass."""
    held = formulas.weight_bytes(config, dtype)
    copies = 1 + request.peers + (held < LARGE)
    rows = max(request.batches)
    cached = 2 * formulas.cache_bytes(config, request.tokens, dtype, rows)
    return copies * held + cached + 2 * rows * request.tokens * config.vocab_size * dtype.itemsize


def measure(request: Request, say: Say) -> tuple[int, list[Curves]]:
    """Time all that is asked for. The exit code is 0, or 4 where it was stopped; what was measured is kept and said."""
    request.require()
    said, done = list[str](), list[Curves]()
    kept = Kept(
        request.out,
        {"environment": dict(environment(request.asked.bench().device)), "setting": asdict(request.setting)},
    )

    def tell(line: str) -> None:
        said.append(line)
        say(line)

    stopped = True
    try:
        for subject in subjects(request):
            request.require_room(subject.name, subject.block_size)
            for batch in request.batches:
                one(subject, batch, request, kept, tell, done)
            del subject  # or it would be in memory beside the next
        stopped = False
    except KeyboardInterrupt:
        pass
    finally:
        for file in request.pictures if done else ():
            picture.draw(done, file, title(request))
            tell(f"picture: {file}")
        if path := kept.close(said, stopped=stopped):
            tell(f"samples: {path}")
    if stopped:
        tell("stopped before the end; what is above was done")
    return STOPPED if stopped else 0, done


def one(subject: Subject, batch: int, request: Request, kept: Kept, tell: Say, done: list[Curves]) -> None:
    """Time one subject at one batch size, and say what came of it; also of what was done when it is stopped."""
    tell(head(subject, batch, request))
    for way, decoder in subject.decoders.items():
        tell(f"  {way}: {require_same(decoder, batch, subject.weight_bytes)} as an uncached pass")
    samples = list[Sample]()
    try:
        for sample in measure_latency(subject, batch, request.setting):
            kept.add(sample)
            samples.append(sample)
        if subject.peers:
            for sample in measure_generation(subject, batch, request.prompt, generated(request), request.repeats):
                kept.add(sample)
                samples.append(sample)
    finally:
        timed = [curves(samples)] if any(sample.what == "token" for sample in samples) else []
        done += [curve for curve in timed if curve.positions]
        for line in (line for curve in timed for line in summary.summary(curve)):
            tell(line)
        for line in summary.generations(samples, list(subject.ways)[-1], [*subject.ways, *subject.peers]):
            tell(line)
    for curve in timed:
        most = measure_limits(subject.device, subject.dtype)
        for line in (*summary.limits(curve, subject, most), *graphed(subject, curve, most)):
            tell(line)
        for line in picture.terminal(curve):
            tell(line)
    tell("")


def graphed(subject: Subject, curve: Curves, most: Limits) -> Iterator[str]:
    """On a GPU, a step of the static cache as a CUDA graph; `subject` has to be the reference."""
    if subject.device.type == "cuda" and subject.model is not None and curve.positions:
        last = curve.positions[-1]
        seconds = graphed_seconds(subject.model, curve.batch, last - 1)
        read = subject.read_bytes(curve.batch, last - 1) or 0
        share = read / most.bytes_per_second / seconds
        yield f"  as a CUDA graph, static: {1000 * seconds:.3f} ms for a token, {share:.0%} of the bandwidth"


def generated(request: Request) -> int:
    """Tokens that whole generations go up to."""
    return min(request.tokens, request.prompt + GENERATED)


def head(subject: Subject, batch: int, request: Request) -> str:
    """What is timed, in one line."""
    shape = "" if subject.config is None else f" ({describe(subject.config)})"
    dtype = str(subject.dtype).removeprefix("torch.")
    return (
        f"{subject.name}{shape}, {dtype}, batch {batch}, {subject.device}, {torch.get_num_threads()} threads, "
        f"{request.repeats} repeats"
    )


def title(request: Request) -> str:
    """What a picture says above its panels."""
    here = dict(environment(request.asked.bench().device))
    where = here["device"] if here["device"] != "cpu" else here["cpu"]
    return (
        f"{where}; torch {here['torch']}, {torch.get_num_threads()} threads; "
        f"median and range of {request.repeats} repeats"
    )

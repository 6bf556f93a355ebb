"""What a check is asked for: the target and how it is tested, from a command line or from a case."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from shlex import quote, split
from typing import TYPE_CHECKING, Any

from kvref.errors import BadInput, CaseError, one_line

if TYPE_CHECKING:
    from kvref.targets import Bench, Target


@dataclass(frozen=True)
class Asked:
    """The options of `kvref check` that say what is tested, and under which numerics."""

    target: str | None = None
    weights: str | None = None
    text: Path | None = None
    prompt: str | None = None
    cache: str | None = None
    attn: str | None = None
    device: str = "auto"
    lens: str = "tile"
    dtype: tuple[str, ...] = ()

    @classmethod
    def of_command(cls, arguments: str) -> "Asked":
        """Read the arguments of `kvref check` as one would give them; raise `CaseError` where it takes no such ones."""
        from typer.main import get_command

        from kvref.cli import app

        commands: Any = get_command(app)
        try:
            words = split(arguments)
            if "--help" in words:
                raise CaseError("it asks for help")
            given = commands.commands["check"].make_context("check", words).params
        except Exception as error:
            described = getattr(error, "format_message", None)
            said = " ".join(described().split()) if described else one_line(error)
            raise CaseError(f"`kvref check {arguments}` is no command: {said}") from error
        options: dict[str, Any] = {name: given[name] for name in ASKED}
        return cls(**options, dtype=tuple(given["dtype"] or ()))

    def flags(self) -> str:
        """Command-line flags that set up the same bench."""
        names = ("device", "lens", "text", "prompt")
        chosen = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(Asked, name)}
        named = "".join(f" --{name} {quote(str(value))}" for name, value in chosen.items())
        return named + "".join(f" --dtype {name}" for name in self.dtype)

    @property
    def large(self) -> bool:
        """Whether it is a checkpoint, whose passes may take a thousand times those of a tiny model."""
        return self.weights is not None or (self.target or "").startswith("hf:")

    @property
    def of_transformers(self) -> bool:
        """Whether it is a model of transformers, as far as its name says."""
        return (self.target or "").partition(":")[0] in ("hf", "hf-config")

    @property
    def foreign(self) -> bool:
        """Whether it is code that is not kvref's own, which may hang, or take its process along."""
        return self.target is not None and self.target.partition(":")[0] not in ("reference", "bug")

    def require_lens(self, bench: "Bench") -> None:
        """Prove once that the lens can claim its bits here. Raises `NotExact` where it cannot."""
        from kvref.exactness import MODES

        if self.lens in MODES:
            proved(self.lens, str(bench.device))

    def bench(self) -> "Bench":
        """Where and how decoders are tested. Raises `BadInput` for what there is not."""
        import torch

        from kvref.device import resolve_device
        from kvref.lens import dtypes_called, lens_called
        from kvref.prompts import read_text
        from kvref.targets import Bench

        if self.text is not None and self.prompt is not None:
            raise BadInput("give --text or --prompt, not both")
        found = resolve_device(self.device)
        text = None if self.text is None else read_text(self.text)
        lens_called(self.lens, torch.float32)  # raises now for a lens that there is not
        return Bench(found, self.lens, dtypes_called(list(self.dtype)), text, self.prompt, self.flags())

    def targets(self, bench: "Bench") -> "list[Target]":
        """Targets that are meant. A tiny model is quickest on one thread, a checkpoint on all."""
        import torch

        from kvref.targets.resolve import checkpoint, resolve

        if not self.large:
            torch.set_num_threads(1)
        if self.weights is None:
            return resolve("reference" if self.target is None else self.target, bench, self.cache, self.attn)
        if self.target is not None:
            raise BadInput(f"give a target or --weights, not both: {self.target}, {self.weights}")
        if self.attn is not None:
            raise BadInput("--attn is for models of transformers; --weights are checked in the reference")
        return checkpoint(self.weights, bench, self.cache)


@lru_cache
def proved(mode: str, device: str) -> None:
    """The self-test of a mode on a device, once in a process."""
    import torch

    from kvref.exactness.selftest import require

    require(mode, torch.device(device))


ASKED = tuple(name for name in Asked.__dataclass_fields__ if name != "dtype")
"""Options that are taken as they are."""

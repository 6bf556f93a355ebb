"""A case as a script of its own: it asks the decoder what the case asks, with torch and the decoder's package alone.

It is for whoever keeps the decoder, and has no kvref. What it asks is not composed but written down while the case is
played, so that it is what was done.
"""

from dataclasses import dataclass, field
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from pprint import pformat
from shlex import split
from textwrap import indent
from typing import TYPE_CHECKING, Any

import torch

from kvref.answers import DecoderRaised
from kvref.asked import Asked
from kvref.capability import Capability
from kvref.case import Case
from kvref.decoder import Decoder
from kvref.errors import CaseError
from kvref.lens import NATIVE, relative_gap
from kvref.operations import Abort, Op, Overflow, Poison, Restore, Row
from kvref.pen import Pen, WrittenLM, WrittenModule, written
from kvref.replay import decoder_of, law_of, require_tokens
from kvref.schedule import Schedule
from kvref.targets.named import named_in_project
from kvref.trace import Step, as_tensor, play

if TYPE_CHECKING:
    from kvref.targets.causal_lm import CausalLM

LARGE = 1e-3
"""A relative gap that no float32 makes by rounding; a smaller one is shown in float64."""

SHARE = 0.1
"""The script takes for right what is off by less than this share of what was seen."""

NOT_WRITTEN: tuple[type[Op], ...] = (Abort, Overflow, Poison, Restore)
"""Operations that are about no logits, or need what is kvref's own."""

HEAD = '''\
# {law} does not hold: {sentence}
# target: {target}
# seen: {seen}
# {ends} while it is so. Written by kvref, which it does not need.
{imports}

{setup}
gaps = []


def compare(where, got, want):
    """Note how far logits with a cache are from those without, relative to the largest of these."""
    gaps.append(((got - want).abs().max() / want.abs().max()).item())
    print(f"{{where}}: off by {{gaps[-1]:.2g}}")


'''

TAIL = """
sys.exit(not all(gap <= {bound:.1g} for gap in gaps))
"""


@dataclass
class Recording:
    """A case as it is played before a pen: the script's lines so far, and how large the gaps were."""

    decoder: Decoder
    pen: Pen
    gaps: list[float] = field(default_factory=list[float])
    known: dict[Row, tuple[str, torch.Tensor]] = field(default_factory=dict[Row, tuple[str, torch.Tensor]])

    def play(self, schedule: Schedule) -> DecoderRaised | None:
        """Play a schedule up to its end, or to where the decoder raises."""
        words = str(schedule).splitlines()
        self.pen.write(f"# {words[0].strip()}")
        try:
            for step in play(self.decoder, schedule):
                self.compare(step)
                if step.index + 1 < len(words):
                    self.pen.write(f"# {words[step.index + 1].strip()}")
        except DecoderRaised as error:
            return error
        return None

    def compare(self, step: Step) -> None:
        """Compare the logits of a step with those of an uncached pass over each of its rows."""
        if step.logits is None:
            return
        got, new = self.pen.logits, step.logits.size(1)
        for row, sequence in enumerate(step.answered):
            if not (count := min(new, len(sequence))):
                continue
            if sequence not in self.known:
                logits = self.decoder.full(as_tensor([sequence], self.decoder))
                self.known[sequence] = self.pen.logits, logits
            want, logits = self.known[sequence]
            self.gaps.append(relative_gap(step.logits[row, -count:], logits[0, -count:]))
            self.pen.write(
                f'compare("step {step.index + 1}, row {row}", {got}[{row}, -{count}:], {want}[0, -{count}:])'
            )


def script(case: Case) -> str:
    """Python that shows a case without kvref. Raises `BadInput` where there is none."""
    law, decoder = law_of(case), decoder_of(case)
    require_tokens(case, decoder)
    if Capability.LOSSLESS not in decoder.capabilities and not case.raised:
        raise CaseError("a script compares with an uncached pass, and this cache rounds; `kvref replay` plays it")
    if kinds := sorted({type(op).__name__.lower() for op in case.schedule.ops if isinstance(op, NOT_WRITTEN)}):
        raise CaseError(f"a schedule with {', '.join(kinds)} cannot be written down; `kvref replay` plays it")
    double = False
    recording, raised = recorded(decoder, case.schedule, double=double)
    if not raised and max(recording.gaps, default=0.0) < LARGE:
        double = True
        recording, raised = recorded(decoder, case.schedule, double=double)
    require_shown(case, recording, raised)
    imports, setup = made(case, recording, double=double)
    head = HEAD.format(
        law=law.name,
        sentence=law.sentence,
        target=f"{case.decoder}{', in float64' if double else ''}",
        seen=case.diverges or (raised and str(raised)) or "nothing was written down",
        ends="Raises" if raised else "Exits with 1",
        imports="\n".join(imports),
        setup="\n".join(setup),
    )
    body = "with torch.inference_mode():\n" + indent("\n".join(recording.pen.lines), "    ") + "\n"
    finite = [gap for gap in recording.gaps if isfinite(gap)]
    return head + body + ("" if raised else TAIL.format(bound=SHARE * max(finite, default=1.0)))


def recorded(decoder: Decoder, schedule: Schedule, *, double: bool) -> tuple[Recording, DecoderRaised | None]:
    """A schedule as it is played under ordinary kernels, and what the decoder raised."""
    pen = Pen()
    implementation: Any = written(decoder.given, pen, double=double)
    recording = Recording(Decoder(implementation, decoder.name, NATIVE), pen)
    return recording, recording.play(schedule)


def require_shown(case: Case, recording: Recording, raised: DecoderRaised | None) -> None:
    """Raise `CaseError` where the script would show nothing."""
    if raised and isinstance(raised.error, CaseError):
        raise raised.error
    if case.raised and not raised:
        raise CaseError("the decoder raises no more on this schedule")
    if raised and not case.raised:
        raise CaseError(f"under ordinary kernels {raised}, which is something else")
    if not raised and all(gap < 1e-7 for gap in recording.gaps):
        raise CaseError(
            "what this law compares are not logits with those of an uncached pass, or it is mended; "
            "`kvref replay` plays it"
        )


def made(case: Case, recording: Recording, *, double: bool) -> tuple[list[str], list[str]]:
    """Lines that import what is needed, and that make the decoder."""
    target = Asked.of_command(case.check).target or ""
    if ":" not in target and (named := named_in_project(target)):
        target = named.target
    head, _, tail = target.partition(":")
    implementation: Any = recording.decoder.given
    if isinstance(implementation, WrittenLM):
        return of_transformers(head, tail, implementation)
    if head in ("reference", "bug") or not tail:
        raise CaseError(f"{case.check} is made by kvref; a script can do without it for your own decoders and for hf:")
    return of_factory(head, tail, dtype(case, double=double), is_module=isinstance(implementation, WrittenModule))


def dtype(case: Case, *, double: bool) -> str:
    """What a module is cast to; nothing where it stays as it is."""
    if double:
        return "float64"
    words = split(case.check)
    return words[words.index("--dtype") + 1] if "--dtype" in words else ""


def of_factory(head: str, factory: str, dtype: str, *, is_module: bool) -> tuple[list[str], list[str]]:
    """A decoder that a function of a module or file makes."""
    module, paths = head, ['sys.path.insert(0, "")']
    if head.endswith(".py"):
        path = Path(head)
        module, paths = path.stem, [f"sys.path.insert(0, {str(path.parent)!r})"]
    imports = ["import sys", "from importlib import import_module", "", "import torch"]
    cast = f".to(torch.{dtype})" if dtype else ""
    name, ready = ("model", f"{cast}.eval()") if is_module else ("decoder", "")
    found = f".{factory}" if factory.isidentifier() else f".__dict__[{factory!r}]"
    return imports, [
        *paths,
        "torch.manual_seed(0)  # the same random weights each time",
        f"{name} = import_module({module!r}){found}(){ready}",
    ]


def of_transformers(head: str, tail: str, implementation: "CausalLM") -> tuple[list[str], list[str]]:
    """A model of transformers: a checkpoint, or a config with random weights."""
    model: Any = implementation.model
    dtype, attention = str(implementation.dtype), model.config._attn_implementation
    imports = ["import sys", "from copy import deepcopy", "", "import torch"]
    if head == "hf":
        imports.append("from transformers import AutoModelForCausalLM, DynamicCache, StaticCache")
        options = f'attn_implementation="{attention}", dtype={dtype}, use_safetensors=True'
        return imports, [f"model = AutoModelForCausalLM.from_pretrained({tail!r}, {options}).eval()"]
    config = model.config.to_diff_dict()
    names = sorted([type(model).__name__, type(model.config).__name__, "DynamicCache", "StaticCache"])
    imports.append(f"from transformers import {', '.join(names)}")
    shown = pformat({key: value for key, value in config.items() if key != "dtype"}, sort_dicts=False, width=110)
    return imports, [
        f"# transformers {version('transformers')}",
        f"config = {type(model.config).__name__}.from_dict(",
        indent(shown, "    "),
        ")",
        f'options = {{"attn_implementation": "{attention}", "experts_implementation": "eager"}}',
        f"model = {type(model).__name__}._from_config(config, **options).to({dtype}).eval()",
        "generator = torch.Generator().manual_seed(0)",
        "for parameter in model.parameters():  # loud weights, under which attention is not almost uniform",
        "    noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)",
        "    matrix = noise / parameter.shape[-1] ** 0.5",
        "    parameter.data.copy_(matrix if parameter.ndim > 1 else parameter.data.double() + 0.2 * noise)",
    ]

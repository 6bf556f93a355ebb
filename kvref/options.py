"""Options that several commands have: one spelling and one text for each. Nothing here imports torch."""

from typing import Annotated

import typer

Laws = Annotated[list[str] | None, typer.Option("--law", help="Only this law; may be given again.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed draws the same schedules.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Lens = Annotated[
    str,
    typer.Option(help="tile, grid, fold: the same bits, by three arithmetics; float64: ordinary kernels, a bound."),
]
Cache = Annotated[
    str | None,
    typer.Option(
        help="growing or static, for the reference and models derived from it; else both. For models of "
        "transformers dynamic, recorded (it can leave a window), claimed (cropped as it says it can be), "
        "static, and the quantised fp8, quanto and hqq, with commas; else what it says fits. "
        "Other packages have kinds of their own."
    ),
]
Attention = Annotated[
    str | None,
    typer.Option(help="eager and sdpa, with commas, for models of transformers; else what each prefers."),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=1,
        help="Seconds for one call, after which a target counts as hanging; else 60, 600 for a checkpoint.",
        show_default=False,
    ),
]

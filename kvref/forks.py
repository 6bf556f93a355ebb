"""Where processes come from: a server that has imported what they need, and is forked, so that one is soon replaced.

Nothing of torch is imported here: the server is started first, and imports it while this process does.
"""

from collections.abc import Sequence
from multiprocessing import forkserver, get_all_start_methods, get_context

FORKS = "forkserver" in get_all_start_methods()
CONTEXT = get_context("forkserver") if FORKS else get_context("spawn")

NEEDED = ("kvref.matrix.worker",)
"""What imports torch, and what of torch is imported late."""

TRANSFORMERS = ("transformers.cache_utils", "transformers.modeling_utils", "transformers.models.auto.modeling_auto")
"""What takes seconds to import, and every model of transformers needs."""

CONTEXT.set_forkserver_preload(list(NEEDED))


def warm(modules: Sequence[str] = ()) -> None:
    """Start the server now, with more modules imported; it stays as it is where it was started before."""
    CONTEXT.set_forkserver_preload([*NEEDED, *modules])
    if FORKS:
        forkserver.ensure_running()

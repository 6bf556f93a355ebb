"""What a target string means."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Any

import torch

from kvref import weights
from kvref.bug import Bug, catalogue
from kvref.decoder import Decoder
from kvref.errors import KvrefError, TargetError, one_line
from kvref.gpt2 import GPT
from kvref.targets.base import Bench, OneDecoder, Target
from kvref.targets.module import decoder_of
from kvref.targets.named import named_by_package, named_in_project
from kvref.targets.packages import PACKAGES, from_package
from kvref.targets.reference import DECODERS, PARTS, Part, ReferenceTarget, describe, kind_of

FORMS = (
    "reference, bug:NAME, hf-config:TYPE, hf:CHECKPOINT, "
    f"{', '.join(f'{package}:...' for package in PACKAGES)}, package.module:factory or path/file.py:factory"
)


def resolve(target: str, bench: Bench, kind: str | None = None, attention: str | None = None) -> list[Target]:
    """Turn what a user names into targets, one for each kind of cache that is meant.

    A trailing `:growing` or `:static` on the reference or a bug chooses the cache, as `kind` does; for a model of
    transformers there may be several kinds, and kinds of attention, with commas between. A name alone is looked for in
    pyproject.toml, then among the entry points of installed packages. Raises `TargetError` with what to do instead.
    """
    head, _, tail = target.partition(":")
    if ":" not in target and target != "reference" and (named := named_in_project(target)):
        if ":" not in named.target and named.target != "reference":
            raise TargetError(f"{target} stands for {named.target!r}, which is no target; give {FORMS}")
        return resolve(named.target, bench, kind or named.cache, attention or named.attn)
    if head in ("hf", "hf-config"):
        from kvref.targets.hugging_face import from_checkpoint, from_config

        return (from_config if head == "hf-config" else from_checkpoint)(tail, target, bench, kind, attention)
    if attention is not None:
        raise TargetError(f"--attn is for models of transformers; {target} has its own attention")
    if head in PACKAGES:
        return from_package(head, tail, target, bench, kind)
    require_kind(kind)
    if head in ("reference", "bug"):
        name, _, suffix = tail.rpartition(":") if tail.rpartition(":")[2] in DECODERS else (tail, "", "")
        if suffix and kind not in (None, suffix):
            raise TargetError(f"{target} names the {suffix} cache, --cache the {kind} one; give one of them")
        if head == "reference":
            if name:
                raise TargetError(f"there is no {target}; the reference has {' and '.join(DECODERS)} caches")
            return reference(bench, suffix or kind)
        return [find_bug(name).target(bench, suffix or kind)]
    found = load(head, tail) if tail else named_by_package(target)
    if found is None:
        raise TargetError(f"{target!r} is no target, and nothing is called so; give {FORMS}")
    part = part_of(found)
    if part and issubclass(part, GPT) and kind is None:
        return [from_object(found, target, bench, k) for k in DECODERS]
    return [from_object(found, target, bench, kind)]


def require_kind(kind: str | None) -> None:
    """Raise `TargetError` for a cache that the reference does not have."""
    if kind not in (None, *DECODERS):
        raise TargetError(f"there is no {kind!r} cache; give {' or '.join(DECODERS)}")


def reference(bench: Bench, kind: str | None = None) -> list[Target]:
    """The reference with each kind of cache, or with one."""
    return [ReferenceTarget(f"reference:{k}", k, bench) for k in DECODERS if kind in (None, k)]


def checkpoint(name: str, bench: Bench, kind: str | None = None) -> list[Target]:
    """A GPT-2 checkpoint in the reference, with each kind of cache, or with one."""
    require_kind(kind)
    dtype = bench.dtypes[0] if bench.dtypes else torch.float32
    model = weights.load(name, dtype, bench.device)
    targets: list[Target] = []
    lens = bench.lens_for(dtype)
    for k in [k for k in DECODERS if kind in (None, k)]:
        decoder = Decoder(DECODERS[k](model), f"{name} with a {k} cache ({describe(model.config)})", lens)
        bench.sources(decoder)  # raises now for a prompt or text that does not fit
        command = f"--weights {quote(name)} --cache {k}{bench.flags}"
        targets.append(OneDecoder(f"{Path(name).name}:{k}", command, decoder, bench))
    return targets


def find_bug(name: str) -> Bug:
    """A bug of the catalogue."""
    bugs = catalogue()
    if name not in bugs:
        near = get_close_matches(name, bugs, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(bugs)}"
        raise TargetError(f"there is no bug {name!r}; {hint}")
    return bugs[name]


def load(module_name: str, attribute: str) -> Any:
    """The object that `module:attribute` or `file.py:attribute` names."""
    try:
        module = load_file(Path(module_name)) if module_name.endswith(".py") else load_module(module_name)
    except (KvrefError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise TargetError(f"{module_name} cannot be imported ({one_line(error)})") from error
    if not hasattr(module, attribute):
        near = get_close_matches(attribute, vars(module), 1)
        raise TargetError(f"{module_name} has no {attribute!r}" + (f"; did you mean {near[0]}?" if near else ""))
    return getattr(module, attribute)


def load_file(path: Path) -> ModuleType:
    """Import a Python file by its path."""
    if not path.is_file():
        raise TargetError(f"{path} does not exist; a target like this is path/file.py:factory")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Where the file defines dataclasses, Python looks its module up by name; and it may import its neighbours.
    sys.modules.setdefault(path.stem, module)
    if str(path.parent.resolve()) not in sys.path:
        sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module


def load_module(name: str) -> ModuleType:
    """Import a module by name, from the current directory too."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def part_of(found: object) -> Part | None:
    """The class itself, if it derives from one of the reference's."""
    return found if isinstance(found, type) and issubclass(found, PARTS) else None


def from_object(found: Any, name: str, bench: Bench, kind: str | None) -> Target:
    """A target from what a name led to: a bug, a class derived from the reference's, or a factory of decoders."""
    if isinstance(found, Bug):
        return found.target(bench, kind)
    if part := part_of(found):
        kind = kind_of(part, kind, name)
        target = ReferenceTarget(f"{name} ({kind})", kind, bench, part, f"{quote(name)} --cache {kind}")
        try:
            target.decoders()
        except Exception as error:
            raise TargetError(f"{name} cannot be made from a GPTConfig ({one_line(error)})") from error
        return target
    if kind is not None:
        raise TargetError(f"--cache is for the reference; {name} brings its own cache")
    if not callable(found):
        raise TargetError(f"{name} is a {type(found).__name__}; a target is a factory: a function that makes a decoder")
    try:
        made = made_by(found)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise TargetError(f"{name}() raised {one_line(error)}") from error
    decoder = decoder_of(made, name, bench)
    bench.sources(decoder)  # raises now for a prompt or text that does not fit
    return OneDecoder(name, quote(name) + bench.flags, decoder, bench)


def made_by(factory: Callable[[], object]) -> object:
    """What a factory makes, with the same random weights whenever it is called."""
    with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType] torch leaves it untyped
        torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType] torch leaves it untyped
        return factory()

"""Run a decoder in float64, whatever dtype it is written for: what rounding did then shrinks, and a bug does not."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Self, cast

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

FLOATS: tuple[torch.dtype, ...] = (
    *(
        getattr(torch, name)
        for name in ("float8_e5m2", "float8_e5m2fnuz", "float8_e4m3fn", "float8_e4m3fnuz")
        if hasattr(torch, name)
    ),
    torch.bfloat16,
    torch.float16,
    torch.float32,
)
"""What can be lifted to float64, the coarsest first."""

WIDE = {**dict.fromkeys(FLOATS, torch.float64), torch.complex64: torch.complex128}
"""The dtype that stands for another once that is lifted."""

Kwargs = dict[str, Any]


class Promote(TorchDispatchMode):
    """While it is active, tensors of some dtypes are float64: those that come in, that are made, and that are cast to.

    A tensor that was made before keeps its dtype for Python, and so do views of it. Where it is written into, its
    memory gets a twin in float64, which is read in its stead from then on, also when the mode is entered again; on
    leaving, memory gets the rounded numbers of its twin. `rounded` says that there was a write into memory which cannot
    have a twin, so that numbers were rounded after all.
    """

    def __init__(self, lifted: frozenset[torch.dtype], own: torch.dtype) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] torch leaves it untyped
        self.lifted, self.own = lifted, own
        self.rounded = False
        self.twins: dict[int, Twin] = {}

    @override
    def __enter__(self) -> Self:
        self.twins = {key: twin for key, twin in self.twins.items() if not twin.memory.expired()}
        for twin in self.twins.values():
            twin.read()
        return super().__enter__()

    @override
    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # pyright: ignore[reportUnknownMemberType] torch leaves it untyped
        for twin in self.twins.values():
            twin.write()

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Kwargs | None = None
    ) -> Any:
        kwargs = kwargs or {}
        effect = effect_of(func)
        if effect.reshapes_in_place:
            return func(*args, **kwargs)
        if effect.views:
            return self.view(func, args, kwargs)
        targets = effect.targets(args, kwargs)
        if any(target.dtype in self.lifted for target in targets):
            return self.write(func, targets, args, kwargs)
        result = func(*self.lift(args), **self.lift(kwargs))
        return effect.answer(self.lift(result), targets) if targets else self.lift(result)

    def view(self, func: Any, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        """A view, of the same dtype as what it views; what turns out to be a copy is lifted like anything else."""
        result = func(*args, **kwargs)
        if shares_memory(result, args):
            return result
        lifted = self.lift(func(*self.lift(args), **self.lift(kwargs)))
        if is_cast(func) and self.from_own_dtype(args, kwargs) and shares_memory(lifted, args):
            return lifted.clone()
        return lifted

    def from_own_dtype(self, args: tuple[Any, ...], kwargs: Kwargs) -> bool:
        """Whether a cast leads from the decoder's own dtype to another: a copy, which may be written into."""
        wanted = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.dtype)]
        return any(dtype in self.lifted and dtype != self.own for dtype in wanted)

    def write(self, func: Any, targets: Sequence[Tensor], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        """Write into the twins of what was made before."""
        kept = [target for target in targets if target.dtype in self.lifted]
        copies = [(target, self.twin(target)) for target in kept]
        place = {id(target): target.to(self.wide(target.dtype)) for target, twin in copies if twin is None}
        result = func(*self.lift(args, place), **self.lift(kwargs, place))
        for target in kept:
            if id(target) in place:
                self.rounded = True
                target.copy_(place[id(target)])
        return effect_of(func).answer(self.lift(result), targets)

    def twin(self, tensor: Tensor) -> Tensor | None:
        """The same place in the twin of a tensor's memory, made where there is none; None where there cannot be one."""
        if tensor.layout != torch.strided:
            return None
        if (twin := self.known_twin(tensor)) is None:
            twin = self.twins[address(tensor)] = Twin(tensor, self.wide(tensor.dtype))
        return twin.place(tensor)

    def known_twin(self, tensor: Tensor) -> "Twin | None":
        """The twin that a tensor's memory has; memory that is read in another dtype too loses it, and is rounded."""
        twin = self.twins.get(address(tensor))
        if twin is None or twin.memory.expired():
            return None
        if twin.dtype == tensor.dtype:
            return twin
        self.rounded = True
        self.twins.pop(address(tensor)).write()
        return None

    def wide(self, dtype: torch.dtype) -> torch.dtype:
        """What stands for a dtype here."""
        return WIDE[dtype] if dtype in self.lifted else dtype

    def lift(self, value: Any, place: dict[int, Tensor] | None = None) -> Any:
        """The same with float64 in place of the dtypes to lift, tensors as well as names of dtypes."""
        if isinstance(value, Tensor):
            if place and id(value) in place:
                return place[id(value)]
            return self.lift_tensor(value) if value.dtype in self.lifted else value
        if isinstance(value, torch.dtype):
            return self.wide(value)
        if isinstance(value, list | tuple):
            parts: list[Any] = [self.lift(part, place) for part in cast("Sequence[Any]", value)]
            return parts if isinstance(value, list) else tuple(parts)
        if isinstance(value, dict):
            return {name: self.lift(part, place) for name, part in cast("Kwargs", value).items()}
        return value

    def lift_tensor(self, tensor: Tensor) -> Tensor:
        """The numbers of a tensor in float64: its twin's, or else its own."""
        if self.twins and tensor.layout == torch.strided and (twin := self.known_twin(tensor)):
            return twin.place(tensor)
        return tensor.to(WIDE[tensor.dtype])


class Twin:
    """The memory of a tensor once more, in float64."""

    def __init__(self, tensor: Tensor, wide: torch.dtype) -> None:
        self.dtype, self.device = tensor.dtype, tensor.device
        self.memory: Any = StorageWeakRef(tensor.untyped_storage())
        self.numbers = self.flat(tensor.untyped_storage()).to(wide)

    def flat(self, storage: torch.UntypedStorage) -> Tensor:
        """All of the memory as one tensor."""
        return torch.empty(0, dtype=self.dtype, device=self.device).set_(storage)  # pyright: ignore[reportUnknownMemberType] untyped overload

    def place(self, tensor: Tensor) -> Tensor:
        """The part of the twin that a tensor is of the memory."""
        return self.numbers.as_strided(tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    def original(self) -> Tensor | None:
        """All of the memory as one tensor; None when it is gone."""
        storages: Any = torch.UntypedStorage
        storage = storages._new_with_weak_ptr(self.memory.cdata)
        return None if storage is None else self.flat(storage)

    def read(self) -> None:
        """Take over what was written into the memory while nobody looked."""
        with torch.inference_mode():
            if (memory := self.original()) is not None:
                fresh = memory.to(self.numbers.dtype)
                self.numbers = torch.where(self.numbers.to(self.dtype) == memory, self.numbers, fresh)

    def write(self) -> None:
        """Leave the numbers in the memory, rounded."""
        with torch.inference_mode():
            if (memory := self.original()) is not None:
                memory.copy_(self.numbers)


class Effect:
    """What an operator does with its arguments besides reading them."""

    def __init__(self, func: Any) -> None:
        schema: Any = getattr(func, "_schema", None)
        arguments: list[Any] = schema.arguments if schema else []
        returns: list[Any] = [result.alias_info for result in schema.returns] if schema else []
        self.names: list[str] = [argument.name for argument in arguments]
        self.written: list[str] = [argument.name for argument in arguments if argument.is_write]
        self.views = any(info is not None and not info.is_write for info in returns)
        self.gives_targets = [info is not None and info.is_write for info in returns]
        self.reshapes_in_place = torch.Tag.inplace_view in getattr(func, "tags", ())

    def targets(self, args: tuple[Any, ...], kwargs: Kwargs) -> list[Tensor]:
        """Tensors that are written into."""
        if not self.written:
            return []
        given = dict(zip(self.names, args, strict=False)) | kwargs
        return [tensor for name in self.written for tensor in tensors(given.get(name))]

    def answer(self, result: Any, targets: Sequence[Tensor]) -> Any:
        """The result with the tensors that were written into, as they were given, in their places."""
        if not any(self.gives_targets):
            return result
        if len(self.gives_targets) == 1:
            return targets[0] if len(targets) == 1 else result
        left = iter(targets)
        return tuple(next(left) if mine else part for mine, part in zip(self.gives_targets, result, strict=True))


effect_of: Callable[[Any], Effect] = cache(Effect)


def tensors(value: Any) -> list[Tensor]:
    """A tensor, or the tensors in a list."""
    if isinstance(value, Tensor):
        return [value]
    parts: Sequence[Any] = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else []
    return [part for part in parts if isinstance(part, Tensor)]


def address(tensor: Tensor) -> int:
    """What tells the memory of a tensor from others."""
    storage: Any = tensor.untyped_storage()
    return storage._cdata


def is_cast(func: Any) -> bool:
    """Whether an operator is one of the forms of `Tensor.to`."""
    return getattr(func, "overloadpacket", None) is torch.ops.aten.to


def shares_memory(result: Any, args: tuple[Any, ...]) -> bool:
    """Whether results are views of arguments."""
    try:
        memory = {address(tensor) for value in args for tensor in tensors(value)}
        return all(address(tensor) in memory for tensor in tensors(result))
    except (NotImplementedError, RuntimeError):
        return True


@cache
def promotion(lifted: frozenset[torch.dtype], own: torch.dtype) -> Promote:
    """The one mode that lifts these dtypes for decoders of a dtype."""
    return Promote(lifted, own)


def promoted(dtype: torch.dtype, narrower: bool = False) -> Promote:
    """Context in which a decoder of a dtype runs in float64.

    What it casts to a coarser dtype than its own stays so, for that is a decision of the decoder and no rounding of a
    kernel: a float32 model with a cache in bfloat16 keeps it. `narrower` lifts that too.
    """
    finest = torch.finfo(dtype).eps
    lifted = [other for other in FLOATS if narrower or torch.finfo(other).eps <= finest]
    return promotion(frozenset([*lifted, torch.complex64] if torch.float32 in lifted else lifted), dtype)

"""Operators that any kernel works out alike: they move numbers, compare them, or work on each alone.

What is not here and has no override is never passed over in silence. That elementwise operators give a number the
same result at every place, alone and among others, is proved by `kvref.exactness.selftest`.
"""

from torch._ops import OpOverload

from kvref.exactness.registry import overloads

VIEWS = """
_reshape_alias _unsafe_view alias as_strided chunk detach diagonal dsplit expand expand_as flatten hsplit imag
lift_fresh movedim moveaxis narrow numpy_T permute ravel real reshape reshape_as resolve_conj resolve_neg select split
split_with_sizes squeeze swapaxes swapdims t transpose unbind unflatten unfold unsafe_chunk unsafe_split unsqueeze
view view_as view_as_complex view_as_real vsplit matrix_H mT mH adjoint set_ slice tensor_split
"""

COPIES = """
_cast_Double _cast_Float _cast_Half _to_copy block_diag broadcast_to broadcast_tensors cat clone column_stack complex
concat constant_pad_nd contiguous copy copy_ diag diag_embed dstack embedding fill fill_ flip fliplr flipud full_like
gather hstack index index_copy index_copy_ index_fill index_fill_ index_select masked_fill masked_fill_ masked_scatter
masked_scatter_ masked_select pad pin_memory reflection_pad1d repeat repeat_interleave replication_pad1d resize_
rot90 roll row_stack scatter select_scatter slice_scatter diagonal_scatter stack take take_along_dim tile to
to_dense tril tril_ triu triu_ type_as vstack where zero zero_ cpu double float half meshgrid cartesian_prod
select_backward one_hot _local_scalar_dense item polar
"""

MAKERS = """
arange empty empty_like empty_permuted empty_strided eye full linspace new_empty new_empty_strided new_full new_ones
new_zeros ones ones_like scalar_tensor tensor tril_indices triu_indices zeros zeros_like rand rand_like randn randn_like
randint bernoulli multinomial normal uniform exponential_ uniform_ normal_ bernoulli_ random_ randperm
"""

COMPARISONS = """
all allclose amax amin aminmax any argmax argmin argsort count_nonzero eq equal ge greater greater_equal gt is_nonzero
is_same_size isclose isfinite isin isinf isnan isneginf isposinf isreal kthvalue le less less_equal logical_and
logical_not logical_or logical_xor lt max maximum median min minimum msort ne nonzero nonzero_numpy not_equal
searchsorted bucketize signbit sort topk unique_consecutive unique_dim _unique2 fmax fmin cummax cummin
"""

ON_EACH = """
abs absolute acos arccos asin arcsin atan arctan acosh asinh ceil clamp clamp_max clamp_min clip copysign cos deg2rad
div divide dropout erf erfc erfinv exp expm1 fix floor floor_divide fmod frac hardsigmoid hardswish hardtanh
heaviside leaky_relu log log10 log1p log2 nan_to_num neg negative nextafter positive prelu _prelu_kernel
reciprocal relu relu6 remainder round sgn sign sin sqrt square tan tanh threshold
true_divide trunc bitwise_and bitwise_not bitwise_or bitwise_xor __and__ __or__ __xor__ __lshift__ __rshift__
alpha_dropout feature_dropout native_dropout
"""
"""`sigmoid`, `silu`, `gelu`, `pow`, `rsqrt`, `softplus` and the like are not among them, and have overrides."""


def listed(*groups: str) -> frozenset[OpOverload]:
    """Every overload of the named operators, in place and with `out` as well."""
    names = {name for group in groups for name in group.split()}
    return frozenset(overload for name in names | {f"{name}_" for name in names} for overload in overloads(name))


MOVES = listed(VIEWS, COPIES, MAKERS, COMPARISONS)
ELEMENTWISE = listed(ON_EACH)

"""The shape of the reference model, and the sizes that were published."""

from dataclasses import dataclass

from kvref.errors import ConfigError


@dataclass(frozen=True)
class GPTConfig:
    """The shape of a GPT-2. The defaults are GPT-2 small, 124 M parameters.

    `n_kv_head` counts the heads of keys and values; None, as in GPT-2, means one for each query head. Fewer, each
    shared by the same number of query heads, are grouped-query attention (Ainslie et al., arXiv:2305.13245), and one
    for all is multi-query attention (Shazeer, arXiv:1911.02150).

    Raises `ConfigError` for a size below one, where `n_head` does not divide `n_embd`, and where `n_kv_head` does not
    divide `n_head`.
    """

    block_size: int = 1024
    vocab_size: int = 50257
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    n_kv_head: int | None = None

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            if size is not None and size < 1:
                raise ConfigError(f"{name} is {size}; it must be at least 1")
        if self.n_embd % self.n_head:
            raise ConfigError(
                f"n_head {self.n_head} does not divide n_embd {self.n_embd}; every head needs the same width"
            )
        if self.n_head % self.kv_heads:
            raise ConfigError(
                f"n_kv_head {self.kv_heads} does not divide n_head {self.n_head}; "
                "each must serve the same number of query heads"
            )

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values: `n_kv_head`, or where that is None, `n_head`."""
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.n_embd // self.n_head


SIZES = {
    "gpt2": GPTConfig(),
    "gpt2-medium": GPTConfig(n_layer=24, n_head=16, n_embd=1024),
    "gpt2-large": GPTConfig(n_layer=36, n_head=20, n_embd=1280),
    "gpt2-xl": GPTConfig(n_layer=48, n_head=25, n_embd=1600),
}

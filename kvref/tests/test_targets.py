"""What a target string means, and the forms that a user's decoder can have."""

from pathlib import Path

import pytest

from kvref.capability import Capability
from kvref.errors import TargetError
from kvref.law import laws
from kvref.search import Effort, Status, search
from kvref.targets import Bench
from kvref.targets.resolve import resolve
from kvref.tests.helpers import BENCH
from kvref.tests.odd import MINE


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def outcome(path: Path, name: str, law: str = "cached-logits-equal-uncached-logits") -> Status:
    (target,) = resolve(f"{path}:{name}", BENCH)
    return search(laws()[law], target, Effort(examples=40, shrink=False)).status


def test_a_module_that_returns_its_cache_is_a_decoder(mine: Path) -> None:
    assert outcome(mine, "module") is Status.HELD
    assert outcome(mine, "Wrong") is Status.BROKEN


def test_a_module_offers_no_more_than_it_shows(mine: Path) -> None:
    (target,) = resolve(f"{mine}:module", BENCH)
    assert target.capabilities() == {Capability.BATCH, Capability.ATOMIC, Capability.LOSSLESS}
    assert outcome(mine, "module", "crop-equals-never-having-appended") is Status.SKIPPED


def test_an_object_with_the_methods_is_a_decoder(mine: Path) -> None:
    (target,) = resolve(f"{mine}:Duck", BENCH)
    assert target.capabilities() == {Capability.BATCH, Capability.ATOMIC, Capability.LOSSLESS, Capability.LENGTH}
    assert outcome(mine, "Duck") is Status.HELD
    assert outcome(mine, "Duck", "lengths-equal-the-tokens-given") is Status.HELD


def test_a_model_derived_from_the_reference_is_tried_in_every_shape_with_both_caches(mine: Path) -> None:
    growing, static = resolve(f"{mine}:Subclass", BENCH)
    assert len(growing.decoders()) == len(static.decoders()) > 1
    assert (growing.command, static.command) == tuple(f"{mine}:Subclass --cache {k}" for k in ("growing", "static"))
    law = laws()["cached-logits-equal-uncached-logits"]
    assert [search(law, target, Effort(shrink=False)).status for target in (growing, static)] == [Status.BROKEN] * 2


def test_a_buffer_of_a_derived_model_keeps_what_it_was_given(mine: Path) -> None:
    target, _ = resolve(f"{mine}:Buffered", BENCH)
    assert search(laws()["cached-logits-equal-uncached-logits"], target, Effort(examples=20)).status is Status.HELD


@pytest.mark.parametrize(
    ("name", "law", "reason"),
    [
        ("Misshapen", "cached-logits-equal-uncached-logits", "logits must have shape (1, 1, 300), not (1, 300)"),
        ("NotAPair", "cached-logits-equal-uncached-logits", "it must give (logits, cache)"),
        ("Leaves", "cached-logits-equal-uncached-logits", "step raised SystemExit: 0"),
        ("Stops", "cached-logits-equal-uncached-logits", "step raised Stop: no more"),
        ("RaisesWordless", "cached-logits-equal-uncached-logits", "raised Wordless: (it cannot say what it is)"),
        ("Sparse", "cached-logits-equal-uncached-logits", "logits must hold numbers in an ordinary layout"),
        ("NoNumbers", "cached-logits-equal-uncached-logits", "logits must hold numbers in an ordinary layout"),
        ("HalfLength", "lengths-equal-the-tokens-given", "it must give a whole number, not Tensor"),
        ("UnlikeKeys", "past-keys-and-values-never-change", "keys_values raised ValueError"),
        (
            "GivesWords",
            "naive-and-cached-generation-give-the-same-tokens",
            "it must give a list of tokens for each row",
        ),
        ("GivesHalves", "naive-and-cached-generation-give-the-same-tokens", "tokens must be whole numbers"),
        (
            "GivesNothing",
            "speculation-gives-the-greedy-tokens-and-runs-what-it-drafts",
            "it must give a list of tokens for each row",
        ),
        ("NoModules", "every-token-passes-every-layer-once", "it must give at least one module"),
        ("RaisesOnce", "cached-logits-equal-uncached-logits", "step raised RuntimeError: only once"),
        ("OddLength", "lengths-equal-the-tokens-given", "it must give a whole number, not str"),
        ("FlatKeys", "past-keys-and-values-never-change", "it must give two tensors, each batch n_kv_head seq"),
        ("NoKeys", "past-keys-and-values-never-change", "it must give two tensors"),
        ("NoTensors", "queries-are-not-stored", "it must give a list of Tensors"),
        ("NoSession", "a-conversation-gives-what-its-whole-text-gives", "feed raised AttributeError"),
        ("BadSession", "a-conversation-gives-what-its-whole-text-gives", "feed raised ValueError: no turn"),
    ],
)
def test_odd_answers_are_the_decoders_fault(mine: Path, name: str, law: str, reason: str) -> None:
    (target,) = resolve(f"{mine}:{name}", BENCH)
    result = search(laws()[law], target, Effort(examples=10))
    assert result.status is Status.RAISED
    assert reason in result.reason


def test_tokens_may_come_in_a_tensor(mine: Path) -> None:
    assert outcome(mine, "GivesATensor", "naive-and-cached-generation-give-the-same-tokens") is Status.HELD


@pytest.mark.parametrize("name", ["HasLayers", "Padded", "BlockOf3", "OneRow", "AnswersInOneBuffer"])
def test_a_right_decoder_of_an_unusual_kind_breaks_no_law(mine: Path, name: str) -> None:
    (target,) = resolve(f"{mine}:{name}", BENCH)
    outcomes = [search(law, target, Effort(examples=24)) for law in list(laws().values())[::3]]
    assert {result.status for result in outcomes} <= {Status.HELD, Status.SKIPPED, Status.VACUOUS}
    assert outcomes[0].status is Status.HELD


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("OneRowForAll", "a-row-alone-equals-the-row-in-a-batch"),
        ("OneRowForAll", "cached-logits-equal-uncached-logits"),
        ("DropsWhatDoesNotFit", "what-fits-works-and-one-token-more-is-refused"),
        ("AnswersForTheFirstRow", "naive-and-cached-generation-give-the-same-tokens"),
        ("ForgetsTheFourth", "naive-and-cached-generation-give-the-same-tokens"),
        ("Fickle", "the-same-schedule-gives-the-same-bits"),
    ],
)
def test_a_wrong_decoder_breaks_a_law(mine: Path, name: str, law: str) -> None:
    assert outcome(mine, name, law) is Status.BROKEN


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", r"broken\(\) raised ValueError: no weights"),
        ("CONFIG", "is a GPTConfig; a target is a factory"),
        ("Sizeless", "gives a module without `vocab_size`"),
        ("Dukc", "did you mean Duck"),
        ("stops", r"stops\(\) raised Stop: no more"),
        ("ManyRows", r"`max_batch` is str '4', which it cannot be"),
        ("NoRows", r"`max_batch` is int 0, which it cannot be"),
        ("Allocates", r"`preallocates` is Tensor"),
        ("MoodyFork", r"reading `fork` of the decoder raised RuntimeError: not today"),
        ("leave", r"leave\(\) raised SystemExit: 0"),
        ("Whole", r"logits must be floating-point numbers .*, not torch.int64"),
        ("NoVocabulary", r"`vocab_size` is 0; it must be a whole number of at least 1"),
        ("WordyBlock", r"`block_size` is 'long'"),
        ("Moody", r"reading `vocab_size` raised RuntimeError: not today"),
        ("Nowhere", r"`device` is no device"),
        ("KeysOfNoLayer", r"does not declare `n_layer`"),
        ("OwnArguments", r"cannot be made from a GPTConfig \(TypeError"),
    ],
)
def test_what_cannot_be_tested_is_refused(mine: Path, name: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        resolve(f"{mine}:{name}", BENCH)


def test_a_file_that_does_not_import_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(:\n")
    with pytest.raises(TargetError, match=r"cannot be imported .SyntaxError"):
        resolve(f"{tmp_path / 'bad.py'}:f", BENCH)


def test_the_reference_means_both_caches() -> None:
    assert [target.name for target in resolve("reference", BENCH)] == ["reference:growing", "reference:static"]
    assert [target.name for target in resolve("reference", BENCH, "static")] == ["reference:static"]
    assert [target.name for target in resolve("bug:missing-position-offset:static", BENCH)] == [
        "bug:missing-position-offset:static"
    ]


def test_text_and_prompt_reach_the_reference_in_any_shape() -> None:
    prompt = "A prompt of more tokens than the shapes have positions."
    (target,) = resolve("reference:growing", Bench(prompt=prompt))
    result = search(laws()["cached-logits-equal-uncached-logits"], target, Effort(examples=10))
    assert result.status in (Status.HELD, Status.VACUOUS)
    assert all(decoder.block_size > len(prompt) for decoder in target.decoders())

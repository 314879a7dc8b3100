"""What a GPU runs where the CPU runs something else: the traced operations and their sizes, by hand."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from asrconfig_go.trace import MemoryRecorder, _workspaces
from asrconfig_go.trace._kernels import SPLITS_NORMS
from asrconfig_go.trace._workspaces import cublas_bytes

MIB = 1 << 20


def births(function: Any, *, capability: tuple[int, int] = (8, 0), model: Any = None) -> list[tuple[str, int]]:
    """Operation and bytes of everything that the function makes."""
    with MemoryRecorder(compute_capability=capability) as recorder:
        if model is not None:
            recorder.load(model)
        recorder.segment("iteration")
        with recorder.working():
            function()
    trace = recorder.trace()
    segment = trace.segments[-1]
    sizes = [e for e in segment["events"] if e >= 0]
    return [(trace.ops[op].removeprefix("aten."), size) for op, size in zip(segment["op"], sizes, strict=True)]


def attention(dtype: Any, *, mask: str = "", head: int = 64, length: int = 100, gradients: bool = False) -> Any:
    def run() -> None:
        q, k, v = (torch.randn(2, 4, length, head, dtype=dtype, requires_grad=gradients) for _ in range(3))
        made = {"": None, "bool": torch.ones(2, 1, 1, length, dtype=torch.bool)}[mask]
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=made)
        if gradients:
            out.sum().backward()

    return run


@pytest.mark.parametrize(
    ("dtype", "mask", "head", "capability", "kernel"),
    [
        (torch.float16, "", 64, (8, 0), "flash"),
        (torch.bfloat16, "", 80, (9, 0), "flash"),
        (torch.float16, "", 64, (7, 5), "efficient"),
        (torch.float16, "bool", 64, (8, 0), "efficient"),
        (torch.float32, "", 64, (8, 0), "efficient"),
        (torch.float16, "", 512, (8, 0), "efficient"),
        (torch.bfloat16, "", 64, (7, 5), "math"),
        (torch.float32, "", 63, (8, 0), "math"),
    ],
)
def test_the_attention_kernel(dtype: Any, mask: str, head: int, capability: tuple[int, int], kernel: str) -> None:
    made = [op for op, _ in births(attention(dtype, mask=mask, head=head), capability=capability)]
    fused = [op for op in made if "_attention" in op]
    if kernel == "math":
        assert not fused and any("softmax" in op for op in made)
    else:
        assert {op.split(".")[0] for op in fused} == {f"_scaled_dot_product_{kernel}_attention"}


@pytest.mark.parametrize(
    ("query", "key", "value", "causal"),
    [
        ((1, 4, 3, 64), (2, 4, 100, 64), (2, 4, 100, 64), False),  # one query for all clips
        ((2, 4, 3, 64), (1, 4, 100, 64), (1, 4, 100, 64), False),
        ((2, 4, 3, 64), (2, 1, 100, 64), (2, 1, 100, 64), False),  # one head for all, which nobody asked for
        ((2, 3, 64), (2, 100, 64), (2, 100, 64), False),  # without heads
        ((2, 4, 3, 64), (2, 4, 100, 64), (2, 4, 100, 63), False),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_fused_attention_broadcasts_nothing(query: Any, key: Any, value: Any, causal: bool, dtype: Any) -> None:
    shapes: list[Any] = []

    def run() -> None:
        q, k, v = [torch.randn(shape, dtype=dtype) for shape in (query, key, value)]
        shapes.append(functional.scaled_dot_product_attention(q, k, v, is_causal=causal).shape)

    made = [op for op, _ in births(run)]
    assert not [op for op in made if "_attention" in op]
    assert any("softmax" in op for op in made)
    real = [torch.randn(shape) for shape in (query, key, value)]
    assert shapes == [functional.scaled_dot_product_attention(real[0], real[1], real[2], is_causal=causal).shape]


def test_flash_attention_is_causal_only_over_as_many_keys_as_queries() -> None:
    for keys, kernel in ((100, "flash"), (90, "efficient")):

        def run(keys: int = keys) -> None:
            q, k, v = (torch.randn(2, 4, length, 64, dtype=torch.float16) for length in (100, keys, keys))
            functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        assert any(op.startswith(f"_scaled_dot_product_{kernel}_attention") for op, _ in births(run))


def test_efficient_attention_keeps_the_sums_of_32_rows_only_for_backward() -> None:
    made = births(attention(torch.float32, gradients=True))
    kernel = [size for op, size in made if op == "_scaled_dot_product_efficient_attention.default"]
    assert kernel[:2] == [8, 8]  # seed and offset, on the device where nothing is dropped
    assert kernel[2] == 2 * 4 * 100 * 64 * 4
    assert kernel[3] == 2 * 4 * 128 * 4  # logsumexp: 100 rows rounded up to 128
    without = [size for op, size in births(attention(torch.float32)) if "efficient" in op]
    assert 2 * 4 * 128 * 4 not in without


def test_a_mask_is_padded_to_a_multiple_of_eight() -> None:
    for length, padded in ((100, 104), (96, 96)):  # where rows fill up, the file says so, and no copy is played
        made = births(attention(torch.float16, mask="bool", length=length))
        at = made.index(("length", length))
        assert made[at + 1] == ("pad:8:2", 2 * padded * 2)
        assert made[at - 3 : at] == [("new_empty.default", 2)] * 2 + [("zeros_like.default", 2 * length * 2)]


def test_heads_that_flash_cannot_take_are_padded() -> None:
    made = births(attention(torch.float16, head=60))
    assert made.count(("constant_pad_nd.default", 2 * 4 * 100 * 64 * 2)) == 3


def test_dropout_keeps_a_mask_of_a_byte_an_element() -> None:
    made = births(lambda: functional.dropout(torch.randn(100, 100), 0.1))
    assert made[1:] == [("native_dropout.default", 10_000), ("native_dropout.default", 40_000)]  # the mask comes first
    assert len(births(lambda: functional.dropout(torch.randn(100, 100), 0.0))) == 1
    assert len(births(lambda: functional.dropout(torch.randn(100, 100), 0.5, training=False))) == 1


def used_twice() -> None:
    x = torch.randn(16, 8, requires_grad=True)
    twice = x * 2
    (functional.relu(twice) + twice * 3).sum().backward()


def tied() -> None:
    """An embedding's weight that also makes the logits: the first of its gradients is a transposed view."""
    weight = torch.randn(32, 8, requires_grad=True)
    functional.linear(functional.embedding(torch.arange(4), weight), weight).sum().backward()


@pytest.mark.parametrize(("run", "in_place", "again"), [(used_twice, 1, 1), (tied, 0, 1)])
def test_two_gradients_are_added_in_place_where_they_are_without_a_mode(run: Any, in_place: int, again: int) -> None:
    with torch.autograd.profiler.profile() as profile:
        run()
    real = [event.name for event in profile.function_events]
    assert (real.count("aten::add_"), real.count("aten::add")) == (in_place, again)
    assert [name for name, _ in births(run)].count("add.Tensor") == again


def test_a_gradient_that_somebody_keeps_is_not_overwritten() -> None:
    gradients: list[Any] = []

    class Keep(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            gradients.append(grad * 2)
            return gradients[-1]

    def run() -> None:
        x = torch.randn(16, 8, requires_grad=True)
        both = x * 2
        (Keep.apply(both) * 5 + Keep.apply(both) * 3).sum().backward()

    assert [name for name, _ in births(run)].count("add.Tensor") == 2


def test_efficient_attention_in_backward_multiplies_and_sums_in_float() -> None:
    made = births(attention(torch.float32, mask="bool", gradients=True))
    sizes = [size for name, size in made if name == "_scaled_dot_product_efficient_attention_backward.default"]
    product, sums, tiles = 2 * 4 * 100 * 64 * 4, 2 * 4 * 100 * 4, 2 * 4 * 2
    assert sizes[-4:] == [product, sums, sums, tiles * (64 * 64 * 4 + 16)]


def test_autocast_follows_cudas_lists() -> None:
    def norms() -> None:
        with torch.autocast("cuda", dtype=torch.float16):
            x = torch.randn(100, 64, dtype=torch.float16)
            assert functional.layer_norm(x, (64,)).dtype is torch.float32
            assert torch.softmax(x, -1).dtype is torch.float32
            assert x.exp().dtype is torch.float32
            assert functional.linear(x.float(), torch.randn(64, 64)).dtype is torch.float16
            assert functional.gelu(x).dtype is torch.float16

    assert ("_to_copy.default", 100 * 64 * 4) in births(norms)


def test_softmax_of_half_needs_no_copy_in_float() -> None:
    made = births(lambda: torch.softmax(torch.randn(100, 64, dtype=torch.float16), -1, dtype=torch.float32))
    assert made[1:] == [("_softmax.default", 100 * 64 * 4)]
    made = births(lambda: torch.softmax(torch.randn(100, 64, dtype=torch.bfloat16), -1, dtype=torch.float32))
    assert made[1:] == [("_to_copy.default", 100 * 64 * 4), ("_softmax.default", 100 * 64 * 4)]


def test_cross_entropy_under_autocast_takes_the_logarithm_in_half() -> None:
    def loss() -> None:
        with torch.autocast("cuda"):
            functional.cross_entropy(torch.randn(100, 64, dtype=torch.float16), torch.zeros(100, dtype=torch.long))

    made = births(loss)
    assert [b for b in made if b[1] > 4000] == [
        ("randn.default", 12_800),
        ("_log_softmax.default", 12_800),
        ("_to_copy.default", 25_600),
    ]


@pytest.mark.parametrize(("capability", "mib"), [((7, 5), 8.125), ((8, 0), 8.125), ((8, 9), 8.125), ((9, 0), 32)])
def test_cublas_takes_its_workspace_once_a_thread_or_at_each_call(
    capability: tuple[int, int], mib: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cublas_bytes(capability) == mib * MIB

    def multiply() -> None:
        x = torch.randn(100, 100, requires_grad=True)
        for _ in range(3):
            (x @ x).sum().backward()

    for keeps, times in ((True, 2), (False, 9)):  # three products forward, six backward
        monkeypatch.setattr(_workspaces, "KEEPS_CUBLAS", keeps)
        workspaces = [size for _, size in births(multiply, capability=capability) if size == mib * MIB]
        assert len(workspaces) == times


@pytest.mark.parametrize(
    ("kept", "kept_lt", "shared", "times"),
    [
        pytest.param(True, False, False, (2, 3), id="torch 2.8"),
        pytest.param(True, True, False, (2, 1), id="torch 2.9"),
        pytest.param(True, True, True, (2, 0), id="torch 2.12"),
        pytest.param(False, False, False, (3, 3), id="torch 2.15"),
    ],
)
def test_products_with_a_bias_take_a_workspace_of_cublaslt(
    kept: bool, kept_lt: bool, shared: bool, times: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("KEEPS_CUBLAS", kept), ("KEEPS_CUBLAS_LT", kept_lt), ("SHARES_CUBLAS", shared)):
        monkeypatch.setattr(_workspaces, name, value)
    layer = torch.nn.Linear(100, 100)

    def multiply() -> None:
        for _ in range(3):
            layer(torch.randn(100, 100)).sum().backward()

    sizes = [size for _, size in births(multiply, model=layer, capability=(8, 0))]
    assert (sizes.count(int(8.125 * MIB)), sizes.count(MIB)) == times


def test_transposed_tensors_are_copied() -> None:
    def run() -> None:
        x = torch.randn(2, 100, 8, requires_grad=True).transpose(1, 2)
        out = functional.conv1d(x, torch.randn(16, 8, 3))
        functional.layer_norm(out.transpose(1, 2), (16,))

    made = births(run)
    assert made.count(("convolution.default", 2 * 100 * 8 * 4)) == 1
    assert made.count(("convolution.default", 2 * 98 * 16 * 4)) == 1
    assert made.count(("native_layer_norm.default", 2 * 98 * 16 * 4)) == 2  # the copy and the result


@pytest.mark.skipif(not SPLITS_NORMS, reason="this torch sums a norm's gradient in one go")
def test_gradients_of_a_norm_count_rows() -> None:
    norm = torch.nn.LayerNorm(16)

    def run() -> None:
        x = torch.randn(2, 16, 300, requires_grad=True)
        norm(x.transpose(1, 2)).sum().backward()

    made = births(run, model=norm)
    assert [b for b in made if b[0].startswith("norm_")] == [("norm_blocks:4:16", 600)] * 2 + [("norm_sum:16", 600)] * 2
    at = made.index(("norm_blocks:4:16", 600))
    copy, results = 2 * 16 * 300 * 4, [2 * 16 * 300 * 4, 16 * 4, 16 * 4]
    assert [size for _, size in made[at - 5 : at]] == [copy, *results, copy]  # of the input, and of the gradient


@pytest.mark.skipif(not SPLITS_NORMS, reason="this torch sums a norm's gradient in one go")
@pytest.mark.parametrize("trained", [(), ("bias",), ("weight", "bias")])
def test_parameters_of_a_norm_that_are_frozen_have_no_sums(trained: tuple[str, ...]) -> None:
    norm = torch.nn.LayerNorm(16)
    for name, parameter in norm.named_parameters():
        parameter.requires_grad = name in trained

    made = births(lambda: norm(torch.randn(2, 300, 16, requires_grad=True)).sum().backward(), model=norm)
    assert made.count(("norm_blocks:4:16", 600)) == made.count(("norm_sum:16", 600)) == len(trained)


def test_sums_of_narrow_integers_are_widened() -> None:
    mask = torch.ones(3, 100, dtype=torch.int32)
    assert births(lambda: mask.sum(-1)) == [("to", 1200), ("sum.dim_IntList", 24), ("sum.dim_IntList", 2400)]
    assert births(lambda: mask.long().cumsum(-1)).count(("cumsum.default", 2400)) == 1


def test_column_sums_count_rows() -> None:
    layer = torch.nn.Linear(32, 16)

    def run() -> None:
        layer(torch.randn(6, 50, 32)).exp().sum().backward()
        (torch.randn(300, 20, requires_grad=True) + torch.randn(20, requires_grad=True)).exp().sum().backward()

    assert [b for b in births(run, model=layer) if b[0].startswith("column_sum")] == [("column_sum:16", 300)]


def test_ctc_keeps_alpha_and_takes_beta_in_backward() -> None:
    def loss() -> None:
        frames, batch, longest = 50, 3, 12
        log_probabilities = torch.randn(frames, batch, 40, requires_grad=True).log_softmax(-1)
        labels = torch.randint(1, 30, (batch, longest))
        full = torch.full((batch,), longest)
        functional.ctc_loss(log_probabilities, labels, torch.full((batch,), frames), full).backward()

    alpha = 3 * 50 * (2 * 12 + 1) * 4
    sizes = [size for op, size in births(loss) if op.startswith("_ctc_loss")]
    assert sizes.count(alpha) == 2
    assert 50 * 3 * 40 * 4 in sizes


def test_random_masks_count_as_full_in_backward() -> None:
    def run() -> None:
        x, masked = torch.randn(4, 50, 16, requires_grad=True), torch.randn(16, requires_grad=True)
        mask = torch.zeros(4, 50, dtype=torch.bool)
        mask[:, ::7] = True
        out = x * 1
        out[mask] = masked
        out.exp().sum().backward()

    assert ("index.Tensor", 4 * 50 * 16 * 4) in births(run)


@pytest.mark.parametrize(("padding", "places"), [(0.0, 2 * 8 * 1000 * 80), (1.0, 2 * 8 * 1000 * 60)])
def test_a_mask_selects_by_an_index_for_each_axis(padding: float, places: int) -> None:
    """Of floats that are imaginary nobody knows which are padding: all of them are selected."""

    def run() -> None:
        labels = torch.zeros(2, 1, 1000, 80)
        mask = torch.arange(80).expand(2, 1, 1000, 80) < 60 if padding else labels != -100.0
        torch.randn(2, 8, 1000, 80, requires_grad=True).masked_select(mask).sum().backward()

    made = births(run)
    at = made.index(("masked_select.default", 4 * places))
    assert made[at - 1] == ("masked_select.default", 4 * 8 * places), "int64 places in four axes"
    count = 2 * 8 * 1000 * 80
    assert [size for op, size in made if op == "masked_scatter.default"][:2] == [8 * count, count]

"""Networks of timm: the same seed gives the same weights; the last layer and what goes into it; what is refused."""

from __future__ import annotations

import copy
import math

import pytest
import timm
import torch
from torch import nn

from cxrhf.errors import CxrhfError
from cxrhf.models.backbone import draw_kaiming, last_layer, last_layer_name, make_model, new_head, penultimate_vectors
from tests.refusals import refused
from tests.thinned import thinned

SMALL = ("resnet18", "vit_tiny_patch16_224", "convnext_atto", "tf_efficientnet_lite0", "mobilenetv3_small_050")


def pixels(count: int = 2, channels: int = 3, size: int = 64) -> torch.Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(3))


def same(one: nn.Module, other: nn.Module, but: str = "") -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    assert list(mine) == list(theirs)
    return all(torch.equal(mine[name], theirs[name]) for name in mine if not (but and name.startswith(but)))


@pytest.mark.parametrize("name", [*SMALL, "densenet121", "efficientvit_m0"])
@pytest.mark.parametrize("channels", thinned([1, 3], [1]))
def test_the_last_layer_of_what_goes_into_it_is_the_output(name: str, channels: int) -> None:
    """Bit for bit. timm's own pre_logits are the same, but for networks that normalise after it (efficientvit_m0)."""
    model = make_model(name, 3, channels=channels, size=64).eval()
    given = pixels(channels=channels)
    with torch.no_grad():
        features = penultimate_vectors(model, given)
        assert features.shape == (2, last_layer(model).in_features)
        assert torch.equal(last_layer(model)(features), model(given))
        twin = model.forward_head(model.forward_features(given), pre_logits=True)
    assert torch.equal(twin, features) == (name != "efficientvit_m0")
    assert not last_layer(model)._forward_pre_hooks


@pytest.mark.parametrize("name", thinned(SMALL, SMALL[:2]))
def test_the_same_seed_gives_the_same_weights_and_nothing_else_is_drawn(name: str) -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    one = make_model(name, 2, size=64, seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    assert same(one, make_model(name, 2, size=64, seed=5))
    assert not same(one, make_model(name, 2, size=64, seed=6))
    # The number of outputs changes the last layer alone.
    wider = make_model(name, 9, size=64, seed=5)
    head = last_layer_name(one)
    mine, theirs = one.state_dict(), wider.state_dict()
    assert {each for each in mine if not torch.equal(mine[each], theirs[each])} <= {f"{head}.weight", f"{head}.bias"}


@pytest.mark.slow
def test_the_head_starts_small_and_alike_in_every_network() -> None:
    for name in SMALL:
        model = make_model(name, 40, size=64)
        last = last_layer(model)
        assert float(last.weight.detach().std()) == pytest.approx(0.01, rel=0.05)
        assert last.bias is not None
        assert not last.bias.detach().any()
        new_head(model, 3, seed=1)
        assert last_layer(model).out_features == model.num_classes == 3
        with torch.no_grad():
            assert float(model.eval()(pixels()).abs().max()) < 1
    # timm's own start of an EfficientNet with one output: uniform between -1 and 1.
    assert float(timm.create_model("tf_efficientnet_lite0", num_classes=1).get_classifier().weight.detach().std()) > 0.4


def test_a_new_head_follows_its_seed() -> None:
    one, other = make_model("resnet18", 2, seed=0), make_model("resnet18", 2, seed=0)
    new_head(one, 4, seed=7)
    new_head(other, 4, seed=7)
    assert torch.equal(last_layer(one).weight, last_layer(other).weight)
    new_head(other, 4, seed=8)
    assert not torch.equal(last_layer(one).weight, last_layer(other).weight)
    assert same(one, other, but="fc.")


@pytest.mark.parametrize(
    ("name", "got", "fix"),
    [
        ("DenseNet-121", "DenseNet-121", "did you mean 'densenet121'?"),
        ("resnet50.a1_in2k", "a1_in2k", "did you mean 'resnet50.a1_in1k'?"),
        ("hf-hub:timm/resnet50.a1_in1k", "hf-hub", "resnet50"),
        ("", "", "timm.list_models"),
        ("resnetv2_18", "a Conv2d", "resnet50"),
        ("volo_d1_224", "a layer after it", "resnet50"),
        ("deit_tiny_distilled_patch16_224", "a tuple", "resnet50"),
    ],
)
def test_networks_that_are_refused(name: str, got: str, fix: str) -> None:
    with refused(CxrhfError, got=got, fix=fix):
        make_model(name, 1)


def test_a_tag_of_weights_may_be_named() -> None:
    assert same(make_model("resnet18.a1_in1k", 1), make_model("resnet18", 1))


@pytest.mark.parametrize(
    ("name", "size", "fix"),
    [("vit_tiny_patch16_224", 100, "multiple of 16"), ("densenet121", 16, "--size")],
)
def test_sizes_that_do_not_fit_are_said_at_once(name: str, size: int, fix: str) -> None:
    with refused(CxrhfError, name, f"{size} x {size}", fix=fix):
        make_model(name, 1, size=size)


def test_a_vit_of_any_size_that_fits() -> None:
    model = make_model("vit_tiny_patch16_224", 1, size=96).eval()
    assert model(pixels(size=96)).shape == (2, 1)
    assert model.pos_embed.shape[1] == 1 + 6 * 6


@pytest.mark.slow
def test_the_try_without_numbers_leaves_the_network_as_it_was() -> None:
    """CoaT uses modules several times: their weights must come back too."""
    model = make_model("coat_tiny", 1, size=64)
    assert model.training
    assert {str(each.device) for each in (*model.parameters(), *model.buffers())} == {"cpu"}
    with torch.no_grad():
        assert model(pixels(1)).shape == (1, 1)


@pytest.mark.slow
def test_drop_rates_do_something_or_are_refused() -> None:
    model = make_model("resnet18", 1, size=64, drop_rate=0.5, drop_path=0.3)
    model.train()
    torch.manual_seed(0)
    assert not torch.equal(model(pixels(4)), model(pixels(4)))
    still = make_model("swin_tiny_patch4_window7_224", 1, size=64)  # timm's own default leaves out a tenth
    assert not any("DropPath" in type(each).__name__ for each in still.modules())
    with refused(CxrhfError, "--drop-path", "densenet121", got="0.1"):
        make_model("densenet121", 1, size=64, drop_path=0.1)
    make_model("densenet121", 1, size=64, drop_rate=0.1)
    with refused(CxrhfError, got="0 outputs and 2 channels"):
        make_model("resnet18", 0, channels=2)


@pytest.mark.parametrize("name", thinned(["resnet18", "densenet121", "convnext_atto"], ["resnet18"]))
def test_checkpointing_changes_nothing_but_memory(name: str) -> None:
    """Loss, gradients, and batch statistics, which plain checkpointing would move twice."""
    kept = []
    for checkpointing in (False, True):
        model = make_model(name, 2, size=32, checkpointing=checkpointing)
        loss = model(pixels(4, size=32)).square().sum()
        loss.backward()
        grads = [each.grad for each in model.parameters()]
        kept.append((loss.detach(), *grads, *model.buffers()))
        assert all(each.momentum == 0.1 for each in model.modules() if isinstance(each, nn.BatchNorm2d))
    assert all(torch.equal(one, other) for one, other in zip(*kept, strict=True))
    copy.deepcopy(model)


def test_checkpointing_that_is_not_there_is_said() -> None:
    with refused(CxrhfError, "convit_tiny", fix="resnet50"):
        make_model("convit_tiny", 1, checkpointing=True)


def test_kaiming_is_normal_with_two_over_the_inputs() -> None:
    model, twin = make_model("resnet18", 1, size=64), make_model("resnet18", 1, size=64)
    before = torch.get_rng_state()
    draw_kaiming(model, 4)
    draw_kaiming(twin, 4)
    assert torch.equal(torch.get_rng_state(), before)
    assert same(model, twin)
    for each in model.modules():
        if isinstance(each, nn.Conv2d) and each.weight.numel() > 30_000:
            wanted = math.sqrt(2 / (each.in_channels * math.prod(each.kernel_size)))
            assert float(each.weight.detach().std()) == pytest.approx(wanted, rel=0.02)
    draw_kaiming(twin, 5)
    assert not same(model, twin)
    assert torch.equal(last_layer(model).weight, last_layer(twin).weight)

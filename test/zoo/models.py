#!/usr/bin/env python3
"""The models people bring: each is trained by poptorch and by PyTorch itself, from the same weights, and compared.

    PYTHONPATH=build/python python3 test/zoo/models.py              every model whose library is there
    PYTHONPATH=build/python python3 test/zoo/models.py bert gpt2    these
    ... --optimizer adamw --double --steps 5

One line a model: its name, the call that builds it from a small config, and its inputs. Nothing is downloaded. A line of the
result says how far the losses of five steps are from PyTorch's and how far the updates of the weights are, relative to the
largest update of their tensor (one that hardly moves, as the bias of keys in attention does, is measured by the largest
update of the model); or the first line of the error. Dropout is 0, since PyTorch draws other numbers; everything else is
each library's default. The exit status is 1 when a model is wrong or refused.

`make soak` runs all of it where the libraries are: ZOO_PYTHON names the Python of a virtual environment that has them.
test/python/test_zoo.py runs those of torchvision, which Debian has.
"""

import argparse
import copy
import importlib
import os
import resource
import sys
import time
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

LOSS_LIMIT, UPDATE_LIMIT = 1e-4, 1e-3
MODELS = {}


class Missing(Exception):
    """A library that is not installed."""


def need(library):
    try:
        return importlib.import_module(library)
    except ImportError as e:
        raise Missing(f"no {library}: {e}") from None


def model(library, name, make):
    MODELS[name] = (library, make)


def words(batch=2, length=12, vocabulary=60, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(4, vocabulary, (batch, length), generator=g)


def masked(ids, padded=3):
    """A mask with some padding at the end of the second sequence."""
    mask = torch.ones_like(ids)
    mask[1, -padded:] = 0
    return mask


def exact(made):
    """In double precision: of nets whose batch norms see few pixels, which make roundings large. PyTorch's own losses in single
    precision are 1e-4 to 0.5 away from those in double precision then."""
    net, inputs = made
    return net.double(), doubled(inputs)


def doubled(value):
    """The same in double precision: a tensor, or what has tensors in it."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {k: doubled(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(doubled(v) for v in value)
    return value.clone().apply(doubled) if hasattr(value, "apply") else value    # torch_geometric's Data


def picture(batch=2, size=32, channels=3, seed=0):
    return torch.randn(batch, channels, size, size, generator=torch.Generator().manual_seed(seed))


def classes(batch=2, number=5, seed=0):
    return torch.randint(0, number, (batch,), generator=torch.Generator().manual_seed(seed))


# --- transformers ---

SMALL = dict(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             max_position_embeddings=64)


def built(kind, config, **settings):
    """A model of transformers from its config, without dropout."""
    lib = need("transformers")
    c = getattr(lib, config)(**settings)
    for name, value in list(vars(c).items()):
        if isinstance(value, float) and "drop" in name:
            setattr(c, name, 0.0)
    return getattr(lib, kind)(c)


def text(kind, config, labels="tokens", mask=True, **settings):
    """A model of words with labels: the words themselves, or a class for each sequence."""
    ids = words()
    inputs = {"input_ids": ids, "labels": classes(2, 2) if labels == "classes" else ids.clone()}
    if mask:
        inputs["attention_mask"] = masked(ids)
        if labels == "tokens":
            inputs["labels"][inputs["attention_mask"] == 0] = -100
    return built(kind, config, **settings), inputs


def translated(kind, config, **settings):
    """An encoder and a decoder."""
    ids = words()
    return built(kind, config, **settings), {"input_ids": ids, "attention_mask": masked(ids), "labels": words(length=7, seed=1)}


CAUSAL = dict(SMALL, num_key_value_heads=2, pad_token_id=0)
T5 = dict(vocab_size=60, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)
BART = dict(vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64)
VIT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=32, patch_size=8, num_labels=5)
HF = "transformers"

model(HF, "bert", lambda: text("BertForSequenceClassification", "BertConfig", "classes", **SMALL))
model(HF, "bert-mlm", lambda: text("BertForMaskedLM", "BertConfig", **SMALL))
model(HF, "roberta", lambda: text("RobertaForMaskedLM", "RobertaConfig", **SMALL))
model(HF, "distilbert", lambda: text("DistilBertForSequenceClassification", "DistilBertConfig", "classes", vocab_size=60, dim=32, n_layers=2, n_heads=4, hidden_dim=48))
model(HF, "electra", lambda: text("ElectraForMaskedLM", "ElectraConfig", embedding_size=16, **SMALL))
model(HF, "deberta", lambda: text("DebertaForSequenceClassification", "DebertaConfig", "classes", relative_attention=True, pos_att_type=["c2p", "p2c"], **SMALL))
model(HF, "deberta-v2", lambda: text("DebertaV2ForMaskedLM", "DebertaV2Config", relative_attention=True, pos_att_type=["c2p", "p2c"], share_att_key=True, position_buckets=16, **SMALL))
model(HF, "gpt2", lambda: text("GPT2LMHeadModel", "GPT2Config", vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=64))
model(HF, "llama", lambda: text("LlamaForCausalLM", "LlamaConfig", **CAUSAL))
model(HF, "llama-no-mask", lambda: text("LlamaForCausalLM", "LlamaConfig", mask=False, **CAUSAL))
model(HF, "mistral", lambda: text("MistralForCausalLM", "MistralConfig", **CAUSAL))
model(HF, "qwen2", lambda: text("Qwen2ForCausalLM", "Qwen2Config", **CAUSAL))
model(HF, "qwen3", lambda: text("Qwen3ForCausalLM", "Qwen3Config", head_dim=8, **CAUSAL))
model(HF, "t5", lambda: translated("T5ForConditionalGeneration", "T5Config", **T5))
model(HF, "bart", lambda: translated("BartForConditionalGeneration", "BartConfig", **BART))
model(HF, "opt", lambda: text("OPTForCausalLM", "OPTConfig", vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48, max_position_embeddings=64, word_embed_proj_dim=32))
model(HF, "phi3", lambda: text("Phi3ForCausalLM", "Phi3Config", **CAUSAL))
model(HF, "mamba", lambda: text("MambaForCausalLM", "MambaConfig", vocab_size=60, hidden_size=16, num_hidden_layers=2, state_size=4))
model(HF, "mixtral", lambda: text("MixtralForCausalLM", "MixtralConfig", num_local_experts=4, **CAUSAL))
model(HF, "whisper", lambda: (
    built("WhisperForConditionalGeneration", "WhisperConfig", num_mel_bins=8, max_source_positions=20, max_target_positions=16,
          decoder_start_token_id=1, pad_token_id=0, bos_token_id=1, eos_token_id=2, **{k: v for k, v in BART.items() if k != "max_position_embeddings"}),
    {"input_features": torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(0)), "labels": words(length=7)}))
model(HF, "clip", lambda: (
    built("CLIPModel", "CLIPConfig", text_config=dict(SMALL, eos_token_id=2), vision_config=VIT, projection_dim=16),
    {"input_ids": words(), "pixel_values": picture(), "attention_mask": masked(words()), "return_loss": True}))
model(HF, "vit", lambda: (built("ViTForImageClassification", "ViTConfig", **VIT), {"pixel_values": picture(), "labels": classes()}))
model(HF, "swin", lambda: (
    built("SwinForImageClassification", "SwinConfig", image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=5),
    {"pixel_values": picture(), "labels": classes()}))
model(HF, "segformer", lambda: (
    built("SegformerForSemanticSegmentation", "SegformerConfig", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16, num_labels=5),
    {"pixel_values": picture(size=64), "labels": torch.randint(0, 5, (2, 64, 64), generator=torch.Generator().manual_seed(0))}))
model(HF, "detr", lambda: detr())
model(HF, "wav2vec2", lambda: (
    built("Wav2Vec2ForCTC", "Wav2Vec2Config", apply_spec_augment=False, conv_dim=[16, 16, 16], conv_stride=[5, 4, 4], conv_kernel=[10, 4, 4],
          num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, **{k: v for k, v in SMALL.items() if k != "max_position_embeddings"}),
    {"input_values": torch.randn(2, 1600, generator=torch.Generator().manual_seed(0)), "attention_mask": masked(words(length=1600), 300),
     "labels": words(length=4)}))

# More of them, which are built of other parts.
NO_WORDS = {k: v for k, v in SMALL.items() if k != "vocab_size"}
model(HF, "albert", lambda: text("AlbertForMaskedLM", "AlbertConfig", embedding_size=16, **SMALL))
model(HF, "xlnet", lambda: text("XLNetForSequenceClassification", "XLNetConfig", "classes", vocab_size=60, d_model=32, n_layer=2, n_head=4, d_inner=48))
model(HF, "fnet", lambda: text("FNetForMaskedLM", "FNetConfig", mask=False, vocab_size=60, hidden_size=32, num_hidden_layers=2, intermediate_size=48, max_position_embeddings=64))
model(HF, "modernbert", lambda: text("ModernBertForMaskedLM", "ModernBertConfig", pad_token_id=0, **SMALL))
model(HF, "canine", lambda: text("CanineForSequenceClassification", "CanineConfig", "classes", local_transformer_stride=4, downsampling_rate=2, num_hash_buckets=50, **NO_WORDS))
model(HF, "bert-questions", lambda: (
    built("BertForQuestionAnswering", "BertConfig", **SMALL), {"input_ids": words(), "start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([3, 5])}))
model(HF, "gptj", lambda: text("GPTJForCausalLM", "GPTJConfig", vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4))
model(HF, "gpt_neox", lambda: text("GPTNeoXForCausalLM", "GPTNeoXConfig", **SMALL))
model(HF, "bloom", lambda: text("BloomForCausalLM", "BloomConfig", vocab_size=60, hidden_size=32, n_layer=2, n_head=4))
model(HF, "falcon", lambda: text("FalconForCausalLM", "FalconConfig", vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4))
model(HF, "gemma3", lambda: text("Gemma3ForCausalLM", "Gemma3TextConfig", head_dim=8, **CAUSAL))
model(HF, "qwen3-moe", lambda: text("Qwen3MoeForCausalLM", "Qwen3MoeConfig", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, head_dim=8, **CAUSAL))
model(HF, "deepseek-v3", lambda: text(
    "DeepseekV3ForCausalLM", "DeepseekV3Config", n_routed_experts=4, n_group=1, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=16,
    first_k_dense_replace=1, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=8, **dict(CAUSAL, num_key_value_heads=4)))
model(HF, "mamba2", lambda: text("Mamba2ForCausalLM", "Mamba2Config", vocab_size=60, hidden_size=16, num_hidden_layers=2, state_size=4, num_heads=4, head_dim=8, n_groups=1, chunk_size=4))
model(HF, "rwkv", lambda: text("RwkvForCausalLM", "RwkvConfig", mask=False, vocab_size=60, hidden_size=16, num_hidden_layers=2, attention_hidden_size=16, intermediate_size=32))
model(HF, "pegasus", lambda: translated("PegasusForConditionalGeneration", "PegasusConfig", decoder_start_token_id=0, pad_token_id=0, **BART))
model(HF, "dinov2", lambda: (built("Dinov2ForImageClassification", "Dinov2Config", **VIT), {"pixel_values": picture(), "labels": classes()}))
model(HF, "convnextv2", lambda: (
    built("ConvNextV2ForImageClassification", "ConvNextV2Config", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_labels=5), {"pixel_values": picture(), "labels": classes()}))
model(HF, "swinv2", lambda: (
    built("Swinv2ForImageClassification", "Swinv2Config", image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=5),
    {"pixel_values": picture(), "labels": classes()}))
model(HF, "siglip", lambda: (
    built("SiglipModel", "SiglipConfig", text_config=dict(SMALL, projection_size=32), vision_config=VIT), {"input_ids": words(), "pixel_values": picture(), "return_loss": True}))


class Detected(nn.Module):
    """DETR with its own losses for queries that are matched to boxes in order: its matching runs in scipy, on the host."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, pixel_values, labels, boxes):
        out = self.net(pixel_values=pixel_values)
        n = boxes.shape[1]
        loss = F.cross_entropy(out.logits[:, :n].flatten(0, 1), labels.flatten()) + (out.pred_boxes[:, :n] - boxes).abs().mean()
        return out.logits, loss


def detr():
    lib = need("transformers")
    backbone = lib.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"])
    net = built("DetrForObjectDetection", "DetrConfig", backbone_config=backbone, d_model=32, encoder_layers=1, decoder_layers=1,
                encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_queries=6, num_labels=5)
    g = torch.Generator().manual_seed(0)
    return Detected(net), {"pixel_values": picture(size=64), "labels": torch.randint(0, 5, (2, 3), generator=g), "boxes": torch.rand(2, 3, 4, generator=g)}


# --- vision ---

class Classified(nn.Module):
    """A net and the loss of its classes."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, labels):
        y = self.net(x)
        y = y["out"] if isinstance(y, dict) else y
        return y, F.cross_entropy(y, labels)


def quiet(net):
    """Without dropout, also of whole layers."""
    for m in net.modules():
        for name in ("p", "drop_prob"):
            if "drop" in type(m).__name__.lower() or type(m).__name__ == "StochasticDepth":
                if isinstance(getattr(m, name, None), float):
                    setattr(m, name, 0.0)
    return net


def tv(name, size=64, batch=4, module="torchvision.models", **settings):
    f = getattr(need(module), name)
    return Classified(quiet(f(weights=None, num_classes=5, **settings))), {"x": picture(batch, size), "labels": classes(batch)}


def segmented(name, size=64, **settings):
    f = getattr(need("torchvision.models.segmentation"), name)
    labels = torch.randint(0, 5, (4, size, size), generator=torch.Generator().manual_seed(0))
    return Classified(quiet(f(weights=None, weights_backbone=None, num_classes=5, **settings))), {"x": picture(4, size), "labels": labels}


def timm(name, size=64, batch=4, **settings):
    lib = need("timm")
    return Classified(quiet(lib.create_model(name, pretrained=False, num_classes=5, **settings))), {"x": picture(batch, size), "labels": classes(batch)}


def tinyViT():
    return need("torchvision.models.vision_transformer").VisionTransformer(32, 8, 2, 4, 32, 48, num_classes=5)


def tinySwin():
    return need("torchvision.models.swin_transformer").SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=5)


def tinyConvNext():
    lib = need("torchvision.models.convnext")
    return lib.ConvNeXt([lib.CNBlockConfig(16, 32, 1), lib.CNBlockConfig(32, None, 1)], num_classes=5)


def vision(make, size=32, batch=4):
    return Classified(quiet(make())), {"x": picture(batch, size), "labels": classes(batch)}


TV = "torchvision"
model(TV, "tv-resnet18", lambda: exact(tv("resnet18")))
model(TV, "tv-mobilenet_v3_small", lambda: tv("mobilenet_v3_small"))
model(TV, "tv-efficientnet_b0", lambda: exact(tv("efficientnet_b0")))
model(TV, "tv-shufflenet_v2_x0_5", lambda: exact(tv("shufflenet_v2_x0_5")))
model(TV, "tv-squeezenet1_1", lambda: tv("squeezenet1_1"))
model(TV, "tv-regnet_y_400mf", lambda: exact(tv("regnet_y_400mf")))
model(TV, "tv-vit", lambda: vision(tinyViT))
model(TV, "tv-swin", lambda: vision(tinySwin))
model(TV, "tv-convnext", lambda: vision(tinyConvNext))
model(TV, "tv-lraspp", lambda: segmented("lraspp_mobilenet_v3_large"))

TIMM = "timm"
model(TIMM, "timm-resnet10t", lambda: exact(timm("resnet10t")))
model(TIMM, "timm-convnext_atto", lambda: timm("convnext_atto"))
model(TIMM, "timm-vit", lambda: timm("vit_tiny_patch16_224", img_size=64, depth=2, embed_dim=48, num_heads=3))
model(TIMM, "timm-deit", lambda: timm("deit_tiny_patch16_224", img_size=64, depth=2, embed_dim=48, num_heads=3))
model(TIMM, "timm-swin", lambda: timm("swin_tiny_patch4_window7_224", img_size=64, window_size=4, embed_dim=24, depths=(2, 2), num_heads=(2, 4)))
model(TIMM, "timm-mixer", lambda: timm("mixer_s32_224", img_size=64))
model(TIMM, "timm-beit", lambda: timm("beit_base_patch16_224", img_size=64, depth=2, embed_dim=48, num_heads=3))
model(TIMM, "timm-mobilevit_xxs", lambda: timm("mobilevit_xxs"))
model(TIMM, "timm-regnety_002", lambda: timm("regnety_002"))
model(TIMM, "timm-eva02", lambda: timm("eva02_tiny_patch14_224", img_size=56, depth=2, embed_dim=48, num_heads=3, size=56))


# --- diffusers ---

class Denoised(nn.Module):
    """A UNet and the error of the noise it finds."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, sample, timestep, noise, *more):
        y = self.net(sample, timestep, *more).sample
        return y, F.mse_loss(y, noise)


class Coded(nn.Module):
    """A VAE and its loss, without random numbers."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        posterior = self.net.encode(x).latent_dist
        y = self.net.decode(posterior.mode()).sample
        return y, F.mse_loss(y, x) + 1e-3 * posterior.kl().mean()


def unet():
    lib = need("diffusers")
    net = lib.UNet2DModel(sample_size=16, block_out_channels=(32, 32), layers_per_block=1, norm_num_groups=8, attention_head_dim=8,
                          down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    return Denoised(net), {"sample": picture(2, 16), "timestep": torch.tensor([3, 70]), "noise": picture(2, 16, seed=1)}


def unetWithText():
    lib = need("diffusers")
    net = lib.UNet2DConditionModel(sample_size=16, in_channels=4, out_channels=4, block_out_channels=(32, 32), layers_per_block=1, norm_num_groups=8,
                                   cross_attention_dim=16, attention_head_dim=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                                   up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
    more = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(2))
    return Denoised(net), (picture(2, 16, 4), torch.tensor([3, 70]), picture(2, 16, 4, seed=1), more)


def vae():
    lib = need("diffusers")
    net = lib.AutoencoderKL(block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, latent_channels=4, sample_size=32,
                            down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2)
    return Coded(net), {"x": picture(2, 32)}


model("diffusers", "diffusers-unet", unet)
model("diffusers", "diffusers-unet-text", unetWithText)
model("diffusers", "diffusers-vae", vae)


# --- torch_geometric ---

class Nodes(nn.Module):
    """A class for each node."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, edge_index, labels):
        y = self.net(x, edge_index)
        return y, F.cross_entropy(y, labels)


class Graphs(nn.Module):
    """A class for each graph of a batch, which is one argument; how many graphs it has is not told."""

    def __init__(self, net, pool, head):
        super().__init__()
        self.net, self.pool, self.head = net, pool, head

    def forward(self, data):
        y = self.head(self.pool(self.net(data.x, data.edge_index), data.batch))
        return y, F.cross_entropy(y, data.y)


def graph(kind, **settings):
    nets = need("torch_geometric.nn")
    net = getattr(nets, kind)(8, 16, 2, 4, **settings)
    g = torch.Generator().manual_seed(0)
    edges = torch.randint(0, 12, (2, 30), generator=g)
    return Nodes(net), {"x": torch.randn(12, 8, generator=g), "edge_index": edges, "labels": torch.randint(0, 4, (12,), generator=g)}


def pooled():
    nets = need("torch_geometric.nn")
    g = torch.Generator().manual_seed(0)
    data = need("torch_geometric.data").Data(x=torch.randn(12, 8, generator=g), edge_index=torch.randint(0, 12, (2, 30), generator=g),
                                             batch=torch.tensor([0] * 5 + [1] * 7), y=torch.tensor([1, 0]))
    return Graphs(nets.GCN(8, 16, 2, 16), nets.global_mean_pool, nn.Linear(16, 3)), {"data": data}


PYG = "torch_geometric"
model(PYG, "pyg-gcn", lambda: graph("GCN"))
model(PYG, "pyg-gat", lambda: graph("GAT"))
model(PYG, "pyg-gin", lambda: graph("GIN"))
model(PYG, "pyg-sage", lambda: graph("GraphSAGE"))
model(PYG, "pyg-pool", pooled)
model(PYG, "pyg-gatv2", lambda: graph("GAT", v2=True))
model(PYG, "pyg-edgecnn", lambda: graph("EdgeCNN"))
model(PYG, "pyg-pna", lambda: graph("PNA", aggregators=["mean", "max", "min", "std"], scalers=["identity", "amplification"], deg=torch.tensor([0, 3, 5, 4] + [1] * 9)))


# --- training and comparing ---

# A learning rate that is the same number in single precision.
OPTIMIZERS = {"sgd": lambda p: torch.optim.SGD(p, lr=1 / 128), "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3)}


def call(net, inputs):
    return net(**inputs) if isinstance(inputs, dict) else net(*inputs)


def lossOf(out):
    if isinstance(out, torch.Tensor):
        return out
    if isinstance(out, (tuple, list)):
        return out[-1]
    return out["loss"] if isinstance(out, dict) else out.loss


def eager(net, inputs, optimizer, steps):
    opt, losses = OPTIMIZERS[optimizer](net.parameters()), []
    for _ in range(steps):
        opt.zero_grad()
        loss = lossOf(call(net, inputs))
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def compiled(net, inputs, optimizer, steps):
    import poptorch
    options = poptorch.Options().showCompilationProgressBar(False)
    trained = poptorch.trainingModel(net, options, OPTIMIZERS[optimizer](net.parameters()))
    losses = [float(lossOf(call(trained, inputs))) for _ in range(steps)]
    trained.copyWeightsToHost()
    trained.destroy()
    return losses


def updates(before, after):
    return {name: after[name].double() - t.double() for name, t in before.items() if t.is_floating_point()}


def worstUpdate(ours, theirs, weights, steps):
    """The largest difference of an element's update, relative to the largest update of its tensor. That a weight is rounded
    in every step does not count."""
    least = 1e-3 * max(float(u.abs().max()) for u in theirs.values() if u.numel())
    worst = 0.0
    for name, u in theirs.items():
        if u.numel():
            difference = (ours[name] - u).abs() - steps * 2.0**-23 * weights[name].abs()
            worst = max(worst, float(difference.max()) / max(float(u.abs().max()), least))
    return worst


def compare(name, optimizer="sgd", steps=5, double=False):
    """(worst difference of losses, worst difference of updates, seconds of poptorch)"""
    torch.manual_seed(0)
    net, inputs = exact(MODELS[name][1]()) if double else MODELS[name][1]()
    net.train()
    other, before = copy.deepcopy(net), {k: v.clone() for k, v in net.state_dict().items()}
    expected = eager(other, inputs, optimizer, steps)
    started = time.time()
    got = compiled(net, inputs, optimizer, steps)
    seconds = time.time() - started
    loss = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(got, expected))
    found, wanted = updates(before, net.state_dict()), updates(before, other.state_dict())
    return loss, worstUpdate(found, wanted, before, steps), seconds


def told(error):
    """What happened, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"[:400]


def row(name, optimizer, steps, double=False):
    """(ok or None where the library is missing, what to print)"""
    try:
        loss, update, seconds = compare(name, optimizer, steps, double)
    except Missing as e:
        return None, str(e)
    except Exception as e:    # whatever a library raises is the result
        if os.environ.get("ZOO_TRACEBACK"):
            raise
        return False, told(e)
    right = loss <= LOSS_LIMIT and update <= UPDATE_LIMIT
    return right, f"loss {loss:.1e}  update {update:.1e}  {seconds:.1f} s" + ("" if right else "  WRONG")


def main():
    parser = argparse.ArgumentParser(description="Train the models people bring, and compare with PyTorch.")
    parser.add_argument("names", nargs="*", help="of models or libraries; all if none is given")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--double", action="store_true", help="in double precision: Adam's steps are as large where a gradient is "
                        "0 but for rounding, as that of the bias of keys in attention is")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    names = [n for n, (library, _) in MODELS.items() if not given.names or n in given.names or library in given.names]
    counts = {True: 0, False: 0, None: 0}
    for name in names:
        ok, line = row(name, given.optimizer, given.steps, given.double)
        counts[ok] += 1
        print(f"{name:24} {line}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{counts[True]} right, {counts[False]} not, {counts[None]} without their library; peak {peak} MiB")
    sys.exit(1 if counts[False] or not names else 0)


if __name__ == "__main__":
    main()

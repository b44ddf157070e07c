"""Trains a small model of each of 106 architectures, natively (in a lake, without a session) and
in a session of gmlake_torch that executes what repeats again, and compares the losses of all steps.

    python3 -m pip install --no-build-isolation ./examples/torch
    python3 bench/real/census.py                     all, ten at once: on an H200 97 took 290 s
    python3 bench/real/census.py llama whisper       those alone

The architectures are those of transformers and timm, with random weights. Dropout and the like are
on, as the configurations have it, and torch's algorithms deterministic, where it has such. The
session gets .6 of the memory that the lake took natively, in chunks of 2 MiB, so that small models
move a lot.

A row has: `same` if all losses are, bit for bit; else by what part of itself one differs at most,
and in brackets by what part two native runs differ. GiB that the lake took natively and in the
session. MiB that came back in a step. Which blocks were found, and whether they are executed
again. A model that the library does not have, or that does not take what it gets here, says why. It
fails where a model that runs natively does not run in the session, and where losses differ by more
than eight times what native ones do, or eight last bits of a float.
"""
import argparse
import collections
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import threading

STEPS, ROWS, LENGTH, WORDS, WIDTH, LAYERS = 7, 16, 128, 1000, 512, 6
SIZES = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
    "intermediate_size": 4 * WIDTH, "max_position_embeddings": 2 * LENGTH, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
BOTH = {
    "vocab_size": WORDS, "d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS,
    "encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 4 * WIDTH,
    "decoder_ffn_dim": 4 * WIDTH, "max_position_embeddings": 2 * LENGTH, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
T5 = {
    "vocab_size": WORDS, "d_model": WIDTH, "d_kv": 64, "d_ff": 4 * WIDTH, "num_layers": LAYERS,
    "num_heads": 8, "decoder_start_token_id": 0,
}  # fmt: skip
EXPERTS = {
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": WIDTH, "shared_expert_intermediate_size": WIDTH, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 128, "kv_lora_rank": 64,
    "qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "v_head_dim": 64,
}  # fmt: skip
SPEECH = {"conv_dim": (64,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
SPECIAL = {
    "falcon": {"head_dim": None}, "deepseek_v3": {"head_dim": 32},
    "gpt_neo": {"attention_types": [[["global", "local"], LAYERS // 2]], "num_layers": LAYERS,
                "num_heads": 8},
    "gptj": {"rotary_dim": 32},
    "opt": {"ffn_dim": 4 * WIDTH, "word_embed_proj_dim": WIDTH},
    "mamba": {"state_size": 8},
    "mamba2": {"num_heads": 16, "head_dim": 64, "state_size": 32, "n_groups": 1},
    "gpt_oss": {"layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2)},
    "distilbert": {"dim": WIDTH, "n_layers": LAYERS, "n_heads": 8, "hidden_dim": 4 * WIDTH},
    "albert": {"embedding_size": 128},
    "longformer": {"attention_window": [32] * LAYERS},
    "led": {"attention_window": [32] * LAYERS, "max_encoder_position_embeddings": 2 * LENGTH,
            "max_decoder_position_embeddings": 2 * LENGTH},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
}  # fmt: skip
CAUSAL = (
    "llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 gpt2 gpt_neox gpt_neo gptj opt "
    "bloom falcon olmo2 granite stablelm starcoder2 cohere mamba mamba2 smollm3 nemotron"
).split()
MIXTURES = "mixtral qwen2_moe qwen3_moe deepseek_v3 gpt_oss olmoe granitemoe".split()
MASKED = (
    "bert roberta distilbert electra deberta deberta-v2 albert modernbert xlm-roberta mpnet "
    "convbert longformer nystromformer fnet rembert"
).split()
PAIRS = "bart mbart pegasus marian m2m_100 blenderbot led plbart".split()
T5S = "t5 mt5 umt5 longt5".split()
SOUNDS = "wav2vec2 hubert wavlm data2vec-audio".split()
PICTURES = "vit beit swin swinv2 convnext convnextv2 dinov2 segformer resnet regnet pvt".split()
TIMM = (
    "vit_small_patch16_224 deit3_small_patch16_224 swin_tiny_patch4_window7_224 convnext_tiny "
    "resnet50 efficientnet_b0 mixer_s16_224 cait_xxs24_224 beit_base_patch16_224 "
    "eva02_small_patch14_224 coatnet_0_rw_224 maxvit_tiny_rw_224 poolformer_s12 "
    "xcit_tiny_12_p16_224 davit_tiny hiera_tiny_224 volo_d1_224 twins_svt_small pvt_v2_b1 "
    "focalnet_tiny_srf mobilevit_s nfnet_l0 vgg16 densenet121 mvitv2_tiny edgenext_small levit_192 "
    "tiny_vit_5m_224 crossvit_9_240 nest_tiny"
).split()
NAMES = {
    **dict.fromkeys((*CAUSAL, *MIXTURES), "causal"),
    **dict.fromkeys(MASKED, "masked"),
    **dict.fromkeys((*PAIRS, *T5S), "pair"),
    **dict.fromkeys(SOUNDS, "sound"),
    **dict.fromkeys(PICTURES, "picture"),
    **{f"timm:{name}": "timm" for name in TIMM},
    "whisper": "speech",
    "torch:Transformer": "torch",
}


def model_of(name, kind):
    import torch

    if kind == "timm":
        import timm

        name = name.split(":")[1]
        options = {} if name in ("vgg16", "densenet121") else {"drop_path_rate": 0.1}
        return timm.create_model(name, num_classes=100, **options)
    if kind == "torch":
        return torch.nn.Transformer(WIDTH, 8, LAYERS, LAYERS, 4 * WIDTH, batch_first=True)
    import transformers

    sizes = {
        "pair": T5 if name in T5S else BOTH, "picture": {"num_labels": 100},
        "sound": SIZES | SPEECH, "speech": BOTH | {"max_source_positions": LENGTH},
    }.get(kind, SIZES)  # fmt: skip
    special = EXPERTS if name in MIXTURES else {}
    options = sizes | special | SPECIAL.get(name, {})
    options = {key: value for key, value in options.items() if value is not None}
    config = transformers.AutoConfig.for_model(name, **options)
    makers = {
        "causal": "AutoModelForCausalLM", "masked": "AutoModelForMaskedLM",
        "pair": "AutoModelForSeq2SeqLM", "sound": "AutoModel",
        "picture": "AutoModelForImageClassification", "speech": "AutoModelForSpeechSeq2Seq",
    }  # fmt: skip
    return getattr(transformers, makers[kind]).from_config(config)


def loss_of(model, name, kind):
    """Of one step, with inputs that are drawn now."""
    import torch

    def words(length=LENGTH):
        return torch.randint(5, WORDS, (ROWS, length), device="cuda")

    if kind in ("causal", "masked"):
        ids = words()
        return model(input_ids=ids, labels=ids).loss
    if kind == "pair":
        return model(input_ids=words(), labels=words(LENGTH // 2)).loss
    if kind == "speech":
        sounds = torch.randn(ROWS, 80, 2 * LENGTH, device="cuda")
        return model(input_features=sounds, labels=words(LENGTH // 2)).loss
    if kind == "sound":
        return model(torch.randn(ROWS // 4, 16000, device="cuda"))[0].square().mean()
    if kind == "torch":
        source = torch.randn(ROWS, LENGTH, WIDTH, device="cuda")
        return model(source, source.flip(1)).square().mean()
    side = 240 if "240" in name else 224
    images = torch.randn(ROWS, 3, side, side, device="cuda")
    answers = torch.randint(0, 100, (ROWS,), device="cuda")
    found = model(images)
    return torch.nn.functional.cross_entropy(getattr(found, "logits", found), answers)


def train(name, kind, look=lambda model: None):
    """Returns the losses. look(model) is called at the end."""
    import numpy
    import torch

    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    model = model_of(name, kind).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses = []
    for _ in range(STEPS):
        loss = loss_of(model, name, kind)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    look(model)
    return losses


def settle():
    """Gives back what the model before had."""
    import torch

    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_reserved()


def measure(name, kind, recomputes):
    import torch

    import gmlake_torch

    settle()
    native = train(name, kind)
    found = {"native_gib": torch.cuda.max_memory_reserved() / 2**30}
    settle()
    again = train(name, kind)
    held = settle()
    limit = int(0.6 * found["native_gib"] * 2**30) + held
    with gmlake_torch.offload(limit, chunk_bytes=2 << 20, recomputes=recomputes) as session:
        blocks, before = collections.Counter(), session.stats()

        def look(model):
            for module in model.modules():
                forward = vars(module).get("forward")
                if hasattr(forward, "is_fit"):
                    what = "again" if forward.is_fit else "once"
                    blocks[type(module).__name__, what] += 1

        try:
            losses = train(name, kind, look)
        except Exception as error:
            return {"failed": f"only in the session: {type(error).__name__}: {error}"}
        stats = session.stats()
        found["session_gib"] = torch.cuda.max_memory_reserved() / 2**30
        gc.collect()
    found["back_mib"] = (stats["in_bytes"] - before["in_bytes"]) / STEPS / 2**20
    found["blocks"] = [f"{count} {kind} {what}" for (kind, what), count in blocks.items()]
    found["is_same"] = losses == native
    found["own"] = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(again, native))
    found["other"] = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(losses, native))
    return found


def work(names, recomputes):
    import torch

    import gmlake_torch

    gmlake_torch.enable()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    for name in names:
        try:
            found = measure(name, NAMES[name], recomputes)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({"name": name, **found}), flush=True)
    os._exit(0)


def is_near(found):
    return "other" in found and found["other"] <= 8 * max(found["own"], 2**-23)


def row(found):
    why = found.get("error") or found.get("failed")
    if why:
        return f"{found['name']:32} {why.splitlines()[0][:150]}"
    text = "same" if found["is_same"] else f"{found['other']:.1e} (own {found['own']:.1e})"
    text = f"{found['name']:32} {text:24} {found['native_gib']:5.2f} {found['session_gib']:5.2f} "
    text += f"GiB {found['back_mib']:6.0f} MiB back; "
    return text + (", ".join(found["blocks"]) or "no blocks")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(NAMES))
    parser.add_argument("--processes", type=int, default=10, help="at once, on one GPU (10)")
    parser.add_argument("--recomputes", default="always", help="as offload's option (always)")
    parser.add_argument("--out", help="a file for all results, as JSON")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.names or list(NAMES)
    for name in names:
        if name not in NAMES:
            parser.error(f"there is no {name}: {' '.join(NAMES)}")
    if given.work:
        work(names, given.recomputes)
    settings = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "HF_HUB_OFFLINE": "1"}
    processes, results = [], []
    for part in range(min(given.processes, len(names))):
        arguments = [sys.executable, os.path.abspath(__file__), "--work"]
        arguments += ["--recomputes", given.recomputes, *names[part :: given.processes]]
        said = tempfile.TemporaryFile("w+")
        process = subprocess.Popen(
            arguments, env={**os.environ, **settings}, text=True, stdout=subprocess.PIPE,
            stderr=said,
        )  # fmt: skip
        processes.append((process, said))

    def read(part, process, said):
        """Prints what a process finds, as it finds it."""
        mine = names[part :: given.processes]
        for line in process.stdout:
            if line.startswith('{"name"'):
                results.append(json.loads(line))
                mine.remove(results[-1]["name"])
                print(row(results[-1]), flush=True)
        if process.wait():
            said.seek(0)
            why = f"status {process.returncode}: {said.read()[-2000:]}"
            results.append({"name": mine[0] if mine else "end", "failed": why})
            print(row(results[-1]), flush=True)

    readers = [
        threading.Thread(target=read, args=(part, *each)) for part, each in enumerate(processes)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    if given.out:
        with open(given.out, "w") as file:
            json.dump(results, file, indent=1)
    ran = [found for found in results if "error" not in found]
    same = sum(found.get("is_same", False) for found in ran)
    near = sum(is_near(found) for found in ran) - same
    text = f"{len(ran)} of {len(results)} architectures ran: {same} with the same losses, {near} "
    print(f"{text}within what native ones differ by, {len(ran) - same - near} not")
    sys.exit(same + near < len(ran))


if __name__ == "__main__":
    main()

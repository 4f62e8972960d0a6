"""Generation against whole forward passes, NumPy and PyTorch; drawing, beams, mistakes."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from layer_forms import close, normalized, softmax

import magmagraph as mg

nn = mg.nn
PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [9], [3, 1]]


def network(rng, words=20, *, seed_scale=0.4, **options):
    """Return a small language model with random weights, so that tokens depend on all before."""
    options = {"positions": 64, **options}
    net = mg.NeuralNetwork(
        [nn.Input(("length",), "int32"), nn.LanguageModel(words, 16, 4, 2, **options)],
        loss="cross_entropy", device="cpu",
    )  # fmt: skip
    for name, weight in net.weights().items():
        held = weight.variable
        first = 1.0 if name.endswith("scale") else 0.0
        held.value = (first + seed_scale * rng.standard_normal(held.value.shape)).astype("f4")
    return net


def one_by_one(net, row, new):
    """Compute the whole sequence for each token."""
    row = list(row)
    for _ in range(new):
        row.append(int(net.predict(np.array([row], np.int32))[0, -1].argmax()))
    return row


KINDS = {
    "GPT-2": {},
    "Llama": {
        "positions": None, "rotary": True, "norm": "rms", "gated": True, "activation": "silu",
        "bias": False, "key_heads": 2, "tied": False,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", ["GPT-2", pytest.param("Llama", marks=pytest.mark.slow)])
def test_prompts_of_different_lengths_go_on_as_whole_passes_say(kind, rng):
    net = network(rng, **KINDS[kind])
    wanted = [one_by_one(net, row, 9) for row in PROMPTS]
    found = mg.generate(net, PROMPTS, 9)
    assert [row.tolist() for row in found] == wanted
    assert all(row.dtype == np.int32 for row in found)
    found = mg.generate(net, PROMPTS, 9, cache=False)
    assert [row.tolist() for row in found] == wanted
    alone = mg.generate(net, np.array(PROMPTS[0]), 9)
    assert alone.shape == (16,) and alone.tolist() == wanted[0]
    both = mg.generate(net, np.array([PROMPTS[0], PROMPTS[0][::-1]]), 9)
    assert both.shape == (2, 16) and both[0].tolist() == wanted[0]
    assert mg.generate(net, PROMPTS[0], 0).tolist() == PROMPTS[0]
    layer = net.layers[0]
    assert mg.generate(layer, PROMPTS[0], 9, device="cpu").tolist() == wanted[0]


def test_caches_are_updated_in_place_and_functions_compiled_once(rng):
    net = network(rng)
    mg.generate(net, PROMPTS, 3)
    (writer,) = vars(net)["_generators"].values()
    steps = writer.step.plan.steps
    written = [step for step in steps if step.family.name == "scatter"]
    assert len(written) == 4  # keys and values of two blocks
    copied = [step for step in steps if step.family.name == "copy"]
    assert all("keys" not in str(s) and "values" not in str(s) for s in copied)
    arena = writer.step.memory.arena
    cache = 3 * 4 * 64 * 4 * 4
    assert arena < cache  # none is copied
    mg.generate(net, PROMPTS, 5)
    assert list(vars(net)["_generators"].values()) == [writer]
    # Weights are read at each call.
    before = mg.generate(net, PROMPTS[0], 6).tolist()
    for held in net.trainable:
        held.value = (rng.standard_normal(held.value.shape) * 0.5).astype("f4")
    after = mg.generate(net, PROMPTS[0], 6).tolist()
    assert after == one_by_one(net, PROMPTS[0], 6) != before
    other = copy.deepcopy(net)
    assert mg.generate(other, PROMPTS[0], 6).tolist() == after


class Fixed(nn.Layer):
    """Logits that depend on the last token alone: a row of a table for each."""

    def build(self, ids):
        table = np.log(np.array([[0.5, 0.3, 0.15, 0.05]] * 4, np.float32))
        self.table = self.weight("table", (4, 4), table)

    def call(self, ids):
        return mg.embedding(ids, self.table)


def frequencies(**options):
    tokens = mg.generate(Fixed(), [[0]] * 200, 10, device="cpu", **options)
    drawn = np.concatenate([row[1:] for row in tokens])
    return np.bincount(drawn, minlength=4) / len(drawn)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [0.5, 0.3, 0.15, 0.05]),
        ({"top_k": 2}, [0.625, 0.375, 0, 0]),
        ({"top_k": 9}, [0.5, 0.3, 0.15, 0.05]),
        ({"top_p": 0.75}, [0.625, 0.375, 0, 0]),
        ({"top_p": 0.49}, [1, 0, 0, 0]),
        ({"top_p": 0.81}, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        ({"top_k": 3, "top_p": 0.6}, [0.625, 0.375, 0, 0]),
        ({"temperature": 0.5}, [0.25 / 0.365, 0.09 / 0.365, 0.0225 / 0.365, 0.0025 / 0.365]),
    ],
    ids=str,
)
def test_tokens_are_drawn_by_their_chances(options, wanted):
    found = frequencies(**{"temperature": 1.0, **options})
    # 2000 draws: four deviations of a share.
    assert np.abs(found - wanted).max() < 4 * 0.5 / np.sqrt(2000)
    assert not found[np.array(wanted) == 0].any()


def test_a_seed_gives_the_same_tokens(rng):
    net = network(rng)
    first = [mg.generate(net, PROMPTS, 12, temperature=1.0, seed=s) for s in (1, 1, 2)]
    rows = [np.concatenate(found).tolist() for found in first]
    assert rows[0] == rows[1] != rows[2]
    cold = mg.generate(net, PROMPTS, 12, temperature=1e-4)
    greedy = mg.generate(net, PROMPTS, 12)
    assert [row.tolist() for row in cold] == [row.tolist() for row in greedy]


def test_sequences_end(rng):
    net = network(rng)
    whole = mg.generate(net, PROMPTS, 30)
    end = int(whole[0][len(PROMPTS[0]) + 3])
    wanted = []
    for row, prompt in zip(whole, PROMPTS, strict=True):
        new = row[len(prompt) :].tolist()
        wanted.append(prompt + (new[: new.index(end) + 1] if end in new else new))
    for cache in (True, False):
        found = mg.generate(net, PROMPTS, 30, end=end, cache=cache)
        assert [row.tolist() for row in found] == wanted
    filled = mg.generate(net, np.array([PROMPTS[0]] * 2), 30, end=end)
    assert filled.tolist() == [wanted[0]] * 2


def beam_search(net, row, new, beams, end=None):
    """Keep the best sequences, all computed anew."""
    kept = [(0.0, list(row), False)]
    for _ in range(new):
        found = []
        for score, tokens, ended in kept:
            if ended:
                found.append((score, [*tokens, end], True))
                continue
            logits = net.predict(np.array([tokens], np.int32))[0, -1].astype(float)
            logs = np.log(softmax(logits))
            found += [(score + logs[t], [*tokens, t], t == end) for t in range(len(logs))]
        kept = sorted(found, key=lambda member: -member[0])[:beams]
    tokens = kept[0][1]
    new_tokens = tokens[len(row) :]
    return tokens[: len(row)] + (
        new_tokens[: new_tokens.index(end) + 1] if end in new_tokens else new_tokens
    )


@pytest.mark.parametrize("cache", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_beams(cache, rng):
    net = network(rng, words=6)
    prompts = [[1, 2, 3], [5]]
    found = mg.generate(net, prompts, 5, beams=3, cache=cache)
    assert [row.tolist() for row in found] == [beam_search(net, row, 5, 3) for row in prompts]
    end = int(found[0][4])
    found = mg.generate(net, prompts, 5, beams=3, end=end, cache=cache)
    wanted = [beam_search(net, row, 5, 3, end) for row in prompts]
    assert [row.tolist() for row in found] == wanted


@pytest.mark.slow
def test_enough_beams_find_the_best_sequence(rng):
    net = network(rng, words=4)
    found = mg.generate(net, [2, 3], 3, beams=16).tolist()
    best = max(
        itertools.product(range(4), repeat=3),
        key=lambda new: sum(
            np.log(softmax(net.predict(np.array([[2, 3, *new[:i]]], "i4"))[0, -1]))[new[i]]
            for i in range(3)
        ),
    )
    assert found == [2, 3, *best]


def test_a_recurrent_model_computes_all_positions(rng):
    net = mg.NeuralNetwork(
        [
            nn.Input(("length",), "int32"), nn.Embedding(8, 6),
            nn.LSTM(12, return_sequences=True), nn.Output(8),
        ],
        device="cpu",
    )  # fmt: skip
    for held in net.trainable:
        held.value = (rng.standard_normal(held.value.shape)).astype("f4")
    found = mg.generate(net, [[1, 2, 3], [4]], 6, cache=False)
    assert [row.tolist() for row in found] == [one_by_one(net, r, 6) for r in ([1, 2, 3], [4])]
    with pytest.raises(mg.GraphError, match="do not say all.*\n.*\n  try: cache=False"):
        mg.generate(net, [[1, 2, 3], [4]], 6)


class Backward(nn.Layer):
    """The mean over all positions, also later ones, at each."""

    def call(self, x):
        return x + mg.mean(x, 1, keepdims=True)


@pytest.mark.parametrize("cache", [True, False])
def test_a_model_that_sees_later_positions_is_refused(cache, rng):
    net = mg.NeuralNetwork(
        [nn.Input(("length",), "int32"), nn.Embedding(8, 6), Backward(), nn.Output(8)],
        device="cpu",
    )
    with pytest.raises(mg.GraphError, match="generate: .* differs|changes it"):
        mg.generate(net, [[1, 2, 3], [4, 5]], 6, cache=cache)
    seen = mg.NeuralNetwork(
        [nn.Input(("length",), "int32"), nn.Embedding(8, 6), nn.TransformerEncoder(2, 8)],
        device="cpu",
    )
    with pytest.raises(mg.GraphError, match="looks at later positions|changes it"):
        mg.generate(seen, [[1, 2, 3], [4, 5]], 6, cache=cache)


@pytest.mark.slow
def test_probabilities_and_half_precision(rng):
    net = network(rng)
    layers = [*net.members, nn.Activation("softmax")]
    chances = mg.NeuralNetwork(layers, device="cpu")
    assert mg.generate(chances, PROMPTS[0], 6, beams=2).tolist() == mg.generate(
        net, PROMPTS[0], 6, beams=2
    ).tolist()
    half = mg.NeuralNetwork(net.members, device="cpu", precision="bfloat16")
    assert len(mg.generate(half, PROMPTS[0], 6)) == 13


def test_mistakes(rng):
    net = network(rng)
    cases = [
        (lambda: mg.generate("net", [1], 1), "generate is given str\n  expected: a model"),
        (lambda: mg.generate(net, [], 1), "there is no prompt\n  expected: a list of tokens"),
        (lambda: mg.generate(net, "text", 1), "the prompt is str\n  expected: a list of ints"),
        (lambda: mg.generate(net, [[1], []], 1), r"a prompt has shape \(0,\)"),
        (lambda: mg.generate(net, [0.5], 1), "dtype float64\n  expected: one token at least"),
        (lambda: mg.generate(net, [1, 20], 1), "the token 20\n  expected: ints from 0 to 19"),
        (lambda: mg.generate(net, [[1], [-1]], 1), "prompt 1 holds the token -1"),
        (lambda: mg.generate(net, [1], -1), "max_new_tokens=-1\n  expected: an int of at least 0"),
        (lambda: mg.generate(net, [1], 64), "64 new ones\n  expected: 64 positions together"),
        (lambda: mg.generate(net, [1], 1, temperature=-1.0), "temperature=-1.0\n  expected: a f"),
        (lambda: mg.generate(net, [1], 1, top_k=3), "top_k=3 with temperature=0"),
        (lambda: mg.generate(net, [1], 1, temperature=1.0, top_k=0), "top_k=0\n  expected"),
        (lambda: mg.generate(net, [1], 1, temperature=1.0, top_p=1.5), "top_p=1.5\n  expected: 0"),
        (lambda: mg.generate(net, [1], 1, beams=0), "beams=0\n  expected: an int of at least 1"),
        (lambda: mg.generate(net, [1], 1, beams=2, temperature=1.0), "beams=2 with temperature"),
        (lambda: mg.generate(net, [1], 1, seed=-1), "seed=-1\n  expected: an int of at least 0"),
    ]
    for call, text in cases:
        with pytest.raises((mg.ConfigError, mg.errors.DataError), match=text):
            call()
    floats = mg.NeuralNetwork([nn.Input((3,)), nn.Dense(2)])
    with pytest.raises(mg.ConfigError, match="the model takes float32\n  expected: integers"):
        mg.generate(floats, [1], 1)
    flat = mg.NeuralNetwork([nn.Input((3,), "int32"), nn.Embedding(4, 2), nn.Flatten()])
    with pytest.raises(mg.GraphError, match=r"expected: logits \(batch, length, vocabulary\)"):
        mg.generate(flat, [1, 2, 3], 1, device="cpu")


# GPT-2, by the names of its published file.

WORDS, WIDTH, HEADS, BLOCKS, LENGTH = 17, 12, 3, 2, 24


def published(rng):
    """Return random weights by the names, and in the shapes, of the published file."""
    shapes = {"wte.weight": (WORDS, WIDTH), "wpe.weight": (LENGTH, WIDTH)}
    for i in range(BLOCKS):
        for name, shape in {
            "attn.c_attn": (WIDTH, 3 * WIDTH), "attn.c_proj": (WIDTH, WIDTH),
            "mlp.c_fc": (WIDTH, 4 * WIDTH), "mlp.c_proj": (4 * WIDTH, WIDTH),
        }.items():  # fmt: skip
            shapes[f"h.{i}.{name}.weight"], shapes[f"h.{i}.{name}.bias"] = shape, shape[1:]
    norms = [f"h.{i}.ln_{j}" for i in range(BLOCKS) for j in (1, 2)]
    for name in (*norms, "ln_f"):
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (WIDTH,)
    return {name: 0.3 * rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}


def gpt2_form(w, ids):
    """GPT-2 in NumPy, of float64."""
    w = {name: value.astype("f8") for name, value in w.items()}

    def norm(x, name):
        return normalized(x, (-1,), 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x, name):
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["wte.weight"][ids] + w["wpe.weight"][: ids.shape[1]]
    for i in range(BLOCKS):
        q, k, v = np.split(linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn"), 3, -1)
        q, k, v = (
            part.reshape(*part.shape[:2], HEADS, -1).transpose(0, 2, 1, 3) for part in (q, k, v)
        )
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(WIDTH // HEADS)
        scores = np.where(np.tri(ids.shape[1], dtype=bool), scores, -np.inf)
        joined = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        x = x + linear(joined, f"h.{i}.attn.c_proj")
        h = linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + linear(h, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def gpt2_of(weights, **options):
    layer = nn.LanguageModel(WORDS, WIDTH, HEADS, BLOCKS, positions=LENGTH, name="gpt2")
    net = mg.NeuralNetwork([nn.Input(("length",), "int32"), layer], device="cpu", **options)
    found = nn.prebuilt.gpt2_weights(weights)
    paths = layer.paths()
    assert set(found) == set(paths)
    for path, array in found.items():
        paths[path].variable.value = array
    return net


def test_gpt2_has_the_values_of_its_published_form(rng):
    weights = published(rng)
    ids = rng.integers(0, WORDS, (2, 9)).astype("i4")
    masks = {"h.0.attn.bias": np.tri(4)[None, None], "lm_head.weight": weights["wte.weight"]}
    prefixed = {f"transformer.{name}": value for name, value in weights.items()}
    for given in (weights, {**prefixed, **masks}):
        close(gpt2_of(given).predict(ids), gpt2_form(weights, ids), 10.0)
    with pytest.raises(mg.errors.DataError, match=r"'h.0.attn.c_gate.weight' is no weight of GPT"):
        nn.prebuilt.gpt2_weights({"h.0.attn.c_gate.weight": np.zeros(3)})
    with pytest.raises(mg.ConfigError, match="gpt2: size='7B'\n  expected: one of '124M'"):
        nn.prebuilt.gpt2("7B")


def test_gpt2_trains_and_is_kept_in_a_file(rng, tmp_path):
    net = mg.NeuralNetwork(
        [
            nn.Input(("length",), "int32"),
            nn.LanguageModel(WORDS, WIDTH, HEADS, BLOCKS, positions=LENGTH),
        ],
        loss="cross_entropy", optimizer=mg.optimizer.AdamW(1e-2), device="cpu",
    )  # fmt: skip
    ids = np.tile(np.arange(WORDS, dtype="i4"), 6)[:96].reshape(8, 12)
    history = net.fit(ids[:, :-1], ids[:, 1:], batch_size=8, epochs=80)
    assert history["loss"][-1] < 0.1 * history["loss"][0]
    assert mg.generate(net, [3, 4, 5], 4).tolist() == [3, 4, 5, 6, 7, 8, 9]
    net.save(tmp_path / "gpt2.safetensors")
    again = mg.NeuralNetwork.load(tmp_path / "gpt2.safetensors", device="cpu")
    assert mg.generate(again, [3, 4, 5], 4).tolist() == [3, 4, 5, 6, 7, 8, 9]


def test_gpt2_is_that_of_transformers(rng):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=WIDTH, n_layer=BLOCKS, n_head=HEADS,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    net = gpt2_of(weights)
    ids = rng.integers(0, WORDS, (2, 9))
    wanted = model(torch.tensor(ids)).logits
    np.testing.assert_allclose(net.predict(ids), wanted.detach().numpy(), rtol=1e-4, atol=1e-4)
    model.zero_grad()
    (wanted**2).mean().backward()
    slopes = nn.prebuilt.gpt2_weights({n: p.grad.numpy() for n, p in model.named_parameters()})
    layer = net.layers[0]
    x = mg.var("x", shape=("batch", 9), dtype="int32")
    paths = {path: weight.variable for path, weight in layer.paths().items()}
    found = mg.function([x], mg.grad(mg.mean(layer(x) ** 2), paths), device="cpu")(ids)
    for path, gradient in found.items():
        size = max(1.0, float(np.abs(slopes[path]).max()))
        np.testing.assert_allclose(gradient, slopes[path], rtol=1e-4, atol=1e-4 * size)
    greedy = model.generate(torch.tensor(ids[:1]), max_new_tokens=8, do_sample=False)
    assert mg.generate(net, ids[0], 8).tolist() == greedy[0].tolist()

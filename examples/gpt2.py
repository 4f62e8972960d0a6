"""GPT-2: read the published weights, continue tokens, train on a text.

    python examples/gpt2.py --weights model.safetensors --prompt 464 3280 318

The file is that of https://huggingface.co/openai-community/gpt2. Without one the
network is a small one of the same form that learns to count. Tokens are numbers: a
tokenizer, such as tiktoken's "gpt2", makes them of text.
"""

import argparse

import numpy as np

import magmagraph as mg

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--weights", help="model.safetensors, as published")
parser.add_argument("--size", default="124M", help="the number of parameters (124M)")
parser.add_argument("--prompt", type=int, nargs="+", default=[3, 4, 5], help="tokens")
parser.add_argument("--tokens", type=int, default=8, help="how many to write (8)")
parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the likeliest (0)")
parser.add_argument("--beams", type=int, default=1, help="sequences that are searched (1)")
arguments = parser.parse_args()

if arguments.weights:
    from safetensors.numpy import load_file

    net = mg.NeuralNetwork(mg.nn.prebuilt.gpt2(arguments.size), loss="cross_entropy")
    model = net.members[-1]
    paths = model.paths()
    for path, array in mg.nn.prebuilt.gpt2_weights(load_file(arguments.weights)).items():
        paths[path].variable.value = array
else:
    words = 20
    net = mg.NeuralNetwork(
        [
            mg.nn.Input(("length",), "int32"),
            mg.nn.LanguageModel(words, 32, heads=4, blocks=2, positions=64),
        ],
        loss="cross_entropy",
        optimizer=mg.optimizer.AdamW(3e-3),
        metrics=["perplexity"],
    )
    starts = np.arange(words)[:, None]
    text = (starts + np.arange(33)) % words
    history = net.fit(text[:, :-1], text[:, 1:], batch_size=10, epochs=30)
    print(f"perplexity {history['perplexity'][0]:.1f} at first, {history['perplexity'][-1]:.1f}")

print(f"{net.parameters:,} parameters")
written = mg.generate(
    net,
    arguments.prompt,
    arguments.tokens,
    temperature=arguments.temperature,
    beams=arguments.beams,
)
print(*written)

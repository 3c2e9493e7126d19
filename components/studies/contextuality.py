"""How contextual are contextualised representations? (Ethayarajh 2019, section 3), per layer of an encoder:

    self-similarity of a word         mean over pairs of its occurrences of cos(x_i, x_j)

In an anisotropic space all vectors are similar. The measure is therefore adjusted by the mean cosine of two randomly
sampled words (the anisotropy).

Shape suffixes: M words of all sentences, N occurrences, D width.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.preprocessing import normalize

from components.core.errors import DataError
from components.studies.frame import Corpus, Measured, Outputs, Row, Sheet, over
from components.studies.senses import Ints, Position, pseudo_words, senses_of
from components.studies.words import Floats, Sentence, evenly, of_letters, plain, sample, word_vectors

#: Minimum number of sentences with a measured word (5 in Ethayarajh 2019), maximum number of them that are used, number
#: of words, and number of randomly sampled occurrences for the anisotropy.
LEAST, MOST, WORDS, RANDOM = 5, 50, 400, 1000


def likeness(vectors_ND: Floats) -> Floats:
    """(N, D) with N at least 2 -> (N,) jackknife pseudo-values, whose mean is the mean cosine over all pairs of
    different rows; the cosine of a zero vector is 0."""
    directions_ND, count = normalize(vectors_ND).astype(np.float64), len(vectors_ND)
    others_N = (directions_ND @ directions_ND.sum(0) - np.square(directions_ND).sum(1)) / (count - 1)
    pseudo_N: Floats = 2 * others_N - others_N.mean()
    return pseudo_N


def of_layer(layer_MD: Floats, words: Sequence[Ints], random: Ints) -> dict[str, Floats]:
    """Measure -> its values: one for each random occurrence, and for each word. `words` and `random` are numbers of
    words in all sentences."""
    cone, own = likeness(layer_MD[random]), np.asarray([likeness(layer_MD[rows]).mean() for rows in words])
    return {"anisotropy": cone, "self-similarity": own, "self-similarity, adjusted": own - cone.mean()}


def positions_of_words(sentences: Sequence[Sentence], rng: np.random.Generator) -> dict[str, list[Position]]:
    """At most `WORDS` words of letters in at least `LEAST` sentences: word -> one position in each of up to `MOST`."""
    positions = defaultdict[str, dict[int, int]](dict)
    for number, of in enumerate(sentences):
        for index, word in enumerate(map(plain, of)):
            positions[word].setdefault(number, index)
    names = sorted(word for word, of in positions.items() if len(of) >= LEAST and of_letters(word))
    if not names:
        raise DataError(f"no word occurs in {LEAST} of the {len(sentences)} sentences; raise --sentences")
    kept = np.sort(rng.choice(len(names), min(WORDS, len(names)), replace=False))
    return {names[at]: evenly([*positions[names[at]].items()], MOST) for at in kept}


def measure(
    outputs: Outputs, *, encoder: str = "", word: str = "", corpus: Corpus = "domain", sentences: int = 1500
) -> Measured:
    """The measures for each layer of one or several encoders, and the senses of pseudo-words and of a word."""
    layers, moved, merged, senses = list[Row](), list[Row](), list[Row](), list[Row]()
    directory = outputs.of("corpus", corpus)
    for name, loaded in outputs.encoders(encoder).items():
        read, rng = sample(directory, loaded.tokenizer.segmentation, count=sentences), np.random.default_rng(0)
        positions, (vectors, starts) = positions_of_words(read, rng), word_vectors(loaded, read)
        words = [np.asarray([starts[number] + index for number, index in at]) for at in positions.values()]
        random = np.sort(rng.choice(len(vectors[0]), min(RANDOM, len(vectors[0])), replace=False))
        values = [of_layer(layer, words, random) for layer in vectors]
        layers += [{"encoder": name, "layer": number} | _intervals(of) for number, of in enumerate(values)]
        change = _intervals({key: values[-1][key] - values[0][key] for key in values[0]})
        moved.append({"encoder": name, "layers": len(values) - 1} | change)
        merged.append({"encoder": name} | pseudo_words(loaded, read, positions))
        senses += [{"encoder": name} | of for of in senses_of(loaded, directory, word)] if word else []
    sheets = [
        Sheet(layers, "By layer; 0 is the embedding", value="anisotropy", x="layer"),
        Sheet(moved, "Change from the embedding to the last layer", value="self-similarity, adjusted", reference=0.0),
        Sheet(merged, "Pseudo-words: purity of two clusters in the last layer", value="gain", reference=0.0),
        *([Sheet(senses, f"Sentences with {word!r} nearest to the centre of each cluster")] if senses else []),
    ]
    return Measured(sheets)


def _intervals(values: Mapping[str, Floats]) -> Row:
    return {key: over(of) for key, of in values.items()}

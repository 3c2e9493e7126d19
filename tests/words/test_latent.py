"""Dense vectors of texts from words."""

import numpy as np

from components.learners.words.latent import LatentSemantics, WordMeans

#: Two topics that share no word; "salt" occurs with the words of cooking only.
COOKING = ["boil rice with salt", "fry fish with salt", "boil fish", "fry rice", "rice with fish"]
SAILING = ["sail the boat north", "row the boat home", "sail home north", "row north", "the boat"]


def test_texts_of_a_topic_are_near_without_common_words():
    for fitted in (
        LatentSemantics.fit(COOKING + SAILING, dimensions=2),
        WordMeans.fit(COOKING + SAILING, dimensions=2),
    ):
        actual = fitted.vectors(["boil", "salt", "boat", "home"])
        cosines = actual @ actual.T
        assert cosines[0, 1] > 0.8 and cosines[2, 3] > 0.8
        assert abs(cosines[:2, 2:]).max() < cosines[0, 1] or cosines[:2, 2:].max() < 0


def test_a_text_does_not_depend_on_the_others_and_unknown_words_give_zero():
    for fitted in (
        LatentSemantics.fit(COOKING + SAILING, dimensions=3),
        WordMeans.fit(COOKING + SAILING, dimensions=3),
    ):
        together = fitted.vectors(["boil rice", "zzz", ""])
        np.testing.assert_array_equal(together[1:], 0)
        np.testing.assert_allclose(fitted.vectors(["boil rice"]), together[:1], atol=1e-6)
        assert abs(np.linalg.norm(together[0]) - 1) < 1e-6


def test_collections_without_repeated_words():
    for fitted in (LatentSemantics.fit(["one", "two"], dimensions=5), WordMeans.fit(["one", "two"], dimensions=5)):
        assert np.isfinite(fitted.vectors(["one", "three"])).all()

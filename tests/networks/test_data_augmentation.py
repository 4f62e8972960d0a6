"""Augmentation as nodes: windows and mirrors that are parts of the images, new for each call."""

import numpy as np
import pytest
from interpreted import assert_close

import magmagraph as mg
from magmagraph.errors import DataError


@pytest.fixture
def images():
    """Return images in which every pixel has a number of its own."""
    return np.arange(40 * 6 * 7 * 2, dtype=np.float32).reshape(40, 6, 7, 2) + 1.0


def place_of(window, image, padding):
    """Return where a window lies in a padded image; it must lie somewhere."""
    padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    rows, columns = window.shape[:2]
    found = [
        (i, j)
        for i in range(padded.shape[0] - rows + 1)
        for j in range(padded.shape[1] - columns + 1)
        if np.array_equal(padded[i : i + rows, j : j + columns], window)
    ]
    assert found
    return found[0]


@pytest.mark.parametrize(("size", "padding"), [((6, 7), 2), (4, 0), ((3, 7), 1)])
def test_windows_lie_in_their_images(images, size, padding):
    x = mg.input("x", ("batch", 6, 7, 2))
    made = mg.data.random_crop(x, size, padding=padding, layout="NHWC")
    f = mg.function([x], made)
    first, second = f(images), f(images)
    assert first.shape == (40, *((size, size) if isinstance(size, int) else size), 2)
    places = [place_of(w, image, padding) for w, image in zip(first, images, strict=True)]
    assert len(set(places)) > 3
    assert not np.array_equal(first, second)
    still = mg.data.random_crop(
        x, size, padding=padding, training=False, layout="NHWC"
    )
    kept = mg.function([x], still)(images)
    assert len({place_of(w, image, 0) for w, image in zip(kept, images, strict=True)}) == 1


def test_a_key_repeats_and_dtypes_stay(images):
    key = mg.random.key(4)
    x = mg.constant(images.astype(np.uint8))
    cut = mg.data.random_crop(x, 5, key=key, layout="NHWC")
    f = mg.function([], mg.data.random_flip(cut, key=key, layout="NHWC"))
    assert f().dtype == np.uint8 and np.array_equal(f(), f())


@pytest.mark.parametrize(("axis", "number"), [("horizontal", 2), ("vertical", 1)])
def test_each_image_is_mirrored_or_not(images, axis, number):
    x = mg.constant(images)
    found = mg.function([], mg.data.random_flip(x, axis, layout="NHWC"))()
    mirrored = np.flip(images, number)
    share = 0
    for one, image, other in zip(found, images, mirrored, strict=True):
        assert np.array_equal(one, image) or np.array_equal(one, other)
        share += np.array_equal(one, other)
    assert 5 < share < 35
    always, never = (
        mg.data.random_flip(x, axis, rate=rate, layout="NHWC") for rate in (1.0, 0.0)
    )
    assert np.array_equal(always.eval(), mirrored) and np.array_equal(never.eval(), images)
    assert np.array_equal(mg.data.random_flip(x, axis, training=False).eval(), images)


@pytest.mark.parametrize("training", [True, False])
def test_channels_may_stand_behind_the_batch(images, training):
    # The same key cuts and mirrors both at the same places.
    key = mg.random.key(7)

    def changed(x, layout):
        cut = mg.data.random_crop(
            x, (4, 5), padding=1, key=key, training=training, layout=layout
        )
        flipped = mg.data.random_flip(cut, key=key, training=training, layout=layout)
        return mg.data.random_flip(flipped, "vertical", rate=1.0, training=training, layout=layout)

    last = changed(mg.constant(images), "NHWC").eval()
    first = changed(mg.constant(np.moveaxis(images, -1, 1)), "NCHW").eval()
    assert last.shape == (40, 4, 5, 2)
    assert np.array_equal(np.moveaxis(last, -1, 1), first)


def test_gradients_reach_the_pixels_that_are_seen(images):
    x = mg.var("x", init=images[:3])
    made = mg.data.random_flip(mg.data.random_crop(x, 3, layout="NHWC"), layout="NHWC")
    slope = mg.function([], mg.grad(mg.sum(made), x))()
    assert set(np.unique(slope)) == {0.0, 1.0}
    assert slope.reshape(3, -1).sum(axis=1).tolist() == [18.0] * 3


def test_normalize(rng):
    x = rng.normal(size=(4, 2, 2, 3))
    mean, std = x.mean(axis=(0, 1, 2)), x.std(axis=(0, 1, 2))
    found = mg.data.normalize(mg.constant(x), mean, std, layout="NHWC").eval()
    assert_close(found, (x - mean) / std)
    first = mg.data.normalize(mg.constant(np.moveaxis(x, -1, 1)), mean, std).eval()
    assert_close(np.moveaxis(first, 1, -1), (x - mean) / std)
    with pytest.raises(mg.ShapeError, match="3 numbers for its channels(.|\n)*layout='NHWC'"):
        mg.data.normalize(mg.constant(x), mean, std)
    whole = mg.data.normalize(mg.constant(np.arange(3, dtype=np.uint8)), 1.0, 2.0)
    assert whole.eval().tolist() == [-0.5, 0.0, 0.5]


def test_augmentation_takes_images_as_a_convolution_does(rng):
    """Crop, flip and normalize before a Conv2D, all with their defaults."""
    images = rng.normal(size=(16, 3, 12, 12)).astype("f4")
    x = mg.input("x", ("batch", 3, 12, 12))
    flipped = mg.data.random_flip(x, rate=1.0)
    np.testing.assert_array_equal(mg.function([x], flipped)(images), images[..., ::-1])
    seen = mg.data.normalize(mg.data.random_crop(flipped, 8), images.mean((0, 2, 3)), [1, 1, 1])
    scores = mg.nn.Dense(2)(mg.nn.Flatten()(mg.nn.Conv2D(4, 3, activation="relu")(seen)))
    net = mg.Model(x, scores, loss="cross_entropy", optimizer=mg.optimizer.Adam(0.01))
    labels = (images.mean((1, 2, 3)) > 0).astype("i4")
    losses = net.fit(images, labels, batch_size=8, epochs=3)["loss"]
    assert np.isfinite(losses).all()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "augment", [mg.data.random_flip, lambda x, **named: mg.data.random_crop(x, 2, **named)]
)
def test_images_that_plainly_have_their_channels_last_are_refused(augment, channels):
    last, first = np.zeros((2, 8, 8, channels)), np.zeros((2, channels, 8, 8))
    with pytest.raises(mg.ShapeError, match=f"has 8 channels and {channels} columns") as raised:
        augment(last)
    assert 'try: layout="NHWC", or np.moveaxis(x, -1, 1)' in str(raised.value)
    assert augment(first).ndim == augment(last, layout="NHWC").ndim == 4
    narrow = np.zeros((2, 64, 8, 3))  # as said
    assert augment(narrow, layout="NCHW").shape[1] == 64


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: mg.data.random_crop(np.zeros((2, 3, 3)), 2), mg.ShapeError, "random_crop: "),
        (lambda: mg.data.random_crop(np.zeros((2, 1, 3, 3)), 4), mg.ShapeError,
         "random_crop: a window of 4 rows of 3, padded by 0"),
        (lambda: mg.data.random_crop(np.zeros((2, 1, 3, 3)), 2, padding=-1), DataError,
         "random_crop: size=2, padding=-1"),
        (lambda: mg.data.random_crop(mg.input("x", ("b", 1, "h", 3)), 2), mg.ShapeError,
         "random_crop: 'x'"),
        (lambda: mg.data.random_flip(np.zeros((2, 1, 3, 3)), "sideways"), DataError,
         "random_flip: axis='sideways'"),
        (lambda: mg.data.random_flip(np.zeros((2, 1, 3, 3)), rate=2.0), DataError,
         "random_flip: axis='horizontal', rate=2.0"),
        (lambda: mg.data.random_crop(np.zeros((3, 2, 3)), 2, layout="NCHW"), mg.ShapeError,
         "random_crop: float64[3, 2, 3]"),
        (lambda: mg.data.random_flip(np.zeros((2, 1, 3, 3)), layout="nchw"), DataError,
         "random_flip: layout='nchw'"),
        (lambda: mg.data.normalize(np.zeros(2), 0.0, [1.0, 0.0]), DataError, "normalize: std="),
    ],
)
def test_what_is_refused(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(text)

"""CIFAR-10, arrays that stay in their files, HDF5, images in folders, types of CSV columns."""

import pickle

import numpy as np
import pytest
from interpreted import assert_close

import magmagraph as mg
from magmagraph.errors import DataError


@pytest.fixture
def images(rng):
    return rng.integers(0, 256, size=(7, 32, 32, 3), dtype=np.uint8), np.arange(7, dtype=np.uint8)


def records(pair):
    """Return images and labels as the binary version writes them."""
    x, y = pair
    planes = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return np.concatenate([y[:, None], planes], axis=1).tobytes()


def pickled(pair, protocol=2, **more):
    x, y = pair
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2).reshape(len(x), -1))
    held = {b"data": planes, b"labels": [int(i) for i in y], **more}
    return pickle.dumps(held, protocol=protocol)


class TestCifar:
    @pytest.mark.parametrize("form", [records, pickled])
    def test_a_batch_of_either_version(self, tmp_path, images, form):
        file = tmp_path / "batch"
        file.write_bytes(form(images))
        x, y = mg.data.read_cifar10(file)
        assert np.array_equal(x, images[0]) and np.array_equal(y, images[1])
        assert x.dtype == y.dtype == np.uint8

    @pytest.mark.parametrize(("form", "suffix"), [(records, ".bin"), (pickled, "")])
    def test_the_whole_set(self, tmp_path, images, form, suffix, monkeypatch):
        inner = tmp_path / ("cifar-10-batches-bin" if suffix else "cifar-10-batches-py")
        inner.mkdir()
        for i in (1, 2):
            (inner / f"data_batch_{i}{suffix}").write_bytes(form(images))
        (inner / f"test_batch{suffix}").write_bytes(form((images[0][:2], images[1][:2])))
        monkeypatch.setenv("MAGMAGRAPH_DATA", str(tmp_path))
        for data in (mg.data.cifar10(), mg.data.cifar10(inner)):
            assert data.x_train.shape == (14, 3072) and data.x_test.shape == (2, 3072)
            assert data.image_shape == (32, 32, 3) and data.classes == 10
            assert_close(data.x_train[:7], images[0].reshape(7, -1) / 255.0, "float32")
            assert data.y_train.tolist() == [*range(7), *range(7)]
            assert str(inner) in data.source

    def test_an_archive(self, tmp_path, images, monkeypatch):
        x, y = images
        np.savez(tmp_path / "cifar10-part.npz", x_train=x, y_train=y[:, None],
                 x_test=x.transpose(0, 3, 1, 2)[:3], y_test=y[:3])
        monkeypatch.setenv("MAGMAGRAPH_DATA", str(tmp_path))
        data = mg.data.cifar10()
        assert_close(data.x_test, x[:3].reshape(3, -1) / 255.0, "float32")
        assert data.y_train.tolist() == list(range(7))

    def test_a_pickle_that_would_run_something_is_refused(self, tmp_path):
        class Evil:
            def __reduce__(self):
                return (print, ("this must not be printed",))

        for protocol in (0, 2, 4):
            file = tmp_path / f"data_batch_{protocol}"
            file.write_bytes(pickle.dumps({b"data": Evil()}, protocol=protocol))
            with pytest.raises(DataError, match=r"asks, being unpickled, for .*print"):
                mg.data.read_cifar10(file)

    @pytest.mark.parametrize(
        ("content", "complaint"),
        [
            (lambda pair: b"", "is empty"),
            (lambda pair: records(pair)[:-1], "is truncated, or not of CIFAR-10: 21510 bytes"),
            (lambda pair: records((pair[0], pair[1] + 4)), "label 10 of example 6 is out of range"),
            (lambda pair: pickled(pair)[:-20], "is truncated or corrupted"),
            (lambda pair: pickle.dumps([1, 2]), "is no batch of CIFAR-10"),
            (lambda pair: pickle.dumps({"data": np.zeros((2, 3), np.uint8), "labels": [1, 2]}, 2),
             "holds values of shape (2, 3)"),
            (lambda pair: pickled((pair[0], pair[1][:5])), "labels of shape (5,)"),
        ],
    )
    def test_damage_is_named(self, tmp_path, images, content, complaint):
        file = tmp_path / "batch"
        file.write_bytes(content(images))
        with pytest.raises(DataError) as caught:
            mg.data.read_cifar10(file)
        assert complaint in str(caught.value) and str(file) in str(caught.value)

    def test_what_is_missing_is_named(self, tmp_path, images, monkeypatch):
        monkeypatch.delenv("MAGMAGRAPH_DATA", raising=False)
        with pytest.raises(DataError, match="MAGMAGRAPH_DATA is not set"):
            mg.data.cifar10()
        with pytest.raises(DataError, match="was not found"):
            mg.data.cifar10(tmp_path)
        (tmp_path / "test_batch.bin").write_bytes(records(images))
        with pytest.raises(DataError, match="no batch to learn from"):
            mg.data.cifar10(tmp_path)
        np.savez(tmp_path / "a.npz", x_train=images[0])
        with pytest.raises(DataError, match="has no y_train; it has x_train"):
            mg.data.cifar10(tmp_path / "a.npz")
        with pytest.raises(DataError, match="cannot be read"):
            mg.data.read_cifar10(tmp_path / "nowhere")


class TestMapped:
    def test_arrays_stay_in_the_file(self, tmp_path, rng):
        x = rng.normal(size=(50, 4))
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "f.npy", np.asfortranarray(x))
        for name in ("x", "f"):
            found = mg.data.read_npy(tmp_path / f"{name}.npy", mapped=True)
            assert isinstance(found, np.memmap) and not found.flags.writeable
            assert np.array_equal(found, x)
        np.savez(tmp_path / "pair.npz", x=x, y=np.arange(3, dtype=np.int16), none=np.zeros((0, 2)))
        held = mg.data.read_npz(tmp_path / "pair.npz", mapped=True)
        assert isinstance(held["x"], np.memmap) and np.array_equal(held["x"], x)
        assert held["y"].tolist() == [0, 1, 2] and held["none"].shape == (0, 2)
        np.savez_compressed(tmp_path / "small.npz", x=x)
        assert np.array_equal(mg.data.read_npz(tmp_path / "small.npz", mapped=True)["x"], x)

    def test_batches_of_what_stays_in_the_file(self, tmp_path, rng):
        x = rng.normal(size=(20, 3)).astype("float32")
        np.save(tmp_path / "x.npy", x)
        rows = mg.data.batches(mg.data.read_npy(tmp_path / "x.npy", mapped=True), size=6, seed=1)
        seen = np.concatenate([batch for (batch,) in rows])
        assert sorted(map(tuple, seen)) == sorted(map(tuple, x))

    def test_damage_is_named(self, tmp_path):
        np.save(tmp_path / "x.npy", np.arange(100))
        content = (tmp_path / "x.npy").read_bytes()
        for cut in (0, 5, 60, 500):
            (tmp_path / "cut.npy").write_bytes(content[:cut])
            with pytest.raises(DataError, match="cut.npy is truncated"):
                mg.data.read_npy(tmp_path / "cut.npy", mapped=True)
        np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
        with pytest.raises(DataError, match="Python objects"):
            mg.data.read_npy(tmp_path / "o.npy", mapped=True)
        np.savez(tmp_path / "a.npz", x=np.arange(3))
        with pytest.raises(DataError, match="use read_npz"):
            mg.data.read_npy(tmp_path / "a.npz", mapped=True)
        with pytest.raises(DataError, match="cannot be read"):
            mg.data.read_npy(tmp_path / "nowhere.npy", mapped=True)


class TestTypesOfColumns:
    def test_names_are_found(self, tmp_path):
        file = tmp_path / "t.csv"
        file.write_text("size,kind,color\n1,cat,?\n2,dog,red\n?,cat,blue\n")
        table = mg.data.read_csv(file, categorical="auto")
        assert table.columns == ("size", "kind", "color")
        assert table.categories == {"kind": ("cat", "dog"), "color": ("blue", "red")}
        assert table["kind"].tolist() == [0.0, 1.0, 0.0]
        assert np.isnan(table["size"][2]) and np.isnan(table["color"][0])

    def test_without_a_header(self, tmp_path):
        file = tmp_path / "t.csv"
        file.write_text("1.5,setosa\n2.5,lily\n")
        table = mg.data.read_csv(file, categorical="auto")
        assert table.columns == ("0", "1") and table.categories == {"1": ("lily", "setosa")}
        assert table.values.tolist() == [[1.5, 1.0], [2.5, 0.0]]

    def test_a_number_that_is_none_is_named_still(self, tmp_path):
        file = tmp_path / "t.csv"
        file.write_text("a,b\n1,x\n2,y\noops,z\n")
        with pytest.raises(DataError, match=r"line 4, column 'a': 'oops' is not a number"):
            mg.data.read_csv(file, categorical="auto")


class TestHdf5:
    def test_round_trip_and_refusals(self, tmp_path, rng):
        h5py = pytest.importorskip("h5py", reason="h5py is not installed (magmagraph[data])")
        x = rng.normal(size=(5, 3))
        file = tmp_path / "a.h5"
        with h5py.File(file, "w") as out:
            out["train/x"] = x
            out["y"] = np.arange(5)
            out["names"] = [b"a", b"b"]
        assert np.array_equal(mg.data.read_hdf5(file, "train/x"), x)
        found = mg.data.read_hdf5(file, ["train/x", "y"])
        assert list(found) == ["train/x", "y"] and found["y"].tolist() == [0, 1, 2, 3, 4]
        with pytest.raises(DataError, match="has no data set 'z'"):
            mg.data.read_hdf5(file, "z")
        with pytest.raises(DataError, match="'names' is of dtype"):
            mg.data.read_hdf5(file)
        content = file.read_bytes()
        (tmp_path / "cut.h5").write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match=r"cut.h5 is truncated, corrupted"):
            mg.data.read_hdf5(tmp_path / "cut.h5")
        with pytest.raises(DataError, match="no such file"):
            mg.data.read_hdf5(tmp_path / "nowhere.h5")

    def test_the_library_is_named_where_it_is_missing(self, tmp_path, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "h5py", None)
        with pytest.raises(DataError, match=r"pip install magmagraph\[data\]"):
            mg.data.read_hdf5(tmp_path / "a.h5")


class TestImages:
    def test_folders_are_classes(self, tmp_path, rng):
        library = pytest.importorskip("PIL.Image", reason="pillow is not installed")
        pixels = {}
        for kind in ("dog", "cat"):
            (tmp_path / kind).mkdir()
            for i in range(2):
                array = rng.integers(0, 256, size=(6, 8, 3), dtype=np.uint8)
                pixels[kind, i] = array
                library.fromarray(array).save(tmp_path / kind / f"{i}.png")
        (tmp_path / "dog" / "notes.txt").write_text("no image")
        found = mg.data.read_images(tmp_path)
        assert found.classes == ("cat", "dog") and found.labels.tolist() == [0, 0, 1, 1]
        assert found.images.dtype == np.uint8
        for image, file in zip(found.images, found.files, strict=True):
            assert np.array_equal(image, pixels[file.parent.name, int(file.stem)])
        small = mg.data.read_images(tmp_path, size=(3, 4), channels=1)
        assert small.images.shape == (4, 3, 4, 1)

        library.fromarray(np.zeros((5, 5), np.uint8)).save(tmp_path / "dog" / "9.png")
        with pytest.raises(DataError, match=r"9.png has 5 x 5 pixels.*\n.*\n.*size="):
            mg.data.read_images(tmp_path)
        (tmp_path / "dog" / "9.png").write_bytes(b"no image at all")
        with pytest.raises(DataError, match=r"9.png is truncated, corrupted, or no image"):
            mg.data.read_images(tmp_path)

    def test_refusals(self, tmp_path, monkeypatch):
        pytest.importorskip("PIL.Image", reason="pillow is not installed")
        (tmp_path / "empty").mkdir()
        with pytest.raises(DataError, match="has 1 folders, and no image in them"):
            mg.data.read_images(tmp_path)
        with pytest.raises(DataError, match="is no folder"):
            mg.data.read_images(tmp_path / "nowhere")
        with pytest.raises(DataError, match="channels=2"):
            mg.data.read_images(tmp_path, channels=2)

    def test_the_library_is_named_where_it_is_missing(self, tmp_path, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "PIL", None)
        with pytest.raises(DataError, match=r"pip install magmagraph\[data\]"):
            mg.data.read_images(tmp_path)

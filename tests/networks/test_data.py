"""Data: files read and refused, downloads that end in time, batches."""

from __future__ import annotations

import copy
import gzip
import pickle
import struct
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import data
from magmagraph.data import files
from magmagraph.errors import DataError
from magmagraph.function.epochs import run_batches

IDX_CODES = {"u1": 8, "i1": 9, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array: np.ndarray) -> bytes:
    """Write the format by its definition, independently of the reader."""
    code = IDX_CODES[array.dtype.str[1:]]
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


# --------------------------------------------------------------------------------------- IDX


@pytest.mark.parametrize("dtype", sorted(IDX_CODES))
@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 3, 5), (0, 3)])
def test_idx_reads_what_its_definition_writes(tmp_path, dtype, shape):
    array = (np.arange(np.prod(shape)).reshape(shape) * 3 - 1).astype(dtype)
    (tmp_path / "plain").write_bytes(idx_bytes(array))
    (tmp_path / "packed").write_bytes(gzip.compress(idx_bytes(array)))
    for name in ("plain", "packed"):
        read = data.read_idx(tmp_path / name)
        np.testing.assert_array_equal(read, array, strict=True)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not an IDX file: it begins with nothing"),
        (b"PK\x03\x04rest", "is not an IDX file: it begins with 50 4b 03 04"),
        (b"\0\0\x07\x01\0\0\0\0", "is not an IDX file: it begins with 00 00 07 01"),
        (b"\0\0\x08\x03\0\0", "is truncated: its header ends after 6 bytes"),
        (idx_bytes(np.zeros((2, 3), "u1"))[:-1], "is truncated: it holds 5 bytes of values"),
        (idx_bytes(np.zeros((2, 3), "u1")) + b"x", "has bytes after its end: it holds 7 bytes"),
        (gzip.compress(bytes(range(200)), mtime=0)[:-20], "is truncated or corrupted: "),
        (b"\x1f\x8b but no gzip", "is truncated or corrupted: "),
    ],
)
def test_idx_refuses_a_damaged_file_by_name(tmp_path, content, complaint):
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(DataError) as raised:
        data.read_idx(path)
    assert str(raised.value).startswith(f"{path} {complaint}")


def test_idx_refuses_a_flipped_bit(tmp_path):
    content = bytearray(gzip.compress(idx_bytes(np.arange(5000, dtype="i4"))))
    content[len(content) // 2] ^= 16
    (tmp_path / "images").write_bytes(content)
    with pytest.raises(DataError, match="corrupted"):
        data.read_idx(tmp_path / "images")


def test_a_missing_file_is_named(tmp_path):
    for read in (data.read_idx, data.read_csv, data.read_npy, data.read_npz):
        with pytest.raises(DataError) as raised:
            read(tmp_path / "absent")
        assert str(raised.value) == f"{tmp_path / 'absent'} cannot be read: " \
            "No such file or directory"


# --------------------------------------------------------------------------------- NPY and NPZ


def test_numpy_files_round_trip(tmp_path):
    array = np.arange(6.0).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", x=array, y=np.arange(2))
    np.testing.assert_array_equal(data.read_npy(tmp_path / "a.npy"), array, strict=True)
    archive = data.read_npz(tmp_path / "a.npz")
    assert list(archive) == ["x", "y"]
    np.testing.assert_array_equal(archive["x"], array, strict=True)


def test_numpy_files_cut_anywhere_are_refused_by_name(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(100))
    np.savez(tmp_path / "a.npz", x=np.arange(100))
    for name, read in (("a.npy", data.read_npy), ("a.npz", data.read_npz)):
        path = tmp_path / name
        whole = path.read_bytes()
        for kept in [0, 3, 6, 9, 50, len(whole) // 2, len(whole) - 1]:
            path.write_bytes(whole[:kept])
            with pytest.raises(DataError, match=name):
                read(path)


def test_numpy_files_never_unpickle(tmp_path):
    objects = np.array([{"a": 1}], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=objects)
    for name, read in (("a.npy", data.read_npy), ("a.npz", data.read_npz)):
        with pytest.raises(DataError, match="without Python objects"):
            read(tmp_path / name)


def test_the_other_reader_is_named(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    with pytest.raises(DataError, match="use read_npy"):
        data.read_npz(tmp_path / "a.npy")
    with pytest.raises(DataError, match="use read_npz"):
        data.read_npy(tmp_path / "a.npz")


# ----------------------------------------------------------------------------------------- CSV


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_csv_without_header(tmp_path):
    table = data.read_csv(write(tmp_path / "a.csv", "1,2.5\n\n-3, 4e2 \n"))
    assert table.columns == ("0", "1")
    np.testing.assert_array_equal(
        table.values, np.array([[1, 2.5], [-3, 400]], np.float32), strict=True
    )


def test_csv_with_header_gaps_and_names(tmp_path):
    path = write(tmp_path / "a.csv", "\ufefflength;kind;age\n1;b;?\n2;a;3\n;;NA\n")
    table = data.read_csv(path, delimiter=";", categorical=["kind"], dtype=np.float64)
    assert table.columns == ("length", "kind", "age")
    assert table.categories == {"kind": ("a", "b")}
    nan = np.nan
    np.testing.assert_array_equal(
        table.values, np.array([[1, 1, nan], [2, 0, 3], [nan, nan, nan]])
    )
    np.testing.assert_array_equal(table["age"], [nan, 3, nan])
    with pytest.raises(KeyError, match="there are length, kind, age"):
        table["weight"]


def test_csv_names_in_a_column_given_by_index_are_no_header(tmp_path):
    path = write(tmp_path / "a.csv", "1,setosa\n2,lily\n")
    table = data.read_csv(path, categorical=[-1])
    assert table.categories == {"1": ("lily", "setosa")}
    np.testing.assert_array_equal(table.values, [[1, 1], [2, 0]])


def test_csv_header_can_be_forced(tmp_path):
    path = write(tmp_path / "a.csv", "2019,2020\n1,2\n")
    assert data.read_csv(path).values.shape == (2, 2)
    assert data.read_csv(path, header=True).columns == ("2019", "2020")
    with pytest.raises(DataError, match="line 1, column '0': 'x' is not a number"):
        data.read_csv(write(tmp_path / "b.csv", "x,2\n"), header=False)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "{} is empty\n  expected: a row of values at least"),
        ("1,2\n3\n", "{}, line 2 has 1 cells\n  expected: 2, as line 1 has"),
        (
            "1,2\n3,four\n",
            "{}, line 2, column '1': 'four' is not a number\n  try: categorical=['1'] for a "
            "column of names, or add 'four' to `missing`",
        ),
        ('1,"2\n', "{} is truncated or malformed: unexpected end of data"),
    ],
)
def test_csv_refuses_by_file_line_and_column(tmp_path, text, complaint):
    path = write(tmp_path / "a.csv", text)
    with pytest.raises(DataError) as raised:
        data.read_csv(path)
    assert str(raised.value) == complaint.format(path)


def test_csv_that_pyarrow_reads_is_the_same(tmp_path, monkeypatch, rng):
    pytest.importorskip("pyarrow")
    calls = []
    from pyarrow import csv as arrow

    original = arrow.read_csv
    monkeypatch.setattr(arrow, "read_csv", lambda *a: calls.append(1) or original(*a))
    numbers = rng.normal(size=(7, 3)) * 10.0 ** rng.integers(-30, 30, (7, 3))
    rows = "\n".join(",".join(map(repr, row)) for row in numbers.tolist())
    texts = [
        rows, f"a,b,c\n{rows}\n", "\ufeff\n\n a ,b,c\r\n1,?,\r\n\r\nNA,inf,-nan\r\n",
        "1,+2\n 3 , 4e2 \n", "1\n\n2\n", "1_0,2\n3,4\n", "1,2\r3,4\r", "1,2\n3\n", "1\n2,3\n",
        "a,b\n", "a\n1,2\n", "1,2\n3,x\n", "1,2\n3,\0\n", "1e999,0x10\n1,2\n", " \n1\n", ",\n,\n",
        "1,True\n2,False\n", "2020-01-01,1\n2021-01-01,2\n", "1,2\n   ,4\n", "1\u0661,2\n3,4\n",
    ]  # fmt: skip
    texts += [rows[:end] + rng.choice([",", "\n", "x", " ", "\r"]) + rows[end + 1 :]
              for end in rng.integers(len(rows), size=40)]  # fmt: skip

    def read(path, **options):
        try:
            table = data.read_csv(path, dtype=np.float64, **options)
        except DataError as error:
            return str(error)
        return table.columns, table.values.shape, table.values.tobytes()

    for number, text in enumerate(texts):
        path = write(tmp_path / f"{number}.csv", text)
        for options in ({}, {"header": True}, {"header": False}, {"missing": ("?",)}):
            found = read(path, **options)
            with monkeypatch.context() as without:
                without.setitem(sys.modules, "pyarrow", None)
                assert found == read(path, **options), (text, options)
    assert len(calls) > 100


def test_csv_keeps_a_gap_that_is_alone_in_its_line(tmp_path):
    path = tmp_path / "a.csv"
    data.write_csv(path, [1.0, np.nan, 2.0])
    np.testing.assert_array_equal(data.read_csv(path).values[:, 0], np.float32([1, np.nan, 2]))


def test_csv_refuses_what_is_not_text(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"1,2\n\xff\xfe\n")
    with pytest.raises(DataError, match="is not text in UTF-8"):
        data.read_csv(tmp_path / "a.csv")


def test_csv_refuses_an_unknown_column_and_an_integer_dtype(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n1,2\n")
    for key in ("c", 2, -3):
        with pytest.raises(DataError, match="has no column"):
            data.read_csv(path, categorical=[key])
    with pytest.raises(DataError, match="cannot read into int32"):
        data.read_csv(path, dtype=np.int32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_csv_writes_what_reads_back_to_the_bit(tmp_path, rng, dtype):
    values = np.exp(rng.normal(scale=20, size=(50, 3))).astype(dtype)
    values[3, 1] = np.nan
    values[4] = [np.inf, -np.inf, -0.0]
    data.write_csv(tmp_path / "a.csv", values, columns=["a", "b", "c"])
    table = data.read_csv(tmp_path / "a.csv", dtype=dtype)
    assert table.columns == ("a", "b", "c")
    np.testing.assert_array_equal(table.values, values, strict=True)
    assert np.signbit(table.values[4, 2])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv"]


def test_csv_writer_refuses_and_leaves_the_old_file(tmp_path):
    path = write(tmp_path / "a.csv", "1\n")
    for values, columns in (
        (np.zeros((2, 2, 2)), None),
        (np.zeros((2, 2)), ["one"]),
        (np.array(["text"]), None),
        (np.zeros(2, complex), None),
    ):
        with pytest.raises(DataError):
            data.write_csv(path, values, columns)
    assert path.read_text() == "1\n"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    path = write(tmp_path / "a", "old")
    with pytest.raises(KeyboardInterrupt), files.replace_file(path) as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "read", [data.read_idx, data.read_csv, data.read_npy, data.read_npz, data.read_cifar10]
)
def test_a_file_that_is_not_there_is_told_as_such(tmp_path, read):
    with pytest.raises(FileNotFoundError, match="cannot be read: No such file") as raised:
        read(tmp_path / "none")
    assert isinstance(raised.value, DataError)


# ------------------------------------------------------------------------------------- batches


def test_an_epoch_has_each_row_once_and_rows_stay_together():
    x = np.arange(23, dtype=np.float32)
    for x_batch, y_batch in (rows := data.batches(x, np.stack([x, -x], 1), size=5)):
        np.testing.assert_array_equal(y_batch, np.stack([x_batch, -x_batch], 1))
    assert len(rows) == 5
    seen = [batch.copy() for batch, _ in rows]
    assert [len(batch) for batch in seen] == [5, 5, 5, 5, 3]
    assert sorted(np.concatenate(seen)) == list(x)


def order(rows: data.Batches) -> list[int]:
    return [int(value) for (batch,) in rows for value in batch]


def test_order_depends_on_seed_and_epoch_alone():
    x = np.arange(50)
    first, again, other = (data.batches(x, size=7, seed=seed) for seed in (3, 3, 4))
    epochs = [order(first) for _ in range(3)]
    assert epochs == [order(again) for _ in range(3)]
    assert len({tuple(epoch) for epoch in [*epochs, order(other), list(x)]}) == 5
    resumed = data.batches(x, size=7, seed=3)
    resumed.epoch = 2
    assert order(resumed) == epochs[2]


def test_an_order_that_was_made_before_is_that_of_its_epoch_or_made_again():
    rows, again = (data.batches(np.arange(50), size=7, seed=3) for _ in range(2))
    expected = [order(again) for _ in range(4)]
    rows.prepare()
    assert rows.epoch == 0
    assert [order(rows), order(rows)] == expected[:2]
    rows.prepare()
    rows.epoch = 0
    assert order(rows) == expected[0]
    rows.prepare()
    assert order(pickle.loads(pickle.dumps(rows))) == order(copy.deepcopy(rows)) == expected[1]
    rows.seed = 4
    assert order(rows) != expected[1]
    in_order = data.batches(np.arange(50), size=7, shuffle=False)
    in_order.prepare()
    assert order(in_order) == list(range(50))


def test_a_device_begins_an_epoch_whose_order_was_made_while_it_worked(monkeypatch):
    done = []
    made = data.Batches._order

    def counted(rows, epoch):
        done.append(f"order {epoch}")
        return made(rows, epoch)

    class Device:
        """What has all rows, and runs all steps."""

        def looped(self):
            return self

        def begin(self, found):
            done.append(list(found))

        def repeat(self, count, *_, **how):
            done.append(count)
            return [np.zeros(())]

    rows, again = (data.batches(np.arange(50.0, dtype="f4"), size=10, seed=3) for _ in range(2))
    monkeypatch.setattr(data.Batches, "_order", counted)
    x = mg.var("x", shape=("batch",))
    for _ in range(2):
        run_batches(lambda _: Device(), [x], rows, False, True, lambda *_: Device())
    orders = [list(made(again, epoch)) for epoch in range(2)]
    assert done == ["order 0", orders[0], 5, "order 1", orders[1], 5, "order 2"]


def test_batches_in_order_are_views_that_cannot_be_written():
    x = np.arange(10)
    rows = data.batches(x, size=4, shuffle=False)
    assert order(rows) == list(range(10))
    (batch,) = next(iter(rows))
    assert np.shares_memory(batch, x)
    with pytest.raises(ValueError, match="read-only"):
        batch[0] = 7
    x[0] = 5  # the data themselves stay writable


def test_last_batch_can_be_dropped():
    rows = data.batches(np.arange(10), size=4, drop_last=True)
    assert len(rows) == 2
    assert [len(batch) for (batch,) in rows] == [4, 4]
    assert list(data.batches(np.arange(3), size=4, drop_last=True)) == []


def test_memory_is_used_again_but_never_under_the_caller():
    x = np.arange(1000)
    rows = data.batches(x, size=10, seed=1)
    buffers = [weakref.ref(batch.base) for (batch,) in rows]
    assert all(buffer() is not None for buffer in buffers)  # they wait for the next batches
    assert len({id(buffer()) for buffer in buffers}) <= 3
    kept = [batch for (batch,) in rows]
    assert sorted(np.concatenate(kept)) == list(x)
    columns = [batch[2:5] for (batch,) in rows]  # a view keeps its buffer as well
    rows.epoch -= 1
    np.testing.assert_array_equal(columns, [batch[2:5].copy() for (batch,) in rows])


def test_iterations_side_by_side_do_not_disturb_each_other():
    x = np.arange(60)
    rows = data.batches(x, size=6)
    pairs = [(a.copy(), b.copy()) for (a,), (b,) in zip(rows, rows, strict=True)]
    for side in zip(*pairs, strict=True):
        assert sorted(np.concatenate(side)) == list(x)


def test_batches_pickle_and_copy():
    rows = data.batches(np.arange(20), size=3, seed=9)
    order(rows)
    twins = [pickle.loads(pickle.dumps(rows)), copy.deepcopy(rows)]
    expected = order(rows)
    assert [order(twin) for twin in twins] == [expected, expected]


@pytest.mark.parametrize(
    ("arrays", "size", "complaint"),
    [
        ((), 1, "there is nothing to take batches of"),
        ((3.0,), 1, "there is nothing to take batches of"),
        ((np.zeros(3), np.zeros(4)), 1, "arrays of 3, 4 rows have no common batches"),
        ((np.zeros(3),), 0, "batches of 0 rows cannot be made"),
        ((np.zeros(3),), 2.5, "batches of 2.5 rows cannot be made\n  expected: size, an int of"),
        ((np.zeros(3),), None, "batches of None rows cannot be made"),
    ],
)
def test_batches_refuse(arrays, size, complaint):
    with pytest.raises(DataError) as raised:
        data.batches(*arrays, size=size)
    assert str(raised.value).startswith(complaint)

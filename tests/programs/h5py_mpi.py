"""h5py_mpi.py FILE: ranks write parts of datasets of one HDF5 file, together and each alone, and read what the others wrote."""

import sys

import numpy
from mpi4py import MPI
import h5py

assert h5py.get_config().mpi, "h5py was built without MPI"
world = MPI.COMM_WORLD
rank, size = world.rank, world.size
ROWS, COLUMNS = 64, 1000


def row(n):
    return numpy.arange(COLUMNS, dtype="i8") * 1009 + n


def check(dataset, rows, add=0):
    for n in rows:
        assert (dataset[n] == row(n) + add).all(), f"rank {rank} reads another row {n} of {dataset.name}"


with h5py.File(sys.argv[1], "w", driver="mpio", comm=world) as file:
    plain = file.create_dataset("plain", (ROWS, COLUMNS), dtype="i8")
    chunked = file.create_dataset("chunked", (ROWS, COLUMNS), dtype="i8", chunks=(3, 77))
    file.attrs["ranks"] = size
    for n in range(rank, ROWS, size):
        plain[n] = row(n)
    part = ROWS // size
    mine = range(rank * part, (rank + 1) * part)
    with chunked.collective:
        chunked[mine.start : mine.stop] = numpy.array([row(n) for n in mine])
world.Barrier()
with h5py.File(sys.argv[1], "r+", driver="mpio", comm=world) as file:
    assert file.attrs["ranks"] == size
    check(file["plain"], range(ROWS))
    check(file["chunked"], range(ROWS))
    world.Barrier()
    # Each rank changes the rows that its neighbour wrote.
    for n in range((rank + 1) % size, ROWS, size):
        file["plain"][n] = row(n) + 1
world.Barrier()
with h5py.File(sys.argv[1], "r", driver="mpio", comm=world) as file:
    check(file["plain"], range(ROWS), 1)
    check(file["chunked"], range(ROWS))

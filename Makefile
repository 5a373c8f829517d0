# make demo   see Stria work: build, file system of 1 MDT and 4 OSTs, a real tree through it, a short measurement
# make test   everything that is checked in short form: cargo test, then the suites on mounted file systems
# make deps   installs the Debian packages and test programs that these need, after saying which and why
# make mpi    MPI-IO and parallel HDF5 (Open MPI, MPICH, IOR, HDF5's own tests, h5py) over two mounts; installs packages, needs root
# make man    writes docs/man and packaging/completions anew after a change of the command line (a test compares them)
.PHONY: demo test mpi man deps deps-demo bench-tools build clean

build:
	cargo build --release

demo: deps-demo
	@scripts/demo

test: deps-demo
	@scripts/test

mpi:
	@scripts/mpi

man:
	STRIA_MAN=write cargo test --quiet --package stria manual

deps-demo:
	@scripts/deps demo

deps:
	@scripts/deps test

clean:
	cargo clean

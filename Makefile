# make demo   see Stria work: build, file system of 1 MDT and 4 OSTs, a real tree through it, a short measurement
# make test   everything that is checked in short form: cargo test, then the suites on mounted file systems
# make deps   installs the Debian packages and test programs that these need, after saying which and why
# make man    writes docs/man and packaging/completions anew after a change of the command line (a test compares them)
.PHONY: demo test man deps deps-demo bench-tools build clean

build:
	cargo build --release

demo: deps-demo
	@scripts/demo

test: deps
	@scripts/test

man:
	STRIA_MAN=write cargo test --quiet --package stria manual

deps-demo:
	@scripts/deps demo

deps:
	@scripts/deps test

clean:
	cargo clean

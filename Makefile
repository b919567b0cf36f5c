# The two that a newcomer needs: `make run` and `make test`. Both install what they need on Debian.
.PHONY: run test test-clients lint bench load memory soak check install dist
PREFIX ?= /usr/local
DESTDIR ?=

run: # builds, starts the gateway with two simulated providers, prints a curl line
	.ci/deps build
	cargo build --locked --profile quick
	target/quick/weir demo

test: # every test, with a count at the end
	.ci/deps build test
	.ci/test

test-clients: # Claude Code, Codex and the Node SDKs against the gateway
	.ci/deps build node
	cargo build --locked && tests/clients/node/install target/clients
	python3 tests/clients/node.py target/debug/weir target/clients

lint: # format and clippy, warnings are errors
	.ci/deps build lint
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

bench: # weir beside a bare Pingora pass-through; writes README's table
	.ci/deps build bench
	python3 benches/run.py

load: # under wrk: plain, streams, all refused, a failing primary; writes README's table
	.ci/deps build bench && .ci/loadtools
	python3 benches/load.py

memory: # idle, per open stream, after a million requests and 10,000 aborted streams; writes README's table
	.ci/deps build bench && .ci/loadtools
	python3 benches/memory.py

soak: # SOAK_SECONDS (600) in which both sides misbehave at random; writes README's table
	.ci/deps build bench && .ci/loadtools
	python3 benches/soak.py

check: # is the config sound? CONFIG=file
	cargo run --locked --quiet -- check $(if $(CONFIG),--config $(CONFIG))

install: # binary and systemd unit under PREFIX, config under /etc, state under /var; DESTDIR before all
	cargo build --locked --release
	.ci/install target/release/weir '$(PREFIX)' '$(DESTDIR)'

dist: # one archive with a binary that brings its own OpenSSL
	.ci/deps build dist
	OPENSSL_NO_VENDOR=0 CARGO_TARGET_DIR=target/dist cargo build --locked --release
	tar -czf target/weir-$$(uname -m).tar.gz -C target/dist/release weir -C $(CURDIR) README.md conf

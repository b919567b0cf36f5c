# The two that a newcomer needs: `make run` and `make test`. Both install what they need on Debian.
.PHONY: run test test-clients lint bench check install dist
PREFIX ?= /usr/local

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

check: # is the config sound? CONFIG=file
	cargo run --locked --quiet -- check $(if $(CONFIG),--config $(CONFIG))

install: # the release binary and a config, under PREFIX (and /etc)
	cargo build --locked --release
	install -D -m 755 target/release/weir $(DESTDIR)$(PREFIX)/bin/weir
	test -e $(DESTDIR)/etc/weir/weir.toml || install -D -m 640 conf/weir.toml $(DESTDIR)/etc/weir/weir.toml

dist: # one archive with a binary that brings its own OpenSSL
	.ci/deps build dist
	OPENSSL_NO_VENDOR=0 CARGO_TARGET_DIR=target/dist cargo build --locked --release
	tar -czf target/weir-$$(uname -m).tar.gz -C target/dist/release weir -C $(CURDIR) README.md conf

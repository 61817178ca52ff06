# make demo and make test are all the set-up there is.

ROOT := $(if $(filter 0,$(shell id -u)),,sudo -E)

# Where cargo builds, should somebody keep that elsewhere.
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help deps build install uninstall deb wheel demo test test-all test-rootless test-root test-zerocopy bench bench-net lint doc

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24

deps:
	@scripts/install-deps

build: deps ## the srv6d binary: target/release/srv6d
	cargo build --release --locked --package srv6d
	scripts/split-symbols $(TARGET)/release/srv6d

# Where `make install` puts things. DESTDIR goes before, for packages.
PREFIX      := /usr/local
SYSTEMD     := /etc/systemd/system
SYMBOLS     := $(TARGET)/release/.debug/srv6d.debug
SHARE       := $(DESTDIR)$(PREFIX)/share
COMPLETIONS := bash:bash-completion/completions/srv6d zsh:zsh/site-functions/_srv6d fish:fish/vendor_completions.d/srv6d.fish

install: ## what `make build` has built, with manual pages, completion and the systemd unit: sudo make install
	@test -x $(TARGET)/release/srv6d || { echo "error: $(TARGET)/release/srv6d is missing: make build, then make install" >&2; exit 1; }
	install -D -m 755 $(TARGET)/release/srv6d $(DESTDIR)$(PREFIX)/bin/srv6d
	@test ! -f $(SYMBOLS) || install -D -m 644 $(SYMBOLS) $(DESTDIR)$(PREFIX)/bin/.debug/srv6d.debug
	scripts/split-symbols $(DESTDIR)$(PREFIX)/bin/srv6d
	install -d $(SHARE)/man/man1 $(SHARE)/man/man5 $(DESTDIR)$(SYSTEMD)
	$(TARGET)/release/srv6d man $(SHARE)/man/man1
	mv $(SHARE)/man/man1/srv6d.toml.5 $(SHARE)/man/man5/
	for completion in $(COMPLETIONS); do \
		install -d $$(dirname $(SHARE)/$${completion#*:}); \
		$(TARGET)/release/srv6d completion $${completion%%:*} > $(SHARE)/$${completion#*:} || exit 1; \
	done
	sed 's|/usr/bin/srv6d|$(PREFIX)/bin/srv6d|' packaging/srv6d.service > $(DESTDIR)$(SYSTEMD)/srv6d.service

uninstall: ## takes all of that away again; configuration stays
	rm -f $(DESTDIR)$(PREFIX)/bin/srv6d $(DESTDIR)$(PREFIX)/bin/.debug/srv6d.debug $(SHARE)/man/man1/srv6d.1 $(SHARE)/man/man1/srv6d-*.1 $(SHARE)/man/man5/srv6d.toml.5 $(DESTDIR)$(SYSTEMD)/srv6d.service
	rm -f $(foreach completion,$(COMPLETIONS),$(SHARE)/$(lastword $(subst :, ,$(completion))))

deb: build ## a Debian package of it, in target/: make deb
	scripts/make-deb $(TARGET)

wheel: ## the Python package for training jobs, in target/: make wheel
	scripts/make-wheel $(TARGET)

demo: build ## the fabric lab, with traffic crossing it
	$(ROOT) $(TARGET)/release/srv6d lab demo

# Root runs both kinds of tests in one go: while those of one kind wait, the others compute.
test: $(if $(ROOT),test-rootless test-root,test-all) ## everything; network namespaces are made and removed

# Most tests wait, for a neighbour, a route or a timer, so more of them run at a time than there are cores.
THREADS := 4
# Tests that take longer than this, once they are built, are ended: what was printed last names the one that hangs.
LIMIT   := 40m

test-all: deps
	cargo test --workspace --locked --no-run
	scripts/run-tests $(LIMIT) $(THREADS) --include-ignored

test-rootless: deps ## what needs no root
	cargo test --workspace --locked --no-run
	scripts/run-tests $(LIMIT) $(THREADS)

test-root: deps ## AF_XDP, namespaces, the lab
	cargo test --workspace --locked --no-run
	AS="$(ROOT)" scripts/run-tests $(LIMIT) $(THREADS) --ignored

test-zerocopy: build ## zero-copy ports on an emulated NIC: downloads QEMU and a kernel into target/, 70 MB
	tests/zero-copy/run $(TARGET)/release/srv6d

bench: deps ## ns per packet, beside a floor
	cargo bench --locked --package srv6d-bench

bench-net: deps ## packets per second in network namespaces, beside the kernel, the AF_XDP floor and the veth ceiling
	cargo build --release --locked --package srv6d --package srv6d-bench-net
	$(ROOT) $(TARGET)/release/bench-net $(ARGS)

lint: deps ## formatting, clippy, documentation, licences
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --locked
	cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny
	cargo deny check

# Thin wrapper around uv; `scripts/uv` installs uv into .tools if there is none.
uv := sh scripts/uv

.PHONY: all fmt lint test test-all test-real build install clean demo docs map pins plugin pictures

all: fmt lint test build

fmt:      ## format the code
	$(uv) run ruff format .
	$(uv) run ruff check --fix .

lint:     ## check style, spelling, types and import directions
	$(uv) run ruff format --check .
	$(uv) run ruff check .
	$(uv) run typos
	$(uv) run mypy
	$(uv) run lint-imports

test:     ## run the tests: every room, every command, every kind of fault; a few minutes
	$(uv) run pytest

test-all: ## run all tests: repetitions, floods, all property examples, a browser, the real agent CLIs
	$(uv) run pytest -m "" --hypothesis-profile=all

test-real: ## run tests with the real agent CLIs, installed from npm into a cache, offline
	$(uv) run pytest -m real

build:    ## build wheel and source distribution into dist/
	$(uv) build

install:  ## install the ralph command for this user
	$(uv) tool install --force .

demo:     ## show a whole run in ten seconds
	$(uv) run ralph demo

map:      ## write the table of rooms and the diagram in docs/architecture.md
	$(uv) run python scripts/architecture.py

docs:     ## write the generated pages in docs/
	$(uv) run python -m scripts.settings_page
	$(uv) run python -m scripts.reference_page

pins:     ## pin the newest versions of all dependencies
	$(uv) run python scripts/pins.py

pictures: ## record the pictures of a run, of the dashboard and of a report in docs/
	$(uv) run python -m scripts.record
	$(uv) run python scripts/pictures.py
	$(uv) run python scripts/report_picture.py

plugin:   ## write the version into the Claude Code plugin
	$(uv) run python scripts/plugin.py

clean:
	rm -rf dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

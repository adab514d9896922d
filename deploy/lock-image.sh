#!/bin/sh
# lock-image.sh: write requirements-image.lock, what the image installs, with the digests of all archives of each version.
# Call it in the root of a clone after a change of pyproject.toml or of the other lock files; it needs uv and an index.
# The versions are those of the other lock files. No address of an index is written.
set -eu
uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version 3.11 \
    --extra cds --extra dashboard --extra grib --constraint requirements.lock --constraint requirements-dev.lock \
    --output-file requirements-image.lock pyproject.toml deploy/build-system.in

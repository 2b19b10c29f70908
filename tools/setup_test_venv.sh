#!/usr/bin/env bash
# Makes .venv-tests/ with the packages of tests/requirements.txt, unless it has them already.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv-tests
stamp=$venv/requirements.txt

if [ -x "$venv/bin/python" ] && cmp -s tests/requirements.txt "$stamp"; then exit 0; fi
echo "tests: installing the Python packages of tests/requirements.txt into $venv/" >&2
python3 -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --retries 5 -r tests/requirements.txt
cp tests/requirements.txt "$stamp"

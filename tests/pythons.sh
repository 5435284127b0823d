#!/bin/sh
# `sh tests/pythons.sh 3.10 3.11 ...`: the tests on each of these Pythons, each in a virtual environment of its own.
# One that this machine does not have is skipped. Fails if the tests fail on one, or if there is none.
set -u

# The interpreter of that version: uv's, the one on the path, or pyenv's.
find_python() {
    for found in \
        "$(uv python find --system "$1" 2>/dev/null)" \
        "$(command -v "python$1")" \
        "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if [ "$("$found" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$1" ]; then
            echo "$found"
            return
        fi
    done
    return 1
}

ran= missing= failed=
for version in "$@"; do
    if ! python=$(find_python "$version"); then
        echo "== Python $version: not on this machine, skipped"
        missing="$missing $version"
        continue
    fi
    echo "== Python $version: $python"
    ran="$ran $version"
    ${MAKE:-make} --no-print-directory test PYTHON="$python" VENV=".venv-$version" EXTRAS=render,test,bench ||
        failed="$failed $version"
done

echo "== ran on:${ran:- none}; skipped:${missing:- none}; failed on:${failed:- none}"
[ -n "$ran" ] && [ -z "$failed" ]

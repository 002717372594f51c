#!/usr/bin/env bash
# Prepares a fresh machine: a virtual environment in .venv with the pinned lock, and a software OpenGL.
# Safe to call again: a call that finds everything in place takes a second. `make setup` calls this.
#   PYTHON=python3.12 ./setup.sh     # Another Python than the newest that is found.
set -euo pipefail
cd "$(dirname "$0")"

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# A command may be there and fail, as the shims of pyenv do, so each is tried.
version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }
identity_of() { "$1" -c 'import sys; print(sys.version, sys.base_prefix)' 2>/dev/null; }
can_make_environments() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

# Which command runs: the given one, such as python3.12, or else pyenv's Python of that version.
resolve() {
  local candidate
  for candidate in "$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/${1#python}".*/bin/python; do
    if version_of "$candidate" >/dev/null; then echo "$candidate"; return; fi
  done
  return 1
}

# The newest supported Python. 3.14 comes last, since the tested MuJoCo has no wheel for it.
find_python() {
  local version candidate
  for version in 3.13 3.12 3.11 3.14; do
    for candidate in "$(resolve "python$version")" python3 python; do
      if [ "$(version_of "$candidate")" = "$version" ] && can_make_environments "$candidate"; then
        echo "$candidate"; return
      fi
    done
  done
  return 1
}

explain_python() {
  cat >&2 <<'TEXT'
setup: found no Python 3.11, 3.12 or 3.13 that can make virtual environments. As root:
  Debian 13      apt-get install python3.13 python3.13-venv
  Debian 12      apt-get install python3.11 python3.11-venv
  Ubuntu 24.04   apt-get install python3.12 python3.12-venv
  Ubuntu 22.04   apt-get install python3.11 python3.11-venv    (from "universe")
  Fedora         dnf install python3.13
  macOS          brew install python@3.13
Without root, pyenv or uv install one: pyenv install 3.13. One that is elsewhere: make setup PYTHON=/path/to/python3.13
TEXT
  exit 1
}

asked=
if [ -n "${PYTHON:-}" ]; then
  asked=$(resolve "$PYTHON") || fail "PYTHON=$PYTHON does not run. Name a Python 3.11, 3.12 or 3.13, or none: then the newest is taken."
  version=$(version_of "$asked")
  case "$version" in
    3.11|3.12|3.13|3.14) ;;
    *) fail "PYTHON=$PYTHON is Python $version; lambda_kit needs 3.11, 3.12 or 3.13." ;;
  esac
  can_make_environments "$asked" || fail "PYTHON=$PYTHON can't make virtual environments. On Debian and Ubuntu: apt-get install python$version-venv"
fi

# An environment that another Python made, that lost its Python, or that has no pip (uv's) is made anew.
python=.venv/bin/python
if [ -e .venv ]; then
  if ! $python -m pip --version >/dev/null 2>&1 || { [ -n "$asked" ] && [ "$(identity_of $python)" != "$(identity_of "$asked")" ]; }; then
    echo "setup: .venv was made by another Python or without pip, and is made anew"
    rm -rf .venv
  fi
fi

stamp=.venv/ready
wanted=$(cat requirements.lock pyproject.toml setup.py setup.sh | cksum)
if [ "$(cat $stamp 2>/dev/null || true)" != "$wanted" ]; then
  if [ ! -e .venv ]; then
    base=${asked:-$(find_python)} || explain_python
    echo "setup: environment in .venv with $("$base" --version)"
    "$base" -m venv .venv || { rm -rf .venv; fail "'$base -m venv .venv' failed; the reason is above."; }
  fi
  if [ "$(version_of $python)" = 3.14 ]; then
    echo "setup: warning: Python 3.14 is not tested. MuJoCo 3.3.7 has no wheel for it: 3.8.1 takes its place, which simulates contacts a little differently." >&2
  fi
  # --no-deps: the lock is complete, and safety-gymnasium's own pins can't be met on this Python.
  $python -m pip install -qq --disable-pip-version-check --no-deps -r requirements.lock
  $python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
  echo "$wanted" > $stamp
fi

# Software OpenGL, for cameras on machines without a screen. Which back ends work is asked of OpenGL itself.
works() { $python -m lambda_kit.environments.opengl --quiet; }
packages="libegl1 libgl1-mesa-dri libopengl0 libosmesa6"
if ! works; then
  command -v apt-get >/dev/null || fail "no working OpenGL. Install Mesa's EGL or OSMesa with your system's package manager (Debian's names: $packages)."
  [ "$(id -u)" = 0 ] || fail "no working OpenGL. Ask an administrator to run: apt-get install --no-install-recommends $packages"
  echo "setup: installing a software OpenGL ($packages)"
  apt-get update -qq || fail "apt-get update failed; OpenGL ($packages) could not be installed."
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null
  works || fail "OpenGL does not work although $packages are installed; .venv/bin/lambda-kit doctor tells more."
fi
echo "setup: ready"

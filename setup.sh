#!/usr/bin/env bash
# Prepares a fresh machine: a virtual environment in .venv with the pinned lock, and a software OpenGL.
# Safe to call again: a call that finds everything in place takes a second. `make setup` calls this.
set -euo pipefail
cd "$(dirname "$0")"

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# safety-gymnasium needs mujoco 2.3.3, whose newest wheels are for Python 3.11.
find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3.11 python3 python; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
      command -v "$candidate"; return
    fi
  done
  return 1
}

stamp=.venv/ready
wanted=$(cat requirements.lock pyproject.toml setup.sh | sha256sum | cut -d' ' -f1)
if [ "$(cat $stamp 2>/dev/null || true)" != "$wanted" ]; then
  python=$(find_python) || fail "Python 3.11 was not found. Install it (Debian 12, Ubuntu: apt-get install python3.11 python3.11-venv) or name it: PYTHON=/path/to/python3.11 make setup"
  echo "setup: environment in .venv with $("$python" --version)"
  if [ ! -x .venv/bin/python ]; then
    "$python" -m venv .venv 2>/dev/null || { rm -rf .venv; fail "'$python -m venv' failed. On Debian and Ubuntu: apt-get install python3.11-venv"; }
  fi
  # --no-deps: the lock is complete, and safety-gymnasium's own pins can't be met on this Python.
  .venv/bin/python -m pip install -qq --disable-pip-version-check --no-deps -r requirements.lock
  .venv/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
  echo "$wanted" > $stamp
fi

# Software OpenGL, for cameras on machines without a screen. Which back ends work is asked of OpenGL itself.
works() { .venv/bin/python -m lambda_kit.environments.opengl --quiet; }
packages="libegl1 libgl1-mesa-dri libopengl0 libosmesa6"
if ! works; then
  command -v apt-get >/dev/null || fail "no working OpenGL. Install Mesa's EGL or OSMesa with your system's package manager (Debian's names: $packages)."
  [ "$(id -u)" = 0 ] || fail "no working OpenGL. Ask an administrator to run: apt-get install --no-install-recommends $packages"
  echo "setup: installing a software OpenGL ($packages)"
  apt-get update -qq || fail "apt-get update failed; OpenGL ($packages) could not be installed."
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null
  works || fail "OpenGL does not work although $packages are installed; .venv/bin/python launchers/doctor.py tells more."
fi
echo "setup: ready"

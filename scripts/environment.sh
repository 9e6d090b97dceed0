# Sourced by the scripts beside it: makes the virtual environment in .venv, and brings what is
# missing. Needs Python 3.11 or later; everything else it installs, or says how to.

step() { printf '\n== %s\n' "$*"; }

fail() {
    printf '%s: failed: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# debian_package PACKAGE WHY: installs it where that is allowed, else only says what to do.
debian_package() {
    local package=$1 why=$2
    if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
        printf 'Missing: %s. Install the Debian package %s, or your system'"'"'s own.\n' \
            "$why" "$package" >&2
        return 1
    fi
    step "Install the Debian package $package: $why"
    install_debian_package "$package" || {
        apt-get -qq update && install_debian_package "$package"
    }
}

install_debian_package() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y "$1" >/dev/null
}

find_python() {
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

make_virtual_environment() {
    local python
    python=$(find_python) || fail "Python 3.11 or later must be installed; none was found"
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        debian_package python3-venv "virtual environments" \
            || fail "the module venv of $python must be installed"
    fi
    "$python" -m venv --clear .venv || fail "the virtual environment .venv could not be made"
}

# One that was moved with its folder does not work: its scripts name the old place.
virtual_environment_works() {
    .venv/bin/python -m pip --version >/dev/null 2>&1 \
        && grep -qF " $(pwd -P)/.venv" .venv/pyvenv.cfg
}

# install_heedmap EXTRA: installs heedmap from this folder into .venv, unless that has been done
# for the same pyproject.toml, constraints.txt and kernels. The extra "dev" holds all others.
install_heedmap() {
    local extra=$1 wanted stamp
    virtual_environment_works || make_virtual_environment
    wanted=$(cat pyproject.toml constraints.txt hatch_build.py src/heedmap/kernels/native/*.?pp \
        | cksum)
    for stamp in ".venv/installed-$extra" .venv/installed-dev; do
        if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
            return
        fi
    done
    step "Install heedmap[$extra] into .venv (downloads some hundred megabytes the first time)"
    local pip=(.venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check
        -c constraints.txt)
    # torch first and alone: pip then has one version of the largest package to think about.
    "${pip[@]}" "$(grep '^torch==' constraints.txt)" || fail "pip could not install torch"
    "${pip[@]}" -e ".[$extra]" || fail "pip could not install heedmap[$extra]"
    printf '%s\n' "$wanted" >".venv/installed-$extra"
    .venv/bin/heedmap doctor | grep '^kernel'
}

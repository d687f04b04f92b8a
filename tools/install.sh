#!/bin/sh
# Installs with pip and says what it is at: in a terminal on one line, elsewhere at the beginning and at the end.
# Usage: sh tools/install.sh PYTHON WHAT ARGUMENTS-OF-PIP-INSTALL...
set -u

python=$1 what=$2
shift 2
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

echo "Installing $what into $(dirname "$(dirname "$python")") (once; half a minute to a few minutes):" >&2
{
    "$python" -m pip install --disable-pip-version-check --progress-bar off "$@" 2>"$folder/errors"
    echo $? >"$folder/status"
} | tee "$folder/words" | while IFS= read -r line; do
    case $line in
        "Collecting "*) now=${line#Collecting } now="looking for ${now%% *}" ;;
        "  Downloading "*) now=${line#  Downloading } now="downloading ${now##*/}" ;;
        "Installing collected packages: "*) now="unpacking $(echo "${line#*: }" | wc -w) packages" ;;
        *) continue ;;
    esac
    [ ! -t 2 ] || printf '\r\033[K  %.76s' "$now" >&2
done
[ ! -t 2 ] || printf '\r\033[K' >&2

status=$(cat "$folder/status" 2>/dev/null || echo 1)
if [ "$status" != 0 ]; then
    tail -n 5 "$folder/words" >&2
    cat "$folder/errors" >&2
    echo "pip could not install $what. Is there a network, or a proxy (PIP_PROXY, PIP_INDEX_URL)?" >&2
    exit "$status"
fi
installed=$(sed -n 's/^Successfully installed //p' "$folder/words" | wc -w)
echo "  Done: $installed installed." >&2

#!/bin/sh
# Translates with curl over the HTTP port: curl.sh '{"texts": ["今天天气很好"]}'
# The answer is the JSON of a TranslateResponse, or of an error.
set -eu
request=${1:-'{"texts": ["今天天气很好"]}'}
address=${TRANSLANE_HTTP:-http://localhost:8080}
set -- --silent --show-error --max-time 30 -H 'content-type: application/json' -d "$request"
if [ -n "${TRANSLANE_CLIENT_CA:-}" ]; then set -- "$@" --cacert "$TRANSLANE_CLIENT_CA"; fi
if [ -n "${TRANSLANE_CLIENT_TOKEN:-}" ]; then
    # From standard input, because all users of a machine see the arguments of its programs.
    printf 'header = "authorization: Bearer %s"\n' "$TRANSLANE_CLIENT_TOKEN" \
        | curl "$@" --config - "$address/v1/translate"
else
    curl "$@" "$address/v1/translate"
fi
